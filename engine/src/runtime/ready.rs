//! A job ready to run: what it declares, its store and its settings; and whether there is anything
//! to do.

use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender};
use isochrone_persistence::ids::{JobName, OperatorId};
use isochrone_persistence::lineage::{Fence, Hold, Retain};
use isochrone_persistence::manifest::{Manifest, Part as ManifestPart, Split};
use isochrone_persistence::restore::{self, Declared, OnDamage, Policy, StateType, Step};
use isochrone_persistence::write_ahead::WriteAhead;
use isochrone_persistence::{Error, Result, SharedStore};

use super::conductor::{Call, owes_output};
use super::takeover::{self, Ground, Takeover};
use crate::args::RunArgs;
use crate::cluster::Fingerprint;
use crate::connector::RunContext;
use crate::dataflow::plan;
use crate::flow::{Flow, Plan, Role};
use crate::job::Job;
use crate::protocol::{self, Kind, Settings};
use crate::record::KEY_HASH;
use crate::summary::{Outcome, RestoreReport, Summary};
use crate::time::SharedClock;

/// A job ready to run on a store.
pub(crate) struct Ready {
    pub(crate) name: JobName,
    pub(crate) plan: Plan,
    pub(crate) declared: Declared,
    pub(crate) policy: Policy,
    pub(crate) store: SharedStore,
    pub(crate) settings: Settings,
    pub(crate) retain: Retain,
    pub(crate) clock: SharedClock,
    pub(crate) calls: (Sender<Call>, Receiver<Call>),
    pub(crate) quiet: bool,
    /// Workers of one process talk in bytes too, as those of several do.
    pub(crate) in_bytes: bool,
}

impl Ready {
    pub(crate) fn new<F>(job: &Job, args: &RunArgs, build: &F) -> Result<Ready>
    where
        F: Fn(&Flow<'_>) -> Result<()>,
    {
        let name = job.job_name()?;
        let plan = plan(&name, job.key_groups, &job.clock, build)?;
        let declared = Declared {
            job: name.clone(),
            key_groups: job.key_groups,
            key_hash: KEY_HASH.to_owned(),
            operators: plan.declared(),
        };
        let policy = Policy {
            restore: args.restore.into(),
            on_damage: args.on_damage.into(),
            drops: args.drop.clone(),
        };
        Ok(Ready {
            plan,
            declared,
            policy,
            store: job.open_store(args)?,
            settings: job.settings(args),
            retain: job.checkpoint.retain,
            clock: job.clock.clone(),
            calls: job.calls(),
            quiet: args.quiet,
            in_bytes: false,
            name,
        })
    }

    /// What all processes of a run must agree on: the job, its operators and settings.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        let Declared { job, key_groups, key_hash, operators } = &self.declared;
        let operators: Vec<_> = operators
            .iter()
            .map(|operator| (&operator.id, &operator.renamed_from, kind_text(&operator.kind)))
            .collect();
        let text = format!("{job} {key_groups} {key_hash} {operators:?} {:?}", self.settings);
        Fingerprint::of(text.as_bytes())
    }

    /// What the sinks of one process, out of so many, may use of the run.
    pub(crate) fn context(
        &self,
        origin: &str,
        hold: &Hold,
        (process, processes): (u32, u32),
    ) -> Arc<RunContext> {
        let (store, job) = (self.store.clone(), self.name.clone());
        Arc::new(RunContext {
            origin: origin.to_owned(),
            run: hold.nonce.clone(),
            process,
            processes,
            write_ahead: WriteAhead::new(store.clone(), job.clone(), hold.generation),
            fence: Fence::new(store, job, hold.clone()),
        })
    }

    /// Fails with `Invalid` if the flags drop what the checkpoint does not have. Not asked of a process
    /// that a supervisor starts again: by then it may have been dropped.
    pub(crate) fn check_drops(&self) -> Result<()> {
        if self.policy.drops.is_empty() {
            return Ok(());
        }
        let known: Vec<OperatorId> =
            match takeover::survey(&self.store, &self.declared, &self.policy)? {
                Ground::Fresh => Vec::new(),
                Ground::From { manifest, .. } => {
                    manifest.operators.iter().map(|operator| operator.id.clone()).collect()
                }
            };
        let Some(unknown) = self.policy.drops.iter().find(|id| !known.contains(id)) else {
            return Ok(());
        };
        let known: Vec<String> = known.iter().map(|id| format!("`{id}`")).collect();
        let has = if known.is_empty() { "no operators".to_owned() } else { known.join(", ") };
        Err(Error::invalid(format!(
            "`--drop {unknown}` names no operator of the checkpoint, which has {has}; correct the \
             name, or leave the flag out if it was dropped before"
        )))
    }

    /// Whoever leaves before a run has begun may not say that all output is visible if it is not.
    pub(crate) fn check_nothing_owed(&self) -> Result<()> {
        match takeover::survey(&self.store, &self.declared, &self.policy)? {
            Ground::From { manifest, .. } if owes_output(&manifest.operators) => {
                Err(Error::unavailable(format!(
                    "stopped before the run began: the output of checkpoint {} may not be visible \
                     yet; the next run makes it so",
                    manifest.epoch
                )))
            }
            _ => Ok(()),
        }
    }

