//! The helpers of Kafka tests on a real broker: what a test says about Kafka can be trusted as far
//! as these hold.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod support;

use std::net::TcpStream;
use std::time::Duration;

use support::child::{self, Job};
use support::kafka::{Broker, Content, Found, Hanging, Topic, Transaction, Verdict, judge, row};
use support::wait;

fn numbers(content: &Content) -> Vec<u64> {
    let mut numbers: Vec<u64> =
        content.records.iter().map(|record| record.text().parse().unwrap()).collect();
    numbers.sort_unstable();
    numbers
}

#[test]
fn rows_are_read_back_as_they_were_written() {
    let topic = Topic::create(Broker::shared(), "as-written", 2);
    let full = row("k", "v").to(1).at_ms(12_345).header("h", Some(b"x")).header("h", None);
    let tombstone = support::kafka::Row { value: None, ..row("k", "").to(1) };
    topic.write([full, tombstone, row("", "").to(0)]);
    let content = topic.read();
    let in_1: Vec<_> = content.records.iter().filter(|record| record.partition == 1).collect();
    assert_eq!(in_1[0].timestamp_ms, Some(12_345));
    assert_eq!(in_1[0].headers, [("h".to_owned(), Some(b"x".to_vec())), ("h".to_owned(), None)]);
    assert_eq!((in_1[0].key_text(), in_1[0].text()), ("k".to_owned(), "v".to_owned()));
    assert_eq!((in_1[1].offset, &in_1[1].value), (1, &None));
    let in_0: Vec<_> = content.records.iter().filter(|record| record.partition == 0).collect();
    assert_eq!((&in_0[0].key, &in_0[0].value), (&Some(Vec::new()), &Some(Vec::new())));
}

#[test]
fn open_and_aborted_transactions_are_not_seen() {
    let broker = Broker::shared();
    let topic = Topic::create(broker, "transactions", 2);
    topic.write([row("a", "1").to(0)]);
    let mut aborted = Transaction::begin(broker, "aborted");
    aborted.write(&topic, [row("a", "2").to(0), row("a", "3").to(1)]);
    aborted.abort();
    let mut committed = Transaction::begin(broker, "committed");
    committed.write(&topic, [row("a", "4").to(0)]);
    committed.commit();
    // One record, two aborted with a mark each, and one committed with its mark.
    assert_eq!(numbers(&topic.read()), [1, 4]);
    assert_eq!((topic.watermarks(0), topic.watermarks(1)), ((0, 5), (0, 2)));

    let mut open = Transaction::begin(broker, "open");
    open.write(&topic, [row("a", "5").to(0)]);
    topic.write([row("a", "6").to(0), row("a", "7").to(1)]);
    let content = topic.glance();
    let hanging = Hanging { partition: 0, last_stable_offset: 5, high_watermark: 7 };
    assert_eq!(content.hanging, [hanging]);
    assert_eq!(numbers(&content), [1, 4, 7], "the open transaction holds back what is behind it");
    let content = std::thread::scope(|scope| {
        let reading = scope.spawn(|| topic.read_when(5));
        open.commit();
        reading.join().unwrap()
    });
    assert_eq!((content.records.len(), content.hanging), (5, vec![]));
    assert_eq!(numbers(&topic.read()), [1, 4, 5, 6, 7]);
}

/// Whoever holds the lane again ends what the one before left open; and so does the time-out.
#[test]
fn a_transaction_left_open_ends_by_its_id_or_its_time_out() {
    let broker = Broker::shared();
    let topic = Topic::create(broker, "left-open", 1);
    let mut left = Transaction::begin(broker, "lane");
    left.write(&topic, [row("a", "1")]);
    drop(left);
    assert_eq!(topic.glance().hanging.len(), 1);
    let mut next = Transaction::begin(broker, "lane");
    assert_eq!(topic.read().records, []);
    next.write(&topic, [row("a", "2")]);
    next.commit();

    // Its records have to be there within that time as well.
    let mut left = Transaction::try_begin(broker, "short", Duration::from_secs(5)).unwrap();
    left.write(&topic, [row("a", "3")]);
    assert!(wait::soon(|| topic.glance().hanging.is_empty()), "the time-out does not come");
    left.try_commit().unwrap_err();
    assert_eq!(numbers(&topic.read()), [2]);
}

