//! The stream processor.

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
mod watermark;

pub use flow::Flow;
pub use isochrone_persistence::{Error, ErrorKind, Result};
pub use keyed_stream::{Keyed, Stateful};
pub use stream::Stream;
