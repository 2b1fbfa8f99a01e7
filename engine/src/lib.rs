//! The stream processor.

pub mod args;
pub mod cluster;
pub mod connector;
mod dataflow;
mod erased;
mod exit;
mod flow;
mod id;
mod job;
pub mod keyed;
mod keyed_stream;
mod pending;
pub mod protocol;
pub mod record;
mod runtime;
pub mod state;
mod stream;
mod summary;
#[cfg(feature = "testing")]
pub mod testing;
mod threads;
pub mod time;
mod watermark;

pub use args::RunArgs;
pub use exit::main;
pub use flow::Flow;
pub use id::Id;
pub use isochrone_persistence::{Error, ErrorKind, Result, ids};
pub use job::{Checkpoint, Job, JobHandle};
pub use keyed_stream::{Keyed, Stateful};
pub use pending::PendingOutput;
pub use stream::Stream;
pub use summary::{CheckpointStats, Loaded, Outcome, RestoreReport, Summary, Written};

#[cfg(feature = "testing")]
use testing::crash::point as crash_point;

/// A place where a test may let the process die; nothing without the feature `testing`.
#[cfg(not(feature = "testing"))]
fn crash_point(_name: &str) {}