#[test]
fn topics_are_cut_grown_changed_and_deleted() {
    let broker = Broker::shared();
    let topic = Topic::create(broker, "changing", 1);
    topic.write((0..10).map(|number| row("a", number.to_string())));
    topic.delete_records(0, 4);
    assert_eq!(topic.watermarks(0), (4, 10));
    assert_eq!(numbers(&topic.read()), [4, 5, 6, 7, 8, 9]);
    topic.grow_to(3);
    topic.write([row("a", "10").to(2)]);
    assert_eq!(topic.watermarks(2), (0, 1));
    // Retention of a real broker: nothing that old is kept, and the last segment goes too.
    topic.set(&[("retention.ms", "1000"), ("segment.ms", "1000")]);
    assert!(wait::soon(|| topic.watermarks(0) == (10, 10)), "{:?}", topic.watermarks(0));
    topic.delete();
    assert_eq!(topic.partitions(), 0);
    assert_eq!(Topic::create(broker, "changing", 1).watermarks(0), (0, 0));
}

#[test]
fn a_killed_broker_comes_back_with_its_data_at_its_address() {
    let broker = Broker::start();
    let topic = Topic::create(&broker, "kept", 1);
    topic.write((0..1000).map(|number| row("a", number.to_string())));
    broker.kill9();
    TcpStream::connect(broker.address()).unwrap_err();
    broker.restart();
    assert_eq!(numbers(&topic.read()), (0..1000).collect::<Vec<_>>());
    broker.stop();
    broker.restart();
    topic.write([row("a", "1000")]);
    assert_eq!(numbers(&topic.read()).len(), 1001);
    // A broker that sleeps keeps whoever asks waiting, and answers when it wakes.
    broker.signal("STOP");
    let answer = std::thread::scope(|scope| {
        let asking = scope.spawn(|| numbers(&topic.read()).len());
        wait::pause(Duration::from_millis(300));
        assert!(!asking.is_finished());
        broker.signal("CONT");
        asking.join().unwrap()
    });
    assert_eq!(answer, 1001);
    let folder = broker.folder().to_owned();
    drop(broker);
    assert!(!folder.exists(), "a broker leaves nothing behind");
}

#[test]
#[should_panic(expected = "no Kafka broker for this test")]
fn a_broker_that_cannot_start_fails_the_test_and_says_why() {
    Broker::options().set("log.dirs", "/dev/null/nowhere").start();
}

/// Killed in the midst, a test can end nothing itself.
#[test]
fn a_broker_dies_with_the_process_that_started_it() {
    const TEST: &str = "a_broker_dies_with_the_process_that_started_it";
    child::play(|_| -> isochrone::Result<()> {
        eprintln!("at {}", Broker::shared().address());
        wait::pause(wait::SOON);
        Ok(())
    });
    let folder = tempfile::tempdir().unwrap();
    let mut starter = Job::start(TEST, &[], &folder.path().join("said"));
    let address = wait::until(wait::SOON * 2, || {
        let said = starter.errors();
        // The last line may be there in part.
        let (lines, _) = said.rsplit_once('\n')?;
        lines.lines().find_map(|line| line.strip_prefix("at ").map(str::to_owned))
    });
    let address = address.unwrap_or_else(|| panic!("no broker: {}", starter.errors()));
    TcpStream::connect(&address).unwrap();
    assert!(starter.kill());
    assert!(wait::soon(|| TcpStream::connect(&address).is_err()), "the broker lives on");
}

#[test]
fn of_three_brokers_one_may_die() {
    let broker = Broker::options().three().start();
    let topic = Topic::create(&broker, "three", 3);
    topic.write((0..30).map(|number| row("a", number.to_string()).to(number % 3)));
    broker.kill9_one(2);
    topic.write((30..60).map(|number| row("a", number.to_string()).to(number % 3)));
    assert_eq!(numbers(&topic.read()), (0..60).collect::<Vec<_>>());
    broker.restart_one(2);
    broker.kill9_one(1);
    let mut transaction = Transaction::begin(&broker, "lane");
    transaction.write(&topic, [row("a", "60").to(0)]);
    transaction.commit();
    assert_eq!(numbers(&topic.read()).len(), 61);
}

