#!/usr/bin/env bash
# Real Apache Kafka 4.3.1 brokers (KRaft) for tests, on loopback only, each set in a folder of its own.
#
#   kafka.sh try [PORT]              one broker to try things with, at 9092 unless told; says how to go on. One
#                                    that is there already keeps its port
#   kafka.sh start DIR [OPTION..]    starts new brokers, prints their addresses when all of them answer
#       --port P          first of the ports (default: free ones); a broker takes two, with --secure three
#       --brokers 3       three, with replication factor 3 and min.insync.replicas 2 (default: 1)
#       --secure          TLS, SASL/SCRAM and ACLs: user `isochrone`, password $KAFKA_PASSWORD, CA DIR/ca.pem;
#                         may do all, but not write to topics `no-write-*`, nor read from `no-read-*`, nor use
#                         transactional ids `no-transactions-*`
#       --set KEY=VALUE   a property of the brokers; again for more
#       --until-eof       stays; when its standard input ends, it kills the brokers and removes DIR, if it made
#                         it and $KEEP_KAFKA is not set: whoever holds the other end of that pipe takes the
#                         brokers along, however it dies
#   kafka.sh stop DIR [N]            ends broker N (default: all)
#   kafka.sh restart DIR [N]         starts it again on its data and ports; ends it first if it runs
#   kafka.sh kill9 DIR [N]           SIGKILL
#   kafka.sh signal DIR NAME [N]     another signal, such as STOP and CONT
#   kafka.sh address DIR             addresses, separated by commas
#   kafka.sh tool DIR NAME [ARG..]   topics, produce, consume or another command-line tool on that broker
#   kafka.sh jars                    fetches what is needed to start, if it is not there; prints where it is
#
# A first start of one broker takes 3-4 s on two cores that have little else to do and up to 20 s beside
# builds; of three brokers, or with --secure, about twice that. A restart takes 2-3 s, a stop under 1 s.
# A broker has 200-350 MB resident. The jars (56 MB) come through Maven, once; see jars.sh.
# $KAFKA_JVM replaces the flags of the JVM, which are for quick starts and a small heap.
#
# A broker's files are in DIR/N: server.properties, data, log, pid. If one does not start within
# 120 s, the end of its log is shown, and those that did start are killed.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
start_within_s=120
stop_within_s=20
small_jvm="-Xms256m -Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1"

fail() {
    echo "kafka.sh: $*" >&2
    exit 1
}

# Sets `jars`; says what is missing instead of failing in the midst.
find_jars() {
    command -v java > /dev/null || fail "no java here; bash $here/needs.sh says what to install"
    jars=$(bash "$here/jars.sh" kafka-4.3.1 "$here/kafka/pom.xml") || exit 1
}

brokers_of() {
    local dir=$1 one=${2:-}
    [[ -d $dir/1 ]] || fail "there are no brokers in $dir"
    [[ -z $one || -d $dir/$one ]] || fail "there is no broker $one in $dir"
    if [[ -n $one ]]; then echo "$one"; else (cd "$dir" && ls -d [0-9]*); fi
}

# --- processes: DIR/N/pid holds a process id and when that process began, for ids are used again

