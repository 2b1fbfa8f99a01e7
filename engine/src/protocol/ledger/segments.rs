//! The segments of one state operator, oldest first.
//!
//! Workers of one run write disjoint keys; restored segments may hold any key, since the worker
//! count may have been another one. So order matters among restored segments, within a worker,
//! and between the two; not between workers.

use std::collections::BTreeMap;

use isochrone_persistence::ids::{Epoch, Worker};
use isochrone_persistence::manifest::Segment;

/// Segments that follow one another, oldest first.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Nothing older than the first of them holds a row of any of their keys.
    pub oldest: bool,
    /// The segments.
    pub segments: Vec<Segment>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Segments {
    restored: Vec<Segment>,
    /// With the epoch of its acknowledgement, or of the last one merged into it.
    written: BTreeMap<Worker, Vec<(Epoch, Segment)>>,
}

impl Segments {
    pub(super) fn restore(restored: Vec<Segment>) -> Segments {
        Segments { restored, written: BTreeMap::new() }
    }

    pub(super) fn push(&mut self, worker: Worker, epoch: Epoch, segment: Option<Segment>) {
        self.written.entry(worker).or_default().extend(segment.map(|s| (epoch, s)));
    }

    /// All of them; those of the run in the order of epochs, then workers.
    pub(super) fn listed(&self) -> Vec<Segment> {
        let of = |(worker, list)| std::iter::repeat(worker).zip(list);
        let mut written: Vec<(&Worker, &(Epoch, Segment))> =
            self.written.iter().flat_map(of).collect();
        written.sort_by_key(|(worker, (epoch, _))| (*epoch, **worker));
        let written = written.into_iter().map(|(_, (_, segment))| segment);
        self.restored.iter().chain(written).cloned().collect()
    }

    /// Segments that follow one another, oldest first: the restored ones, which hold the oldest
    /// rows, and those of each worker.
    pub(super) fn runs(&self) -> Vec<Run> {
        let restored = Run { oldest: true, segments: self.restored.clone() };
        let written = self.written.values().map(|list| Run {
            oldest: self.restored.is_empty(),
            segments: list.iter().map(|(_, segment)| segment.clone()).collect(),
        });
        std::iter::once(restored).chain(written).collect()
    }

    /// Puts `base` where the first of `merged` was; false if `merged` are not in a row among the
    /// restored segments followed by those of one worker.
    pub(super) fn replace(&mut self, merged: &[String], base: Segment) -> bool {
        let workers: Vec<_> = self.written.keys().copied().map(Some).chain([None]).collect();
        let found = workers.into_iter().find_map(|w| self.find(w, merged).map(|at| (w, at)));
        let Some((worker, at)) = found else { return false };
        let mut none = Vec::new();
        let written = worker.and_then(|w| self.written.get_mut(&w)).unwrap_or(&mut none);
        let old = self.restored.len();
        let end = at + merged.len();
        let drained = at.saturating_sub(old)..end.saturating_sub(old);
        let epoch = written.drain(drained).next_back().map(|(epoch, _)| epoch);
        match epoch {
            Some(epoch) if at >= old => written.insert(at - old, (epoch, base)),
            _ => drop(self.restored.splice(at..end.min(old), [base])),
        }
        true
    }

    fn find(&self, worker: Option<Worker>, merged: &[String]) -> Option<usize> {
        let written = worker.and_then(|w| self.written.get(&w)).into_iter().flatten();
        let names: Vec<_> =
            self.restored.iter().chain(written.map(|(_, s)| s)).map(|s| &s.name).collect();
        let at = names.iter().position(|name| Some(*name) == merged.first())?;
        names.get(at..at + merged.len())?.iter().copied().eq(merged).then_some(at)
    }
}
