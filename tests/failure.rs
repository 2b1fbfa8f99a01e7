//! Failures with a defined outcome: of the user's code, of the store, and requests from outside.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod support;

#[path = "failure/hung.rs"]
mod hung;
#[path = "failure/outage.rs"]
mod outage;
#[path = "failure/panics.rs"]
mod panics;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use isochrone::connector::{Committer, Recovery, Sink, SinkContext, Writer};
use isochrone::connectors::generator::Generator;
use isochrone::connectors::scripted::{Script, Step};
use isochrone::connectors::{Callback, Collected};
use isochrone::persistence::store::local::LocalStore;
use isochrone::persistence::store::memory::MemoryStore;
use isochrone::persistence::{Created, Store};
use isochrone::prelude::*;
use isochrone::{ErrorKind, Outcome};
use support::child::{self, assert_ends_well, play};
use support::oracle::parts;
use support::wait::Since;
use support::{stored, wait};
use tempfile::TempDir;

fn quiet(workers: u32) -> RunArgs {
    RunArgs { workers, quiet: true, ..RunArgs::default() }
}

/// Numbers without end, for both workers.
fn endless() -> Generator<u64, impl Fn(u64) -> u64 + 'static> {
    Generator::counting(u64::MAX, |number| number).splits(2)
}

/// Lit just before a closure fails.
type Fuse = Arc<OnceLock<Since>>;

fn light(fuse: &Fuse) {
    fuse.get_or_init(Since::now);
}