began() {
    local stat
    stat=$(cat "/proc/$1/stat" 2> /dev/null) || return 0
    # Behind the name: state is the first field, the number of threads the 18th, the start the 20th. A zombie
    # has ended when its other threads have: until then its ports and files are taken.
    # shellcheck disable=SC2086 # fields are words
    set -- ${stat##*) }
    [[ $1 == Z ]] && ((${18} <= 1)) || echo "${20}"
}

# Prints the process id of a broker that runs.
running() {
    local id start
    read -r id start 2> /dev/null < "$1/pid" || return 1
    [[ $(began "$id") == "$start" ]] && echo "$id"
}

# signal_one FOLDER NAME WAIT_S: whether it has ended within that time.
signal_one() {
    local folder=$1 id tries
    id=$(running "$folder") || return 0
    kill -s "$2" "$id" 2> /dev/null || true
    for ((tries = 0; tries < $3 * 20; tries++)); do
        running "$folder" > /dev/null || return 0
        sleep 0.05
    done
    return 1
}

kill_one() {
    signal_one "$1" KILL "$stop_within_s" || fail "process $(running "$1") does not die of SIGKILL"
}

# Ends brokers; all of them at the same time, because the last one cannot hand over to anybody. For that
# reason some of a whole set may not end by themselves: they are killed, and what they wrote is there.
stop_all() {
    local folder
    for folder in "$@"; do
        signal_one "$folder" CONT 0 || true
        signal_one "$folder" TERM 0 || true
    done
    for folder in "$@"; do
        signal_one "$folder" CONT "$(($# == 1 ? stop_within_s : 5))" || kill_one "$folder"
    done
}

# Starts the JVM of a broker whose folder is ready.
launch() {
    local folder=$1 id
    ! running "$folder" > /dev/null || fail "the broker in $folder runs already"
    [[ ! -s $folder/log ]] || mv "$folder/log" "$folder/log.before"
    : > "$folder/log"
    # In a session of its own, so that Ctrl-C for a test leaves the order of events to the test.
    # shellcheck disable=SC2086 # flags are words
    setsid java ${KAFKA_JVM:-$small_jvm} -Dorg.slf4j.simpleLogger.defaultLogLevel=warn \
        -Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info \
        -Dorg.slf4j.simpleLogger.showDateTime=true "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS" \
        -Djava.net.preferIPv4Stack=true \
        -cp "$jars/*" kafka.Kafka "$folder/server.properties" >> "$folder/log" 2>&1 < /dev/null &
    id=$!
    # Or the shell tells how it ended.
    disown "$id"
    # Whoever it was started for may have died meanwhile, and its guard have looked for it in vain.
    if ! echo "$id $(began "$id")" 2> /dev/null > "$folder/pid" || [[ -e $folder/../ended ]]; then
        kill -s KILL "$id"
        fail "the owner of $folder has ended"
    fi
}

# Waits until launched brokers say that they have started; a port that answers may be another's.
await() {
    local folder
    local deadline=$((SECONDS + start_within_s))
    for folder in "$@"; do
        until grep -q "Kafka Server started" "$folder/log"; do
            if ! running "$folder" > /dev/null; then
                grep -q "Kafka Server started" "$folder/log" && break
                return 1
            fi
            ((SECONDS < deadline)) || return 1
            sleep 0.1
        done
    done
}

show_logs() {
    local folder
    for folder in "$@"; do
        echo "--- end of $folder/log ($(running "$folder" > /dev/null && echo it runs || echo it has ended))" >&2
        tail -n 25 "$folder/log" >&2 || true
    done
}

# --- a new set of brokers

is_free() {
    ! (exec 3<> "/dev/tcp/127.0.0.1/$1") 2> /dev/null
}

# A first port such that so many are free, below those that the system gives to connections: a broker that
# is restarted must find its own ports free.
free_ports() {
    local count=$1 top port at
    read -r top _ < /proc/sys/net/ipv4/ip_local_port_range
    ((top > 12000)) || top=32768
    for _ in {1..200}; do
        port=$((10000 + SRANDOM % (top - 10000 - count)))
        for ((at = 0; at < count; at++)); do
            is_free $((port + at)) || continue 2
        done
        echo "$port"
        return
    done
    fail "found no $count free ports in a row"
}

# A certificate authority for this set, a certificate of the brokers, and another authority that did not sign it.
make_certificates() {
    local dir=$1 name
    for name in ca other-ca; do
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 \
            -subj "/CN=isochrone tests, $name" -keyout "$dir/$name.key" -out "$dir/$name.pem"
    done
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=127.0.0.1" \
        -keyout "$dir/broker.key" -out "$dir/broker.csr"
    openssl x509 -req -in "$dir/broker.csr" -CA "$dir/ca.pem" -CAkey "$dir/ca.key" -CAcreateserial -days 3650 \
        -extfile <(echo "subjectAltName=IP:127.0.0.1,DNS:localhost") -out "$dir/broker.pem"
    cat "$dir/broker.key" "$dir/broker.pem" "$dir/ca.pem" > "$dir/broker-all.pem"
}

# Prints the properties of broker $1; what they depend on is in start's variables.
properties() {
    local n=$1 at=$((port + ports * ($1 - 1))) copies=$brokers in_sync=1 voters=() i
    ((brokers == 1)) || in_sync=2
    for ((i = 1; i <= brokers; i++)); do
        voters+=("$i@127.0.0.1:$((port + ports * (i - 1) + 1))")
    done
    if ((secure)); then
        cat << PROPERTIES
listeners=CLIENT://127.0.0.1:$at,CONTROLLER://127.0.0.1:$((at + 1)),INTERNAL://127.0.0.1:$((at + 2))
advertised.listeners=CLIENT://127.0.0.1:$at,INTERNAL://127.0.0.1:$((at + 2))
inter.broker.listener.name=INTERNAL
listener.security.protocol.map=CLIENT:SASL_SSL,CONTROLLER:PLAINTEXT,INTERNAL:PLAINTEXT
sasl.enabled.mechanisms=SCRAM-SHA-256,SCRAM-SHA-512
listener.name.client.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.client.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
ssl.keystore.type=PEM
ssl.keystore.location=$dir/broker-all.pem
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
# The brokers themselves and the tools of this script; clients of the tests never come from there.
super.users=User:ANONYMOUS
PROPERTIES
    else
        cat << PROPERTIES
listeners=CLIENT://127.0.0.1:$at,CONTROLLER://127.0.0.1:$((at + 1))
advertised.listeners=CLIENT://127.0.0.1:$at
inter.broker.listener.name=CLIENT
listener.security.protocol.map=CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT
PROPERTIES
    fi
    cat << PROPERTIES
process.roles=broker,controller
node.id=$n
controller.listener.names=CONTROLLER
controller.quorum.voters=$(IFS=, && echo "${voters[*]}")
log.dirs=$dir/$n/data
auto.create.topics.enable=false
default.replication.factor=$copies
min.insync.replicas=$in_sync
offsets.topic.replication.factor=$copies
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=$copies
transaction.state.log.min.isr=$in_sync
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=$copies
share.coordinator.state.topic.min.isr=$in_sync
group.initial.rebalance.delay.ms=0
num.network.threads=2
num.io.threads=2
num.recovery.threads.per.data.dir=1
log.cleaner.dedupe.buffer.size=8388608
# What a broker does now and then, it does each second, so that a test need not wait.
transaction.abort.timed.out.transaction.cleanup.interval.ms=1000
log.retention.check.interval.ms=1000
log.initial.task.delay.ms=1000
log.segment.delete.delay.ms=1000
offsets.retention.check.interval.ms=1000
PROPERTIES
    # The last of two lines for one property holds.
    ((${#settings[@]} == 0)) || printf '%s\n' "${settings[@]}"
}

cluster_id() {
    local id
    # 16 bytes in the alphabet for URLs; one that begins with a dash would be read as an option.
    until id=$(head -c 16 /dev/urandom | base64 | tr '+/' '-_' | tr -d '=') && [[ $id != -* ]]; do :; done
    echo "$id"
}

# Writes the folders of all brokers and formats their data.
prepare() {
    local n id formats=() users=()
    id=$(cluster_id)
    if ((secure)); then
        [[ -n ${KAFKA_PASSWORD:-} ]] || fail "--secure needs a password in \$KAFKA_PASSWORD"
        command -v openssl > /dev/null || fail "--secure needs openssl; bash $here/needs.sh says what to install"
        make_certificates "$dir" > "$dir/openssl.log" 2>&1 || { cat "$dir/openssl.log" >&2; fail "no certificates"; }
        for n in 256 512; do
            users+=(--add-scram "SCRAM-SHA-$n=[name=isochrone,password=$KAFKA_PASSWORD]")
        done
    fi
    for ((n = 1; n <= brokers; n++)); do
        mkdir -p "$dir/$n"
        properties "$n" > "$dir/$n/server.properties"
        echo $((port + ports * (n - 1))) > "$dir/$n/port"
        java -XX:TieredStopAtLevel=1 -Xmx128m -cp "$jars/*" kafka.tools.StorageTool format --cluster-id "$id" \
            --config "$dir/$n/server.properties" "${users[@]}" > "$dir/$n/log" 2>&1 &
        formats+=($!)
    done
    for n in "${!formats[@]}"; do
        wait "${formats[n]}" || { show_logs "$dir/$((n + 1))"; fail "the data of broker $((n + 1)) cannot be formatted"; }
    done
}

# What user `isochrone` may do.
allow() {
    tool "$dir" acls --add --allow-principal User:isochrone --operation All \
        --topic '*' --group '*' --transactional-id '*' --cluster &
    local all=$!
    local denied=(--add --deny-principal User:isochrone --resource-pattern-type prefixed --operation)
    tool "$dir" acls "${denied[@]}" Write --topic no-write- --transactional-id no-transactions- &
    local write=$!
    tool "$dir" acls "${denied[@]}" Read --topic no-read-
    wait "$all" && wait "$write"
}

start() {
    (($# > 0)) || fail "start DIR [OPTION..]"
    local dir=$1 brokers=1 secure=0 until_eof=0 port="" ports settings=() folders=() n tries is_mine=0
    shift
    while (($# > 0)); do
        case $1 in
            --port) port=$2; shift ;;
            --brokers) brokers=$2; shift ;;
            --set) settings+=("$2"); shift ;;
            --secure) secure=1 ;;
            --until-eof) until_eof=1 ;;
            *) fail "start has no option $1" ;;
        esac
        shift
    done
    [[ $brokers == 1 || $brokers == 3 ]] || fail "--brokers is 1 or 3"
    find_jars
    [[ -d $dir ]] || is_mine=1
    mkdir -p "$dir"
    dir=$(cd "$dir" && pwd)
    [[ ! -e $dir/1 ]] || fail "there are brokers in $dir already: restart them, or give an empty folder"
    for ((n = 1; n <= brokers; n++)); do folders+=("$dir/$n"); done
    ports=$((2 + secure))
    # From here on nothing may stay behind, and a reader that has died must not end this script early.
    local mark=: remove=: quoted
    quoted=$(printf '%q' "$dir")
    # In this order: one that is being restarted looks for the mark after it has a process id.
    ((!until_eof)) || mark="touch $quoted/ended"
    ((!until_eof || !is_mine)) || [[ -n ${KEEP_KAFKA:-} ]] || remove="rm -rf $quoted"
    # shellcheck disable=SC2064 # what is known now
    trap "$mark
        for folder in $(printf '%q ' "${folders[@]}"); do kill_one \"\$folder\"; done
        $remove" EXIT
    trap 'exit 1' INT TERM HUP
    trap '' PIPE
    local chosen=$port
    for tries in 1 2 3 4 5; do
        port=${chosen:-$(free_ports $((ports * brokers)))}
        prepare
        for n in "${folders[@]}"; do launch "$n"; done
        ! await "${folders[@]}" || break
        # Between the look and the bind another may have taken one of the ports.
        if [[ -z $chosen ]] && ((tries < 5)) && grep -qs "Address already in use" "${folders[@]/%//log}"; then
            for n in "${folders[@]}"; do kill_one "$n"; done
            rm -rf "${folders[@]}"
            continue
        fi
        show_logs "${folders[@]}"
        fail "no brokers within $start_within_s s"
    done
    ((!secure)) || allow > "$dir/acls.log" 2>&1 || { cat "$dir/acls.log" >&2; fail "the rights cannot be set"; }
    address "$dir" 2> /dev/null || true
    if ((until_eof)); then
        while read -r _; do :; done
        exit 0
    fi
    trap - EXIT
}

restart() {
    local dir=$1 n tries folders=()
    find_jars
    for n in $(brokers_of "$@"); do folders+=("$dir/$n"); done
    stop_all "${folders[@]}"
    # The system may give back the ports of one that was killed a moment after it has ended.
    for tries in 1 2 3 4 5; do
        for n in "${folders[@]}"; do launch "$n"; done
        await "${folders[@]}" && return
        ((tries < 5)) && is_about_ports "${folders[@]}" || break
        stop_all "${folders[@]}"
        sleep 1
    done
    show_logs "${folders[@]}"
    fail "no brokers within $start_within_s s"
}

# Whether some broker has ended because a port was taken.
is_about_ports() {
    local folder
    for folder in "$@"; do
        ! running "$folder" > /dev/null && grep -q "Address already in use" "$folder/log" && return
    done
    return 1
}

address() {
    local n list=()
    for n in $(brokers_of "$1"); do list+=("127.0.0.1:$(cat "$1/$n/port")"); done
    (IFS=, && echo "${list[*]}")
}

# One of Kafka's own command-line tools.
tool() {
    local dir=$1 name=$2 class server
    shift 2
    [[ -n ${jars:-} ]] || find_jars
    server=$(address "$dir")
    # With TLS the clients' listener asks for a password; the brokers' own does not.
    server=$(sed -n 's/^advertised.listeners=.*INTERNAL:\/\///p' "$dir/1/server.properties" | grep . || echo "$server")
    case $name in
        topics) class=org.apache.kafka.tools.TopicCommand ;;
        acls) class=org.apache.kafka.tools.AclCommand ;;
        groups) class=org.apache.kafka.tools.consumer.group.ConsumerGroupCommand ;;
        transactions) class=org.apache.kafka.tools.TransactionsCommand ;;
        produce) class=org.apache.kafka.tools.ConsoleProducer ;;
        consume) class=org.apache.kafka.tools.consumer.ConsoleConsumer ;;
        *) fail "no tool $name: topics, acls, groups, transactions, produce or consume" ;;
    esac
    java -XX:TieredStopAtLevel=1 -Xmx256m -Dorg.slf4j.simpleLogger.defaultLogLevel=error -cp "$jars/*" "$class" \
        --bootstrap-server "$server" "$@"
}

