//! What the coordinator tells reports and pages about itself.

use isochrone_persistence::ids::Epoch;

use super::{Cause, Coordinator, Part};

/// A picture of the machine at its last event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The checkpoint in progress.
    pub running: Option<Attempt>,
    /// Abandoned since the last published one.
    pub failures_in_row: u32,
    /// The last one published by this run.
    pub published: Option<Epoch>,
    /// Milliseconds since then.
    pub published_age_ms: Option<u64>,
}

/// A checkpoint in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Its number.
    pub epoch: Epoch,
    /// Why it was started.
    pub cause: Cause,
    /// Milliseconds since its trigger.
    pub age_ms: u64,
    /// Who has not acknowledged yet.
    pub missing: Vec<Part>,
    /// All have, and the manifest is being written.
    pub publishing: bool,
}

impl Coordinator {
    /// How things stand.
    pub fn status(&self) -> Status {
        let attempt = |running: &super::Running| Attempt {
            epoch: running.epoch,
            cause: running.cause,
            age_ms: self.now_ms - running.started_ms,
            missing: running.missing.clone(),
            publishing: running.publishing,
        };
        Status {
            running: self.running.as_ref().map(attempt),
            failures_in_row: self.failures,
            published: self.published.as_ref().map(|p| p.epoch),
            published_age_ms: self.published.as_ref().map(|p| self.now_ms - p.at_ms),
        }
    }
}
