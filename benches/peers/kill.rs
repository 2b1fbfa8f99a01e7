//! How long after a kill there is new output: from SIGKILL, with the next start at once, to the first
//! record that a reader of committed records had not seen before.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use isochrone::time::{Clock, SystemClock};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::{Offset, TopicPartitionList};

use super::super::kafka::{Broker, Topic};
use super::super::wait::{self, Since};
use super::PARTITIONS;
use super::check::check;
use super::contender::{Contender, Place};
use super::purchases::Purchases;

const DEADLINE: Duration = Duration::from_secs(600);

/// What one kill has shown.
#[derive(Clone, Debug)]
pub(crate) struct Killed {
    pub(crate) committed: u64,
    pub(crate) first_new_s: f64,
    pub(crate) all_s: f64,
    pub(crate) verdict: String,
}

/// How many records were visible at a time.
#[derive(Clone, Copy, Debug)]
struct Visible {
    at_us: u64,
    records: u64,
}

pub(crate) fn measure(
    contender: &Contender,
    broker: &Broker,
    place: &Place,
    purchases: &Purchases,
    records: u64,
) -> Killed {
    let output = super::topic(broker, &place.output);
    let clock = SystemClock::default();
    let (seen, stop) = (Mutex::new(Vec::<Visible>::new()), AtomicBool::new(false));
    let visible = || seen.lock().expect("no panic").last().map_or(0, |last| last.records);
    let (killed_us, all_us) = thread::scope(|scope| {
        scope.spawn(|| watch(&output, &clock, &seen, &stop));
        let until = |at_work: &mut super::contender::AtWork, count: u64| {
            let started = Since::now();
            while visible() < count && started.passed() < DEADLINE {
                at_work.must_run();
                wait::pause(Duration::from_millis(5));
            }
        };
        let mut at_work = contender.start(place);
        until(&mut at_work, records / 2);
        at_work.kill();
        let killed_us = clock.monotonic_us();
        let mut at_work = contender.start(place);
        until(&mut at_work, records);
        let all_us = clock.monotonic_us();
        // What comes twice comes now.
        wait::pause(Duration::from_millis(1500));
        stop.store(true, Ordering::Relaxed);
        at_work.kill();
        (killed_us, all_us)
    });
    let seen = seen.into_inner().expect("no panic");
    let (committed, new) = first_new(&seen, killed_us);
    let verdict = check(&output, purchases, records).word();
    output.delete();
    let since_kill_s = |us: u64| us.saturating_sub(killed_us) as f64 / 1e6;
    Killed { committed, first_new_s: since_kill_s(new), all_s: since_kill_s(all_us), verdict }
}

/// The reader may still be at what was committed before the kill: new is what comes after the
/// longest silence since then. Answers how much there was before, and when it came.
fn first_new(seen: &[Visible], killed_us: u64) -> (u64, u64) {
    let before = seen.iter().rfind(|visible| visible.at_us <= killed_us).map_or(0, |v| v.records);
    let mut last = Visible { at_us: killed_us, records: before };
    let (mut longest, mut answer) = (0, (before, killed_us));
    for visible in seen.iter().filter(|visible| visible.at_us > killed_us) {
        if visible.at_us - last.at_us > longest {
            longest = visible.at_us - last.at_us;
            answer = (last.records, visible.at_us);
        }
        last = *visible;
    }
    answer
}

fn watch(output: &Topic, clock: &SystemClock, seen: &Mutex<Vec<Visible>>, stop: &AtomicBool) {
    let consumer = reader(output);
    let (mut records, mut noted_us) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        let came = match consumer.poll(Duration::from_millis(5)) {
            Some(message) => {
                message.expect("the broker is there");
                records += 1;
                true
            }
            None => false,
        };
        let at_us = clock.monotonic_us();
        let mut seen = seen.lock().expect("no panic");
        let is_new = seen.last().is_none_or(|last| last.records < records);
        if is_new && (!came || at_us - noted_us > 10_000) {
            noted_us = at_us;
            seen.push(Visible { at_us, records });
        }
    }
}

/// From the beginning of all partitions.
pub(crate) fn reader(topic: &Topic) -> BaseConsumer {
    let mut config = topic.client.clone();
    config
        .set("group.id", "isochrone-bench-reader")
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("isolation.level", "read_committed")
        .set("fetch.wait.max.ms", "100")
        .set("fetch.queue.backoff.ms", "20");
    let consumer: BaseConsumer = config.create().expect("a consumer");
    let mut from = TopicPartitionList::new();
    for partition in 0..PARTITIONS as i32 {
        from.add_partition_offset(&topic.name, partition, Offset::Beginning).expect("a place");
    }
    consumer.assign(&from).expect("partitions");
    consumer
}