#[cfg(feature = "kafka-ssl")]
#[test]
fn a_secured_broker_asks_for_the_password_and_for_rights() {
    use rdkafka::consumer::{BaseConsumer, Consumer};

    // Who is not let in gets no answer.
    const REFUSED_WITHIN: Duration = Duration::from_secs(5);

    let broker = Broker::options().secure("right").start();
    let asks = |password: &str, ca: &str| {
        let mut config = broker.client_with(Some(password));
        config.set("ssl.ca.location", broker.folder().join(ca).to_str().unwrap());
        let client: BaseConsumer = config.create().unwrap();
        let within =
            if password == "right" && ca == "ca.pem" { wait::SOON } else { REFUSED_WITHIN };
        client.fetch_metadata(None, within).map(|_| ())
    };
    asks("right", "ca.pem").unwrap();
    asks("wrong", "ca.pem").unwrap_err();
    asks("right", "other-ca.pem").unwrap_err();

    let topic = Topic::create(&broker, "open-to-all", 1);
    let closed = Topic::create(&broker, "no-write-for-us", 1);
    let mut transaction = Transaction::begin(&broker, "lane");
    transaction.write(&topic, [row("a", "1")]);
    transaction.commit();
    assert_eq!(numbers(&topic.read()), [1]);
    let mut refused = Transaction::begin(&broker, "lane");
    refused.try_write(&closed, [row("a", "1")]).unwrap_err();
    let said = refused.try_commit().unwrap_err().to_string();
    assert!(said.contains("Topic authorization failed"), "{said}");
    let refused = Transaction::try_begin(&broker, "no-transactions-for-us", wait::SOON);
    let said = refused.map(|_| ()).unwrap_err().to_string();
    assert!(said.contains("Transactional Id authorization failed"), "{said}");
}

fn found(records: &[(i32, &'static str, u64)]) -> Vec<Found<&'static str, u64>> {
    let found = |&(partition, key, value)| Found { partition, key, value };
    records.iter().map(found).collect()
}

/// Keys `a` and `b` with 1, 2, 3 each, in one partition each, and what was done to that.
#[test]
fn the_oracle_finds_what_was_planted() {
    let expected = || ["a", "b"].into_iter().flat_map(|key| (1..=3).map(move |n| (key, n)));
    let right = [(0, "a", 1), (0, "a", 2), (0, "a", 3), (1, "b", 1), (1, "b", 2), (1, "b", 3)];
    let judged = |records: &[_]| {
        let verdict = judge(expected(), found(records));
        let Verdict { lost, doubled, out_of_order, foreign, moved, .. } = verdict;
        assert_eq!(verdict.records, records.len() as u64);
        assert_eq!(verdict.examples.len() as u64, lost + doubled + out_of_order + foreign + moved);
        [lost, doubled, out_of_order, foreign, moved]
    };
    let changed = |change: fn(&mut Vec<(i32, &'static str, u64)>)| {
        let mut records = right.to_vec();
        change(&mut records);
        judged(&records)
    };
    judge(expected(), found(&right)).assert_exact();
    assert_eq!(judged(&[right[3], right[0], right[4], right[1], right[5], right[2]]), [0; 5]);
    assert_eq!(changed(|records| _ = records.remove(1)), [1, 0, 0, 0, 0]);
    assert_eq!(changed(|records| records.truncate(3)), [3, 0, 0, 0, 0]);
    assert_eq!(changed(|records| records.insert(2, (0, "a", 2))), [0, 1, 0, 0, 0]);
    // A replay: what comes again is doubled, and its order does not count a second time.
    assert_eq!(changed(|records| records.extend_from_within(0..3)), [0, 3, 0, 0, 0]);
    assert_eq!(changed(|records| records.swap(0, 1)), [0, 0, 1, 0, 0]);
    assert_eq!(changed(|records| records.swap(0, 2)), [0, 0, 2, 0, 0]);
    assert_eq!(changed(|records| records[1].2 = 9), [1, 0, 0, 1, 0]);
    assert_eq!(changed(|records| records.push((0, "c", 1))), [0, 0, 0, 1, 0]);
    assert_eq!(changed(|records| records[2].0 = 1), [0, 0, 0, 0, 1]);
    // Equal values of one key are told apart by how many there are.
    let equal = [("a", 1), ("a", 1), ("a", 2)];
    judge(equal, found(&[(0, "a", 1), (0, "a", 1), (0, "a", 2)])).assert_exact();
    let verdict = judge(equal, found(&[(0, "a", 1), (0, "a", 2), (0, "a", 2)]));
    assert_eq!((verdict.lost, verdict.doubled), (1, 1));
}
