//! The real engine against its twin, from thousands of seeds: lost, doubled and disordered output,
//! and state that is not what it should be, after crashes at any step and any number of workers.
//!
//! ```sh
//! cargo test --features testing --test simulation                # a few hundred seeds
//! SEEDS=20000 cargo test --profile checked --features testing --test simulation
//! SEED=4711 cargo test --features testing --test simulation      # replay
//! ```

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod input;
mod pipeline;
mod shaky;
mod state;
mod twin;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use isochrone::testing::{Planted, Random, Report, Simulation};

use input::{Input, Output};
use shaky::Shaky;
use state::Left;
use twin::{Twin, Verdict};

/// Seeds of an ordinary test run.
const SEEDS: u64 = 400;
/// Within so many seeds every planted bug must be found.
const SEEDS_TO_FIND_MAX: u64 = 300;
/// How often the determinism of a seed is checked.
const REPLAY_ONE_IN: u64 = 100;

fn number_of(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

/// Lives the whole life of the job of this seed.
fn live(seed: u64, planted: Option<Planted>) -> (Report, Result<(), String>) {
    let mut random = Random::new(seed);
    let input = Input::draw(seed);
    let twin = Twin::of(&input);
    let output = Output::default();
    let sink_faults = if random.one_in(3) { random.below(4) } else { 0 };
    let shaky = Shaky::new(seed, sink_faults);
    let mut simulation = Simulation::new(seed)
        .crashes_max(random.below(7))
        .workers_max(4)
        .store_faults(if random.one_in(2) { 5 + random.below(100) } else { 0 });
    if let Some(bug) = planted {
        simulation = simulation.planted(bug);
    }
    let report = {
        let output = output.clone();
        simulation.run(move |flow| pipeline::build(flow, &input, &output, &shaky))
    };
    let end = match &report.failure {
        Some(error) => Err(format!("{:?}: {}", error.kind(), error.report())),
        None => judge(&twin, &output, &report),
    };
    (report, end)
}

fn judge(twin: &Twin, output: &Output, report: &Report) -> Result<(), String> {
    let left = Left::read(&report.store).map_err(|error| error.report())?;
    let verdict: Verdict = twin.judge(output, &left);
    if !left.finished {
        return Err("the last checkpoint does not say that the input was read".to_owned());
    }
    if verdict.is_good() { Ok(()) } else { Err(format!("{verdict:?}")) }
}

/// What all seeds together went through.
#[derive(Default)]
struct Total {
    seeds: AtomicU64,
    runs: AtomicU64,
    crashes: AtomicU64,
    stops: AtomicU64,
    rescales: AtomicU64,
    failed: AtomicU64,
    steps: AtomicU64,
    epochs: AtomicU64,
    replays: AtomicU64,
}

impl Total {
    fn add(&self, report: &Report) {
        self.seeds.fetch_add(1, Ordering::Relaxed);
        self.runs.fetch_add(report.runs, Ordering::Relaxed);
        self.crashes.fetch_add(report.crashes, Ordering::Relaxed);
        self.stops.fetch_add(report.stops, Ordering::Relaxed);
        self.rescales.fetch_add(report.rescales, Ordering::Relaxed);
        self.failed.fetch_add(report.failed, Ordering::Relaxed);
        self.steps.fetch_add(report.steps, Ordering::Relaxed);
        self.epochs.fetch_add(report.epochs, Ordering::Relaxed);
    }

    /// Fails if the seeds went through less than they are for: floors are well below what is usual, which
    /// is 1.6 crashes, 2 changes of the number of workers and 3 checkpoints a seed.
    fn assert_is_worth(&self) {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let seeds = get(&self.seeds);
        for (what, count, floor) in [
            ("crashes", get(&self.crashes), seeds),
            ("rescales", get(&self.rescales), seeds),
            ("stops", get(&self.stops), seeds / 100),
            ("failed runs", get(&self.failed), seeds / 4),
            ("checkpoints", get(&self.epochs), 2 * seeds),
            ("replays", get(&self.replays), seeds / REPLAY_ONE_IN),
        ] {
            assert!(count >= floor, "{seeds} seeds had only {count} {what} of {floor}");
        }
    }

    fn print(&self) {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        eprintln!(
            "{} seeds: {} runs, {} crashes, {} stopped, {} rescales, {} failed, {} steps, \
             {} checkpoints, {} replays",
            get(&self.seeds),
            get(&self.runs),
            get(&self.crashes),
            get(&self.stops),
            get(&self.rescales),
            get(&self.failed),
            get(&self.steps),
            get(&self.epochs),
            get(&self.replays),
        );
    }
}

fn check(seed: u64, total: &Total) -> Result<(), String> {
    let (report, end) = live(seed, None);
    total.add(&report);
    end.map_err(|found| format!("{found}\n{report:?}"))?;
    if seed.is_multiple_of(REPLAY_ONE_IN) {
        total.replays.fetch_add(1, Ordering::Relaxed);
        let again = live(seed, None).0;
        if again.trace != report.trace {
            let (a, b) = (report, again);
            return Err(format!(
                "two runs of one seed differ: {} and {} steps, {} and {} runs, traces {:x} and {:x}",
                a.steps, b.steps, a.runs, b.runs, a.trace, b.trace
            ));
        }
    }
    Ok(())
}

#[test]
fn output_and_state_equal_the_twins_after_any_crashes() {
    let total = Total::default();
    if let Some(seed) = number_of("SEED") {
        eprintln!("SEED={seed}");
        if let Err(found) = check(seed, &total) {
            panic!("SEED={seed}: {found}");
        }
        return total.print();
    }
    let seeds = number_of("SEEDS").unwrap_or(SEEDS);
    let next = AtomicU64::new(1);
    let failed: Mutex<Vec<(u64, String)>> = Mutex::default();
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed > seeds || failed.lock().unwrap().len() > 2 {
                        return;
                    }
                    if let Err(found) = check(seed, &total) {
                        eprintln!("SEED={seed} cargo test --features testing --test simulation");
                        failed.lock().unwrap().push((seed, found));
                    }
                }
            });
        }
    });
    total.print();
    let mut failed = failed.into_inner().unwrap();
    failed.sort();
    assert!(failed.is_empty(), "{}", text_of(&failed));
    assert_eq!(total.seeds.load(Ordering::Relaxed), seeds);
    total.assert_is_worth();
}