# For people: keeps its data in the cache, and starts again on what is there.
try() {
    local dir=${ISOCHRONE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/isochrone}/try-kafka
    if [[ -e $dir/1 ]]; then
        echo "kafka.sh: a broker from before, with the topics that it had" >&2
        running "$dir/1" > /dev/null || restart "$dir"
        # It keeps the port that it was made with.
        if [[ -n ${1:-} && $1 != "$(cat "$dir/1/port")" ]]; then
            echo "kafka.sh: there is a broker already, at $(address "$dir"), not at port $1; for another" \
                "port stop it and forget it first, as below" >&2
        fi
    else
        bash "$here/needs.sh" --install || echo "kafka.sh: goes on without, it may do" >&2
        start "$dir" --port "${1:-9092}" --set auto.create.topics.enable=true > /dev/null
    fi
    local me="bash ${BASH_SOURCE[0]}"
    cat << TEXT
A Kafka broker runs at $(address "$dir"), process $(running "$dir/1"); its data is in $dir.

  a topic:   $me tool $dir topics --create --topic purchases --partitions 4
  write:     $me tool $dir produce --topic purchases < FILE_OF_LINES
  read:      $me tool $dir consume --topic purchases --from-beginning --isolation-level read_committed
  stop it:   $me stop $dir
  forget it: rm -r $dir
TEXT
}

command=${1:-}
shift || true
case $command in
    start | restart | address | tool | try) "$command" "$@" ;;
    jars)
        find_jars
        echo "$jars"
        ;;
    stop)
        mapfile -t folders < <(brokers_of "$@" | sed "s|^|$1/|")
        stop_all "${folders[@]}"
        ;;
    kill9)
        for n in $(brokers_of "$@"); do kill_one "$1/$n"; done
        ;;
    signal)
        for n in $(brokers_of "$1" "${3:-}"); do
            id=$(running "$1/$n") && kill -s "$2" "$id"
        done
        ;;
    *)
        sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2
        exit 2
        ;;
esac
