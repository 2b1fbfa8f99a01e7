//! Whether the job as declared fits a checkpoint, operator by operator.

use super::{Declared, DeclaredOperator, Kind, Policy, StateType};
use crate::ids::{OperatorId, StateVersion};
use crate::manifest::{Manifest, Operator, Part};
use crate::{Error, Result};

/// What becomes of one operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorPlan {
    /// The operator.
    pub id: OperatorId,
    /// What becomes of it.
    pub step: Step,
}

/// What becomes of an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// It goes on with its part.
    Keep,
    /// It goes on with its part, each value upgraded when it is read.
    Upgrade {
        /// The version in the checkpoint.
        from: StateVersion,
    },
    /// It goes on with the part of an operator that it replaces.
    Rename {
        /// The id in the checkpoint.
        from: OperatorId,
        /// The version in the checkpoint, if values are to be upgraded.
        upgrade: Option<StateVersion>,
    },
    /// The checkpoint has no part for it: it starts empty. To be reported.
    New,
    /// The job no longer has it and its part is given up. To be reported.
    Dropped,
}

/// The plan for each operator declared and each one dropped, or why there is none.
pub(super) fn fit(
    declared: &Declared,
    policy: &Policy,
    manifest: &Manifest,
) -> Result<Vec<OperatorPlan>> {
    check_job(declared, manifest)?;
    check_names(declared, policy)?;
    let mut used = Vec::new();
    let mut plans = Vec::new();
    for operator in &declared.operators {
        let Some(left) = left_for(operator, manifest) else {
            plans.push(OperatorPlan { id: operator.id.clone(), step: Step::New });
            continue;
        };
        used.push(&left.id);
        plans.push(OperatorPlan { id: operator.id.clone(), step: step_for(operator, left)? });
    }
    for left in manifest.operators.iter().filter(|left| !used.contains(&&left.id)) {
        check_may_drop(policy, left)?;
        plans.push(OperatorPlan { id: left.id.clone(), step: Step::Dropped });
    }
    Ok(plans)
}

fn check_job(declared: &Declared, manifest: &Manifest) -> Result<()> {
    let at = format!("the checkpoint of epoch {}", manifest.epoch);
    if declared.job != manifest.job {
        return Err(Error::incompatible(format!(
            "{at} is of job `{}`, not `{}`; name the job as it was, or point the store elsewhere",
            manifest.job, declared.job
        )));
    }
    if declared.key_groups != manifest.key_groups {
        return Err(Error::incompatible(format!(
            "{at} has {} key groups and the job asks for {}; the number is fixed for a job's life: \
             set it back to {}",
            manifest.key_groups, declared.key_groups, manifest.key_groups
        )));
    }
    if declared.key_hash != manifest.key_hash {
        return Err(Error::incompatible(format!(
            "{at} was written with key hash `{}` and this library uses `{}`; run the release that \
             wrote it",
            manifest.key_hash, declared.key_hash
        )));
    }
    Ok(())
}

/// Ids, old and new, and drops must each mean one thing.
fn check_names(declared: &Declared, policy: &Policy) -> Result<()> {
    let operators = &declared.operators;
    for (place, operator) in operators.iter().enumerate() {
        let id = &operator.id;
        if operators[..place].iter().any(|other| other.id == *id) {
            return Err(Error::invalid(format!(
                "two operators have the id `{id}`; give each its own"
            )));
        }
        if policy.drops.contains(id) {
            return Err(Error::invalid(format!(
                "`--drop {id}` names an operator that the job has; leave the flag out, or give the \
                 operator a new id so that it starts empty"
            )));
        }
        let Some(old) = &operator.renamed_from else { continue };
        let claimed = |other: &DeclaredOperator| other.renamed_from.as_ref() == Some(old);
        if operators[..place].iter().any(claimed) || operators.iter().any(|o| o.id == *old) {
            return Err(Error::invalid(format!(
                "operator `{id}` is renamed from `{old}`, which another operator of the job is too; \
                 only one can go on with its part"
            )));
        }
    }
    Ok(())
}

