//! A running total per key, one output per record: this engine beside raw timely in the same run.
//!
//! ```sh
//! cargo bench --bench running_total
//! RECORDS=2000000 ROUNDS=1 cargo bench --bench running_total
//! ONLY=3 WORKERS=1 cargo bench --bench running_total  # one line of the table, for a profile
//! ```
//!
//! Both read the same generated records, bring equal keys together, keep a 64-bit total per key in
//! a table of the same kind (`hashbrown`) with a hash of the same cost, and hand every new total to
//! a sink that counts and sums. Timely has no checkpoints, event times, gates or back-pressure.

mod support;

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use isochrone::connectors::Callback;
use isochrone::connectors::generator::{Generator, mix};
use isochrone::{Checkpoint, Job, RunArgs, Summary};
use support::{Cost, from_env, measure, median, print_table};
use timely::container::CapacityContainerBuilder;
use timely::dataflow::channels::pact::{Exchange, Pipeline};
use timely::dataflow::operators::generic::{Operator, source};
use timely::{CommunicationConfig, Config, WorkerConfig};

const SEED: u64 = 7;

#[derive(Clone, Copy)]
struct Load {
    records: u64,
    keys: u64,
    workers: u32,
}

/// The record made of 64 bits that look random.
#[inline]
fn record(random: u64, keys: u64) -> (u64, i64) {
    (random % keys, (random >> 48) as i64 - 32_768)
}

/// Counts and sums what one worker puts out; adds to the whole when it is dropped.
struct Blackhole {
    seen: u64,
    sum: u64,
    whole: Arc<Whole>,
}

#[derive(Default)]
struct Whole {
    seen: AtomicU64,
    sum: AtomicU64,
}

impl Blackhole {
    fn new(whole: &Arc<Whole>) -> Self {
        Blackhole { seen: 0, sum: 0, whole: whole.clone() }
    }

    #[inline]
    fn take(&mut self, &(key, total): &(u64, i64)) {
        self.seen += 1;
        self.sum = self.sum.wrapping_add(key ^ total as u64);
    }
}

impl Drop for Blackhole {
    fn drop(&mut self) {
        self.whole.seen.fetch_add(self.seen, Ordering::Relaxed);
        self.whole.sum.fetch_add(self.sum, Ordering::Relaxed);
    }
}

fn engine(load: Load, checkpoint: Checkpoint) -> (Summary, u64) {
    let whole = Arc::new(Whole::default());
    let args = RunArgs { workers: load.workers, ..RunArgs::default() };
    let summary = Job::new("running-total").checkpoint(checkpoint).run(args, {
        let whole = whole.clone();
        move |flow| {
            let Load { records, keys, workers } = load;
            let mut hole = Blackhole::new(&whole);
            let source = Generator::new(records, SEED, move |random| record(random, keys));
            flow.source("records", source.splits(workers.into()))
                .key_by(|&(key, _)| key)
                .state::<i64>("total")
                .map(|total, (key, amount)| {
                    *total += amount;
                    (key, *total)
                })
                .sink("out", Callback::new(move |item| hole.take(item)));
            Ok(())
        }
    });
    let summary = summary.expect("the job runs");
    assert_eq!(whole.seen.load(Ordering::Relaxed), load.records, "one output for each record");
    (summary, whole.sum.load(Ordering::Relaxed))
}

/// Two multiplications, as in the engine's hash of a short key.
#[derive(Default)]
struct Fold(u64);

impl Hasher for Fold {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        let fold = |a: u64, b: u64| {
            let product = u128::from(a) * u128::from(b);
            product as u64 ^ (product >> 64) as u64
        };
        let hash = fold(self.0 ^ word ^ 0x9e37_79b9_7f4a_7c15, 0xa076_1d64_78bd_642f);
        self.0 = fold(hash ^ 8, 0xe703_7ed1_a0b4_28db);
    }
}

fn hash_of(key: u64) -> u64 {
    let mut hasher = Fold::default();
    hasher.write_u64(key);
    hasher.finish()
}

type Totals = HashMap<u64, i64, BuildHasherDefault<Fold>>;
type Batches = CapacityContainerBuilder<Vec<(u64, i64)>>;

/// Records that the source gives in one activation: enough to forget what an activation costs, few
/// enough to stay in the cache.
const PER_ACTIVATION: u64 = 8 * 1024;

fn raw_timely(load: Load) -> u64 {
    let whole = Arc::new(Whole::default());
    let communication = match load.workers {
        1 => CommunicationConfig::Thread,
        n => CommunicationConfig::Process(n as usize),
    };
    let config = Config { communication, worker: WorkerConfig::default() };
    let guards = timely::execute(config, {
        let whole = whole.clone();
        move |worker| {
            let (me, peers) = (worker.index() as u64, worker.peers() as u64);
            let Load { records, keys, .. } = load;
            let (first, end) = (records * me / peers, records * (me + 1) / peers);
            let mut hole = Blackhole::new(&whole);
            worker.dataflow::<u64, _, _>(|scope| {
                let records = source::<_, Batches, _, _>(scope, "records", |capability, info| {
                    let activator = scope.activator_for(info.address);
                    let (mut capability, mut next, seed) = (Some(capability), first, mix(SEED));
                    move |output| {
                        let Some(held) = &capability else { return };
                        let until = end.min(next + PER_ACTIVATION);
                        let random = (next..until).map(|number| mix(seed ^ number));
                        let records = random.map(|random| record(random, keys));
                        output.session(held).give_iterator(records);
                        next = until;
                        if next == end {
                            capability = None;
                        } else {
                            activator.activate();
                        }
                    }
                });
                let route = Exchange::new(|&(key, _): &(u64, i64)| hash_of(key));
                let totals = records.unary::<Batches, _, _, _>(route, "total", |_, _| {
                    let mut totals = Totals::default();
                    move |input, output| {
                        input.for_each(|capability, batch| {
                            let mut session = output.session(&capability);
                            for (key, amount) in batch.drain(..) {
                                let total = totals.entry(key).or_default();
                                *total += amount;
                                session.give((key, *total));
                            }
                        });
                    }
                });
                totals.sink(Pipeline, "out", move |(input, _)| {
                    input.for_each(|_, batch| batch.drain(..).for_each(|item| hole.take(&item)));
                });
            });
        }
    });
    drop(guards.expect("timely starts").join());
    assert_eq!(whole.seen.load(Ordering::Relaxed), load.records, "one output for each record");
    whole.sum.load(Ordering::Relaxed)
}