/// Runs until a closure fails; then the job must end within a second.
fn failure<F>(build: F) -> Error
where
    F: Fn(&Flow<'_>, Fuse) -> Result<()> + Send + Sync + 'static,
{
    // Printing a trace takes its time, and is not the job's.
    std::panic::set_hook(Box::new(|panic| eprintln!("{panic}")));
    let build = Arc::new(build);
    wait::best_within(Duration::from_secs(1), || {
        let fuse = Fuse::default();
        let (build, lit) = (build.clone(), fuse.clone());
        let error = Job::new("failing").run(quiet(2), move |flow| build(flow, lit.clone()));
        (fuse.get().expect("the closure fails").passed(), error.unwrap_err())
    })
}

#[test]
fn a_panic_in_a_closure_stops_all_workers_within_a_second_and_is_named() {
    let error = failure(|flow, fuse| {
        let strict = move |number: u64| {
            if number == 5_000 {
                light(&fuse);
                panic!("no 5000");
            }
            number
        };
        flow.source("numbers", endless()).map(strict).sink("out", Callback::new(|_: &u64| ()));
        Ok(())
    });
    assert_eq!(error.kind(), ErrorKind::User, "{error:?}");
    assert!(error.to_string().contains("map"), "{error:?}");
    assert!(error.to_string().contains("no 5000"), "{error:?}");
}

#[test]
fn a_panic_in_a_state_closure_names_operator_and_key() {
    let error = failure(|flow, fuse| {
        flow.source("numbers", endless())
            .key_by(|number| format!("key-{}", number % 1_000))
            .state::<u64>("spent")
            .map(move |count, number| {
                *count += 1;
                if number == 4_321 {
                    light(&fuse);
                    panic!("too much");
                }
                *count
            })
            .sink("out", Callback::new(|_: &u64| ()));
        Ok(())
    });
    assert_eq!(error.kind(), ErrorKind::User, "{error:?}");
    for part in ["`spent`", "key-321", "too much"] {
        assert!(error.to_string().contains(part), "{error:?}");
    }
}

#[test]
fn an_error_of_try_map_keeps_its_kind() {
    let error = failure(|flow, fuse| {
        flow.source("numbers", endless())
            .try_map(move |number| {
                if number == 7_000 {
                    light(&fuse);
                    return Err(Error::incompatible("7000 is of another kind"));
                }
                Ok(number)
            })
            .sink("out", Callback::new(|_: &u64| ()));
        Ok(())
    });
    assert_eq!(error.kind(), ErrorKind::Incompatible, "{error:?}");
    assert!(error.to_string().contains("7000 is of another kind"), "{error:?}");
}

/// A sink at a place where nobody lets it write.
struct Closed;

impl Sink for Closed {
    type Item = u64;
    type Effect = ();

    fn writer(&self, _: &SinkContext) -> Result<Box<dyn Writer<u64, ()>>> {
        Err(Error::invalid("there is no such place"))
    }

    fn committer(&self, _: &SinkContext) -> Result<Box<dyn Committer<()>>> {
        Ok(Box::new(Closed))
    }
}

impl Committer<()> for Closed {
    fn recover(&mut self, _: Recovery<()>) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn commit(&mut self, _: &[()]) -> Result<()> {
        Ok(())
    }
}

/// Its error was once taken for a panic of timely over an operator that was begun and not finished.
#[test]
fn an_error_of_a_sink_that_cannot_be_opened_keeps_its_kind_and_its_text() {
    let error = failure(|flow, fuse| {
        light(&fuse);
        let keyed = flow.source("numbers", endless()).key_by(|number| number % 7).count("count");
        keyed.map(|(_, count)| count).sink("out", Closed);
        Ok(())
    });
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
    assert_eq!(error.to_string(), "there is no such place");
}

// SIGTERM.

const DRAINED: &str = "sigterm_takes_a_last_checkpoint_commits_and_exits_with_success";

#[test]
fn sigterm_takes_a_last_checkpoint_commits_and_exits_with_success() {
    play(|flags| endless_job(Path::new(&flags[1])));
    let folder = TempDir::new().unwrap();
    let flags = [folder.path().to_str().unwrap().to_owned()];
    let mut job = child::Job::start(DRAINED, &flags, &folder.path().join("errors"));
    let output = folder.path().join("output");
    assert!(wait::soon(|| parts(&output).len() >= 3), "{}", job.errors());
    job.signal("TERM");
    assert_ends_well(&mut job);

    let store = LocalStore::open(folder.path().join("state")).unwrap();
    let manifest = stored::newest(&store, "draining").unwrap();
    assert!(!manifest.finished, "the input has no end");
    let counts = stored::state::<u64, u64>(&store, &manifest, "counts");
    let lines = |part| std::fs::read_to_string(part).unwrap().lines().count() as u64;
    let written: u64 = parts(&output).into_iter().map(lines).sum();
    assert_eq!(written, counts.values().sum::<u64>(), "all that was counted is visible");
    let names = std::fs::read_dir(&output).unwrap().map(|entry| entry.unwrap().file_name());
    let open: Vec<_> = names.filter(|name| name.to_string_lossy().ends_with(".open")).collect();
    assert!(open.is_empty(), "left in progress: {open:?}");
}

const STUCK: &str = "a_second_sigterm_ends_the_job_at_once_and_says_what_it_was_waiting_for";

#[test]
fn a_second_sigterm_ends_the_job_at_once_and_says_what_it_was_waiting_for() {
    play(|flags| stuck_job(Path::new(&flags[1])));
    let folder = TempDir::new().unwrap();
    let flags = [folder.path().to_str().unwrap().to_owned()];
    let mut job = child::Job::start(STUCK, &flags, &folder.path().join("errors"));
    assert!(wait::soon(|| folder.path().join("stuck").exists()), "{}", job.errors());
    job.signal("TERM");
    wait::pause(Duration::from_millis(300));
    assert_eq!(job.ended(), None, "{}", job.errors());
    job.signal("TERM");
    assert_eq!(job.end().code(), Some(4), "{}", job.errors());
    for part in ["ended at once on request while waiting for checkpoint 1", "`out` on worker 0"] {
        assert!(job.errors().contains(part), "{}", job.errors());
    }
}

/// A job of which a closure never comes back.
fn stuck_job(folder: &Path) -> Result<()> {
    let checkpoint = Checkpoint::dir(folder.join("state")).not_by_time();
    let stuck = folder.join("stuck");
    let args = RunArgs { signals: true, ..quiet(1) };
    let end = Job::new("stuck").checkpoint(checkpoint).run(args, move |flow| {
        let stuck = stuck.clone();
        let wait = move |_: &u64| {
            std::fs::write(&stuck, "").unwrap();
            wait::pause(Duration::from_secs(600));
        };
        flow.source("numbers", endless()).inspect(wait).sink("out", Collected::default());
        Ok(())
    });
    end.map(drop)
}

fn endless_job(folder: &Path) -> Result<()> {
    let checkpoint = Checkpoint::dir(folder.join("state")).every(Duration::from_millis(20));
    let output = folder.join("output");
    let clock = Arc::new(isochrone::time::SystemClock::default());
    let args = RunArgs { signals: true, ..quiet(2) };
    let summary = Job::new("draining").checkpoint(checkpoint).run(args, move |flow| {
        let numbers = Generator::counting(u64::MAX, |number| number).splits(2);
        flow.source("numbers", numbers.per_second(50_000, clock.clone()))
            .key_by(|number| number % 100)
            .count("counts")
            .sink("out", PartFiles::at(&output).json());
        Ok(())
    })?;
    assert_eq!(summary.outcome, Outcome::Stopped);
    Ok(())
}

// A full disk.

/// A store on a disk that can be full: what would take space there fails.
#[derive(Clone, Default)]
struct Disk {
    store: MemoryStore,
    full: Arc<AtomicBool>,
    /// Whether manifests still fit.
    small_fits: bool,
}

impl Disk {
    fn check(&self, name: &str) -> Result<()> {
        if self.full.load(Ordering::SeqCst) && !(self.small_fits && name.ends_with(".json")) {
            return Err(Error::unavailable(format!("no space left on device for {name}")));
        }
        Ok(())
    }
}

impl Store for Disk {
    fn get(&self, name: &str) -> Result<Option<Vec<u8>>> {
        self.store.get(name)
    }
    fn get_range(&self, name: &str, range: std::ops::Range<u64>) -> Result<Option<Vec<u8>>> {
        self.store.get_range(name, range)
    }
    fn put(&self, name: &str, bytes: &[u8]) -> Result<()> {
        self.check(name)?;
        self.store.put(name, bytes)
    }
    fn put_if_absent(&self, name: &str, bytes: &[u8]) -> Result<Created> {
        self.check(name)?;
        self.store.put_if_absent(name, bytes)
    }
    fn list(&self, prefix: &str) -> Result<Vec<String>> {
        self.store.list(prefix)
    }
    fn delete(&self, name: &str) -> Result<()> {
        self.store.delete(name)
    }
    fn describe(&self) -> String {
        "a disk that can be full".to_owned()
    }
}

/// A job that counts numbers by their last digit, with a gate before each hundred.
struct Gated {
    job: Job,
    script: Script<u64>,
    sink: Collected<(u64, u64)>,
    counted: Arc<AtomicU64>,
}

const HUNDREDS: u64 = 6;

impl Gated {
    fn on(store: impl Store) -> Gated {
        let hundred = |gate: u64| {
            let numbers = gate * 100..gate * 100 + 100;
            numbers.map(Step::Item).chain([Step::Gate(gate + 1)])
        };
        let checkpoint = Checkpoint::store(store).not_by_time();
        Gated {
            job: Job::new("gated").checkpoint(checkpoint),
            script: Script::new((0..HUNDREDS).flat_map(hundred)),
            sink: Collected::default(),
            counted: Arc::default(),
        }
    }

    fn run(self) -> Result<Summary> {
        let Gated { job, script, sink, counted } = self;
        job.run(quiet(1), move |flow| {
            let counted = counted.clone();
            flow.source("numbers", script.clone())
                .key_by(|number| number % 10)
                .count("counts")
                .inspect(move |_| {
                    counted.fetch_add(1, Ordering::SeqCst);
                })
                .sink("out", sink.clone());
            Ok(())
        })
    }

    /// Waits until so many hundreds have been counted.
    fn await_hundreds(counted: &AtomicU64, hundreds: u64) {
        assert!(wait::soon(|| counted.load(Ordering::SeqCst) >= hundreds * 100));
    }
}

#[test]
fn a_full_disk_drops_the_checkpoint_and_the_job_goes_on() {
    let disk = Disk { small_fits: true, ..Disk::default() };
    let (store, full) = (disk.store.clone(), disk.full.clone());
    let gated = Gated::on(disk);
    let (handle, script, sink) = (gated.job.handle(), gated.script.clone(), gated.sink.clone());
    let counted = gated.counted.clone();
    let driver = thread::spawn(move || {
        for hundred in 1..=HUNDREDS {
            Gated::await_hundreds(&counted, hundred);
            full.store(hundred == 2 || hundred == 4, Ordering::SeqCst);
            let answer = handle.checkpoint(None);
            match hundred {
                2 | 4 => {
                    let error = answer.unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::Unavailable);
                    assert!(error.to_string().contains("no space left"), "{error:?}");
                    assert!(error.to_string().contains("counts"), "{error:?}");
                }
                _ => drop(answer.unwrap()),
            }
            full.store(false, Ordering::SeqCst);
            script.open_gates();
        }
    });
    let summary = gated.run().unwrap();
    driver.join().unwrap();
    assert_eq!(summary.checkpoints.failed, 2);
    assert!(summary.checkpoints.last_failure.unwrap().contains("no space left"));
    assert_eq!(sink.items().len() as u64, HUNDREDS * 100);
    let manifest = stored::newest(&store, "gated").unwrap();
    let counts = stored::state::<u64, u64>(&store, &manifest, "counts");
    assert_eq!(counts, (0..10).map(|digit| (digit, HUNDREDS * 10)).collect());
}

