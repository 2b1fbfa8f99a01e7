//! Which partitions there are and where each begins: at first, in a restored run, when some are added.

use std::time::Duration;

use isochrone_connectors::kafka::{KafkaPosition, KafkaSource, Records, Start};
use isochrone_engine::ErrorKind;
use isochrone_engine::connector::Source;

use crate::support::*;

fn starts(source: &impl Source<Position = KafkaPosition>) -> Vec<i64> {
    discover(source).iter().map(|split| split.position.next).collect()
}

/// Times 1000, 2000, .. 10000 in partition 0; nothing in partition 1; 5500 in partition 2.
fn timed_topic(label: &str) -> Topic {
    let topic = Topic::new(label, 3);
    let at = |ms: i64| Sent { value: Some("v"), timestamp_ms: Some(ms), ..Sent::default() };
    topic.send_records(0, (1..=10).map(|second| at(second * 1000)));
    topic.send_records(2, [at(5500)]);
    topic
}

#[test]
fn a_start_is_made_into_offsets_once() {
    let topic = timed_topic("start");
    topic.delete_records(0, 2);
    assert_eq!(starts(&topic.source().text()), [2, 0, 0]);
    assert_eq!(starts(&topic.source().start(Start::Latest).text()), [10, 0, 1]);
    for (ms, expected) in [
        (0, [2, 0, 0]),
        (5000, [4, 0, 0]),
        (5001, [5, 0, 0]),
        (5501, [5, 0, 1]),
        (10_000, [9, 0, 1]),
        (10_001, [10, 0, 1]),
    ] {
        let source = topic.source().start(Start::TimestampMs(ms)).text();
        assert_eq!(starts(&source), expected, "from {ms} ms on");
    }
}

#[test]
fn a_restored_run_does_not_start_again() {
    let topic = timed_topic("restart");
    let source = topic.source().start(Start::Latest).text();
    let splits = discover(&source);
    topic.send(0, &["late"]);
    topic.send(1, &["later"]);
    // The run ended before it read anything; its first checkpoint has the positions. Another
    // process, another start: neither changes them.
    let known: Vec<String> = splits.iter().map(|split| split.id.clone()).collect();
    let restored = topic.source().start(Start::Earliest).text();
    assert_eq!(restored.discover(&known).unwrap().new, []);
    for (split, expected) in splits.iter().zip(["late", "later"]) {
        let mut reading = Reading::open(&restored, split);
        reading.until_count(1).unwrap();
        assert_eq!(reading.batch.items, [expected]);
    }
}

#[test]
fn a_partition_that_was_added_between_runs_is_read_from_its_beginning() {
    let topic = Topic::new("added", 1);
    topic.send(0, &["a"]);
    let known = vec![format!("{}/0", topic.name)];
    topic.grow(3);
    topic.send(2, &["b"]);
    let source = topic.source().start(Start::Latest).text();
    let found = source.discover(&known).unwrap();
    let ids: Vec<&str> = found.new.iter().map(|split| split.id.as_str()).collect();
    assert_eq!(ids, [format!("{}/1", topic.name), format!("{}/2", topic.name)]);
    assert!(found.new.iter().all(|split| split.position.next == 0));
    let mut reading = Reading::open(&source, &found.new[1]);
    reading.until_count(1).unwrap();
    assert_eq!(reading.batch.items, ["b"]);
}

/// A start looks for input twice: whether there is anything to do, and then to do it. What was told the
/// first time was not told the second time, and a partition added between two runs was not read.
#[test]
fn what_was_found_is_told_until_it_is_known() {
    let topic = Topic::new("told-again", 2);
    let source = topic.source().until_end(false).text();
    let first = discover(&source);
    assert_eq!(discover(&source), first);
    let one = vec![first[0].id.clone()];
    assert_eq!(source.discover(&one).unwrap().new, first[1..]);
    let both: Vec<String> = first.iter().map(|split| split.id.clone()).collect();
    assert_eq!(source.discover(&both).unwrap().new, []);
}

#[test]
fn a_partition_that_is_added_while_running_is_found_once_with_all_its_records() {
    let topic = Topic::new("growing", 1);
    topic.send(0, &["a"]);
    let source = topic.source().start(Start::Latest).look_every(Duration::from_millis(100)).text();
    let mut known: Vec<String> = discover(&source).into_iter().map(|split| split.id).collect();
    assert_eq!(source.discover(&known).unwrap().new, []);
    topic.grow(2);
    topic.send(1, &["b", "c"]);
    let mut found = Vec::new();
    eventually("the partition is found", || {
        let discovery = source.discover(&known).unwrap();
        assert!(!discovery.complete);
        known.extend(discovery.new.iter().map(|split| split.id.clone()));
        found.extend(discovery.new);
        !found.is_empty()
    });
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].id.as_str(), found[0].position.next), (&*format!("{}/1", topic.name), 0));
    let mut reading = Reading::open(&source, &found[0]);
    reading.until_count(2).unwrap();
    assert_eq!(reading.batch.items, ["b", "c"]);
    std::thread::park_timeout(Duration::from_millis(300));
    assert_eq!(source.discover(&known).unwrap().new, []);
}

#[test]
fn splits_of_another_source_are_refused() {
    let topic = Topic::new("other", 1);
    let source: KafkaSource<Records> = topic.source().records();
    let error = source.discover(&["purchases/0".to_owned()]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    assert!(error.to_string().contains("split `purchases/0`"), "{error}");
}
