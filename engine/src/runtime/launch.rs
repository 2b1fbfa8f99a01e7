//! From flags to a run: alone, as a supervisor of children, or as one process of several.

use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender};
use isochrone_persistence::ids::{JobName, OperatorId};
use isochrone_persistence::manifest::{Manifest, Part as ManifestPart};
use isochrone_persistence::restore::{Declared, Policy, Step};
use isochrone_persistence::store::probe;
use isochrone_persistence::{Result, SharedStore};

use super::conductor::{Call, Conductor, Orders, owes_output};
use super::pace::{Free, Pace};
use super::process::{Membership, Process};
use super::splits::Splits;
use super::takeover::{self, Ground, Takeover};
use super::tally::Tally;
use crate::args::RunArgs;
use crate::dataflow::{builders, plan};
use crate::flow::{Flow, Plan};
use crate::job::Job;
use crate::protocol::{self, Cause, Coordinator, Kind, Ledger, Settings};
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
    pub(crate) retain: isochrone_persistence::lineage::Retain,
    pub(crate) clock: SharedClock,
    pub(crate) calls: (Sender<Call>, Receiver<Call>),
    pub(crate) quiet: bool,
}

/// Runs a job as its flags say.
pub(crate) fn launch<F>(job: Job, args: RunArgs, build: Arc<F>) -> Result<Summary>
where
    F: Fn(&Flow<'_>) -> Result<()> + Send + Sync + 'static,
{
    let ready = Ready::new(&job, &args, &*build)?;
    probe::probe(&*ready.store, &format!("{}/", ready.name))?;
    if let Some(summary) = ready.nothing_to_do()? {
        return Ok(summary);
    }
    ready.run_alone(args.workers, Arc::new(Free), build)
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
            name,
        })
    }

    /// If an earlier run has finished everything and no input has come since: says so.
    pub(crate) fn nothing_to_do(&self) -> Result<Option<Summary>> {
        let ground = takeover::survey(&self.store, &self.declared, &self.policy)?;
        let Ground::From { manifest, .. } = ground else { return Ok(None) };
        if !manifest.finished || owes_output(&manifest.operators) || self.has_input(&manifest)? {
            return Ok(None);
        }
        Ok(Some(Summary {
            outcome: Outcome::NothingToDo,
            generation: manifest.generation.0,
            read: 0,
            written: 0,
            skipped: 0,
            checkpoints: Default::default(),
            restore: RestoreReport { epoch: Some(manifest.epoch.0), ..Default::default() },
            elapsed_ms: 0,
        }))
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

    /// Runs all workers in this process.
    pub(crate) fn run_alone<F>(
        self,
        workers: u32,
        pace: Arc<dyn Pace>,
        build: Arc<F>,
    ) -> Result<Summary>
    where
        F: Fn(&Flow<'_>) -> Result<()> + Send + Sync + 'static,
    {
        let started_ms = self.clock.monotonic_ms();
        let taken = takeover::take_over(
            &self.store,
            &self.plan,
            &self.declared,
            &self.policy,
            &self.clock,
        )?;
        let membership = Membership {
            job: self.name.clone(),
            generation: taken.lineage.generation(),
            start: taken.epoch(),
            groups: self.declared.key_groups,
            first_worker: 0,
            workers,
            store: self.store.clone(),
            clock: self.clock.clone(),
            pace: pace.clone(),
        };
        let restore = report(&taken);
        let calls = self.calls.0.clone();
        let reporter = Arc::new(move |report| drop(calls.send(Call::Report(report))));
        let (ledger, committers) = self.recover_sinks(&membership, &taken)?;
        let mut process = Process::begin(&membership, &self.plan, committers, reporter)?;
        let orders: Orders = Arc::new(process.orders());
        let splits =
            self.deal_splits(workers, &ledger.manifest_operators(membership.start), &orders)?;
        let Takeover { lineage, restored, .. } = taken;
        let (allocators, others) = builders::in_process(workers)?;
        process.start_workers(&membership, restored, allocators, others, build)?;
        let now_ms = self.clock.monotonic_ms();
        let protocol_plan = protocol_plan(&self.plan, workers);
        let start = membership.start;
        let mut conductor = Conductor {
            coordinator: Coordinator::new(self.settings.clone(), protocol_plan, start, now_ms),
            ledger,
            lineage,
            splits,
            tally: Tally::new(!self.quiet, now_ms),
            inbox: self.calls.1.clone(),
            orders,
            local: process.control.clone(),
            clock: self.clock.clone(),
            retain: self.retain,
            workers,
            owes: false,
            requests: Vec::new(),
        };
        let end = conductor.run(&*pace);
        let Conductor { tally, lineage, .. } = conductor;
        tally.clear_line();
        let ended = process.end();
        let outcome = end?;
        ended?;
        Ok(summarise(outcome, &tally, lineage.generation().0, restore, started_ms, &self.clock))
    }

    /// Finishes what earlier runs owe, before any writer opens.
    fn recover_sinks(
        &self,
        membership: &Membership,
        taken: &Takeover,
    ) -> Result<(Ledger, Committers)> {
        let operators = taken.operators_of(&self.plan);
        let mut ledger = Ledger::restore(operators.clone());
        let mut committers = membership.committers(&self.plan)?;
        for (index, committer) in &mut committers {
            if let ManifestPart::Sink { pending } = &operators[*index].part {
                let effects = pending.iter().map(|pending| pending.effect.clone()).collect();
                committer.recover(effects, taken.from.is_none())?;
                ledger.recovered(*index);
            }
        }
        Ok((ledger, committers))
    }

    fn deal_splits(
        &self,
        workers: u32,
        restored: &[isochrone_persistence::manifest::Operator],
        orders: &Orders,
    ) -> Result<Splits> {
        let mut splits = Splits::new(workers);
        for (index, _, source) in self.plan.sources() {
            let known = splits_of(&restored[index].part);
            let due = splits.add(index, source.clone(), known)?;
            due.iter().for_each(|order| orders(order));
        }
        Ok(splits)
    }
}

type Committers = std::collections::BTreeMap<usize, Box<dyn crate::erased::AnyCommitter>>;

fn splits_of(part: &ManifestPart) -> Vec<isochrone_persistence::manifest::Split> {
    match part {
        ManifestPart::Source { splits, .. } => splits.clone(),
        _ => Vec::new(),
    }
}

fn protocol_plan(plan: &Plan, workers: u32) -> protocol::Plan {
    use crate::flow::Role;
    let kind = |role: &Role| match role {
        Role::Source(_) => Kind::Source,
        Role::State(_) => Kind::State,
        Role::Sink(_) => Kind::Sink,
    };
    let operators = plan.operators.iter().map(|op| (op.id.clone(), kind(&op.role))).collect();
    protocol::Plan { operators, workers }
}

fn report(taken: &Takeover) -> RestoreReport {
    let Some(from) = &taken.from else { return RestoreReport::default() };
    let what = |id: &OperatorId, step: &Step| match step {
        Step::Keep => format!("`{id}`: kept"),
        Step::Upgrade { from } => format!("`{id}`: upgraded from version {from}"),
        Step::Rename { from, .. } => format!("`{id}`: taken over from `{from}`"),
        Step::New => format!("`{id}`: not in the checkpoint, starts empty"),
        Step::Dropped => format!("`{id}`: dropped"),
    };
    let positions = from.operators.iter().flat_map(|operator| {
        splits_of(&operator.part).into_iter().map(move |split| {
            let end = if split.finished { " (finished)" } else { "" };
            format!("`{}` {} at {}{end}", operator.id, split.id, split.position)
        })
    });
    RestoreReport {
        epoch: Some(from.epoch.0),
        operators: taken.operators.iter().map(|plan| what(&plan.id, &plan.step)).collect(),
        positions: positions.collect(),
        passed_over: taken.passed_over.clone(),
        loaded: Vec::new(),
    }
}

fn summarise(
    cause: Cause,
    tally: &Tally,
    generation: u64,
    mut restore: RestoreReport,
    started_ms: u64,
    clock: &SharedClock,
) -> Summary {
    restore.loaded = tally.loaded.clone();
    Summary {
        outcome: Outcome::from(cause),
        generation,
        read: tally.read(),
        written: tally.written(),
        skipped: tally.skipped(),
        checkpoints: tally.checkpoints.clone(),
        restore,
        elapsed_ms: clock.monotonic_ms() - started_ms,
    }
}
