//! The stream processor.

pub mod args;
pub mod cluster;
pub mod connector;
mod dataflow;
mod erased;
mod flow;
pub mod keyed;
mod keyed_stream;
pub mod protocol;
pub mod record;
mod runtime;
pub mod state;
mod stream;
pub mod time;
mod summary;
mod watermark;
mod job;
pub mod args;
pub mod cluster;

pub use flow::Flow;
pub use isochrone_persistence::{Error, ErrorKind, Result};
pub use keyed_stream::{Keyed, Stateful};
pub use stream::Stream;
pub use args::RunArgs;
pub use job::{Checkpoint, Job, JobHandle};
pub use summary::{CheckpointStats, Loaded, Outcome, RestoreReport, Summary};
