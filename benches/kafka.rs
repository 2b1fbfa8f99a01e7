//! Account risk from topic to topic: peers side by side on one real Kafka broker, in one run.
//!
//! ```sh
//! cargo bench --features kafka --bench kafka
//! RECORDS=10000000 ROUNDS=1 PARTS=throughput ONLY=streams cargo bench --features kafka --bench kafka
//! ```
//!
//! - `RECORDS` (2 000 000) in the topic for throughput and kills; a JVM is warm after 10 000 000.
//! - `ROUNDS` (3): the contenders in turns, again and again; the table has medians.
//! - `PARTS` (`throughput,kill,latency`), `ONLY` (`bare,isochrone,streams`): what and who.
//! - `INTERVAL_MS` (1000): how often output becomes visible in the first two parts; the third has
//!   20 000 records/s and 100 ms.
//! - `CHECK=1`: fails if Isochrone misses one of the limits of `LIMITS`, for a quiet machine.
//!
//! Broker, contenders and this program share the machine's cores, so that the CPU time of an event
//! tells more than records/s. Every output is read by a client that is not ours and compared with
//! what it has to be. About 1 GB of memory for the broker, as much for the JVM of a peer, and on
//! disk some 0.3 GB a million records; a round of all takes about 3 minutes.

#![allow(clippy::unwrap_used, reason = "helpers of tests are used here")]

#[path = "../tests/support/kafka/mod.rs"]
#[allow(dead_code, unreachable_pub, reason = "of the tests' helpers a part is used")]
mod kafka;
mod peers;
mod support;
#[path = "../tests/support/wait.rs"]
#[allow(dead_code, unreachable_pub, reason = "of the tests' helpers a part is used")]
mod wait;

use std::cell::RefCell;
use std::path::Path;
use std::time::Duration;

use kafka::{Broker, Options};
use peers::contender::{Contender, Place, contenders, play};
use peers::kill::Killed;
use peers::latency::Latency;
use peers::purchases::Purchases;
use peers::throughput::Measured;
use support::{from_env, median, print_table};

/// A broker that is to be fast, not quick to start.
const JVM: &str = "-Xms1g -Xmx1g -XX:+UseG1GC -XX:MaxGCPauseMillis=20";
const INPUT: &str = "purchases";
/// Who has to keep the limits.
const OWN: &str = "isochrone";

/// What Isochrone keeps to, by the medians of a run on two quiet cores.
struct Limits {
    /// CPU time of an event, of that of the bare loop in the same run.
    cpu_of_bare: f64,
    /// Of that of Kafka Streams, if it runs too.
    cpu_of_streams: f64,
    us: f64,
    rss_mb: f64,
    first_new_s: f64,
    p50_ms: f64,
    p99_ms: f64,
}

const LIMITS: Limits = Limits {
    cpu_of_bare: 1.0,
    cpu_of_streams: 0.5,
    us: 1.94,
    rss_mb: 150.0,
    first_new_s: 2.0,
    p50_ms: 110.0,
    p99_ms: 200.0,
};

struct Bench<'b> {
    broker: &'b Broker,
    folder: &'b Path,
    purchases: Purchases,
    records: u64,
    rounds: u64,
    interval: Duration,
    /// Limits that were missed.
    missed: RefCell<Vec<String>>,
}

fn main() {
    play();
    let folder = tempfile::tempdir().expect("a folder");
    let contenders = contenders(folder.path());
    let broker = Options::default().jvm(JVM).start();
    let bench = Bench {
        broker: &broker,
        folder: folder.path(),
        purchases: Purchases::new(),
        records: from_env("RECORDS", 2_000_000),
        rounds: from_env("ROUNDS", 3),
        interval: Duration::from_millis(from_env("INTERVAL_MS", 1000)),
        missed: RefCell::default(),
    };
    let parts = std::env::var("PARTS").unwrap_or_else(|_| "throughput,kill,latency".to_owned());
    let wanted = |name: &str| parts.split(',').any(|part| part == name);
    if wanted("throughput") || wanted("kill") {
        let input = peers::topic(&broker, INPUT);
        input.write((0..bench.records).map(|id| bench.purchases.row(id)));
    }
    if wanted("throughput") {
        bench.throughput(&contenders);
    }
    if wanted("kill") {
        bench.kills(&contenders);
    }
    if wanted("latency") {
        bench.latency(&contenders);
    }
    let missed = bench.missed.into_inner();
    for line in &missed {
        eprintln!("missed: {line}");
    }
    assert!(missed.is_empty() || from_env("CHECK", 0) == 0, "{} limits were missed", missed.len());
}

