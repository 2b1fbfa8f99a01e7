//! The source in whole jobs: restarts, other numbers of workers, partitions that are added, input
//! that is not a record.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use isochrone_connectors::Collected;
use isochrone_connectors::kafka::{KafkaRecord, OnDataLoss};
use isochrone_engine::connector::{Malformed, SourceExt};
use isochrone_engine::{Checkpoint, Job, Outcome, RunArgs, Summary};

use crate::support::*;

fn job(store: &Path) -> Job {
    Job::new("reader").checkpoint(Checkpoint::dir(store).every(Duration::from_millis(50)))
}

fn args(workers: u32) -> RunArgs {
    RunArgs { workers, quiet: true, ..RunArgs::default() }
}

/// Reads on, with so many workers, until so many records are out.
fn run_until(
    topic: &Topic,
    store: &Path,
    out: &Collected<(i32, i64, i64)>,
    workers: u32,
    count: usize,
) -> Summary {
    let source = topic.source().look_every(Duration::from_millis(100));
    let job = job(store);
    let (handle, seen) = (job.handle(), out.clone());
    let watch = std::thread::spawn(move || {
        eventually("the records are out", || seen.items().len() >= count);
        handle.stop();
    });
    let out = out.clone();
    let summary = job.run(args(workers), move |flow| {
        let records = source.clone().records();
        let records = records.event_time(KafkaRecord::event_time, Duration::from_secs(1));
        flow.source("records", records)
            .map(|record: KafkaRecord| {
                let value = String::from_utf8(record.value.unwrap()).unwrap();
                (record.partition, record.offset, value.parse().unwrap())
            })
            .sink("out", out.clone());
        Ok(())
    });
    watch.join().unwrap();
    summary.unwrap()
}

#[test]
fn runs_at_any_number_of_workers_read_every_record_once() {
    let topic = Topic::new("job", 3);
    let store = tempfile::tempdir().unwrap();
    let out = Collected::default();
    let mut sent = BTreeMap::new();
    let mut send = |partition: i32, range: std::ops::Range<i64>| {
        let values = numbers(range);
        topic.send(partition, &strs(&values));
        sent.entry(partition).or_insert_with(Vec::new).extend(values);
        sent.values().map(Vec::len).sum::<usize>()
    };
    for partition in 0..3 {
        send(partition, 0..1000);
    }
    run_until(&topic, store.path(), &out, 2, 1500);
    let all = send(1, 1000..2000);
    run_until(&topic, store.path(), &out, 1, all);
    // While nobody reads, a partition is added; another one while somebody does.
    topic.grow(4);
    let all = send(3, 5000..5500);
    run_until(&topic, store.path(), &out, 5, all);
    let name = topic.name.clone();
    let grower = std::thread::spawn(move || {
        std::thread::park_timeout(Duration::from_millis(500));
        let topic = Topic { name };
        topic.grow(5);
        topic.send(4, &strs(&numbers(7000..7300)));
    });
    sent.insert(4, numbers(7000..7300));
    let all = sent.values().map(Vec::len).sum();
    run_until(&topic, store.path(), &out, 3, all);
    grower.join().unwrap();

    let mut found: BTreeMap<i32, Vec<(i64, i64)>> = BTreeMap::new();
    for (partition, offset, value) in out.items() {
        found.entry(partition).or_default().push((offset, value));
    }
    for (partition, values) in &sent {
        let found = &found[partition];
        let read: Vec<String> = found.iter().map(|(_, value)| value.to_string()).collect();
        assert_eq!(&read, values, "partition {partition}: each once, in order, over all runs");
        assert!(found.iter().map(|(offset, _)| *offset).eq(0..values.len() as i64));
    }
}

#[test]
fn a_topic_can_be_a_batch_and_what_is_no_record_goes_to_the_dead_letters() {
    let topic = Topic::new("batch", 2);
    topic.send(0, &["1", "two", "3"]);
    topic.transaction(1, &["4", "5"], End::Commit);
    topic.transaction(1, &["6"], End::Abort);
    let store = tempfile::tempdir().unwrap();
    let (out, bad) = (Collected::<u32>::default(), Collected::<Malformed>::default());
    let run = || {
        let (source, out, bad) = (topic.source().until_end(true), out.clone(), bad.clone());
        job(store.path()).run(args(2), move |flow| {
            let source = source.clone().json::<u32>();
            let (numbers, malformed) = flow.source_with_dead_letters("numbers", source);
            numbers.sink("out", out.clone());
            malformed.sink("bad", bad.clone());
            Ok(())
        })
    };
    assert_eq!(run().unwrap().outcome, Outcome::InputEnded);
    let sorted = || {
        let mut items = out.items();
        items.sort_unstable();
        items
    };
    assert_eq!(sorted(), [1, 3, 4, 5]);
    let letters = bad.items();
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].place, format!("topic {}, partition 0, offset 1", topic.name));
    assert_eq!(letters[0].raw, b"two");
    // There is no more; then there is.
    assert_eq!(run().unwrap().outcome, Outcome::NothingToDo);
    topic.send(1, &["7"]);
    assert_eq!(run().unwrap().outcome, Outcome::InputEnded);
    assert_eq!(sorted(), [1, 3, 4, 5, 7]);
}

#[test]
fn lost_records_stop_a_job_and_one_that_may_lose_goes_on_with_the_oldest() {
    let topic = Topic::new("job-loss", 1);
    topic.send(0, &strs(&numbers(0..100)));
    let store = tempfile::tempdir().unwrap();
    let out = Collected::default();
    run_until(&topic, store.path(), &out, 1, 100);
    topic.send(0, &strs(&numbers(100..200)));
    topic.delete_records(0, 150);
    let run = |on_data_loss| {
        let out = out.clone();
        let topic = topic.source().until_end(true).on_data_loss(on_data_loss);
        job(store.path()).run(args(1), move |flow| {
            flow.source("records", topic.clone().records())
                .map(|record: KafkaRecord| (record.partition, record.offset, 0))
                .sink("out", out.clone());
            Ok(())
        })
    };
    let error = run(OnDataLoss::Stop).unwrap_err();
    assert!(error.to_string().contains("up to 50 records were deleted"), "{error}");
    assert_eq!(run(OnDataLoss::ContinueFromEarliest).unwrap().outcome, Outcome::InputEnded);
    let offsets: Vec<i64> = out.items().iter().map(|(_, offset, _)| *offset).collect();
    assert!(offsets.iter().copied().eq((0..100).chain(150..200)), "{offsets:?}");
}
