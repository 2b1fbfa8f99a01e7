//! The lag group: told what checkpoints have read, for those who watch, and never read back.

use isochrone_connectors::kafka::{Start, Tombstones};
use isochrone_engine::Outcome;
use isochrone_engine::connector::{OnMalformed, Source, SourceExt};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use crate::jobs::*;
use crate::support::*;

fn committed(group: &str, topic: &str, partitions: i32) -> Vec<Offset> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", address()).set("group.id", group);
    let consumer: BaseConsumer = config.create().unwrap();
    let mut asked = TopicPartitionList::new();
    asked.add_partition_range(topic, 0, partitions - 1);
    let found = consumer.committed_offsets(asked, std::time::Duration::from_secs(60)).unwrap();
    found.elements().iter().map(|element| element.offset()).collect()
}

#[test]
fn the_lag_group_has_the_next_offsets_of_the_newest_checkpoint() {
    let topic = Topic::new("lag", 2);
    topic.send(0, &["a", "b", "c"]);
    let group = format!("{}-watchers", topic.name);
    let source = topic.source().tombstones(Tombstones::Skip).lag_group(&group).text();
    // Comforts around a source do not hide it.
    let source = source.on_malformed(OnMalformed::Skip);
    let mut splits = discover(&source);
    let mut observer = source.observer().unwrap();
    observer(&splits);
    eventually("the first checkpoint is known", || {
        committed(&group, &topic.name, 2) == [Offset::Offset(0), Offset::Offset(0)]
    });
    splits[0].position.next = 2;
    observer(&splits);
    splits[0].position.next = 3;
    observer(&splits);
    // The job ends; what it said last is heard.
    drop(observer);
    eventually("the newest checkpoint is known", || {
        committed(&group, &topic.name, 2) == [Offset::Offset(3), Offset::Offset(0)]
    });
    // A job that starts anew is not moved by it.
    let anew = topic.source().start(Start::Earliest).lag_group(&group).text();
    assert_eq!(discover(&anew)[0].position.next, 0);
}

/// It is told when a checkpoint exists: what is read by then is never read again, whatever becomes of
/// the output, which is published from there.
#[test]
fn the_lag_group_follows_a_running_job_and_has_the_next_offsets_when_it_has_ended() {
    let topic = Topic::new("lag-job", 2);
    topic.send(0, &["a", "b"]);
    let group = format!("{}-watchers", topic.name);
    let store = tempfile::tempdir().unwrap();
    let out = Out::default();
    let source = || topic.source().lag_group(&group);
    let is_at =
        |offsets: [i64; 2]| committed(&group, &topic.name, 2) == offsets.map(Offset::Offset);
    let stopped = run_beside(job(store.path()), 2, reading(source(), &out), |handle| {
        eventually("the first records are in a checkpoint", || is_at([2, 0]));
        topic.send(1, &["c"]);
        eventually("one more is", || is_at([2, 1]));
        topic.transaction(1, &["d"], End::Commit);
        // Its mark has an offset too; a checkpoint without a new record has to be asked for.
        eventually("the transaction is", || {
            handle.checkpoint(None).unwrap();
            is_at([2, 3])
        });
    });
    assert_eq!(stopped.unwrap().outcome, Outcome::Stopped);
    topic.send(0, &["e", "f", "g"]);
    let ends = job(store.path()).run(args(2), reading(source().until_end(true), &out));
    assert_eq!(ends.unwrap().outcome, Outcome::InputEnded);
    // Not waited for: it was told before the run had ended.
    assert!(is_at([5, 3]), "{:?}", committed(&group, &topic.name, 2));
}

#[test]
fn without_a_lag_group_nobody_is_told() {
    let topic = Topic::new("no-lag", 1);
    assert!(topic.source().text().observer().is_none());
}

/// What cannot be told is logged; the job goes on.
#[test]
fn a_group_that_cannot_be_told_is_no_error() {
    let gone = isochrone_connectors::Kafka::at("127.0.0.1:1").unwrap();
    let topic = Topic::new("lag-gone", 1);
    let splits = discover(&topic.source().text());
    let source = gone.source(&topic.name).lag_group("watchers").text();
    let mut observer = source.observer().unwrap();
    let clock = isochrone_engine::time::SystemClock::default();
    for next in 0..5 {
        let mut splits = splits.clone();
        splits[0].position.next = next;
        observer(&splits);
    }
    let ms = isochrone_engine::time::Clock::monotonic_ms(&clock);
    // Far less than a client waits for an answer; far more than a slow machine needs for none.
    assert!(ms < 10_000, "it waited {ms} ms");
    // Nor does the end of the job wait for an answer that does not come.
    drop(observer);
    let ms = isochrone_engine::time::Clock::monotonic_ms(&clock);
    assert!(ms < 20_000, "it waited {ms} ms");
}
