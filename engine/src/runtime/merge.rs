//! Folding many small segments into few, in the background, so that a restore reads little.
//!
//! Which segments: those newest ones of a run whose sizes are alike, so that each row is rewritten a
//! number of times that grows with the logarithm of the state, not with its age.

use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender};
use isochrone_persistence::ids::{Generation, JobName, OperatorId};
use isochrone_persistence::manifest::Segment;
use isochrone_persistence::paths::{self, DataKind, DataName};
use isochrone_persistence::restore;
use isochrone_persistence::segment::{self, Identity, Tombstones};
use isochrone_persistence::{Error, Result, SharedStore};

use crate::protocol::Run;
use crate::threads;

/// A run shorter than this is left alone.
const SEGMENTS_MIN: usize = 8;

/// Segments of one operator to be folded into one.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) operator: usize,
    pub(crate) id: OperatorId,
    segments: Vec<Segment>,
    tombstones: Tombstones,
}

/// A segment that holds what others held.
#[derive(Debug)]
pub(crate) struct Merged {
    pub(crate) operator: usize,
    pub(crate) replaced: Vec<String>,
    pub(crate) base: Segment,
}

/// What to fold of a run, if anything. Pure.
pub(crate) fn plan(operator: usize, id: &OperatorId, run: &Run) -> Option<Task> {
    if run.segments.len() < SEGMENTS_MIN {
        return None;
    }
    let mut from = run.segments.len() - 1;
    let mut bytes = run.segments[from].bytes;
    while from > 0 && run.segments[from - 1].bytes <= 2 * bytes {
        from -= 1;
        bytes += run.segments[from].bytes;
    }
    let segments = run.segments[from..].to_vec();
    let whole = run.oldest && from == 0;
    (segments.len() > 1).then(|| Task {
        operator,
        id: id.clone(),
        segments,
        tombstones: if whole { Tombstones::Drop } else { Tombstones::Keep },
    })
}

/// Reads, folds and writes. What it writes counts only once a manifest names it.
pub(crate) struct Merger {
    pub(crate) store: SharedStore,
    pub(crate) job: JobName,
    pub(crate) generation: Generation,
}

impl Merger {
    pub(crate) fn merge(&self, task: &Task) -> Result<Merged> {
        let load = |segment| restore::load(&*self.store, &self.job, &task.id, segment);
        let loaded = task.segments.iter().map(load).collect::<Result<Vec<_>>>()?;
        let last = task.segments.last().expect("a task has several segments");
        let identity = Identity {
            job: self.job.clone(),
            generation: self.generation,
            epoch: last.epoch,
            operator: task.id.clone(),
            worker: last.worker,
        };
        let bytes = segment::merge(&loaded, &identity, task.tombstones);
        let name =
            DataName::fresh(last.epoch, &task.id, last.worker, self.generation, DataKind::Segment)?;
        let base = segment::reference(paths::data(&self.job, &name), &bytes, &identity);
        self.store.put(&base.name, &bytes)?;
        let replaced = task.segments.iter().map(|segment| segment.name.clone()).collect();
        Ok(Merged { operator: task.operator, replaced, base })
    }
}

/// Where tasks go: to a thread of their own, or, in a simulation, straight to work.
pub(crate) enum Bench {
    Thread { tasks: Sender<Task>, busy: bool },
    Here(Merger),
}

impl Bench {
    /// A thread that hands each result to `done` and ends when the bench is dropped. After a panic,
    /// which goes to `on_panic`, no task is taken any more.
    pub(crate) fn thread(
        merger: Merger,
        on_panic: impl FnOnce(Error) + Send + 'static,
        done: Arc<dyn Fn(Result<Merged>) + Send + Sync>,
    ) -> Result<Bench> {
        let (tasks, received): (_, Receiver<Task>) = crossbeam_channel::bounded(1);
        threads::spawn("isochrone-merger", on_panic, move || {
            for task in received {
                done(merger.merge(&task));
            }
        })?;
        Ok(Bench::Thread { tasks, busy: false })
    }

    /// Whether a task would be taken now.
    pub(crate) fn is_free(&self) -> bool {
        !matches!(self, Bench::Thread { busy: true, .. })
    }

    /// Takes a task; answers the result if it is there at once.
    pub(crate) fn take(&mut self, task: Task) -> Option<Result<Merged>> {
        match self {
            Bench::Here(merger) => Some(merger.merge(&task)),
            Bench::Thread { tasks, busy } => {
                *busy = tasks.try_send(task).is_ok();
                None
            }
        }
    }

    /// The last task is done.
    pub(crate) fn done(&mut self) {
        if let Bench::Thread { busy, .. } = self {
            *busy = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use isochrone_persistence::ids::{Epoch, Worker};

    use super::*;

    fn run(oldest: bool, bytes: &[u64]) -> Run {
        let segment = |(number, bytes): (usize, &u64)| Segment {
            name: number.to_string(),
            bytes: *bytes,
            digest: String::new(),
            rows: 1,
            generation: Generation(1),
            epoch: Epoch(number as u64),
            worker: Worker(0),
        };
        Run { oldest, segments: bytes.iter().enumerate().map(segment).collect() }
    }

    fn planned(oldest: bool, bytes: &[u64]) -> Option<(usize, bool)> {
        let task = plan(0, &OperatorId::new("op").unwrap(), &run(oldest, bytes))?;
        Some((task.segments.len(), task.tombstones == Tombstones::Drop))
    }

    #[test]
    fn short_runs_are_left_alone() {
        assert_eq!(planned(true, &[5; 7]), None);
        assert_eq!(planned(true, &[5; 8]), Some((8, true)));
    }

    #[test]
    fn a_large_base_is_not_rewritten_for_small_changes() {
        assert_eq!(planned(true, &[1000, 5, 5, 5, 5, 5, 5, 5]), Some((7, false)));
        assert_eq!(planned(true, &[60, 5, 5, 5, 5, 5, 5, 5]), Some((8, true)));
    }

    #[test]
    fn tombstones_stay_while_older_segments_may_hold_the_key() {
        assert_eq!(planned(false, &[5; 9]), Some((9, false)));
    }

    #[test]
    fn each_size_class_waits_until_the_smaller_ones_have_grown() {
        assert_eq!(planned(true, &[4096, 1024, 256, 64, 16, 4, 4, 4]), Some((4, false)));
        assert_eq!(planned(true, &[128, 64, 32, 16, 8, 4, 2, 1]), Some((8, true)));
        assert_eq!(planned(true, &[2187, 729, 243, 81, 27, 9, 3, 1]), None);
    }
}
