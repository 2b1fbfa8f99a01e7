//! What the coordinator tells reports and pages about itself.

use isochrone_persistence::ids::Epoch;

use super::{Cause, Coordinator, Life, Part};

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
    /// Output that is not visible yet, the oldest.
    pub output: Option<Output>,
    /// It takes no further checkpoint but the final one, and ends.
    pub ending: bool,
}

/// Output that is on its way to its target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Of which checkpoint.
    pub epoch: Epoch,
    /// Milliseconds since it is waited for.
    pub age_ms: u64,
    /// Which sink instances have not made it visible.
    pub missing: Vec<Part>,
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
        let output = |owed: &super::Owed| Output {
            epoch: owed.epoch,
            age_ms: self.now_ms - owed.since_ms,
            missing: self.not_committed(owed.epoch),
        };
        Status {
            running: self.running.as_ref().map(attempt),
            failures_in_row: self.failures,
            published: self.published.as_ref().map(|p| p.epoch),
            published_age_ms: self.published.as_ref().map(|p| self.now_ms - p.at_ms),
            output: self.owed.as_ref().map(output),
            ending: self.stopping || self.input_ended() || self.life != Life::Running,
        }
    }
}
