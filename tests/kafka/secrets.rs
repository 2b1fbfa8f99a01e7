//! A secured broker: `account_risk` by flags, and a password that is nowhere to be seen, whatever
//! goes right or wrong and however much is logged.

use std::fs;
use std::io::{self, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use crate::job::CHILD;
use crate::place::TOLD_WITHIN;
use crate::support::child::Job;
use crate::support::example::snapshot;
use crate::support::kafka::{Broker, Topic, row};
use crate::support::wait;

const PASSWORD: &str = "pl4nted-s3cret-of-the-broker";
const WRONG: &str = "pl4nted-s3cret-that-is-wrong";
/// What both have in common.
const PLANTED: &str = "pl4nted-s3cret";
const PURCHASES: u64 = 600;

struct Bench {
    broker: Broker,
    folder: TempDir,
    output: Topic,
}

impl Bench {
    fn start(output: &str) -> Bench {
        let broker = Broker::options().secure(PASSWORD).start();
        let input = Topic::create(&broker, "secret-in", 3);
        input.write((0..PURCHASES).map(|number| {
            let account = format!("a{:02}", number % 20);
            let text = format!(
                r#"{{"event_id":"e{number}","account":"{account}","at":"1997-01-01","units":1,"cents":5}}"#
            );
            row(&account, text)
        }));
        let output = Topic::create(&broker, output, 3);
        Bench { broker, folder: TempDir::new().unwrap(), output }
    }

    /// Runs `account_risk` with all that can be logged; answers its exit code and all it says.
    fn run(&self, secret: &[&str], password: &str) -> (Option<i32>, String) {
        self.run_at(self.broker.address(), secret, password)
    }

    fn run_at(&self, address: &str, secret: &[&str], password: &str) -> (Option<i32>, String) {
        self.run_from(address, "secret-in", secret, password)
    }

    fn run_from(
        &self,
        address: &str,
        input: &str,
        secret: &[&str],
        password: &str,
    ) -> (Option<i32>, String) {
        let url = |topic: &str| format!("kafka://{address}/{topic}");
        let (input, output) = (url(input), url(&self.output.name));
        let flags = ["--input", &input, "--output", &output, "--until-end"];
        self.run_with(&[&flags, secret].concat(), password)
    }

    /// The same for `load_topic`, which asks for a topic to be made before anything else.
    fn load(&self, secret: &[&str], password: &str) -> (Option<i32>, String) {
        let input = self.folder.path().join("purchases.csv");
        fs::write(&input, "event_id,account,at,units,cents\n").unwrap();
        let output = format!("kafka://{}/loaded", self.broker.address());
        let flags =
            ["--input", input.to_str().unwrap(), "--output", &output, "--create-topic", "1"];
        self.run_with(&[&flags, secret].concat(), password)
    }

    fn run_with(&self, flags: &[&str], password: &str) -> (Option<i32>, String) {
        let path = |path: &Path| path.to_str().unwrap().to_owned();
        let store = path(&self.folder.path().join("store"));
        let ca = format!("ssl.ca.location={}", path(&self.broker.folder().join("ca.pem")));
        let settings = [
            "security.protocol=SASL_SSL",
            &ca,
            "sasl.mechanism=SCRAM-SHA-512",
            "sasl.username=isochrone",
            "debug=all",
        ];
        let settings = settings.iter().flat_map(|setting| ["--kafka-set", setting]);
        let flags = flags.iter().copied().chain(["--store", &store]).chain(settings);
        self.said(flags.map(str::to_owned).collect(), password)
    }

    fn said(&self, flags: Vec<String>, password: &str) -> (Option<i32>, String) {
        let around = ["env", &format!("KAFKA_PASSWORD={password}"), "RUST_LOG=trace"];
        let around = around.into_iter().chain(["sh", "-c", "exec \"$0\" \"$@\" >&2"]);
        let around: Vec<String> = around.map(str::to_owned).collect();
        let errors = self.folder.path().join("errors");
        let since = wait::Since::now();
        let mut job = Job::start_within(&around, CHILD, &flags, &errors);
        let code = job.end().code();
        // All that can be logged takes a busy machine a while; what goes wrong is still told soon.
        assert!(code == Some(0) || since.passed() < TOLD_WITHIN, "{:?}", since.passed());
        let said = job.errors();
        assert!(!said.contains(PLANTED), "{}", around_of(&said));
        (code, said)
    }

    fn assert_hidden(&self) {
        for (path, bytes) in snapshot(&self.folder.path().join("store")) {
            let text = String::from_utf8_lossy(&bytes);
            assert!(!text.contains(PLANTED), "{}: {}", path.display(), around_of(&text));
        }
    }
}

/// The places where the secret stands.
fn around_of(text: &str) -> String {
    text.lines().filter(|line| line.contains(PLANTED)).take(5).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_password_opens_the_broker_and_is_seen_nowhere() {
    // Nobody may write there until somebody grants it.
    let bench = Bench::start("no-write-out");
    let from_env = ["--kafka-secret", "sasl.password=env:KAFKA_PASSWORD"];
    for (code, said) in [bench.run(&from_env, WRONG), bench.load(&from_env, WRONG)] {
        assert_eq!(code, Some(2), "{}", tail(&said));
        assert!(said.contains("does not accept who we say we are"), "{}", tail(&said));
        assert!(said.contains("check `sasl.username`, `sasl.password`"), "{}", tail(&said));
    }

    let (code, said) = bench.run(&from_env, PASSWORD);
    assert_eq!(code, Some(2), "{}", tail(&said));
    assert!(said.contains("no right to do that") && said.contains("kafka-acls"), "{}", tail(&said));
    assert!(said.contains("no-write-out"), "{}", tail(&said));
    let deny = ["--deny-principal", "User:isochrone", "--resource-pattern-type", "prefixed"];
    let remove = ["acls", "--remove", "--force", "--operation", "Write", "--topic", "no-write-"];
    bench.broker.tool(&[&remove[..], &deny[..]].concat());

    // In the wrong place, where everybody on the machine can see it: that at least goes no further.
    let misplaced = format!("sasl.password={WRONG}");
    let (code, _) = bench.run(&["--kafka-set", &misplaced], WRONG);
    assert_eq!(code, Some(2));
    let (code, _) = bench.run(&["--kafka-secret", &misplaced], WRONG);
    assert_eq!(code, Some(2));
    let (_, said) = bench.said(vec!["--help".to_owned()], PASSWORD);
    assert!(said.contains("--kafka-secret"), "{said}");
    assert_eq!(bench.output.read().records.len(), 0);

    let path = bench.folder.path().join("password");
    fs::write(&path, format!("{PASSWORD}\n")).unwrap();
    let from_file = format!("sasl.password=file:{}", Path::new(&path).display());
    let secret = ["--kafka-secret", &from_file, "--processes", "2"];
    let (code, said) = bench.run(&secret, "not needed");
    assert_eq!(code, Some(0), "{}", tail(&said));
    assert!(said.contains(" TRACE ") && said.contains("librdkafka: "), "{}", tail(&said));
    assert_eq!(bench.output.read().records.len() as u64, PURCHASES);
    bench.assert_hidden();
}

/// The topic has to be readable. A source joins no group, nor asks it for offsets: it needs no right on
/// any. What reads the progress topic of a sink does, on a group of its own.
#[test]
fn a_topic_that_may_not_be_read_is_named_with_the_right_and_a_source_needs_no_group() {
    let bench = Bench::start("rights-out");
    let from_env = ["--kafka-secret", "sasl.password=env:KAFKA_PASSWORD"];
    let input = Topic::create(&bench.broker, "no-read-in", 2);
    input.write([row("a", "{}")]);
    let address = bench.broker.address();
    let (code, said) = bench.run_from(address, &input.name, &from_env, PASSWORD);
    assert_eq!(code, Some(2), "{}", tail(&said));
    let expected = "topic no-read-in, partition 0: the user of this job has no right to read it; grant \
                    `Read` on the topic";
    assert!(said.contains(expected), "{}", tail(&said));

    let allow = ["acls", "--remove", "--force", "--allow-principal", "User:isochrone"];
    bench.broker.tool(&[&allow[..], &["--operation", "All", "--group", "*"]].concat());
    let progress = ["--operation", "Read", "--group", "isochrone-progress"];
    let allow = ["acls", "--add", "--allow-principal", "User:isochrone"];
    bench.broker.tool(&[&allow[..], &progress[..]].concat());
    let (code, said) = bench.run(&from_env, PASSWORD);
    assert_eq!(code, Some(0), "{}", tail(&said));
    assert_eq!(bench.output.read().records.len() as u64, PURCHASES);
}

/// A broker that is only just starting may say something else than TLS for a while.
#[test]
fn a_broker_that_is_not_ready_to_let_anybody_in_is_waited_for() {
    let bench = Bench::start("late-out");
    let late = in_front_of(bench.broker.address(), Duration::from_secs(3));
    let from_env = ["--kafka-secret", "sasl.password=env:KAFKA_PASSWORD"];
    let (code, said) = bench.run_at(&late, &from_env, PASSWORD);
    assert_eq!(code, Some(0), "{}", tail(&said));
    assert!(said.contains("SSL handshake failed"), "{}", tail(&said));
    assert_eq!(bench.output.read().records.len() as u64, PURCHASES);
}

/// An address at which nobody is let in for so long, and then everybody to the broker.
fn in_front_of(broker: &str, closed: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (broker, since) = (broker.to_owned(), wait::Since::now());
    thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            if since.passed() < closed {
                // Who has gone already does not mind.
                let _ = client.write_all(b"HTTP/1.1 503 Service Unavailable\r\n\r\n");
                continue;
            }
            let server = TcpStream::connect(&broker).unwrap();
            let ways = [(&client, &server), (&server, &client)];
            for (from, to) in ways.map(|(from, to)| (from.try_clone(), to.try_clone())) {
                let (mut from, mut to) = (from.unwrap(), to.unwrap());
                thread::spawn(move || {
                    let _ends_either_way = io::copy(&mut from, &mut to);
                    let _may_be_closed = to.shutdown(Shutdown::Write);
                });
            }
        }
    });
    address
}

fn tail(said: &str) -> &str {
    let start = said.len().saturating_sub(2_000);
    &said[said.ceil_char_boundary(start)..]
}
