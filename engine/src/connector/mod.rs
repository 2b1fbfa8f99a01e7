//! What a connector implements: where records come from and where they go, exactly once.
//!
//! The traits know positions and effects; not ticks, not timely, not stores. A connector is a
//! *description* (`Source`, `Sink`), built by the job's function on every worker and therefore
//! cheap and without I/O, and the things that it opens on the worker or on a background thread.

mod sink;
mod source;

pub use isochrone_persistence::manifest::Kept;
pub use isochrone_persistence::write_ahead::WriteAhead;
pub use sink::{Committer, Prepare, Readiness, Recovery, RunContext, Sink, SinkContext, Writer};
pub use source::{
    Batch, Discovery, Malformed, Observer, OnMalformed, Poll, Reader, Source, SourceExt, Split,
    Timed, WithPolicy,
};
