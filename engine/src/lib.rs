//! The stream processor.

pub mod connector;
pub mod record;
pub mod time;

pub use isochrone_persistence::{Error, ErrorKind, Result, ids};
