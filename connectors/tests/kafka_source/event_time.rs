//! Event time in a job: each partition has a watermark of its own, which is in the checkpoint.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use isochrone_connectors::Collected;
use isochrone_connectors::kafka::KafkaRecord;
use isochrone_engine::connector::SourceExt;
use isochrone_engine::keyed::{Context, Process};

use crate::jobs::*;
use crate::support::*;

/// Each record sets a timer half a tenth of a second later; each timer is a line.
struct Alarm;

impl Process<i32, KafkaRecord> for Alarm {
    type State = u64;
    type Out = (i32, i64);

    fn on_record(
        &self,
        mut cx: Context<'_, i32, u64>,
        _: KafkaRecord,
    ) -> impl IntoIterator<Item = (i32, i64)> {
        *cx.state += 1;
        cx.timer.set(cx.now.plus(Duration::from_millis(50)));
        None
    }

    fn on_timer(&self, cx: Context<'_, i32, u64>) -> impl IntoIterator<Item = (i32, i64)> {
        Some((*cx.key, cx.now.0))
    }
}

/// A time of 0 would be the producer's own.
fn send(topic: &Topic, partition: i32, times: impl IntoIterator<Item = i64>) {
    let at = |ms| Sent { value: Some("x"), timestamp_ms: Some(ms), ..Sent::default() };
    topic.send_records(partition, times.into_iter().map(at));
}

/// Runs until so many records were read by this run, and so many alarms are out over all runs.
fn run(topic: &Topic, store: &Path, workers: u32, read: usize, alarms: &Alarms, count: usize) {
    let source = topic.source();
    let here = Arc::new(AtomicUsize::new(0));
    let (counted, out, seen) = (here.clone(), alarms.clone(), alarms.clone());
    let build = move |flow: &isochrone_engine::Flow<'_>| {
        let counted = counted.clone();
        let records = source.clone().records();
        flow.source("records", records.event_time(KafkaRecord::event_time, Duration::ZERO))
            .inspect(move |_| {
                counted.fetch_add(1, Ordering::SeqCst);
            })
            .key_by(|record: &KafkaRecord| record.partition)
            .process("alarms", Alarm)
            .sink("out", out.clone());
        Ok(())
    };
    let summary = run_beside(job(store), workers, build, |handle| {
        eventually("records and alarms are there", || {
            here.load(Ordering::SeqCst) >= read && seen.items().len() >= count
        });
        handle.checkpoint(None).unwrap();
    });
    summary.unwrap();
}

type Alarms = Collected<(i32, i64)>;

fn assert_alarms(alarms: &Alarms, expected: impl IntoIterator<Item = (i32, i64)>) {
    let mut found = alarms.items();
    found.sort_unstable();
    assert_eq!(found, Vec::from_iter(expected));
}

#[test]
fn the_slowest_partition_holds_event_time_back_also_after_a_restore() {
    let topic = Topic::new("watermarks", 2);
    send(&topic, 0, (1..=10).map(|n| n * 100));
    send(&topic, 1, [100, 200, 300]);
    let store = tempfile::tempdir().unwrap();
    let alarms = Alarms::default();
    run(&topic, store.path(), 1, 13, &alarms, 4);
    // One partition has come to 1000, the other to 300.
    assert_alarms(&alarms, [(0, 150), (0, 250), (1, 150), (1, 250)]);
    // Nothing new comes in partition 0: how far it had come is known from the checkpoint.
    send(&topic, 1, [400, 500, 600]);
    run(&topic, store.path(), 2, 3, &alarms, 10);
    let until_600 = |key| (1..=5).map(move |n| (key, n * 100 + 50));
    assert_alarms(&alarms, until_600(0).chain(until_600(1)));
    send(&topic, 0, [1100]);
    send(&topic, 1, [2000]);
    run(&topic, store.path(), 1, 2, &alarms, 16);
    let of_0 = (1..=10).map(|n| (0, n * 100 + 50));
    assert_alarms(&alarms, of_0.chain(until_600(1)).chain([(1, 650)]));
}

/// Without a rule for idle partitions, nobody can tell one that has nothing from one that is slow.
#[test]
fn a_partition_that_never_had_a_record_holds_event_time_back() {
    let topic = Topic::new("never", 2);
    send(&topic, 0, (1..=10).map(|n| n * 100));
    let store = tempfile::tempdir().unwrap();
    let alarms = Alarms::default();
    run(&topic, store.path(), 1, 10, &alarms, 0);
    assert_alarms(&alarms, []);
    send(&topic, 1, [600]);
    run(&topic, store.path(), 1, 1, &alarms, 5);
    assert_alarms(&alarms, (1..=5).map(|n| (0, n * 100 + 50)));
}
