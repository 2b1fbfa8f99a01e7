//! Sources and sinks of Isochrone: where records come from, and where they go.
//!
//! Each connector implements the traits of `isochrone_engine::connector` and nothing else: it
//! knows bytes, files and closures, never a dataflow and never a store.

mod callback;
pub mod files;
mod immediate;
mod stdout;

#[cfg(feature = "testing")]
mod collected;
#[cfg(feature = "testing")]
mod sink_conformance;

pub use callback::Callback;
pub use immediate::NothingToCommit;
pub use stdout::{Stdout, StdoutSink};

#[cfg(feature = "testing")]
pub use collected::{Collected, CollectedCommit, CollectedEffect};
#[cfg(feature = "testing")]
pub use sink_conformance::check_sink;
