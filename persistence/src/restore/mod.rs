//! Starting from a checkpoint: first decide, by a pure function over what was found, then act.
//!
//! [`decide`] knows neither store nor clock; [`candidates`] reads the facts that it asks for, one
//! manifest at a time and only as far as needed; [`load`] reads data and checks it.

mod candidates;
mod decide;
mod fit;

#[cfg(test)]
mod tests;

pub(crate) use candidates::fetch_intact;
pub use candidates::{Candidate, candidates, load, verify_data};
pub use decide::{Decision, Resume, decide};
pub use fit::{OperatorPlan, Step};

use crate::ids::{JobName, OperatorId, StateVersion};

/// Whether there must be something to restore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Require {
    /// Start fresh if the job has no checkpoint.
    #[default]
    Auto,
    /// Refuse to start without one.
    Required,
}

/// What to do when the newest checkpoint is damaged or cannot be read by this version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDamage {
    /// Stop.
    #[default]
    Stop,
    /// Restore the newest intact older one.
    Previous,
}

/// What the operator of the job chose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// `--restore`.
    pub restore: Require,
    /// `--on-damage`.
    pub on_damage: OnDamage,
    /// `--drop`: operators whose part of the checkpoint is given up.
    pub drops: Vec<OperatorId>,
}

/// The job as the program declares it.
#[derive(Clone, Debug)]
pub struct Declared {
    /// Its name.
    pub job: JobName,
    /// Its number of key groups.
    pub key_groups: u16,
    /// Its hash from encoded key to key group.
    pub key_hash: String,
    /// Everything durable in it.
    pub operators: Vec<DeclaredOperator>,
}

/// Something durable in the job.
#[derive(Clone, Debug)]
pub struct DeclaredOperator {
    /// The user's id.
    pub id: OperatorId,
    /// The id that it had before.
    pub renamed_from: Option<OperatorId>,
    /// Source, state or sink.
    pub kind: Kind,
}

/// Kind of a durable operator, with what decides whether its part of a checkpoint fits.
#[derive(Clone, Debug)]
pub enum Kind {
    /// Reads positions.
    Source,
    /// Keyed state.
    State(StateType),
    /// Pending output.
    Sink,
}

/// The type of a keyed state.
#[derive(Clone, Debug)]
pub struct StateType {
    /// Version given by its author.
    pub version: StateVersion,
    /// Fingerprint of the shape of key and state.
    pub shape: String,
    /// Encoding of keys and values.
    pub codec: String,
    /// Whether its `upgrade` takes bytes of that version.
    pub can_upgrade: fn(StateVersion) -> bool,
}
