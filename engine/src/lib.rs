//! The stream processor.

pub mod connector;
pub mod keyed;
pub mod record;
pub mod state;
pub mod time;

pub use isochrone_persistence::{Error, ErrorKind, Result};
