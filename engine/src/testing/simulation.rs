//! A job's whole life on simulated machines: run, crash, start again elsewhere, to the end.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use isochrone_persistence::store::faulty::{Effect, FaultyStore, Plan};
use isochrone_persistence::store::memory::MemoryStore;

use super::baton::{Baton, Fate};
use super::random::Random;
use super::trace::Trace;
use super::watched::{Watched, checkpoints_in};
use crate::flow::Flow;
use crate::job::{Checkpoint, Job};
use crate::runtime::conductor::Call;
use crate::runtime::pace::Planted;
use crate::runtime::ready::Ready;
use crate::time::ManualClock;
use crate::{Error, ErrorKind, Outcome, Result, RunArgs, Summary};

/// Runs that may end early for reasons of their own (checkpoints that take too long, a store that
/// does not answer) before that counts as a fault of the engine.
const RUNS_MAX: u64 = 200;

/// A simulation of one job, from one seed.
///
/// ```
/// use isochrone_engine::testing::{Script, Simulation};
/// # use isochrone_engine::connector::*;
/// # struct Nowhere;
/// # impl Sink for Nowhere {
/// #     type Item = u64;
/// #     type Effect = u64;
/// #     fn writer(&self, _: &SinkContext) -> isochrone_engine::Result<Box<dyn Writer<u64, u64>>> { Ok(Box::new(Nowhere)) }
/// #     fn committer(&self, _: &SinkContext) -> isochrone_engine::Result<Box<dyn Committer<u64>>> { Ok(Box::new(Nowhere)) }
/// # }
/// # impl Writer<u64, u64> for Nowhere {
/// #     fn write(&mut self, batch: &mut Vec<u64>, _: isochrone_engine::ids::Epoch) -> isochrone_engine::Result<Readiness> { batch.clear(); Ok(Readiness::Ready) }
/// #     fn prepare(&mut self, _: isochrone_engine::ids::Epoch) -> isochrone_engine::Result<Prepare<u64>> { Ok(Box::new(|| Ok(None))) }
/// # }
/// # impl Committer<u64> for Nowhere {
/// #     fn recover(&mut self, _: Recovery<u64>) -> isochrone_engine::Result<Vec<String>> { Ok(Vec::new()) }
/// #     fn commit(&mut self, _: &[u64]) -> isochrone_engine::Result<()> { Ok(()) }
/// # }
/// let life = || {
///     Simulation::new(42).crashes_max(3).run(|flow| {
///         flow.source("numbers", Script::new(1, vec![vec![1, 2, 3], vec![4, 5]]))
///             .key_by(|n: &u64| *n)
///             .state::<u64>("sums")
///             .map(|sum, n| { *sum += n; *sum })
///             .sink("nowhere", Nowhere);
///         Ok(())
///     })
/// };
/// let report = life();
/// assert!(report.failure.is_none() && report.checkpoints > 0);
/// assert_eq!(report.trace, life().trace);
/// ```
#[derive(Clone, Debug)]
pub struct Simulation {
    seed: u64,
    crashes_max: u64,
    workers_max: u64,
    store_faults: u64,
    draws_settings: bool,
    planted: Option<Planted>,
}

/// What a simulation saw.
pub struct Report {
    /// How often the job was started.
    pub runs: u64,
    /// How many of its runs ended with the crash of the machine.
    pub crashes: u64,
    /// How many were asked to stop, and did.
    pub stops: u64,
    /// How many had another number of workers than the one before.
    pub rescales: u64,
    /// How many ended because checkpoints failed or the store did not answer.
    pub failed: u64,
    /// Turns given, in all runs.
    pub steps: u64,
    /// Checkpoints in the store at the end; collected ones are not counted.
    pub checkpoints: u64,
    /// The number of the last one.
    pub epochs: u64,
    /// Hash of every decision and every call of the store.
    pub trace: u64,
    /// What the engine did wrong by itself: an error that no crash explains, or no end.
    pub failure: Option<Error>,
    /// What the job left.
    pub store: MemoryStore,
}

impl fmt::Debug for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { runs, crashes, stops, rescales, failed, .. } = self;
        let Report { steps, checkpoints, epochs, .. } = self;
        write!(f, "{runs} runs: {crashes} crashes, {stops} stops, {rescales} rescales, ")?;
        write!(f, "{failed} failed; {steps} steps; ")?;
        write!(f, "{checkpoints} checkpoints left of {epochs}; trace {:016x}", self.trace)?;
        self.failure.as_ref().map_or(Ok(()), |error| write!(f, "; {}", error.report()))
    }
}

