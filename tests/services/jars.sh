#!/usr/bin/env bash
# Puts the jars that a pom names into a folder of the cache, once, and prints that folder.
#
#   bash tests/services/jars.sh NAME POM
#
# The cache is $ISOCHRONE_CACHE, by default ~/.cache/isochrone: outside the clone, so that a fresh clone
# fetches nothing twice. Two that ask at the same time wait for each other. A folder gets its name when
# all its jars are there; each time their checksums are looked at, and what is damaged is fetched again.
# The broker's 93 jars: 56 MB, 15-40 s through Maven; afterwards 0.3 s.
set -euo pipefail

name=$1 pom=$2
cache=${ISOCHRONE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/isochrone}
jars=$cache/$name part=$cache/$name.part

# Also when a jar was added, or the pom asks for others than it did then.
is_whole() {
    [[ -f $jars/SHA256SUMS ]] && cmp -s "$pom" "$jars/pom.xml" &&
        (cd "$jars" && sha256sum --status --check SHA256SUMS 2> /dev/null) &&
        [[ $(find "$jars" -name '*.jar' | wc -l) == $(wc -l < "$jars/SHA256SUMS") ]]
}

fetch() {
    command -v mvn > /dev/null || {
        echo "the jars of $name are not in $cache yet, and Maven, which fetches them, is not there:" \
            "bash tests/services/needs.sh says how to install it" >&2
        return 1
    }
    echo "fetching the jars of $name through Maven, once, into $jars" >&2
    rm -rf "$part"
    timeout --kill-after=10s 10m mvn --quiet --batch-mode --file "$pom" dependency:copy-dependencies \
        -DincludeScope=runtime -DoutputDirectory="$part" > "$part.log" 2>&1 || {
        cat "$part.log" >&2
        echo "Maven could not fetch the jars of $name; what it said stands above" >&2
        return 1
    }
    rm "$part.log"
    cp "$pom" "$part/pom.xml"
    (cd "$part" && sha256sum -- *.jar > SHA256SUMS && sync -f SHA256SUMS)
    rm -rf "$jars"
    mv "$part" "$jars"
}

mkdir -p "$cache"
exec 9> "$jars.lock"
flock --wait 900 9 || { echo "another process has held $jars.lock for 15 minutes" >&2; exit 1; }
is_whole || fetch
echo "$jars"
