//! Topics that are written in transactions: gaps, records taken back, transactions still open.

use isochrone_engine::connector::{Poll, Source};

use crate::support::*;

#[test]
fn positions_pass_what_was_taken_back_and_the_marks_of_transactions() {
    let topic = Topic::new("gaps", 1);
    topic.transaction(0, &["a", "b"], End::Commit); // 0, 1, mark 2
    topic.transaction(0, &["x", "y", "z"], End::Abort); // 3, 4, 5, mark 6
    topic.send(0, &["c"]); // 7
    topic.transaction(0, &["u"], End::Abort); // 8, mark 9
    let source = topic.source().until_end(true).text();
    let split = discover(&source).remove(0);
    assert_eq!(split.position.end, Some(10));
    let mut reading = Reading::open(&source, &split);
    reading.until_finished().unwrap();
    assert_eq!(reading.batch.items, ["a", "b", "c"]);
    assert_eq!(reading.position().next, 10);
    // Without an end too: the lag of a job that has read all is nothing.
    let source = topic.source().text();
    let mut reading = Reading::open(&source, &discover(&source)[0]);
    reading.until_offset(10).unwrap();
    assert_eq!(reading.batch.items, ["a", "b", "c"]);
}

#[test]
fn from_every_position_in_a_topic_with_gaps_come_the_records_behind_it() {
    let topic = Topic::new("gaps-restore", 1);
    for number in 0..6 {
        let end = if number % 3 == 1 { End::Abort } else { End::Commit };
        topic.transaction(0, &[&format!("{number}a"), &format!("{number}b")], end);
    }
    let expected = ["0a", "0b", "2a", "2b", "3a", "3b", "5a", "5b"];
    let offsets = [0, 1, 6, 7, 9, 10, 15, 16];
    let source = topic.source().until_end(true).text();
    let mut split = discover(&source).remove(0);
    for next in 0..=18 {
        split.position.next = next;
        let behind = offsets.iter().filter(|offset| **offset < next).count();
        assert_eq!(read_split(&source, &split).items, expected[behind..], "from {next}");
    }
}

#[test]
fn records_of_an_open_transaction_belong_before_the_end() {
    let topic = Topic::new("open", 1);
    topic.send(0, &["a"]);
    let open = Transaction::begin(&topic.name);
    open.send(&topic, 0, &["b", "c"]);
    topic.send(0, &["d"]);
    let source = topic.source().until_end(true).text();
    let split = discover(&source).remove(0);
    assert_eq!(split.position.end, Some(4), "behind the last record, committed or not");
    let mut reading = Reading::open(&source, &split);
    // It comes to the open transaction and waits, however often it is asked.
    reading.for_ms(1_000);
    assert_eq!(reading.batch.items, ["a"]);
    open.end(End::Commit);
    reading.until_finished().unwrap();
    assert_eq!(reading.batch.items, ["a", "b", "c", "d"]);
    assert_eq!(reading.position().next, 4);
}

#[test]
fn the_latest_is_what_becomes_visible_from_now_on() {
    let topic = Topic::new("open-latest", 1);
    topic.send(0, &["a"]);
    let open = Transaction::begin(&topic.name);
    open.send(&topic, 0, &["b"]);
    let source = topic.source().start(isochrone_connectors::kafka::Start::Latest).text();
    let found = source.discover(&[]).unwrap();
    assert_eq!(found.new[0].position.next, 1, "before the open transaction");
    open.end(End::Commit);
    let mut reading = Reading::open(&source, &found.new[0]);
    assert_eq!(reading.until_count(1).unwrap(), Poll::Ready);
    assert_eq!(reading.batch.items, ["b"]);
}

/// A producer that crashes and starts over for a long time leaves nothing but what was taken back.
#[test]
fn a_long_run_of_transactions_that_were_taken_back_is_passed() {
    let topic = Topic::new("crash-loop", 1);
    let producer = Transaction::begin(&topic.name);
    for number in 0..150 {
        producer.send(&topic, 0, &[&format!("{number}")]);
        producer.abort_and_begin();
    }
    producer.send(&topic, 0, &["kept"]);
    producer.end(End::Commit);
    let source = topic.source().until_end(true).text();
    let split = discover(&source).remove(0);
    assert_eq!(split.position.end, Some(302));
    let mut reading = Reading::open(&source, &split);
    reading.until_finished().unwrap();
    assert_eq!(reading.batch.items, ["kept"]);
    assert_eq!((reading.position().next, reading.position().lost), (302, 0));
}