#[test]
fn several_failed_checkpoints_in_a_row_stop_the_job_with_the_reason() {
    let disk = Disk { small_fits: true, ..Disk::default() };
    let (store, full) = (disk.store.clone(), disk.full.clone());
    let gated = Gated::on(disk);
    let (handle, counted, sink) = (gated.job.handle(), gated.counted.clone(), gated.sink.clone());
    let driver = thread::spawn(move || {
        Gated::await_hundreds(&counted, 1);
        full.store(true, Ordering::SeqCst);
        for _ in 0..3 {
            assert_eq!(handle.checkpoint(None).unwrap_err().kind(), ErrorKind::Unavailable);
        }
    });
    let error = gated.run().unwrap_err();
    driver.join().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    for part in ["3 checkpoints in a row failed", "no space left", "counts"] {
        assert!(error.to_string().contains(part), "{error:?}");
    }
    assert!(sink.items().is_empty(), "nothing is published without a checkpoint");
    assert_eq!(stored::newest(&store, "gated").unwrap().epoch.0, 0);
}

// Requests.

#[test]
fn a_savepoint_is_kept_when_later_checkpoints_are_collected() {
    let store = MemoryStore::new();
    let mut gated = Gated::on(store.clone());
    let checkpoint = Checkpoint::store(store.clone()).not_by_time().retain(1, Duration::ZERO);
    gated.job = gated.job.checkpoint(checkpoint);
    let (handle, script, counted) =
        (gated.job.handle(), gated.script.clone(), gated.counted.clone());
    let driver = thread::spawn(move || {
        let mut epochs = Vec::new();
        for hundred in 1..=HUNDREDS {
            Gated::await_hundreds(&counted, hundred);
            let label = (hundred == 2).then_some("before-the-move");
            epochs.push(handle.checkpoint(label).unwrap());
            script.open_gates();
        }
        epochs
    });
    gated.run().unwrap();
    let epochs = driver.join().unwrap();
    assert!(epochs.is_sorted() && epochs.windows(2).all(|pair| pair[0] < pair[1]), "{epochs:?}");
    let job = isochrone::ids::JobName::new("gated").unwrap();
    let left = isochrone::persistence::lineage::read_all(&store, &job).unwrap();
    let left: Vec<_> = left.into_iter().map(|found| found.manifest.unwrap()).collect();
    let savepoint = left.iter().find(|manifest| manifest.savepoint.is_some()).unwrap();
    assert_eq!(savepoint.savepoint.as_deref(), Some("before-the-move"));
    assert_eq!(savepoint.epoch, epochs[1]);
    let counts = stored::state::<u64, u64>(&store, savepoint, "counts");
    assert_eq!(counts, (0..10).map(|digit| (digit, 20)).collect());
    let between = |manifest: &&_| epochs[2..4].contains(&manifest_epoch(manifest));
    assert_eq!(left.iter().filter(between).count(), 0, "the others are collected");
}

fn manifest_epoch(manifest: &isochrone::persistence::manifest::Manifest) -> isochrone::ids::Epoch {
    manifest.epoch
}

#[test]
fn a_second_run_has_nothing_to_do_and_changes_nothing() {
    let store = MemoryStore::new();
    let sink = Collected::default();
    let run = || {
        let mut gated = Gated::on(store.clone());
        gated.sink = sink.clone();
        (0..HUNDREDS).for_each(|_| gated.script.open_gates());
        gated.run().unwrap()
    };
    assert_eq!(run().outcome, Outcome::InputEnded);
    let (objects, commits) = (store.snapshot(), sink.commits());
    assert_eq!(run().outcome, Outcome::NothingToDo);
    assert_eq!(store.snapshot(), objects);
    assert_eq!(sink.commits(), commits);
}
