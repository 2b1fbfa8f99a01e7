//! Reading from positions: all of it, from each of them, and how far a client reads ahead.

use isochrone_connectors::conformance::check_source;
use isochrone_connectors::kafka::KafkaPosition;
use isochrone_engine::Result;
use isochrone_engine::connector::{Batch, Discovery, Poll, Reader, Source, Split};

use crate::support::*;

#[test]
fn every_record_of_every_partition_is_read_once_and_in_order() {
    let topic = Topic::new("all", 3);
    for partition in 0..3_i64 {
        let values = numbers(partition * 1000..partition * 1000 + 500);
        topic.send(partition as i32, &strs(&values));
    }
    let source = topic.source().until_end(true).text();
    let found = source.discover(&[]).unwrap();
    assert!(found.complete);
    let ids: Vec<&str> = found.new.iter().map(|split| split.id.as_str()).collect();
    let expected: Vec<String> =
        (0..3).map(|partition| format!("{}/{partition}", topic.name)).collect();
    assert_eq!(ids, expected);
    for (split, partition) in found.new.iter().zip(0..3_i64) {
        assert_eq!((split.position.next, split.position.end), (0, Some(500)));
        let read = read_split(&source, split);
        assert_eq!(read.items, numbers(partition * 1000..partition * 1000 + 500));
        assert!(read.malformed.is_empty());
    }
}

#[test]
fn from_every_position_come_exactly_the_records_behind_it() {
    let topic = Topic::new("restore", 1);
    topic.send(0, &strs(&numbers(0..40)));
    let source = topic.source().until_end(true).text();
    let split = discover(&source).remove(0);
    let mut reading = Reading::open(&source, &split);
    let mut positions = vec![(0, reading.position())];
    while reading.until_count(positions.len()).unwrap() != Poll::Finished {
        positions.push((reading.batch.items.len(), reading.position()));
    }
    positions.push((reading.batch.items.len(), reading.position()));
    assert_eq!(positions.last().unwrap().0, 40);
    for (read, position) in positions {
        // As it goes through a checkpoint: flat, and without fractions.
        let json = serde_json::to_value(&position).unwrap();
        assert!(json.as_object().unwrap().values().all(|value| !value.is_f64()), "{json}");
        let position: KafkaPosition = serde_json::from_value(json).unwrap();
        assert_eq!(position.next, read as i64);
        // Another worker has another client.
        let source = topic.source().until_end(true).text();
        let rest = read_split(&source, &Split { id: split.id.clone(), position });
        assert_eq!(rest.items, numbers(read as i64..40));
    }
}

/// What every source must do, of a topic with gaps. The suite asks a few times and takes nothing for
/// an answer; these readers ask until there is something, or the end.
#[test]
fn it_is_a_source_like_any_other() {
    let topic = Topic::new("suite", 3);
    topic.send(0, &["0", "1", "x", "2"]);
    topic.transaction(0, &["3", "4"], End::Commit);
    topic.transaction(0, &["5"], End::Abort);
    topic.send(2, &["6", "7"]);
    let make = || Patient(topic.source().until_end(true).json::<u32>());
    check_source(make, &[0, 1, 2, 3, 4, 6, 7]);
}

struct Patient<S>(S);
struct PatientReader<T>(Box<dyn Reader<T, KafkaPosition>>);

impl<S: Source<Position = KafkaPosition>> Source for Patient<S> {
    type Item = S::Item;
    type Position = KafkaPosition;

    fn discover(&self, known: &[String]) -> Result<Discovery<KafkaPosition>> {
        self.0.discover(known)
    }

    fn has_more(&self, split: &Split<KafkaPosition>) -> Result<bool> {
        self.0.has_more(split)
    }

    fn open(&self, split: Split<KafkaPosition>) -> Result<Box<dyn Reader<S::Item, KafkaPosition>>> {
        Ok(Box::new(PatientReader(self.0.open(split)?)))
    }
}