/// The part under the operator's own id, or else under its old one.
fn left_for<'a>(operator: &DeclaredOperator, manifest: &'a Manifest) -> Option<&'a Operator> {
    let of = |id: &OperatorId| manifest.operators.iter().find(|left| left.id == *id);
    of(&operator.id).or_else(|| of(operator.renamed_from.as_ref()?))
}

fn step_for(operator: &DeclaredOperator, left: &Operator) -> Result<Step> {
    let upgrade = match (&operator.kind, &left.part) {
        (Kind::Source, Part::Source { .. }) | (Kind::Sink, Part::Sink { .. }) => None,
        (Kind::State(declared), Part::State { version, shape, codec, .. }) => {
            upgrade_for(&operator.id, declared, *version, shape, codec)?
        }
        (kind, part) => {
            return Err(Error::incompatible(format!(
                "operator `{}` is a {} and left a {} in the checkpoint; give it a new id, and drop \
                 the old part with `--drop {}` (`RunArgs::drop`)",
                operator.id,
                kind_name(kind),
                part_name(part),
                left.id
            )));
        }
    };
    Ok(match (operator.id == left.id, upgrade) {
        (true, None) => Step::Keep,
        (true, Some(from)) => Step::Upgrade { from },
        (false, upgrade) => Step::Rename { from: left.id.clone(), upgrade },
    })
}

/// The version to upgrade from, `None` if it is the same.
fn upgrade_for(
    id: &OperatorId,
    declared: &StateType,
    version: StateVersion,
    shape: &str,
    codec: &str,
) -> Result<Option<StateVersion>> {
    if codec != declared.codec {
        return Err(Error::incompatible(format!(
            "state of operator `{id}` is encoded with `{codec}` and this library uses `{}`; run \
             the release that wrote it",
            declared.codec
        )));
    }
    if version == declared.version {
        return match shape == declared.shape {
            true => Ok(None),
            false => Err(changed_shape(id, declared, shape)),
        };
    }
    if version < declared.version && (declared.can_upgrade)(version) {
        return Ok(Some(version));
    }
    Err(no_upgrade(id, declared, version))
}

fn changed_shape(id: &OperatorId, declared: &StateType, shape: &str) -> Error {
    let version = declared.version;
    Error::incompatible(format!(
        "state of operator `{id}` has shape {shape} in the checkpoint and {} in the program, both \
         called version {version}; change the type back, or set its `VERSION` to {} and write \
         `upgrade` from version {version}",
        declared.shape,
        u32::from(version.0) + 1
    ))
}

fn no_upgrade(id: &OperatorId, declared: &StateType, version: StateVersion) -> Error {
    let what_to_do = match version < declared.version {
        true => format!("write `upgrade` so that it takes version {version}"),
        false => "run the newer program that wrote it".to_owned(),
    };
    Error::incompatible(format!(
        "state of operator `{id}` has version {version} in the checkpoint and {} in the program, \
         which has no upgrade from it; {what_to_do}",
        declared.version
    ))
}

/// A sink with nothing pending left nothing that could be lost.
fn check_may_drop(policy: &Policy, left: &Operator) -> Result<()> {
    let nothing = matches!(&left.part, Part::Sink { pending, .. } if pending.is_empty());
    if nothing || policy.drops.contains(&left.id) {
        return Ok(());
    }
    let id = &left.id;
    Err(Error::incompatible(match &left.part {
        Part::Sink { pending, .. } => format!(
            "the checkpoint owes output of sink `{id}`, which may not be visible yet (pieces: {}), and \
             the job no longer has that sink; run the job once more with that sink, say \
             `renamed_from(\"{id}\")` at its successor, or give the output up with `--drop {id}` (`RunArgs::drop`)",
            pending.len()
        ),
        part => format!(
            "the checkpoint has a {} of operator `{id}`, which the job no longer has; say \
             `renamed_from(\"{id}\")` at its successor, or give it up with `--drop {id}` (`RunArgs::drop`)",
            part_name(part)
        ),
    }))
}

fn kind_name(kind: &Kind) -> &'static str {
    match kind {
        Kind::Source => "source",
        Kind::State(_) => "state",
        Kind::Sink => "sink",
    }
}

fn part_name(part: &Part) -> &'static str {
    match part {
        Part::Source { .. } => "source",
        Part::State { .. } => "state",
        Part::Sink { .. } => "sink",
    }
}
