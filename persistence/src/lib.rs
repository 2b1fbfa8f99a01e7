//! Checkpoints as bytes.
//!
//! This crate knows bytes, ids, epochs and versions; never a stream, never timely, never a user's
//! type. A checkpoint exists exactly when its manifest exists; what a manifest names was durable
//! before the manifest was.

#[cfg(feature = "testing")]
pub mod conformance;
mod error;
pub mod ids;
pub mod lineage;
pub mod manifest;
pub mod paths;
pub mod restore;
pub mod segment;
pub mod store;
pub mod write_ahead;

pub use error::{Error, ErrorKind, Result};
pub use store::{Created, SharedStore, Store};
