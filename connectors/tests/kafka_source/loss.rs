//! Records that are gone before they were read: never passed over in silence.

use std::time::Duration;

use isochrone_connectors::kafka::{KafkaPosition, KafkaTopic, OnDataLoss};
use isochrone_engine::connector::{Source, Split};

use crate::support::*;

fn continuing(topic: &Topic) -> KafkaTopic {
    topic.source().on_data_loss(OnDataLoss::ContinueFromEarliest)
}

/// A topic of ten records, and the position behind the first three of them.
fn read_three(label: &str) -> (Topic, Split<KafkaPosition>) {
    let topic = Topic::new(label, 1);
    topic.send(0, &strs(&numbers(0..10)));
    let source = topic.source().text();
    let mut split = discover(&source).remove(0);
    split.position.next = 3;
    (topic, split)
}

#[test]
fn retention_that_has_passed_the_checkpoint_stops_the_job_and_says_how_much_is_lost() {
    let (topic, split) = read_three("expired");
    topic.delete_records(0, 8);
    let error = Reading::open(&topic.source().text(), &split).error();
    let expected = format!(
        "topic {}, partition 0: offset 3 is to be read next, and the oldest record there is has \
         offset 8: up to 5 records were deleted before they were read",
        topic.name
    );
    assert!(error.starts_with(&expected), "{error}");
}

#[test]
fn a_source_that_may_lose_goes_on_with_the_oldest_record_and_counts() {
    let (topic, split) = read_three("expired-on");
    topic.delete_records(0, 8);
    let source = continuing(&topic).until_end(true).text();
    let mut reading = Reading::open(&source, &split);
    reading.until_finished().unwrap();
    assert_eq!(reading.batch.items, ["8", "9"], "the oldest, never the latest");
    let position = reading.position();
    assert_eq!((position.next, position.lost, position.losses), (10, 5, 1));
    // It happens again; all is counted.
    topic.send(0, &strs(&numbers(10..20)));
    topic.delete_records(0, 17);
    let split = Split { id: split.id, position };
    let mut reading = Reading::open(&source, &split);
    reading.until_finished().unwrap();
    assert_eq!(reading.batch.items, strs(&numbers(17..20)));
    let position = reading.position();
    assert_eq!((position.next, position.lost, position.losses), (20, 12, 2));
}

#[test]
fn all_records_may_be_gone() {
    let (topic, split) = read_three("expired-all");
    topic.delete_records(0, 10);
    let error = Reading::open(&topic.source().text(), &split).error();
    assert!(error.contains("offset 10: up to 7 records were deleted"), "{error}");
    let source = continuing(&topic).text();
    let mut reading = Reading::open(&source, &split);
    reading.until_offset(10).unwrap();
    topic.send(0, &["new"]);
    reading.until_count(1).unwrap();
    assert_eq!(reading.batch.items, ["new"]);
}

#[test]
fn retention_that_overtakes_a_running_reader_is_noticed() {
    let topic = Topic::new("overtaken", 1);
    let big = "x".repeat(10_000);
    topic.send(0, &vec![big.as_str(); 4000]);
    let source = topic.source().text();
    let mut reading = Reading::open(&source, &discover(&source)[0]);
    reading.until_count(1).unwrap();
    topic.delete_records(0, 3990);
    let error = reading.error();
    assert!(error.contains("records were deleted before they were read"), "{error}");
    let read = reading.position().next;
    assert!((1..3990).contains(&read), "{read}");
    let (items, lost) = (reading.batch.items.len() as i64, 3990 - read);
    assert_eq!(items, read, "up to the loss, everything");
    assert!(error.contains(&format!("up to {lost} records")), "{error}");
}

#[test]
fn retention_that_comes_near_a_running_reader_is_told_once_before_it_is_too_late() {
    let topic = Topic::new("near", 1);
    let big = "x".repeat(10_000);
    topic.send(0, &vec![big.as_str(); 4000]);
    let source = topic.source().look_every(Duration::from_millis(100)).text();
    let mut reading = Reading::open(&source, &discover(&source)[0]);
    reading.until_offset(1_000).unwrap();
    let mut read_on = || {
        std::thread::park_timeout(Duration::from_millis(100));
        let next = reading.position().next + 1;
        reading.until_offset(next).unwrap();
        reading.position().next
    };
    let warnings = warnings(|so_far| {
        // It looks, and nothing is near.
        (0..3).for_each(|_| _ = read_on());
        assert_eq!(so_far(), 0);
        topic.delete_records(0, read_on() - 1);
        // What the client has fetched before does not tell it. Further on, retention is not near again.
        while so_far() == 0 && read_on() < 2_000 {}
        (0..5).for_each(|_| _ = read_on());
    });
    let [warning] = &warnings[..] else { panic!("{warnings:?}") };
    let place = format!("topic {}, partition 0: retention comes near: offset ", topic.name);
    assert!(warning.contains(&place), "{warning}");
}