/// One start of the job.
struct Start {
    workers: u32,
    fate: Fate,
    plan: Plan,
    checkpoint: Checkpoint,
    in_bytes: bool,
    savepoints: Vec<u64>,
    stop_at: Option<u64>,
}

impl Simulation {
    /// The simulation of this seed.
    pub fn new(seed: u64) -> Simulation {
        Simulation {
            seed,
            crashes_max: 4,
            workers_max: 4,
            store_faults: 0,
            draws_settings: true,
            planted: None,
        }
    }

    /// The machine crashes so often at most. Without this, four times.
    #[must_use]
    pub fn crashes_max(mut self, crashes: u64) -> Self {
        self.crashes_max = crashes;
        self
    }

    /// Each start has one worker up to so many. Without this, four.
    #[must_use]
    pub fn workers_max(mut self, workers: u32) -> Self {
        self.workers_max = workers.into();
        self
    }

    /// One call of the store in so many fails. Without this, or with 0, none.
    #[must_use]
    pub fn store_faults(mut self, one_in: u64) -> Self {
        self.store_faults = one_in;
        self
    }

    /// Whether timeouts, failures and requests are drawn too. Without this, they are; otherwise
    /// there is a checkpoint at every 16 records.
    #[must_use]
    pub fn draws_settings(mut self, draws: bool) -> Self {
        self.draws_settings = draws;
        self
    }

    /// Plants a bug in the engine.
    #[must_use]
    pub fn planted(mut self, bug: Planted) -> Self {
        self.planted = Some(bug);
        self
    }

