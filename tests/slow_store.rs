//! A store that hangs: no worker waits for it, and a checkpoint that cannot get done in time is dropped
//! whole, counted and told, while the job goes on and the next checkpoint is a right one.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod support;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use isochrone::connectors::Callback;
use isochrone::connectors::generator::Generator;
use isochrone::ids::JobName;
use isochrone::persistence::lineage::read_all;
use isochrone::persistence::manifest::{Manifest, Part};
use isochrone::persistence::store::faulty::{FaultyStore, Operation, Plan};
use isochrone::persistence::store::memory::MemoryStore;
use isochrone::prelude::*;
use support::{stored, wait};

const JOB: &str = "slow";
const KEYS: u64 = 100;

/// A store whose `put` hangs while its gate is shut.
#[derive(Clone, Default)]
struct Gated {
    store: MemoryStore,
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Gate {
    is_shut: Mutex<bool>,
    opened: Condvar,
    /// Calls that hang now.
    hanging: AtomicU64,
}

impl Gate {
    fn shut(&self) {
        *self.is_shut.lock().unwrap() = true;
    }

    fn open(&self) {
        *self.is_shut.lock().unwrap() = false;
        self.opened.notify_all();
    }

    fn pass(&self) {
        self.hanging.fetch_add(1, Ordering::SeqCst);
        drop(self.opened.wait_while(self.is_shut.lock().unwrap(), |is_shut| *is_shut).unwrap());
        self.hanging.fetch_sub(1, Ordering::SeqCst);
    }

    fn is_holding(&self) -> bool {
        self.hanging.load(Ordering::SeqCst) > 0 && *self.is_shut.lock().unwrap()
    }
}

impl Gated {
    /// The store as a job has it.
    fn held(&self) -> FaultyStore<MemoryStore> {
        let gate = self.gate.clone();
        FaultyStore::new(self.store.clone(), Plan::none()).with_latency(move |call| {
            if call.operation == Operation::Put && call.name.ends_with(".seg") {
                gate.pass();
            }
        })
    }
}

/// Counts numbers by key until it is stopped; answers with how many reached the sink so far.
fn start(
    store: &Gated,
    timeout: Duration,
) -> (isochrone::JobHandle, Arc<AtomicU64>, thread::JoinHandle<Result<Summary>>) {
    let checkpoint = Checkpoint::store(store.held()).not_by_time().timeout(timeout);
    let job = Job::new(JOB).checkpoint(checkpoint.retain(100, Duration::ZERO).failures_max(5));
    let handle = job.handle();
    let written = Arc::new(AtomicU64::new(0));
    let count = written.clone();
    let run = thread::spawn(move || {
        let args = RunArgs { workers: 2, quiet: true, ..RunArgs::default() };
        job.run(args, move |flow| {
            let count = count.clone();
            let numbers = Generator::counting(u64::MAX, |number| number);
            flow.source("numbers", numbers)
                .key_by(|number| number % KEYS)
                .state::<u64>("counts")
                .map(|counted, _| {
                    *counted += 1;
                    *counted
                })
                .sink(
                    "out",
                    Callback::new(move |_: &u64| {
                        count.fetch_add(1, Ordering::Relaxed);
                    }),
                );
            Ok(())
        })
    });
    (handle, written, run)
}

fn reaches(written: &AtomicU64, target: u64) -> bool {
    wait::soon(|| written.load(Ordering::Relaxed) >= target)
}

/// More than all that may be in flight: whoever gets so far has not waited.
const FAR: u64 = 1_000_000;

#[test]
fn workers_go_on_while_the_store_hangs() {
    let store = Gated::default();
    let (handle, written, run) = start(&store, Duration::from_secs(600));
    assert!(reaches(&written, 1));
    store.gate.shut();
    let asked = {
        let handle = handle.clone();
        thread::spawn(move || handle.checkpoint(None))
    };
    assert!(wait::soon(|| store.gate.is_holding()), "no state is on its way to the store");
    let before = written.load(Ordering::Relaxed);
    assert!(reaches(&written, before + FAR), "the sink stands still at {before}");
    assert!(store.gate.is_holding(), "the store hangs all the while");
    store.gate.open();
    let epoch = asked.join().unwrap().unwrap();
    handle.stop();
    let summary = run.join().unwrap().unwrap();
    assert_eq!(summary.checkpoints.failed, 0);
    assert!(summary.checkpoints.last_epoch > epoch.0);
    assert_is_right(&store, 2);
}

#[test]
fn a_checkpoint_whose_part_comes_too_late_is_dropped_whole_and_the_next_one_is_right() {
    let store = Gated::default();
    let (handle, written, run) = start(&store, Duration::from_secs(6));
    assert!(reaches(&written, 1));
    let first = handle.checkpoint(None).unwrap();
    store.gate.shut();
    let reason = handle.checkpoint(None).unwrap_err().to_string();
    assert!(reason.contains("`counts`"), "whom it waited for is named: {reason}");
    assert!(store.gate.is_holding(), "the part has not come yet");
    let dropped = first.next();
    let epochs = |store: &Gated| -> Vec<_> {
        manifests(store).into_iter().map(|manifest| manifest.epoch).collect()
    };
    assert!(!epochs(&store).contains(&dropped), "{:?}", epochs(&store));
    let before = written.load(Ordering::Relaxed);
    assert!(reaches(&written, before + 1_000), "the job stands still");

    store.gate.open();
    let next = handle.checkpoint(None).unwrap();
    assert!(next > dropped);
    handle.stop();
    let summary = run.join().unwrap().unwrap();
    assert_eq!(summary.checkpoints.failed, 1);
    let told = summary.checkpoints.last_failure.as_ref().unwrap();
    assert!(told.contains(&format!("checkpoint {dropped}")) && told.contains("`counts`"), "{told}");
    assert!(summary.to_string().contains("1 checkpoint dropped"), "{summary}");
    assert!(!epochs(&store).contains(&dropped), "nothing of it is left: {:?}", epochs(&store));
    assert_is_right(&store, 3);
}

fn manifests(store: &Gated) -> Vec<Manifest> {
    let all = read_all(&store.store, &JobName::new(JOB).unwrap()).unwrap();
    all.into_iter().map(|found| found.manifest.unwrap()).collect()
}

/// In so many checkpoints at least, the counts are those of the numbers before the position.
fn assert_is_right(store: &Gated, at_least: usize) {
    let mut checked = 0;
    for manifest in manifests(store) {
        let Some(position) = position(&manifest) else { continue };
        let counts = stored::state::<u64, u64>(&store.store, &manifest, "counts");
        let of = |key| position / KEYS + u64::from(key < position % KEYS);
        let expected: BTreeMap<u64, u64> = (0..KEYS).map(|key| (key, of(key))).collect();
        assert_eq!(counts, expected, "epoch {}", manifest.epoch);
        checked += 1;
    }
    assert!(checked >= at_least, "only {checked} checkpoints");
}

/// How many numbers have been read; none before the first checkpoint.
fn position(manifest: &Manifest) -> Option<u64> {
    let part = &manifest.operators.iter().find(|operator| operator.id.as_str() == "numbers")?.part;
    let Part::Source { splits, .. } = part else { panic!("no source: {part:?}") };
    splits.first()?.position["next"].as_u64().filter(|next| *next > 0)
}
