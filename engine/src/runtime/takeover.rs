//! The start of a run: decide what to start from, read it, and only then claim the job.

use isochrone_persistence::ids::{Epoch, OperatorId};
use isochrone_persistence::lineage::{Base, Lineage, read_newest};
use isochrone_persistence::manifest::{self, Manifest};
use isochrone_persistence::restore::{self, Decision, Declared, OnDamage, OperatorPlan, Policy};
use isochrone_persistence::{Error, Result, SharedStore};

use super::restored::Restored;
use crate::flow::{Plan, Role};
use crate::time::SharedClock;

/// A run that may begin.
pub(crate) struct Takeover {
    pub(crate) lineage: Lineage,
    pub(crate) restored: Restored,
    /// The manifest that the run goes on from, as the store has it; `None` at a fresh start.
    pub(crate) from: Option<Manifest>,
    pub(crate) operators: Vec<OperatorPlan>,
    pub(crate) passed_over: Vec<String>,
}

/// What was decided before the job is claimed.
pub(crate) enum Ground {
    /// Nothing to restore.
    Fresh,
    /// This.
    From { manifest: Box<Manifest>, operators: Vec<OperatorPlan>, passed_over: Vec<String> },
}

/// Decides what to start from, and changes nothing.
pub(crate) fn survey(store: &SharedStore, declared: &Declared, policy: &Policy) -> Result<Ground> {
    let check_data = policy.on_damage == OnDamage::Previous;
    let newest = read_newest(&**store, &declared.job)?;
    let candidates = restore::candidates(&**store, &declared.job, &newest, check_data);
    match restore::decide(declared, policy, candidates) {
        Decision::Refuse(error) => Err(error),
        Decision::Fresh => Ok(Ground::Fresh),
        Decision::Resume(resume) => Ok(Ground::From {
            passed_over: resume.passed_over.iter().map(without_advice).collect(),
            manifest: Box::new(resume.manifest),
            operators: resume.operators,
        }),
    }
}

/// What was found: the advice has been taken.
fn without_advice(error: &Error) -> String {
    error.report().replace(&format!("; {}", manifest::TAKE_AN_OLDER_ONE), "")
}

/// Decides, reads all state, and claims the job.
pub(crate) fn take_over(
    store: &SharedStore,
    plan: &Plan,
    declared: &Declared,
    policy: &Policy,
    clock: &SharedClock,
) -> Result<Takeover> {
    let mut ground = None;
    let mut restored = Restored::default();
    let (lineage, _) = Lineage::claim(store.clone(), &declared.job, clock.wall_ms(), |_| {
        let decided = survey(store, declared, policy)?;
        let base = match &decided {
            Ground::Fresh => {
                Base::Fresh { key_groups: declared.key_groups, key_hash: declared.key_hash.clone() }
            }
            Ground::From { manifest, .. } => {
                restored = Restored::load(&**store, &declared.job, plan, manifest)?;
                Base::From(manifest.clone())
            }
        };
        ground = Some(decided);
        Ok(base)
    })?;
    Ok(match ground {
        Some(Ground::From { manifest, operators, passed_over }) => {
            Takeover { lineage, restored, from: Some(*manifest), operators, passed_over }
        }
        _ => Takeover {
            lineage,
            restored,
            from: None,
            operators: Vec::new(),
            passed_over: Vec::new(),
        },
    })
}

impl Takeover {
    /// The checkpoint that the run goes on from; 0 at a fresh start.
    pub(crate) fn epoch(&self) -> Epoch {
        self.from.as_ref().map_or(Epoch(0), |manifest| manifest.epoch)
    }

    /// The plan's operators with what the checkpoint holds for each, in the plan's order.
    pub(crate) fn operators_of(&self, plan: &Plan) -> Vec<manifest::Operator> {
        inherit(plan, self.from.as_ref())
    }
}

/// The plan's operators with what `from` holds for each.
pub(crate) fn inherit(plan: &Plan, from: Option<&Manifest>) -> Vec<manifest::Operator> {
    let left = |id: &OperatorId| {
        from.and_then(|manifest| manifest.operators.iter().find(|operator| operator.id == *id))
    };
    let part = |operator: &crate::flow::Declared| {
        let left = left(&operator.id).or_else(|| operator.renamed_from.as_ref().and_then(left));
        let fresh = fresh_part(&operator.role);
        match (fresh, left.map(|operator| operator.part.clone())) {
            (
                manifest::Part::State { version, shape, codec, .. },
                Some(manifest::Part::State { segments, .. }),
            ) => manifest::Part::State { version, shape, codec, segments },
            (fresh, left) => left.unwrap_or(fresh),
        }
    };
    plan.operators
        .iter()
        .map(|operator| manifest::Operator { id: operator.id.clone(), part: part(operator) })
        .collect()
}

fn fresh_part(role: &Role) -> manifest::Part {
    match role {
        Role::Source(_) => manifest::Part::Source { splits: Vec::new(), skipped: 0 },
        Role::Sink(_) => manifest::Part::Sink { pending: Vec::new(), history: None, target: None },
        Role::State(state) => manifest::Part::State {
            version: state.version,
            shape: state.shape.clone(),
            codec: state.codec.clone(),
            segments: Vec::new(),
        },
    }
}
