//! What the threads of one process share: the newest trigger, the end of the run, and its failure.
//!
//! Orders reach operators here and by waking them, never behind data.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::dataflow::SyncActivator;
use crossbeam_channel::Sender;
use isochrone_persistence::ids::Epoch;
use isochrone_persistence::manifest;

use super::message::{Failure, Handover};
use super::under_way::Commits;
use crate::protocol::Part;
use crate::time::SharedClock;
use crate::{Error, Result};

/// Shared by all threads of a process.
pub(crate) struct Control {
    trigger: AtomicU64,
    over: AtomicBool,
    failed: AtomicBool,
    read: AtomicU64,
    dead_letters: AtomicU64,
    /// By sink.
    written: Mutex<BTreeMap<usize, Arc<AtomicU64>>>,
    pause_us: AtomicU64,
    alignment_us: Mutex<BTreeMap<Epoch, u64>>,
    failure: Mutex<Option<Error>>,
    splits: Mutex<HashMap<Part, Vec<manifest::Split>>>,
    splits_given: AtomicU64,
    dealt: Mutex<HashMap<usize, bool>>,
    wakers: Mutex<Vec<SyncActivator>>,
    handover: Sender<Handover>,
    /// What the commit thread is doing.
    pub(crate) commits: Arc<Commits>,
    clock: SharedClock,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Control {
    pub(crate) fn new(start: Epoch, handover: Sender<Handover>, clock: SharedClock) -> Self {
        Control {
            trigger: AtomicU64::new(start.0),
            over: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            read: AtomicU64::new(0),
            dead_letters: AtomicU64::new(0),
            written: Mutex::default(),
            pause_us: AtomicU64::new(0),
            alignment_us: Mutex::default(),
            failure: Mutex::default(),
            splits: Mutex::default(),
            splits_given: AtomicU64::new(0),
            dealt: Mutex::default(),
            wakers: Mutex::default(),
            handover,
            commits: Arc::default(),
            clock,
        }
    }

    pub(crate) fn clock(&self) -> &SharedClock {
        &self.clock
    }

    /// The newest cut that was asked for.
    pub(crate) fn triggered(&self) -> Epoch {
        Epoch(self.trigger.load(Ordering::Acquire))
    }

    pub(crate) fn trigger(&self, epoch: Epoch) {
        self.trigger.fetch_max(epoch.0, Ordering::AcqRel);
        self.wake();
    }

    /// Gives a source instance more splits to read.
    pub(crate) fn assign(&self, part: Part, splits: Vec<manifest::Split>) {
        lock(&self.splits).entry(part).or_default().extend(splits);
        self.splits_given.fetch_add(1, Ordering::AcqRel);
        self.wake();
    }

    /// Changes whenever [`Control::take_splits`] or [`Control::dealt`] may answer otherwise.
    pub(crate) fn splits_version(&self) -> u64 {
        self.splits_given.load(Ordering::Acquire)
    }

    pub(crate) fn take_splits(&self, part: Part) -> Vec<manifest::Split> {
        lock(&self.splits).remove(&part).unwrap_or_default()
    }

    /// The source of this index has got the splits there are; with `complete`, for good.
    pub(crate) fn deal(&self, operator: usize, complete: bool) {
        lock(&self.dealt).insert(operator, complete);
        self.splits_given.fetch_add(1, Ordering::AcqRel);
        self.wake();
    }

    /// Whether the source of this index has got splits, and if so, whether for good.
    pub(crate) fn dealt(&self, operator: usize) -> Option<bool> {
        lock(&self.dealt).get(&operator).copied()
    }

    /// Ends the run of this process: workers leave at their next step.
    pub(crate) fn finish(&self) {
        self.over.store(true, Ordering::Release);
        self.wake();
    }

    /// Ends the run with an error; the first one wins.
    pub(crate) fn fail(&self, error: Error) {
        if self.is_over() && !self.has_failed() {
            // The run had ended well; what breaks while it is taken down does not matter.
            return;
        }
        if !self.failed.swap(true, Ordering::AcqRel) {
            *lock(&self.failure) = Some(error);
        }
        self.finish();
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    pub(crate) fn take_failure(&self) -> Option<Error> {
        lock(&self.failure).take()
    }

    /// The failure, to be told to others.
    pub(crate) fn failure(&self) -> Option<Failure> {
        lock(&self.failure).as_ref().map(Failure::from)
    }

    /// Whether the run has failed here; from then on no user code is called.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Takes an error to [`Control::fail`]; answers `None` then.
    pub(crate) fn check<T>(&self, result: Result<T>) -> Option<T> {
        result.map_err(|error| self.fail(error)).ok()
    }

    pub(crate) fn hand_over(&self, handover: Handover) {
        // The receiver lives as long as the process' run; at its end nobody waits for the part.
        let _ = self.handover.send(handover);
    }

    pub(crate) fn register(&self, waker: SyncActivator) {
        lock(&self.wakers).push(waker);
    }

    fn wake(&self) {
        for waker in lock(&self.wakers).iter() {
            // Fails only when the worker has gone, and then there is nothing to wake.
            let _ = waker.activate();
        }
    }

    pub(crate) fn count_read(&self, records: u64) {
        self.read.fetch_add(records, Ordering::Relaxed);
    }

    pub(crate) fn records_read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    pub(crate) fn count_dead_letters(&self, pieces: u64) {
        self.dead_letters.fetch_add(pieces, Ordering::Relaxed);
    }

    pub(crate) fn dead_letters(&self) -> u64 {
        self.dead_letters.load(Ordering::Relaxed)
    }

    /// What the instances of a sink count their records in.
    pub(crate) fn written_by(&self, sink: usize) -> Arc<AtomicU64> {
        lock(&self.written).entry(sink).or_default().clone()
    }

    /// Records that sinks were handed, by sink.
    pub(crate) fn records_written(&self) -> BTreeMap<usize, u64> {
        let written = lock(&self.written);
        written.iter().map(|(sink, count)| (*sink, count.load(Ordering::Relaxed))).collect()
    }

    pub(crate) fn note_pause(&self, us: u64) {
        self.pause_us.fetch_max(us, Ordering::Relaxed);
    }

    /// The longest stop of an operator for a snapshot since the last call, in microseconds.
    pub(crate) fn take_pause_us(&self) -> u64 {
        self.pause_us.swap(0, Ordering::Relaxed)
    }

    /// An instance has waited so long for a cut; told once for each.
    pub(crate) fn note_alignment(&self, epoch: Epoch, us: u64) {
        let mut alignment_us = lock(&self.alignment_us);
        let longest = alignment_us.entry(epoch).or_default();
        *longest = us.max(*longest);
    }

    /// Whether there is something for [`Control::take_alignment_us`].
    pub(crate) fn has_alignment(&self) -> bool {
        !lock(&self.alignment_us).is_empty()
    }

    /// The longest wait of an instance for each cut since the last call, in microseconds.
    pub(crate) fn take_alignment_us(&self) -> BTreeMap<Epoch, u64> {
        std::mem::take(&mut lock(&self.alignment_us))
    }
}
