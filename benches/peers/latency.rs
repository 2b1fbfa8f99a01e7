//! How long a record takes: from when it was due to be written to when a reader of committed
//! records has what came of it.
//!
//! A record is due at its time even if the writer is late, so that a contender that holds up the
//! machine does not look better for it.

use std::thread;
use std::time::Duration;

use isochrone::time::{Clock, SystemClock};
use rdkafka::Message;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::types::RDKafkaErrorCode;

use super::super::kafka::{Broker, Topic};
use super::super::support::cpu_s;
use super::super::wait::{self, Since};
use super::check::check;
use super::contender::{Contender, Place};
use super::purchases::{Assessment, Purchases};
use super::reader::reader;

const PER_S: u64 = 20_000;
const SECONDS: u64 = 30;
/// Until all are warm.
const SKIPPED_S: u64 = 12;

/// What one run has shown, in milliseconds.
#[derive(Clone, Debug)]
pub(crate) struct Latency {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
    pub(crate) us: f64,
    pub(crate) broker_us: f64,
    pub(crate) verdict: String,
}

pub(crate) fn measure(
    contender: &Contender,
    broker: &Broker,
    place: &Place,
    purchases: &Purchases,
) -> Latency {
    let (input, output) = (super::topic(broker, &place.input), super::topic(broker, &place.output));
    let broker_process = broker.process(1).to_string();
    let mut at_work = contender.start(place);
    let records = PER_S * SECONDS;
    let clock = SystemClock::default();
    let (mut late_us, mut seen) = (Vec::new(), 0);
    let (mut job_s, mut broker_s) = (0.0, 0.0);
    thread::scope(|scope| {
        let consumer = reader(&output);
        let start_us = clock.monotonic_us();
        scope.spawn(|| feed(&input, purchases, &clock, records));
        let mut rests = Since::now();
        let mut is_warm = false;
        while seen < records {
            let Some(message) = consumer.poll(Duration::from_millis(100)) else {
                at_work.must_run();
                assert!(rests.passed() < wait::SOON, "{}: {seen} of {records}", contender.name);
                continue;
            };
            let message = message.expect("the broker is there");
            let value = message.payload().expect("an assessment");
            let found: Assessment = serde_json::from_slice(value).expect("an assessment in JSON");
            let now_us = clock.monotonic_us() - start_us;
            (seen, rests) = (seen + 1, Since::now());
            if found.id >= PER_S * SKIPPED_S {
                if !is_warm {
                    is_warm = true;
                    (job_s, broker_s) = (at_work.cpu_s(), cpu_s(&broker_process));
                }
                late_us.push(now_us.saturating_sub(found.id * 1_000_000 / PER_S));
            }
        }
    });
    let measured = (PER_S * (SECONDS - SKIPPED_S)) as f64;
    let us = (at_work.cpu_s() - job_s) * 1e6 / measured;
    let broker_us = (cpu_s(&broker_process) - broker_s) * 1e6 / measured;
    // The last offsets, and what comes twice.
    wait::pause(Duration::from_millis(1500));
    at_work.kill();
    let verdict = check(&output, purchases, records).word();
    input.delete();
    output.delete();
    late_us.sort_unstable();
    let at = |share: f64| late_us[((late_us.len() - 1) as f64 * share) as usize] as f64 / 1e3;
    Latency { p50: at(0.5), p99: at(0.99), max: at(1.0), us, broker_us, verdict }
}

/// Writes each record when it is due.
fn feed(input: &Topic, purchases: &Purchases, clock: &SystemClock, records: u64) {
    let mut config = input.client.clone();
    config.set("enable.idempotence", "true").set("linger.ms", "1");
    let config = config.set("partitioner", "murmur2_random");
    let producer: BaseProducer = config.create().expect("a producer");
    let start_us = clock.monotonic_us();
    let mut id = 0;
    while id < records {
        let due = ((clock.monotonic_us() - start_us) * PER_S / 1_000_000).min(records);
        for id in id..due {
            let row = purchases.row(id);
            let (key, value) = (row.key.unwrap_or_default(), row.value.unwrap_or_default());
            let mut record = BaseRecord::to(&input.name).key(&key).payload(&value);
            // A broker that does not keep up makes records late, and that is counted.
            while let Err((error, back)) = producer.send(record) {
                let is_full = error.rdkafka_error_code() == Some(RDKafkaErrorCode::QueueFull);
                assert!(is_full, "a record cannot be sent: {error}");
                producer.poll(Duration::from_millis(1));
                record = back;
            }
        }
        id = due;
        producer.poll(Duration::ZERO);
        wait::pause(Duration::from_micros(500));
    }
    producer.flush(wait::SOON).expect("the broker is there");
}
