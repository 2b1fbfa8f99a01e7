//! Deterministic simulation of a job: the real engine on real timely workers, one step at a time.
//!
//! A [`Simulation`] runs a job from its beginning to its end through crashes, each time at another
//! number of workers, on a store that fails. Everything that is left to chance is drawn from one
//! seed, so that a failure replays. Nothing here is part of a build without the feature `testing`.

mod baton;
pub mod crash;
mod random;
mod script;
mod simulation;
mod trace;
mod watched;

pub use crate::runtime::pace::Planted;
pub use random::Random;
pub use script::Script;
pub use simulation::{Report, Simulation};