fn text_of(failed: &[(u64, String)]) -> String {
    failed.iter().map(|(seed, found)| format!("\nSEED={seed}: {found}")).collect()
}

/// Names of data are never used again, so they end with digits that no seed knows: sixteen, before `.seg`.
fn without_random_names(text: &str) -> String {
    let mut pieces = text.split(".seg").map(str::to_owned).collect::<Vec<_>>();
    let last = pieces.len() - 1;
    for name in &mut pieces[..last] {
        name.truncate(name.len().saturating_sub(16));
    }
    pieces.join(".seg")
}

/// Some seed finds the bug by the damage that it does, which is told in these words, and finds the same
/// when it is played again.
fn assert_is_found(bug: Planted, told: &[&str]) {
    for seed in 1..=SEEDS_TO_FIND_MAX {
        if let (report, Err(found)) = live(seed, Some(bug)) {
            let short: String = found.chars().take(300).collect();
            eprintln!("{bug:?} was found after {seed} seeds: {short}");
            assert!(told.iter().all(|words| found.contains(words)), "{bug:?}: {found}");
            let (again, end) = live(seed, Some(bug));
            let end = without_random_names(&end.expect_err("it was found before"));
            assert_eq!(end, without_random_names(&found), "SEED={seed}, played again");
            assert_eq!(again.trace, report.trace);
            return;
        }
    }
    panic!("{bug:?} was not found in {SEEDS_TO_FIND_MAX} seeds");
}

#[test]
fn finds_an_acknowledgement_before_the_state_is_durable() {
    assert_is_found(Planted::AckBeforeDurable, &["expected", "no such object"]);
}

#[test]
fn finds_a_checkpoint_published_without_one_acknowledgement() {
    assert_is_found(Planted::PublishWithoutAck, &["Verdict { lost: "]);
}

#[test]
fn finds_positions_noted_one_poll_late() {
    assert_is_found(Planted::PositionsLate, &["Verdict { lost: ", "} instead of {"]);
}

#[test]
fn finds_output_made_visible_before_its_checkpoint_exists() {
    assert_is_found(Planted::CommitBeforeManifest, &["history does not explain"]);
}
