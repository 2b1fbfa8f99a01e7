//! What workers, processes and the coordinator say to one another.

use std::collections::BTreeMap;

use isochrone_persistence::ids::Epoch;
use isochrone_persistence::lineage::Published;
use isochrone_persistence::manifest;
use isochrone_persistence::segment::Rows;
use isochrone_persistence::{Error, ErrorKind};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::control::Control;
use super::under_way::UnderWay;
use crate::connector::Prepare;
use crate::protocol::{Content, Part, Prepared};

/// From a worker to the thread that talks to the store.
pub(crate) enum Handover {
    /// A part of checkpoint `epoch`, to be made durable and acknowledged.
    Part { part: Part, epoch: Epoch, snapshot: Snapshot },
    /// A source instance has handed out everything.
    Ended { part: Part },
    /// A keyed instance has read its share of the checkpoint.
    Loaded { part: Part, rows: u64, bytes: u64 },
    /// The run is over.
    End,
}

/// To the thread that talks to sinks' targets.
pub(crate) enum Due {
    /// Durable output of a sink instance, to be kept until its commit.
    Prepared { part: Part, epoch: Epoch, effect: Value },
    /// Checkpoint `epoch` exists: prepared output up to it may become visible.
    Commit { epoch: Epoch },
    /// The run is over.
    End,
}

/// What an operator instance contributes to a checkpoint.
pub(crate) enum Snapshot {
    Source { splits: Vec<manifest::Split>, skipped: u64 },
    State { rows: Rows },
    Sink { prepare: Prepare<Prepared> },
}

/// From a process to the coordinator.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    Ack { part: Part, epoch: Epoch, content: Content },
    PartFailed { part: Part, epoch: Epoch, reason: String },
    Ended { part: Part },
    Committed { part: Part, epoch: Epoch },
    Loaded { part: Part, rows: u64, bytes: u64 },
    Progress(Progress),
    Failed(Failure),
}

/// Counters of one process since its start.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Progress {
    pub(crate) process: usize,
    pub(crate) read: u64,
    pub(crate) dead_letters: u64,
    /// By sink.
    pub(crate) written: BTreeMap<usize, u64>,
    pub(crate) pause_us: u64,
    /// The sink that is making output visible, if one is.
    pub(crate) under_way: Option<UnderWay>,
    pub(crate) alignment_us: BTreeMap<Epoch, u64>,
}

impl Progress {
    /// Takes in what the same process has told. Two of its threads may tell at once: the higher count
    /// is the newer one.
    pub(crate) fn update(&mut self, told: Progress) {
        self.read = self.read.max(told.read);
        self.dead_letters = self.dead_letters.max(told.dead_letters);
        for (sink, count) in told.written {
            let known = self.written.entry(sink).or_default();
            *known = count.max(*known);
        }
        self.under_way = told.under_way;
    }

    /// What a process has done; its longest pause, and waits for cuts, since the last call.
    pub(crate) fn of(process: usize, control: &Control) -> Progress {
        Progress {
            process,
            read: control.records_read(),
            dead_letters: control.dead_letters(),
            written: control.records_written(),
            pause_us: control.take_pause_us(),
            under_way: control.commits.under_way(control.clock().monotonic_ms()),
            alignment_us: control.take_alignment_us(),
        }
    }
}

/// From the coordinator to a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    Trigger {
        epoch: Epoch,
    },
    Commit {
        epoch: Epoch,
    },
    Assign {
        part: Part,
        splits: Vec<manifest::Split>,
    },
    /// The source of this index has been dealt the splits there are; with `complete`, for good.
    Dealt {
        operator: usize,
        complete: bool,
    },
    Finish,
    Abort(Failure),
}

impl Order {
    /// Output up to a checkpoint may become visible: only who can prove that it exists says so.
    pub(crate) fn commit(permit: &Published) -> Order {
        Order::Commit { epoch: permit.epoch() }
    }
}

/// An error on its way between processes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Failure {
    code: u8,
    message: String,
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Self {
        Failure { code: error.kind().exit_code(), message: error.report() }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        let kind = ErrorKind::from_exit_code(failure.code.into()).unwrap_or(ErrorKind::Internal);
        Error::new(kind, failure.message)
    }
}
