//! Isochrone: a stateful stream processor that a Rust program links.
//!
//! One crate, one binary, no cluster to run. A job is a Rust function over streams; it runs on
//! timely dataflow, takes consistent checkpoints of source positions, keyed state and sink output
//! while it runs, and after any crash, or at another worker count, goes on as if nothing had
//! happened.

pub use isochrone_connectors as connectors;
#[cfg(feature = "testing")]
pub use isochrone_engine::testing;
pub use isochrone_engine::{
    Checkpoint, CheckpointStats, Error, ErrorKind, Flow, Id, Job, JobHandle, Keyed, Loaded,
    Outcome, PendingOutput, RestoreReport, Result, RunArgs, Stateful, Stream, Summary, Written,
    args, connector, ids, keyed, main, record, state, time,
};
pub use isochrone_persistence as persistence;

/// What a job's source file usually needs.
pub mod prelude {
    pub use crate::connector::SourceExt;
    pub use crate::connectors::{Files, PartFiles};
    pub use crate::keyed::{Context, MapState, Process};
    pub use crate::state::State;
    pub use crate::time::EventTime;
    pub use crate::{Checkpoint, Error, Flow, Id, Job, Result, RunArgs, Stream, Summary};
    pub use serde::{Deserialize, Serialize};
}

/// The jobs in the README compile.
#[cfg(all(doctest, feature = "kafka"))]
#[doc = include_str!("../README.md")]
mod readme {}