    /// Runs the job to its end, or until the engine does something that no crash explains.
    pub fn run<F>(&self, build: F) -> Report
    where
        F: Fn(&Flow<'_>) -> Result<()> + Send + Sync + 'static,
    {
        let mut life = Life {
            build: Arc::new(build),
            random: Random::new(self.seed),
            clock: Arc::default(),
            trace: Arc::default(),
            workers: None,
            report: Report {
                runs: 0,
                crashes: 0,
                stops: 0,
                rescales: 0,
                failed: 0,
                steps: 0,
                checkpoints: 0,
                epochs: 0,
                trace: 0,
                failure: None,
                store: MemoryStore::new(),
            },
        };
        while !life.go_on(self) {}
        let mut report = life.report;
        report.trace = life.trace.hash();
        (report.checkpoints, report.epochs) = checkpoints_in(&report.store);
        report
    }

    /// Draws the next start. After the last crash nothing goes wrong any more, so that the job
    /// must come to its end.
    fn draw(&self, random: &mut Random, run: u64, quiet: bool) -> Start {
        let workers = 1 + random.below(self.workers_max);
        let span = 1 << (4 + random.below(8));
        let crash_at = (!quiet && !random.one_in(4)).then(|| 1 + random.below(span));
        let mut plan = Plan::none();
        if !quiet {
            plan = Plan::random(random.draw(), self.store_faults);
            if random.one_in(3) {
                let effect =
                    if random.one_in(2) { Effect::CrashBefore } else { Effect::CrashAfter };
                plan = plan.and_at_operation(1 + random.below(60), effect);
            }
        }
        let requests = if self.draws_settings && random.one_in(4) { random.below(3) } else { 0 };
        let savepoints = (0..requests).map(|_| random.below(span)).collect();
        let may_stop = self.draws_settings && !quiet && random.one_in(6);
        Start {
            workers: u32::try_from(workers).unwrap_or(1),
            fate: Fate {
                seed: random.draw() ^ run,
                workers: usize::try_from(workers).unwrap_or(1),
                crash_at,
                pass_ms_max: 1 + random.below(12),
                planted: self.planted,
                events: VecDeque::new(),
            },
            plan,
            checkpoint: self.draw_checkpoint(random, quiet),
            in_bytes: random.one_in(3),
            savepoints,
            stop_at: may_stop.then(|| random.below(span)),
        }
    }

    fn draw_checkpoint(&self, random: &mut Random, quiet: bool) -> Checkpoint {
        let checkpoint = Checkpoint::in_memory().not_by_time();
        if !self.draws_settings {
            return checkpoint.every_records(16);
        }
        let mut checkpoint = checkpoint
            .every_records(1 + random.below(40))
            .retain(1 + usize::try_from(random.below(4)).unwrap_or(0), Duration::ZERO);
        if random.one_in(2) {
            checkpoint = checkpoint.every(Duration::from_millis(1 + random.below(100)));
        }
        if !quiet && random.one_in(2) {
            let timeout = Duration::from_millis(10 + random.below(300));
            checkpoint = checkpoint.timeout(timeout);
        }
        if quiet { checkpoint } else { checkpoint.failures_max(1 + random.below(8) as u32) }
    }
}

/// The job and all its machines so far.
struct Life<F> {
    build: Arc<F>,
    random: Random,
    clock: Arc<ManualClock>,
    trace: Arc<Trace>,
    /// Of the start before.
    workers: Option<u32>,
    report: Report,
}

impl<F: Fn(&Flow<'_>) -> Result<()> + Send + Sync + 'static> Life<F> {
    /// Starts the job once more; answers whether that was the last time.
    fn go_on(&mut self, simulation: &Simulation) -> bool {
        let quiet = self.report.crashes >= simulation.crashes_max;
        let start = simulation.draw(&mut self.random, self.report.runs, quiet);
        self.report.runs += 1;
        let before = self.workers.replace(start.workers);
        self.report.rescales += u64::from(before.is_some_and(|before| before != start.workers));
        self.trace.note(u64::from(start.workers));
        let (end, baton) = self.start(start);
        let died = baton.is_dead() && !baton.is_stuck();
        // Whoever has been started and still waits for a turn is not needed any more.
        baton.kill();
        self.report.steps += baton.steps();
        self.trace.note(baton.steps());
        match end {
            Ok(summary) if summary.outcome == Outcome::Stopped => self.report.stops += 1,
            Ok(_) => return true,
            Err(_) if died => self.report.crashes += 1,
            Err(error) if baton.is_stuck() => {
                return self.fail(Error::internal(format!("the run does not end: {error}")));
            }
            Err(error) if error.kind() == ErrorKind::Unavailable && !quiet => {
                self.report.failed += 1;
            }
            Err(error) if quiet && error.report().contains("planned fault") => {
                self.report.failed += 1
            }
            Err(error) => return self.fail(error),
        }
        if self.report.runs >= RUNS_MAX {
            return self.fail(Error::internal("the job does not come to its end"));
        }
        false
    }

    fn fail(&mut self, error: Error) -> bool {
        self.report.failure = Some(error);
        true
    }

    fn start(&self, start: Start) -> (Result<Summary>, Arc<Baton>) {
        let Start { workers, mut fate, plan, checkpoint, in_bytes, savepoints, stop_at } = start;
        let place = Checkpoint::store(self.report.store.clone()).place;
        let job = Job::new("simulated")
            .key_groups(16)
            .checkpoint(Checkpoint { place, ..checkpoint })
            .clock(self.clock.clone());
        let ready = Ready::new(&job, &RunArgs { quiet: true, ..RunArgs::default() }, &*self.build);
        let run = self.report.runs;
        let calls = job.calls().0;
        let mut events: Vec<(u64, Call)> = Vec::new();
        for (number, step) in savepoints.into_iter().enumerate() {
            let savepoint = Some(format!("run-{run}-{number}"));
            let (answer, _) = crossbeam_channel::bounded(1);
            events.push((step, Call::Checkpoint { savepoint, answer }));
        }
        events.extend(stop_at.map(|step| (step, Call::Stop)));
        events.sort_by_key(|(step, _)| *step);
        fate.events = events.into_iter().map(|(step, call)| (step, later(&calls, call))).collect();
        let baton = Arc::new(Baton::new(fate, self.clock.clone(), self.trace.clone()));
        let watched = Watched {
            inner: FaultyStore::new(self.report.store.clone(), plan),
            baton: baton.clone(),
            trace: self.trace.clone(),
        };
        let end = ready.and_then(|ready| {
            let ready = Ready { store: Arc::new(watched), in_bytes, ..ready };
            match ready.nothing_to_do(0)? {
                Some(summary) => Ok(summary),
                None => ready.run_alone(workers, baton.clone(), self.build.clone()),
            }
        });
        (end, baton)
    }
}

fn later(calls: &crossbeam_channel::Sender<Call>, call: Call) -> Box<dyn FnOnce() + Send> {
    let calls = calls.clone();
    // A coordinator that has left does not listen any more.
    Box::new(move || drop(calls.send(call)))
}