impl Bench<'_> {
    fn place(&self, name: String, input: &str, interval: Duration) -> Place {
        Place {
            broker: self.broker.address().to_owned(),
            input: input.to_owned(),
            store: self.folder.join(&name),
            output: name,
            interval,
        }
    }

    fn limit(&self, what: &str, found: f64, limit: f64) {
        if found > limit {
            self.missed.borrow_mut().push(format!("{what}: {found:.2}, limit {limit:.2}"));
        }
    }

    /// Contenders in turns, so that whatever else the machine does disturbs all of them alike.
    fn rounds<T>(
        &self,
        contenders: &[&Contender],
        mut run: impl FnMut(u64, &Contender) -> T,
    ) -> Vec<Vec<T>> {
        let mut all: Vec<Vec<T>> = contenders.iter().map(|_| Vec::new()).collect();
        for round in 0..self.rounds {
            for (runs, contender) in all.iter_mut().zip(contenders) {
                eprintln!("round {round}: {}", contender.name);
                runs.push(run(round, contender));
            }
        }
        all
    }

    fn throughput(&self, contenders: &[Contender]) {
        // A cold broker makes the first one slow.
        if let Some(contender) = contenders.first() {
            eprintln!("the broker gets warm: {}", contender.name);
            let place = self.place("warm-up".to_owned(), INPUT, self.interval);
            let records = self.records;
            peers::throughput::measure(contender, self.broker, &place, &self.purchases, records);
        }
        let all: Vec<&Contender> = contenders.iter().collect();
        let runs = self.rounds(&all, |round, contender| {
            let place = self.place(format!("t-{}-{round}", contender.name), INPUT, self.interval);
            let records = self.records;
            peers::throughput::measure(contender, self.broker, &place, &self.purchases, records)
        });
        let head = [
            "",
            "k/s",
            "warm",
            "us CPU",
            "warm",
            "broker us",
            "warm",
            "MB",
            "first after s",
            "others",
            "output",
        ];
        let of = |name: &str, what: fn(&Measured) -> f64| {
            let runs = all.iter().zip(&runs).find(|(contender, _)| contender.name == name)?.1;
            Some(median(runs.iter().map(what)))
        };
        if let Some(us) = of(OWN, |m| m.us) {
            self.limit("us CPU an event", us, LIMITS.us);
            self.limit("MB resident", of(OWN, |m| m.rss_mb as f64).unwrap_or(0.0), LIMITS.rss_mb);
            for (peer, share) in [("bare", LIMITS.cpu_of_bare), ("streams", LIMITS.cpu_of_streams)]
            {
                if let Some(peers) = of(peer, |m| m.us) {
                    self.limit(&format!("CPU of an event, of {peer}"), us / peers, share);
                }
            }
        }
        let rows = all.iter().zip(&runs).map(|(contender, runs)| {
            let of = |what: fn(&Measured) -> f64| median(runs.iter().map(what));
            vec![
                contender.name.to_owned(),
                format!("{:.0}", of(|m| m.per_s) / 1e3),
                format!("{:.0}", of(|m| m.per_s_warm) / 1e3),
                format!("{:.2}", of(|m| m.us)),
                format!("{:.2}", of(|m| m.us_warm)),
                format!("{:.2}", of(|m| m.broker_us)),
                format!("{:.2}", of(|m| m.broker_us_warm)),
                format!("{:.0}", of(|m| m.rss_mb as f64)),
                format!("{:.1}", of(|m| m.first_output_s)),
                format!("{:.0} %", of(|m| m.others) * 100.0),
                verdicts(runs.iter().map(|m| &m.verdict)),
            ]
        });
        let title = format!(
            "throughput: {} M records, visible each {} ms, median of {}; warm is the second half",
            self.records as f64 / 1e6,
            self.interval.as_millis(),
            self.rounds
        );
        print_table(&title, &head, &rows.collect::<Vec<_>>());
    }

    fn kills(&self, contenders: &[Contender]) {
        let promising: Vec<_> = contenders.iter().filter(|c| c.is_exactly_once).collect();
        let runs = self.rounds(&promising, |round, contender| {
            let place = self.place(format!("k-{}-{round}", contender.name), INPUT, self.interval);
            let records = self.records;
            peers::kill::measure(contender, self.broker, &place, &self.purchases, records)
        });
        let head = ["", "committed at kill", "first new after s", "all after s", "output"];
        let rows = promising.iter().zip(&runs).map(|(contender, runs)| {
            let of = |what: fn(&Killed) -> f64| median(runs.iter().map(what));
            if contender.name == OWN {
                self.limit("s to new output", of(|k| k.first_new_s), LIMITS.first_new_s);
            }
            vec![
                contender.name.to_owned(),
                format!("{:.0}", of(|k| k.committed as f64)),
                format!("{:.2}", of(|k| k.first_new_s)),
                format!("{:.1}", of(|k| k.all_s)),
                verdicts(runs.iter().map(|k| &k.verdict)),
            ]
        });
        let ms = self.interval.as_millis();
        let title = format!("kill -9 at half, started again at once; visible each {ms} ms");
        print_table(&title, &head, &rows.collect::<Vec<_>>());
    }

    fn latency(&self, contenders: &[Contender]) {
        let all: Vec<&Contender> = contenders.iter().collect();
        let measure = |round: &str, contender: &Contender| {
            let (name, interval) = (contender.name, Duration::from_millis(100));
            let place =
                self.place(format!("l-{name}-{round}"), &format!("i-{name}-{round}"), interval);
            peers::latency::measure(contender, self.broker, &place, &self.purchases)
        };
        // A broker still compiles its code in the first minute of it.
        if let Some(contender) = contenders.first() {
            eprintln!("the broker gets warm: {}", contender.name);
            measure("warm-up", contender);
        }
        let runs = self.rounds(&all, |round, contender| measure(&round.to_string(), contender));
        let head = ["", "p50 ms", "p99 ms", "max ms", "us CPU", "broker us", "output"];
        let rows = all.iter().zip(&runs).map(|(contender, runs)| {
            let of = |what: fn(&Latency) -> f64| median(runs.iter().map(what));
            if contender.name == OWN {
                self.limit("p50 ms", of(|l| l.p50), LIMITS.p50_ms);
                self.limit("p99 ms", of(|l| l.p99), LIMITS.p99_ms);
            }
            vec![
                contender.name.to_owned(),
                format!("{:.1}", of(|l| l.p50)),
                format!("{:.1}", of(|l| l.p99)),
                format!("{:.0}", of(|l| l.max)),
                format!("{:.1}", of(|l| l.us)),
                format!("{:.1}", of(|l| l.broker_us)),
                verdicts(runs.iter().map(|l| &l.verdict)),
            ]
        });
        let title = "latency at 20 000 records/s, from due to visible; visible each 100 ms";
        print_table(title, &head, &rows.collect::<Vec<_>>());
    }
}

/// The first that is not exact, or that all are.
fn verdicts<'v>(verdicts: impl Iterator<Item = &'v String>) -> String {
    let mut count = 0;
    for verdict in verdicts {
        count += 1;
        if verdict != "exact" {
            return verdict.clone();
        }
    }
    format!("{count}/{count} exact")
}
