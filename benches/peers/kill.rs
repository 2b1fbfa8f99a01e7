//! How long after a kill there is new output: from SIGKILL, with the next start at once, to the first
//! record committed since.
//!
//! A reader of all records would be behind when the kill comes, and its own haste be measured. So
//! how far output is committed is asked of the broker; the reader starts behind that, shortly after
//! the kill, when what was being committed then is.

use std::thread;
use std::time::Duration;

use isochrone::time::{Clock, SystemClock};
use rdkafka::Offset;
use rdkafka::consumer::Consumer;

use super::super::kafka::{Broker, Topic};
use super::super::wait::{self, Since};
use super::check::check;
use super::contender::{AtWork, Contender, Place};
use super::purchases::Purchases;
use super::reader::{committed, consumer, places};

const DEADLINE: Duration = Duration::from_secs(600);
/// Within this time a transaction ends whose commit the killed process had asked for. No contender
/// starts as fast.
const SETTLED: Duration = Duration::from_millis(100);
/// So long without a record is the end of the output.
const SILENCE: Duration = Duration::from_secs(3);

/// What one kill has shown.
#[derive(Clone, Debug)]
pub(crate) struct Killed {
    /// Offsets, with those of marks.
    pub(crate) committed: u64,
    pub(crate) first_new_s: f64,
    pub(crate) all_s: f64,
    pub(crate) verdict: String,
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
    let mut at_work = contender.start(place);
    until_half(&output, &mut at_work, records);
    at_work.kill();
    let killed_us = clock.monotonic_us();
    let (at_work, read) = thread::scope(|scope| {
        let watching = scope.spawn(|| watch(&output, &clock));
        let at_work = contender.start(place);
        (at_work, watching.join().expect("a reader"))
    });
    at_work.kill();
    let verdict = check(&output, purchases, records).word();
    output.delete();
    let since_kill_s = |us: u64| us.saturating_sub(killed_us) as f64 / 1e6;
    Killed {
        committed: read.committed,
        first_new_s: since_kill_s(read.first_us),
        all_s: since_kill_s(read.last_us),
        verdict,
    }
}

fn until_half(output: &Topic, at_work: &mut AtWork, records: u64) {
    let asker = consumer(output.client.clone(), "isochrone-bench-asker");
    let started = Since::now();
    let half =
        || committed(&asker, &output.name).iter().sum::<i64>().cast_unsigned() >= records / 2;
    while !half() && started.passed() < DEADLINE {
        at_work.must_run();
        wait::pause(Duration::from_millis(5));
    }
}

struct Read {
    committed: u64,
    first_us: u64,
    last_us: u64,
}

/// Reads what is committed from now on.
fn watch(output: &Topic, clock: &SystemClock) -> Read {
    let reader = consumer(output.client.clone(), "isochrone-bench-reader");
    wait::pause(SETTLED);
    let ends = committed(&reader, &output.name);
    reader
        .assign(&places(&output.name, |at| Offset::Offset(ends[at as usize])))
        .expect("partitions");
    let (started, mut first_us, mut last_us) = (Since::now(), None, 0);
    let goes_on = |first: Option<u64>, last_us: u64| match first {
        None => started.passed() < DEADLINE,
        Some(_) => Duration::from_micros(clock.monotonic_us() - last_us) < SILENCE,
    };
    while goes_on(first_us, last_us) {
        if let Some(message) = reader.poll(Duration::from_millis(5)) {
            message.expect("the broker is there");
            last_us = clock.monotonic_us();
            first_us.get_or_insert(last_us);
        }
    }
    Read {
        committed: ends.iter().sum::<i64>().cast_unsigned(),
        first_us: first_us.unwrap_or(last_us),
        last_us,
    }
}
