//! Sources and sinks of Isochrone: where records come from, and where they go.
//!
//! Each connector implements the traits of `isochrone_engine::connector` and nothing else: it
//! knows its own format and its own medium, never a dataflow and never a store of checkpoints.

mod callback;
pub mod files;
pub mod format;
pub mod generator;
mod immediate;
#[cfg(feature = "kafka")]
pub mod kafka;
mod on_data_loss;
mod stdout;

#[cfg(all(feature = "kafka", feature = "testing"))]
pub(crate) use isochrone_engine::testing::crash::point as crash_point;

/// A place where a test may let the process die; nothing without the feature `testing`.
#[cfg(all(feature = "kafka", not(feature = "testing")))]
pub(crate) fn crash_point(_name: &str) {}

#[cfg(feature = "testing")]
mod collected;
#[cfg(feature = "testing")]
pub mod conformance;
#[cfg(feature = "testing")]
pub mod scripted;
#[cfg(feature = "testing")]
mod sink_conformance;

pub use callback::Callback;
pub use files::{Files, PartFiles};
pub use immediate::NothingToCommit;
#[cfg(feature = "kafka")]
pub use kafka::Kafka;
pub use on_data_loss::OnDataLoss;
pub use stdout::{Stdout, StdoutSink};

#[cfg(feature = "testing")]
pub use collected::{Collected, CollectedCommit, CollectedEffect};
#[cfg(feature = "testing")]
pub use sink_conformance::check_sink;
