//! The stream processor.

pub mod args;
pub mod cluster;
pub mod connector;
pub mod record;
pub mod time;

pub use isochrone_persistence::{Error, ErrorKind, Result};