#[test]
fn a_topic_that_was_created_again_is_another_one_even_where_its_offsets_fit() {
    let (topic, split) = read_three("again");
    topic.recreate(1);
    topic.send(0, &strs(&numbers(100..110)));
    let error = Reading::open(&topic.source().text(), &split).error();
    assert!(error.contains("the topic was deleted and created again"), "{error}");
    assert!(error.contains("offset 3 is to be read next of the old one"), "{error}");
    let source = continuing(&topic).until_end(true).text();
    let mut reading = Reading::open(&source, &split);
    reading.until_finished().unwrap();
    assert_eq!(reading.batch.items, strs(&numbers(100..110)), "all of the new one");
    let position = reading.position();
    assert_eq!((position.next, position.lost, position.losses), (10, 0, 1));
    assert_ne!(position.topic_id, split.position.topic_id);
    assert!(position.topic_id.is_some() && split.position.topic_id.is_some());
    // Known by now.
    let split = Split { id: split.id, position };
    topic.send(0, &["x"]);
    assert_eq!(read_split(&topic.source().until_end(true).text(), &split).items, ["x"]);
}

#[test]
fn a_topic_that_is_created_again_under_a_running_reader_is_noticed() {
    for filled in [false, true] {
        let (topic, split) = read_three("again-running");
        let source = topic.source().look_every(Duration::from_millis(100)).text();
        let mut reading = Reading::open(&source, &split);
        reading.until_offset(10).unwrap();
        topic.recreate(1);
        if filled {
            topic.send(0, &strs(&numbers(0..20)));
        }
        let error = reading.error();
        assert!(error.contains("the topic was deleted and created again"), "{filled}: {error}");
    }
}

#[test]
fn a_topic_that_is_deleted_under_a_running_reader_is_noticed() {
    let (topic, split) = read_three("deleted-running");
    let source = topic.source().look_every(Duration::from_millis(100)).text();
    let mut reading = Reading::open(&source, &split);
    reading.until_offset(10).unwrap();
    admin().delete(&topic.name).unwrap();
    let error = reading.error();
    assert!(error.contains("there is no such topic") && error.contains(&topic.name), "{error}");
}

#[test]
fn a_topic_with_fewer_partitions_than_the_checkpoint_knows_is_another_one() {
    let topic = Topic::new("fewer", 3);
    let splits = discover(&topic.source().text());
    let known: Vec<String> = splits.iter().map(|split| split.id.clone()).collect();
    topic.recreate(1);
    let error = topic.source().text().discover(&known).unwrap_err().to_string();
    assert!(error.contains("has 1 partitions, and the checkpoint has read 3"), "{error}");
    let error = Reading::open(&topic.source().text(), &splits[2]).error();
    assert!(error.contains("partition 2: the topic has no such partition any more"), "{error}");
    // Going on, there is nothing more to read of it.
    assert_eq!(continuing(&topic).text().discover(&known).unwrap().new, []);
    let source = continuing(&topic).text();
    Reading::open(&source, &splits[2]).until_finished().unwrap();
}

/// The end of a log is cut back if a leader is elected that lacks records. One broker does not do
/// that by itself: the position is made up.
#[test]
fn a_log_that_ends_before_what_was_read_stops_the_job_whatever_it_may_lose() {
    let (topic, mut split) = read_three("cut");
    split.position.next = 25;
    for source in [topic.source().text(), continuing(&topic).text()] {
        let error = Reading::open(&source, &split).error();
        assert!(error.contains("the log ends 15 offsets before"), "{error}");
    }
}

#[test]
fn a_compacted_topic_has_gaps_that_are_no_loss() {
    let topic = Topic::with(
        "compacted",
        1,
        &[
            ("cleanup.policy", "compact"),
            ("segment.ms", "100"),
            ("min.cleanable.dirty.ratio", "0.01"),
            ("delete.retention.ms", "0"),
            ("max.compaction.lag.ms", "200"),
        ],
    );
    fn keyed<'a>(key: &'a str, value: Option<&'a str>) -> Sent<'a> {
        Sent { key: Some(key), value, ..Sent::default() }
    }
    for round in 0..5 {
        let value = format!("{round}");
        topic.send_records(0, (0..20).map(|_| keyed("a", Some(value.as_str()))));
        std::thread::park_timeout(Duration::from_millis(200));
    }
    topic.send_records(0, [keyed("b", Some("kept"))]);
    let source = topic.source().until_end(true).text();
    let mut split = discover(&source).remove(0);
    assert_eq!(split.position.end, Some(101));
    eventually("the log is compacted", || {
        std::thread::park_timeout(Duration::from_millis(500));
        // A segment is rolled, and so can be compacted, when something is written.
        topic.send_records(0, [keyed("c", Some("roll"))]);
        read_split(&source, &split).items.len() < 60
    });
    let mut reading = Reading::open(&source, &split);
    reading.until_finished().unwrap();
    assert_eq!(reading.position().next, 101);
    assert_eq!(reading.batch.items.last().map(String::as_str), Some("kept"));
    // A position within the gap is as good as any.
    split.position.next = 7;
    let position = {
        let mut reading = Reading::open(&source, &split);
        reading.until_finished().unwrap();
        reading.position()
    };
    assert_eq!((position.next, position.lost), (101, 0));
}