    /// If an earlier run has finished everything and no input has come since: says so. Asked in each
    /// process of a run.
    pub(crate) fn nothing_to_do(&self, process: u32) -> Result<Option<Summary>> {
        let ground = takeover::survey(&self.store, &self.declared, &self.policy)?;
        let Ground::From { manifest, passed_over, operators } = ground else {
            return self.look_at_input(process).map(|()| None);
        };
        // A damaged checkpoint is not left in place: a run puts an intact one above it. Nor is what is
        // to be dropped.
        let drops = operators.iter().any(|plan| plan.step == Step::Dropped);
        if !passed_over.is_empty() || drops {
            return Ok(None);
        }
        if !manifest.finished || owes_output(&manifest.operators) || self.has_input(&manifest)? {
            return Ok(None);
        }
        // A later run may have something to do, and then it is too late for a backup. With
        // `previous` the survey has looked already.
        if self.policy.on_damage == OnDamage::Stop {
            restore::verify_data(&*self.store, &manifest)?;
        }
        Ok(Some(Summary {
            outcome: Outcome::NothingToDo,
            generation: manifest.generation.0,
            read: 0,
            written: 0,
            sinks: Vec::new(),
            skipped: 0,
            dead_letters: 0,
            checkpoints: Default::default(),
            restore: RestoreReport {
                epoch: Some(manifest.epoch.0),
                positions: positions_of(&manifest, &self.plan),
                remarks: remarks_of(&manifest, &self.plan),
                ..Default::default()
            },
            elapsed_ms: 0,
        }))
    }

    /// At a fresh start: input that is not there is told before the job is claimed and folders are
    /// made for its output.
    fn look_at_input(&self, process: u32) -> Result<()> {
        let mut sources = self.plan.sources().filter(|_| process == 0);
        sources.try_for_each(|(_, _, source)| source.discover(&[]).map(drop))
    }

    fn has_input(&self, manifest: &Manifest) -> Result<bool> {
        for (index, _, source) in self.plan.sources() {
            let splits = splits_of(&takeover::inherit(&self.plan, Some(manifest))[index].part);
            let known: Vec<String> = splits.iter().map(|split| split.id.clone()).collect();
            let found = source.discover(&known)?;
            if !found.new.is_empty() || !found.complete {
                return Ok(true);
            }
            for split in &splits {
                if !split.finished || source.has_more(split)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

pub(crate) fn splits_of(part: &ManifestPart) -> Vec<Split> {
    match part {
        ManifestPart::Source { splits, .. } => splits.clone(),
        _ => Vec::new(),
    }
}

pub(crate) fn protocol_plan(plan: &Plan, workers: u32) -> protocol::Plan {
    let kind = |role: &Role| match role {
        Role::Source(_) => Kind::Source,
        Role::State(_) => Kind::State,
        Role::Sink(_) => Kind::Sink,
    };
    let operators = plan.operators.iter().map(|op| (op.id.clone(), kind(&op.role))).collect();
    protocol::Plan { operators, workers }
}

pub(crate) fn restore_report(taken: &Takeover, plan: &Plan) -> RestoreReport {
    let Some(from) = &taken.from else { return RestoreReport::default() };
    let given_up = |id: &OperatorId| {
        let left = from.operators.iter().find(|operator| operator.id == *id)?;
        let ManifestPart::Sink { pending, .. } = &left.part else { return None };
        (!pending.is_empty()).then_some(pending.len())
    };
    let what = |id: &OperatorId, step: &Step| match step {
        Step::Keep => format!("`{id}`: kept"),
        Step::Upgrade { from } => format!("`{id}`: upgraded from version {from}"),
        Step::Rename { from, .. } => format!("`{id}`: taken over from `{from}`"),
        Step::New => format!("`{id}`: not in the checkpoint, starts empty"),
        Step::Dropped => match given_up(id) {
            None => format!("`{id}`: dropped"),
            Some(pieces) => format!(
                "`{id}`: dropped; GIVEN UP with it: output that may not have been visible (pieces: \
                 {pieces})"
            ),
        },
    };
    RestoreReport {
        epoch: Some(from.epoch.0),
        operators: taken.operators.iter().map(|plan| what(&plan.id, &plan.step)).collect(),
        positions: positions_of(from, plan),
        remarks: remarks_of(from, plan),
        passed_over: taken.passed_over.clone(),
        ..RestoreReport::default()
    }
}

/// A line for each split: how far the checkpoint has read it.
fn positions_of(from: &Manifest, plan: &Plan) -> Vec<String> {
    let positions = from.operators.iter().flat_map(|operator| {
        let index = plan.successor_of(&operator.id);
        let source = plan.sources().find(|(source, _, _)| Some(*source) == index);
        splits_of(&operator.part).into_iter().map(move |split| {
            let end = if split.finished { " (finished)" } else { "" };
            let at = match source {
                Some((_, _, source)) => source.show(&split.position),
                None => split.position.to_string(),
            };
            format!("`{}` {} at {at}{end}", operator.id, split.id)
        })
    });
    positions.collect()
}

/// What sources say of splits that they would not find now, and what output goes elsewhere than before.
fn remarks_of(from: &Manifest, plan: &Plan) -> Vec<String> {
    let inherited = takeover::inherit(plan, Some(from));
    let remarks = plan.sources().flat_map(|(index, _, source)| {
        let known: Vec<String> =
            splits_of(&inherited[index].part).into_iter().map(|split| split.id).collect();
        if known.is_empty() { Vec::new() } else { source.remarks(&known) }
    });
    let elsewhere = plan.sinks().filter_map(|(index, id, sink)| {
        let ManifestPart::Sink { target: Some(before), .. } = &inherited[index].part else {
            return None;
        };
        let target = sink.target().filter(|target| target != before)?;
        Some(format!("`{id}`: what earlier runs wrote is in {before}; this run writes to {target}"))
    });
    remarks.chain(elsewhere).collect()
}

fn kind_text(kind: &restore::Kind) -> String {
    match kind {
        restore::Kind::Source => "source".to_owned(),
        restore::Kind::Sink => "sink".to_owned(),
        restore::Kind::State(StateType { version, shape, codec, .. }) => {
            format!("state {version} {shape} {codec}")
        }
    }
}
