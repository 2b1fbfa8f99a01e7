//! Which checkpoint to start from, if any.

use super::fit::{OperatorPlan, fit};
use super::{Candidate, Declared, OnDamage, Policy, Require};
use crate::ids::Epoch;
use crate::lineage::Base;
use crate::manifest::Manifest;
use crate::{Error, Result};

/// What to do.
#[derive(Debug)]
pub enum Decision {
    /// Start with nothing: there is no checkpoint.
    Fresh,
    /// Go on from a checkpoint.
    Resume(Box<Resume>),
    /// Do not start, for this reason.
    Refuse(Error),
}

/// The checkpoint to go on from and what becomes of each operator.
#[derive(Debug)]
pub struct Resume {
    /// The checkpoint.
    pub manifest: Manifest,
    /// All operators of the job in the order declared, then those dropped.
    pub operators: Vec<OperatorPlan>,
    /// Newer checkpoints that were passed over, newest first, each with the reason. To be
    /// reported loudly.
    pub passed_over: Vec<Error>,
}

impl Decision {
    /// What to claim the job with, or the error if the decision is to refuse.
    pub fn base(&self, declared: &Declared) -> Result<Base> {
        match self {
            Decision::Fresh => Ok(Base::Fresh {
                key_groups: declared.key_groups,
                key_hash: declared.key_hash.clone(),
            }),
            Decision::Resume(resume) => Ok(Base::From(Box::new(resume.manifest.clone()))),
            Decision::Refuse(error) => Err(Error::new(error.kind(), error.to_string())),
        }
    }
}

/// Decides what `declared` starts from. Candidates come newest first and are taken only as far as
/// needed.
///
/// ```
/// use isochrone_persistence::ids::JobName;
/// use isochrone_persistence::restore::{Declared, Decision, Policy, Require, decide};
/// let job = Declared {
///     job: JobName::new("risk")?,
///     key_groups: 128,
///     key_hash: "example".to_owned(),
///     operators: Vec::new(),
/// };
/// assert!(matches!(decide(&job, &Policy::default(), []), Decision::Fresh));
/// let required = Policy { restore: Require::Required, ..Policy::default() };
/// assert!(matches!(decide(&job, &required, []), Decision::Refuse(_)));
/// # Ok::<(), isochrone_persistence::Error>(())
/// ```
pub fn decide(
    declared: &Declared,
    policy: &Policy,
    newest_first: impl IntoIterator<Item = Result<Candidate>>,
) -> Decision {
    match choose(policy, newest_first) {
        Err(error) => Decision::Refuse(error),
        Ok(None) => without_checkpoint(declared, policy),
        Ok(Some((manifest, passed_over))) => match fit(declared, policy, &manifest) {
            Err(error) => Decision::Refuse(error),
            Ok(operators) => {
                Decision::Resume(Box::new(Resume { manifest, operators, passed_over }))
            }
        },
    }
}

fn without_checkpoint(declared: &Declared, policy: &Policy) -> Decision {
    match policy.restore {
        Require::Auto => Decision::Fresh,
        Require::Required => Decision::Refuse(Error::invalid(format!(
            "job `{}` has no checkpoint in this store, and one is required; check the job's name \
             and the store, or start without `--restore required`",
            declared.job
        ))),
    }
}

/// The newest candidate that can be used, and why newer ones cannot.
fn choose(
    policy: &Policy,
    newest_first: impl IntoIterator<Item = Result<Candidate>>,
) -> Result<Option<(Manifest, Vec<Error>)>> {
    let mut passed_over = Vec::new();
    for candidate in newest_first {
        match candidate?.manifest {
            // A claim from before the first checkpoint: there is nothing behind it.
            Ok(manifest) if manifest.epoch == Epoch(0) => break,
            Ok(manifest) => return Ok(Some((manifest, passed_over))),
            Err(error) if !error.is_about_bytes() => return Err(error),
            Err(error) if policy.on_damage == OnDamage::Stop => return Err(error),
            Err(error) => passed_over.push(error),
        }
    }
    if passed_over.is_empty() {
        return Ok(None);
    }
    let tried = passed_over.len();
    let newest = passed_over.swap_remove(0);
    Err(Error::new(
        newest.kind(),
        format!(
            "none of {tried} checkpoints is intact, since they share the data that did not change in \
             between; bring the store back from a copy of it, or begin anew with another store and \
             other output; the newest one: {newest}"
        ),
    ))
}
