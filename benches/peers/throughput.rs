//! How fast a contender gets through an input that is there, and what that costs.

use std::time::Duration;

use isochrone::time::{Clock, SystemClock};
use rdkafka::consumer::{BaseConsumer, Consumer};

use super::super::kafka::{Broker, Topic};
use super::super::support::{cpu_s, machine_cpu_s};
use super::super::wait::{self, Since};
use super::PARTITIONS;
use super::check::check;
use super::contender::{Contender, Place};
use super::purchases::Purchases;

/// An output that has not grown for so long is complete.
const REST: Duration = Duration::from_secs(3);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// So many looks at the processes for one question to the broker, whose time is measured too.
const LOOKS_PER_QUESTION: usize = 4;
/// By then the slowest is done.
const DEADLINE: Duration = Duration::from_secs(600);

/// What one run has shown. "Warm" is the second half of the output.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) per_s: f64,
    pub(crate) per_s_warm: f64,
    pub(crate) us: f64,
    pub(crate) us_warm: f64,
    pub(crate) broker_us: f64,
    pub(crate) broker_us_warm: f64,
    pub(crate) rss_mb: u64,
    pub(crate) first_output_s: f64,
    /// What others took of the machine meanwhile, this program included: 1 is all of it.
    pub(crate) others: f64,
    pub(crate) verdict: String,
}

/// CPU of the job, of the broker and of all at a time.
#[derive(Clone, Copy)]
struct Sample {
    wall_ms: i64,
    job_s: f64,
    broker_s: f64,
    all_s: f64,
}

pub(crate) fn measure(
    contender: &Contender,
    broker: &Broker,
    place: &Place,
    purchases: &Purchases,
    records: u64,
) -> Measured {
    let output = super::topic(broker, &place.output);
    let ends = Ends::new(&output);
    let broker_process = broker.process(1).to_string();
    let clock = SystemClock::default();
    let mut at_work = contender.start(place);
    let mut samples = Vec::new();
    let (started, mut rests, mut end) = (Since::now(), Since::now(), 0);
    while end < records as i64 || rests.passed() < REST {
        assert!(started.passed() < DEADLINE, "{}: {end} of {records}", contender.name);
        at_work.must_run();
        samples.push(Sample {
            wall_ms: clock.wall_ms() as i64,
            job_s: at_work.cpu_s(),
            broker_s: cpu_s(&broker_process),
            all_s: machine_cpu_s().0,
        });
        if samples.len() % LOOKS_PER_QUESTION == 0 {
            let now = ends.sum();
            if now != end {
                (end, rests) = (now, Since::now());
            }
        }
        wait::pause(LOOK_EVERY);
    }
    let rss_mb = at_work.rss_peak_mb();
    at_work.kill();
    let checked = check(&output, purchases, records);
    output.delete();
    let [first, middle, last] = [0.0, 0.5, 1.0].map(|share| checked.appended(share));
    let near = |ms: i64| *samples.iter().min_by_key(|s| (s.wall_ms - ms).abs()).expect("samples");
    let (begin, half, done) = (samples[0], near(middle), near(last));
    let records = records as f64;
    let others_s =
        (done.all_s - begin.all_s) - (done.job_s - begin.job_s) - (done.broker_s - begin.broker_s);
    let wall_s = (done.wall_ms - begin.wall_ms).max(1) as f64 / 1e3;
    let us = |from: f64, to: f64, share: f64| (to - from) * 1e6 / (records * share);
    let per_s = |from: i64, share: f64| records * share * 1e3 / ((last - from).max(1) as f64);
    Measured {
        per_s: per_s(first, 1.0),
        per_s_warm: per_s(middle, 0.5),
        us: us(begin.job_s, done.job_s, 1.0),
        us_warm: us(half.job_s, done.job_s, 0.5),
        broker_us: us(begin.broker_s, done.broker_s, 1.0),
        broker_us_warm: us(half.broker_s, done.broker_s, 0.5),
        rss_mb,
        first_output_s: (first - begin.wall_ms) as f64 / 1e3,
        others: others_s / wall_s / machine_cpu_s().1,
        verdict: checked.word(),
    }
}

/// Looks where an output ends for a reader of committed records, without reading it.
struct Ends<'t> {
    topic: &'t Topic,
    client: BaseConsumer,
}

impl Ends<'_> {
    fn new(topic: &Topic) -> Ends<'_> {
        let client = topic.client.clone().set("isolation.level", "read_committed").create();
        Ends { topic, client: client.expect("a client") }
    }

    /// Marks of transactions count too: this is no number of records.
    fn sum(&self) -> i64 {
        let end = |partition: u32| {
            let ends = self.client.fetch_watermarks(&self.topic.name, partition as i32, wait::SOON);
            ends.expect("the broker is there").1
        };
        (0..PARTITIONS).map(end).sum()
    }
}
