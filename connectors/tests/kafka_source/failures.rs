//! Clusters and topics that are not there, and settings that do not fit: said clearly, and soon.

use isochrone_connectors::kafka::{Kafka, KafkaPosition};
use isochrone_engine::connector::Source;
use isochrone_engine::time::{Clock, SystemClock};
use isochrone_engine::{Error, ErrorKind};

use crate::support::*;

/// The error of the first discovery, which comes within 30 seconds.
fn discovery_error(source: &impl Source<Position = KafkaPosition>) -> Error {
    let clock = SystemClock::default();
    let error = source.discover(&[]).unwrap_err();
    let ms = clock.monotonic_ms();
    assert!(ms < 30_000, "after {ms} ms: {error}");
    error
}

#[test]
fn a_broker_that_is_not_there() {
    let kafka = Kafka::at("127.0.0.1:1").unwrap();
    let error = discovery_error(&kafka.source("purchases").text());
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let text = error.to_string();
    assert!(
        text.starts_with("cannot read topic `purchases` at Kafka 127.0.0.1:1: no broker answers"),
        "{text}"
    );
    assert!(text.contains("Connection refused"), "{text}");
    assert!(
        text.ends_with("check that it runs, and that host and port are those of its listener"),
        "{text}"
    );
}

#[test]
fn a_host_that_has_no_address() {
    let kafka = Kafka::at("no-such-host.invalid:9092").unwrap();
    let error = discovery_error(&kafka.source("purchases").text());
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let text = error.to_string();
    assert!(text.contains("no broker answers") && text.contains("resolve"), "{text}");
}

/// Something listens there that is no broker.
#[test]
fn a_port_of_something_else() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        // Takes connections and closes them at once.
        listener.incoming().for_each(drop);
    });
    let kafka = Kafka::at(&address.to_string()).unwrap();
    let error = discovery_error(&kafka.source("purchases").text());
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("no broker answers"), "{error}");
}

#[test]
fn a_topic_that_is_not_there() {
    let error = discovery_error(&cluster().source("no-such-topic").text());
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let text = error.to_string();
    assert!(text.contains("cannot read topic `no-such-topic`"), "{text}");
    assert!(text.contains("there is no such topic"), "{text}");
    let error = discovery_error(&cluster().source("no such topic").text());
    assert!(error.to_string().contains("cannot be the name of a Kafka topic"), "{error}");
}

#[test]
fn settings_that_exactness_depends_on_are_refused() {
    let topic = Topic::new("settings", 1);
    for (key, value) in [
        ("isolation.level", "read_uncommitted"),
        ("auto.offset.reset", "latest"),
        ("enable.auto.commit", "true"),
        ("enable.partition.eof", "false"),
    ] {
        let source = cluster().set(key, value).source(&topic.name).text();
        let split = discover(&topic.source().text()).remove(0);
        let error = source.open(split).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().starts_with(&format!("setting `{key}` of Kafka is")), "{error}");
    }
}

#[test]
fn settings_that_do_not_exist_are_named() {
    let source = cluster().set("fetch.wait.max", "1").source("purchases").text();
    let error = discovery_error(&source);
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("setting `fetch.wait.max` is refused"), "{error}");
}
