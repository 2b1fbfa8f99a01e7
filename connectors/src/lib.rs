//! Where records come from and where they go: files, generated records, standard output, closures.
//!
//! A connector knows the traits of `isochrone_engine::connector`, its own format and its own
//! medium; it knows neither the dataflow nor the stores in which checkpoints lie.

#[cfg(feature = "testing")]
pub mod conformance;
pub mod files;
pub mod format;
pub mod generator;
#[cfg(feature = "testing")]
pub mod scripted;
