//! One operator instance's part in every checkpoint: when to apply, stash, log and freeze.
//!
//! Knows epochs and the number of inputs; not records, not state, not the dataflow.

use std::collections::VecDeque;

use isochrone_persistence::ids::Epoch;

/// How an instance lines up with a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Records behind the cut wait until everything before it has been applied.
    Aligned,
    /// The state is frozen at once; what was still in flight is logged.
    Unaligned,
}

/// What to do with a batch that has just come up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arrival {
    /// Apply it now.
    Apply,
    /// Keep it until [`Step::Drain`] names its timestamp.
    Stash,
    /// Write it to the in-flight log and apply it, both under the timestamp `restamp`.
    Log {
        /// The cut whose log it belongs to; nothing may be sent under an earlier timestamp.
        restamp: Epoch,
    },
}

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Freeze the state: it is now exactly what this checkpoint holds. Acknowledge when that is
    /// durable, or, if [`Participant::logging`] says so, when the log is durable too.
    Freeze(Epoch),
    /// Apply everything stashed under this timestamp, in the order in which it came.
    Drain(Epoch),
    /// The log of this cut ends here. Everything in flight has been seen, or the cut was abandoned
    /// and a later one needs the log's place; acknowledge in both cases.
    Complete(Epoch),
    /// Nothing more will come and all has been applied. Later triggers still freeze.
    Closed,
}

/// The machine of one operator instance.
///
/// Contract with the harness:
/// - A batch is told when it is about to be applied, not when it is pulled; one call per batch.
/// - A frontier is told only after all batches that it has passed. A harness with a queue of its
///   own tells the lesser of the input's frontier and the oldest timestamp queued. (Asserted as
///   far as it shows: a batch from before the last cut, without an open log, panics.)
/// - After any event, `next` is called until it answers `None`, and each step is carried out in
///   full before the next call. Batches that come up between `Freeze` and `Drain` are stashed, so
///   that those of one sender stay in order.
/// - Acknowledgements keep the order of the freezes; what could not be made durable for one epoch is
///   carried into the next one's. Whether an epoch was abandoned makes no difference to that.
/// - Records are sent on under `current`, also those of a log.
/// - A trigger comes over the control plane, never behind data. Without one, a record or frontier
///   from behind a cut announces it too; such a cut is aligned until its trigger says otherwise.
///
/// A source is an instance without inputs: it freezes at each trigger and is never `Closed`.
///
/// ```
/// use isochrone_engine::protocol::participant::{Arrival, Mode, Participant, Step};
/// use isochrone_persistence::ids::Epoch;
///
/// let mut instance = Participant::new(Epoch(0), 2);
/// instance.on_trigger(Epoch(1), Mode::Aligned);
/// assert_eq!(instance.on_message(0, Epoch(0)), Arrival::Apply);
/// assert_eq!(instance.on_message(0, Epoch(1)), Arrival::Stash);
/// instance.on_frontier(0, Some(Epoch(1)));
/// assert_eq!(instance.next(), None);
/// instance.on_frontier(1, Some(Epoch(1)));
/// assert_eq!(instance.next(), Some(Step::Freeze(Epoch(1))));
/// assert_eq!(instance.next(), Some(Step::Drain(Epoch(1))));
/// assert_eq!(instance.next(), None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Participant {
    /// The last cut frozen, or the start: records under this timestamp are applied.
    current: Epoch,
    /// Known cuts after `current`, ascending.
    cuts: VecDeque<Epoch>,
    /// Cuts up to here are frozen without waiting for the frontier.
    unaligned: Epoch,
    /// The stash of `current` has not been handed out yet.
    drain_owed: bool,
    /// The log of `current` is open.
    logging: bool,
    /// Per input; `None` when closed.
    frontiers: Box<[Option<Epoch>]>,
    closed: bool,
}

impl Participant {
    /// An instance that holds the state of checkpoint `start` (or none, at the first start).
    pub fn new(start: Epoch, inputs: usize) -> Participant {
        Participant {
            current: start,
            cuts: VecDeque::with_capacity(4),
            unaligned: start,
            drain_owed: false,
            logging: false,
            frontiers: vec![Some(start); inputs].into_boxed_slice(),
            closed: inputs == 0,
        }
    }

