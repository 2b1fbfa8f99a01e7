//! What goes into the coordinator and what comes out.

use isochrone_persistence::ids::{Epoch, OperatorId, Worker};

/// When checkpoints are taken and when the job gives up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// From trigger to trigger, the first excepted, which comes sooner; `None`: not by time.
    pub interval_ms: Option<u64>,
    /// Records read between triggers; `None`: not by count.
    pub records: Option<u64>,
    /// From trigger to the last acknowledgement; a checkpoint that takes longer is abandoned. Output
    /// that takes longer to become visible is overdue.
    pub timeout_ms: u64,
    /// So many abandoned in a row end the job (0 counts as 1), and so does output that is overdue so
    /// many times.
    pub failures_max: u32,
}

/// One instance of a durable operator.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct Part {
    /// Index in the plan.
    pub operator: usize,
    /// The worker that runs this instance.
    pub worker: Worker,
}

/// What an operator owes besides its acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// [`Event::Ended`], when everything has been handed out.
    Source,
    /// Nothing.
    State,
    /// [`Event::Committed`], for each checkpoint.
    Sink,
}

/// Who takes part: each operator on each worker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Plan {
    /// Durable operators, in the order of [`Part::operator`].
    pub operators: Vec<(OperatorId, Kind)>,
    /// Number of workers of all processes.
    pub workers: u32,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// Time has passed. Tell it before other events, so that durations are right.
    Tick {
        /// Any monotonic count of milliseconds.
        now_ms: u64,
        /// Records read by all sources in this run.
        records_read: u64,
    },
    /// A user wants a checkpoint; with a label, a savepoint.
    Request {
        /// Comes back in [`Action::Answer`].
        id: u64,
        /// Label of the savepoint.
        savepoint: Option<String>,
    },
    /// A source instance has handed out everything it will ever have.
    Ended {
        /// The source instance.
        part: Part,
    },
    /// Take a final checkpoint, then finish.
    Stop,
    /// Everything that this part has frozen up to `epoch`, abandoned epochs included, is durable.
    Ack {
        /// Whose.
        part: Part,
        /// Up to which cut.
        epoch: Epoch,
    },
    /// This part could not do its share of `epoch`.
    PartFailed {
        /// Whose.
        part: Part,
        /// Of which cut.
        epoch: Epoch,
        /// For people.
        reason: String,
    },
    /// The manifest exists.
    Published {
        /// The checkpoint.
        epoch: Epoch,
    },
    /// The manifest certainly does not exist.
    PublishFailed {
        /// The checkpoint that is none.
        epoch: Epoch,
        /// For people.
        reason: String,
    },
    /// A sink instance made everything up to `epoch` visible.
    Committed {
        /// The sink instance.
        part: Part,
        /// Up to which checkpoint.
        epoch: Epoch,
    },
}

/// Why a checkpoint was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The interval has passed and something was read.
    Interval,
    /// So many records were read.
    Records,
    /// A user asked.
    Request,
    /// All sources ended: the final checkpoint.
    InputEnded,
    /// The job was told to stop: the final checkpoint.
    Stopped,
}

/// Something to be done.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Tell all participants to take checkpoint `epoch`.
    Trigger {
        /// The cut's number: higher than all before it, published or not.
        epoch: Epoch,
        /// Why now.
        cause: Cause,
    },
    /// All parts are durable: create the manifest, then answer `Published` or `PublishFailed`.
    Publish {
        /// The checkpoint.
        epoch: Epoch,
        /// Keep it under this label.
        savepoint: Option<String>,
        /// All input had been read before the cut.
        finished: bool,
        /// From trigger to the last acknowledgement.
        duration_ms: u64,
    },
    /// This checkpoint will never exist; report it.
    Abandon {
        /// Its number, never used again.
        epoch: Epoch,
        /// For people.
        why: String,
    },
    /// Sinks: make everything up to `epoch` visible. Follows `Published` only.
    Commit {
        /// The checkpoint.
        epoch: Epoch,
    },
    /// Old checkpoints may be collected now.
    Collect,
    /// Answer a request.
    Answer {
        /// Of the request.
        id: u64,
        /// The checkpoint that covers it, or why there is none.
        result: Result<Epoch, String>,
    },
    /// The final checkpoint exists and all its output is visible: end the job.
    Finish {
        /// `InputEnded` or `Stopped`.
        cause: Cause,
    },
    /// Output has not become visible in the time that a checkpoint may take, once more.
    Overdue {
        /// Of which checkpoint.
        epoch: Epoch,
        /// Since it is waited for.
        waited_ms: u64,
        /// Which sink instances have not made it visible.
        missing: Vec<Part>,
        /// Too often: end the job with an error that says so. Otherwise tell people.
        gives_up: bool,
    },
    /// Too many failures: end the job with this error.
    Fail {
        /// For people.
        message: String,
    },
}

impl Cause {
    /// Whether the job ends after this checkpoint. It has to be aligned then: what is in flight at
    /// an unaligned cut is neither applied nor visible when the job ends.
    pub fn is_final(self) -> bool {
        matches!(self, Cause::InputEnded | Cause::Stopped)
    }
}

impl Plan {
    /// All instances, sorted.
    pub fn parts(&self) -> impl Iterator<Item = Part> + '_ {
        let workers = self.workers;
        (0..self.operators.len()).flat_map(move |operator| {
            (0..workers).map(move |w| Part { operator, worker: Worker(w) })
        })
    }

    pub(crate) fn parts_of(&self, kind: Kind) -> impl Iterator<Item = Part> + '_ {
        self.parts().filter(move |part| self.operators[part.operator].1 == kind)
    }

    /// What people call this part.
    pub fn name(&self, part: Part) -> String {
        match self.operators.get(part.operator) {
            Some((id, _)) => format!("`{id}` on worker {}", part.worker),
            None => format!("operator {} on worker {}", part.operator, part.worker),
        }
    }
}