/// One line of the table: a name and how the engine takes checkpoints, or `None` for raw timely.
struct Case {
    name: &'static str,
    checkpoint: Option<fn(&std::path::Path) -> Checkpoint>,
}

const CASES: [Case; 5] = [
    Case { name: "raw timely", checkpoint: None },
    Case { name: "final checkpoint only", checkpoint: Some(|_| no_interval()) },
    Case { name: "every 1 s, memory", checkpoint: Some(|_| Checkpoint::in_memory()) },
    Case { name: "every 1 s, local", checkpoint: Some(|path| Checkpoint::dir(path)) },
    Case {
        name: "every 200 ms, local",
        checkpoint: Some(|path| Checkpoint::dir(path).every(Duration::from_millis(200))),
    },
];

fn cases() -> &'static [Case] {
    match from_env("ONLY", u64::MAX) as usize {
        only if only < CASES.len() => &CASES[only..=only],
        _ => &CASES,
    }
}

fn no_interval() -> Checkpoint {
    Checkpoint::in_memory().not_by_time()
}

fn run(case: &Case, load: Load) -> (Cost, Option<Summary>, u64) {
    let Some(checkpoint) = case.checkpoint else {
        let (cost, sum) = measure(|| raw_timely(load));
        return (cost, None, sum);
    };
    let folder = tempfile::tempdir().expect("a folder for checkpoints");
    let checkpoint = checkpoint(folder.path());
    let (cost, (summary, sum)) = measure(|| engine(load, checkpoint));
    (cost, Some(summary), sum)
}

fn compare(load: Load, rounds: u64) {
    let cases = cases();
    let round = |_| cases.iter().map(|case| run(case, load)).collect::<Vec<_>>();
    let results: Vec<_> = (0..rounds).map(round).collect();
    if load.workers == 1 {
        let sums = results.iter().flatten().map(|(_, _, sum)| *sum);
        assert!(sums.collect::<Vec<_>>().windows(2).all(|two| two[0] == two[1]), "equal output");
    }
    let rows: Vec<_> =
        cases.iter().enumerate().map(|(at, case)| row(at, case, &results, load)).collect();
    let title = format!(
        "{} M records, {} keys, {} worker(s), median of {rounds}",
        load.records as f64 / 1e6,
        load.keys,
        load.workers
    );
    let head =
        ["", "M/s", "us CPU", "of timely", "(CPU)", "checkpoints", "ms max", "pause us", "MB max"];
    print_table(&title, &head, &rows);
}

type Results = [Vec<(Cost, Option<Summary>, u64)>];

fn row(at: usize, case: &Case, results: &Results, load: Load) -> Vec<String> {
    let records = load.records as f64;
    let of = |what: fn(&Cost) -> f64| median(results.iter().map(|round| what(&round[at].0)));
    let ratio = |what: fn(&Cost) -> f64| {
        median(results.iter().map(|round| what(&round[0].0) / what(&round[at].0)))
    };
    let checkpoints = |what: fn(&Summary) -> f64| {
        let of_round = |round: &Vec<(_, Option<Summary>, _)>| round[at].1.as_ref().map(what);
        median(results.iter().filter_map(of_round))
    };
    let mut cells = vec![
        case.name.to_owned(),
        format!("{:.2}", records / of(|cost| cost.wall_s) / 1e6),
        format!("{:.4}", of(|cost| cost.cpu_s) * 1e6 / records),
        format!("{:.2}", ratio(|cost| cost.wall_s)),
        format!("{:.2}", ratio(|cost| cost.cpu_s)),
    ];
    cells.extend(match case.checkpoint {
        None => vec![String::new(); 4],
        Some(_) => vec![
            format!("{:.0}", checkpoints(|s| s.checkpoints.published as f64)),
            format!("{:.0}", checkpoints(|s| s.checkpoints.duration_ms_max as f64)),
            format!("{:.0}", checkpoints(|s| s.checkpoints.pause_us_max as f64)),
            format!("{:.1}", checkpoints(|s| s.checkpoints.bytes_max as f64 / 1e6)),
        ],
    });
    cells
}

fn main() {
    let (records, keys) = (from_env("RECORDS", 20_000_000), from_env("KEYS", 1_000_000));
    let rounds = from_env("ROUNDS", 3);
    let only_workers = from_env("WORKERS", 0);
    for workers in [1, 2].into_iter().filter(|&n| [0, u64::from(n)].contains(&only_workers)) {
        compare(Load { records, keys, workers }, rounds);
    }
}