    /// The coordinator wants checkpoint `epoch`. Said again with `Unaligned`, it ends a wait for
    /// alignment. Of a cut already frozen it is ignored.
    pub fn on_trigger(&mut self, epoch: Epoch, mode: Mode) {
        self.learn(epoch);
        if mode == Mode::Unaligned {
            self.unaligned = self.unaligned.max(epoch);
        }
    }

    /// A batch of records under `timestamp` is about to be applied.
    ///
    /// Panics if `timestamp` lies before a cut that has been passed.
    pub fn on_message(&mut self, input: usize, timestamp: Epoch) -> Arrival {
        debug_assert!(self.frontiers[input].is_some(), "batch from closed input {input}");
        if timestamp > self.current {
            self.learn(timestamp);
            return Arrival::Stash;
        }
        if timestamp == self.current {
            return if self.drain_owed { Arrival::Stash } else { Arrival::Apply };
        }
        assert!(
            self.logging,
            "input {input} delivers a batch of epoch {timestamp} after cut {} was passed",
            self.current
        );
        Arrival::Log { restamp: self.current }
    }

    /// Input `input` will deliver nothing before `frontier` any more; `None`: nothing at all.
    /// A frontier never goes back; one that seems to is ignored.
    pub fn on_frontier(&mut self, input: usize, frontier: Option<Epoch>) {
        let known = &mut self.frontiers[input];
        match (*known, frontier) {
            (Some(old), Some(new)) => *known = Some(old.max(new)),
            (Some(_), None) => *known = None,
            (None, _) => {}
        }
    }

    /// The next thing to do, or `None` until another event.
    #[expect(clippy::should_implement_trait, reason = "steps go on after a `None`")]
    pub fn next(&mut self) -> Option<Step> {
        if self.drain_owed {
            self.drain_owed = false;
            return Some(Step::Drain(self.current));
        }
        let cut = self.next_cut();
        if self.logging && (self.passed(self.current) || cut.is_some_and(|c| self.at_once(c))) {
            self.logging = false;
            return Some(Step::Complete(self.current));
        }
        if let Some(cut) = cut {
            return (self.passed(cut) || self.at_once(cut)).then(|| self.freeze(cut));
        }
        if !self.closed && self.frontiers.iter().all(Option::is_none) {
            self.closed = true;
            return Some(Step::Closed);
        }
        None
    }

    /// Whether a cut is known that this instance has not frozen yet. While it lasts, back-pressure
    /// must be ignored: what holds the cut back may wait for credits of what waits for the cut.
    pub fn draining(&self) -> bool {
        !self.cuts.is_empty()
    }

    /// The cut whose in-flight log is open: its acknowledgement has to wait for `Complete`.
    pub fn logging(&self) -> Option<Epoch> {
        self.logging.then_some(self.current)
    }

    /// The last cut frozen, or the start: the timestamp to send under.
    pub fn current(&self) -> Epoch {
        self.current
    }

    fn learn(&mut self, cut: Epoch) {
        if cut <= self.current {
            return;
        }
        if let Err(at) = self.cuts.binary_search(&cut) {
            self.cuts.insert(at, cut);
        }
    }

    /// The earliest cut not frozen: one that was announced, or the least frontier itself.
    fn next_cut(&self) -> Option<Epoch> {
        let reached = self.frontiers.iter().flatten().min().filter(|f| **f > self.current);
        reached.into_iter().chain(self.cuts.front()).min().copied()
    }

    fn passed(&self, cut: Epoch) -> bool {
        self.frontiers.iter().all(|f| f.is_none_or(|f| f >= cut))
    }

    fn at_once(&self, cut: Epoch) -> bool {
        cut <= self.unaligned
    }

    fn freeze(&mut self, cut: Epoch) -> Step {
        if self.cuts.front() == Some(&cut) {
            self.cuts.pop_front();
        }
        self.logging = !self.passed(cut);
        self.current = cut;
        self.drain_owed = true;
        Step::Freeze(cut)
    }
}

#[cfg(test)]
mod tests;