impl<T: 'static> Reader<T, KafkaPosition> for PatientReader<T> {
    fn poll(&mut self, batch: &mut Batch<T>, max: usize) -> Result<Poll> {
        let before = batch.items.len() + batch.malformed.len();
        for _ in 0..10_000 {
            let poll = self.0.poll(batch, max)?;
            let Poll::Idle { retry_after } = poll else { return Ok(poll) };
            if batch.items.len() + batch.malformed.len() > before {
                return Ok(poll);
            }
            std::thread::park_timeout(retry_after);
        }
        panic!("nothing for very long");
    }

    fn position(&self) -> KafkaPosition {
        self.0.position()
    }
}

#[test]
fn a_source_that_has_no_end_waits_for_more() {
    let topic = Topic::new("waits", 1);
    topic.send(0, &["a", "b"]);
    let source = topic.source().text();
    let found = source.discover(&[]).unwrap();
    assert!(!found.complete);
    assert_eq!(found.new[0].position.end, None);
    let mut reading = Reading::open(&source, &found.new[0]);
    reading.until_count(2).unwrap();
    topic.send(0, &["c"]);
    assert_ne!(reading.until_count(3).unwrap(), Poll::Finished);
    assert_eq!(reading.batch.items, ["a", "b", "c"]);
    assert_eq!(reading.position().next, 3);
}

#[test]
fn the_end_is_that_of_the_start_and_a_later_run_reads_on() {
    let topic = Topic::new("end", 1);
    topic.send(0, &["a", "b", "c"]);
    let source = topic.source().until_end(true).text();
    let split = discover(&source).remove(0);
    topic.send(0, &["d", "e"]);
    let mut reading = Reading::open(&source, &split);
    reading.until_finished().unwrap();
    assert_eq!(reading.batch.items, ["a", "b", "c"]);
    let done = Split { id: split.id.clone(), position: reading.position() };
    assert_eq!((done.position.next, done.position.end), (3, Some(3)));
    // A restored run goes to the same end, from wherever it stood.
    let mut halfway = split.clone();
    halfway.position.next = 1;
    assert_eq!(read_split(&source, &halfway).items, ["b", "c"]);
    // A run after that reads what has come since, and knows whether there is any.
    let source = topic.source().until_end(true).text();
    assert!(source.has_more(&done).unwrap());
    let mut reading = Reading::open(&source, &done);
    reading.until_finished().unwrap();
    assert_eq!(reading.batch.items, ["d", "e"]);
    let done = Split { id: split.id, position: reading.position() };
    assert!(!source.has_more(&done).unwrap());
    // One that is to wait for more does.
    assert!(topic.source().text().has_more(&done).unwrap());
}

#[test]
fn a_client_that_is_not_asked_reads_ahead_no_further_than_its_bounds() {
    // What the process holds is measured: of this test and no other.
    if !is_alone("positions::a_client_that_is_not_asked_reads_ahead_no_further_than_its_bounds") {
        return;
    }
    let topic = Topic::new("ahead", 4);
    let value = "x".repeat(100);
    for partition in 0..4 {
        let records = (0..100_000).map(|_| Sent { value: Some(&value), ..Sent::default() });
        for chunk in records.collect::<Vec<_>>().chunks(20_000) {
            topic.send(partition, &chunk.iter().filter_map(|sent| sent.value).collect::<Vec<_>>());
        }
    }
    let source = topic.source().until_end(true).text();
    let splits = discover(&source);
    let before = resident_kb();
    let mut readings: Vec<_> = splits.iter().map(|split| Reading::open(&source, split)).collect();
    for reading in &mut readings {
        reading.until_count(1).unwrap();
    }
    // Nobody asks for two seconds; half a gigabyte a second could come in.
    std::thread::park_timeout(std::time::Duration::from_secs(2));
    let ahead = resident_kb().saturating_sub(before);
    assert!(ahead < 60 * 1024, "{ahead} KiB were read ahead");
    for reading in &mut readings {
        reading.until_finished().unwrap();
        assert_eq!(reading.batch.items.len(), 100_000);
    }
}

fn resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
