//! Process 0 of a run: takes the job over, tells the others, and conducts.

use std::collections::BTreeMap;
use std::iter::repeat;
use std::sync::Arc;
use std::time::Duration;

use isochrone_persistence::manifest::{self, Part as ManifestPart};
use isochrone_persistence::restore::Step;
use isochrone_persistence::{Error, Result};

use super::committing::Committers;
use super::company::{Company, GATHER_TIMEOUT, listen_to};
use super::conductor::{Call, Conductor, Orders, failed_to};
use super::merge::{Bench, Merger};
use super::message::{Failure, Order, Report};
use super::pace::Pace;
use super::process::{Membership, Process};
use super::ready::{Ready, protocol_plan, restore_report, splits_of};
use super::splits::Splits;
use super::takeover::{self, Takeover};
use super::tally::Tally;
use super::wire::{Downward, Start};
use crate::cluster::Link;
use crate::cluster::mesh::{self, Party, RunToken};
use crate::connector::Recovery;
use crate::dataflow::builders;
use crate::flow::Flow;
use crate::protocol::{Coordinator, Kind, Ledger};
use crate::summary::{Outcome, RestoreReport, Summary, Written};

/// The start of a run: how far it is set up.
pub(super) struct Setting {
    membership: Membership,
    pub(super) taken: Takeover,
    restore: RestoreReport,
    pub(super) operators: Vec<manifest::Operator>,
}

/// What sinks had to say when they recovered; see [`RestoreReport`].
#[derive(Default)]
pub(super) struct Told {
    set_aside: Vec<String>,
    pending: Vec<String>,
}

impl Ready {
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
        self.lead(workers, None, pace, build)
    }

    /// Runs this process' workers and conducts the run.
    pub(crate) fn lead<F>(
        self,
        workers: u32,
        company: Option<Company>,
        pace: Arc<dyn Pace>,
        build: Arc<F>,
    ) -> Result<Summary>
    where
        F: Fn(&Flow<'_>) -> Result<()> + Send + Sync + 'static,
    {
        let links = company.as_ref().map(|company| company.links.clone());
        let led = self.conduct(workers, company, pace, build);
        if let (Err(error), Some(links)) = (&led, &links) {
            // Who still waits for the start hears why there is none. Whom it does not reach hears that
            // this process is lost.
            let _ = Company::tell(links, &Downward::Order(Order::Abort(error.into())));
        }
        led
    }

    fn conduct<F>(
        self,
        workers: u32,
        company: Option<Company>,
        pace: Arc<dyn Pace>,
        build: Arc<F>,
    ) -> Result<Summary>
    where
        F: Fn(&Flow<'_>) -> Result<()> + Send + Sync + 'static,
    {
        let started_ms = self.clock.monotonic_ms();
        let processes = company.as_ref().map_or(1, |company| company.me.processes);
        let setting = self.set(workers, processes, pace.clone())?;
        let total = workers * processes;
        let calls = self.calls.0.clone();
        let reporter = Arc::new(move |report| drop(calls.send(Call::Report(report))));
        let (ledger, committers, told) = self.recover_sinks(&setting)?;
        let Setting { membership, taken, mut restore, .. } = setting;
        (restore.set_aside, restore.pending) = (told.set_aside, told.pending);
        let histories = committers.iter();
        let histories = histories.filter_map(|(index, it)| Some((*index, it.history()?))).collect();
        announce(&restore);
        let mut process = Process::begin(&membership, &self.plan, committers, reporter)?;
        let assembled = self.assemble(company, &membership, &taken, histories);
        let ((allocators, others), links) = match assembled {
            Ok(Some(assembled)) => assembled,
            Ok(None) => {
                process.end(true)?;
                return Ok(Summary { outcome: Outcome::Stopped, restore, ..Summary::default() });
            }
            Err(error) => return Err(given_up(process, error)),
        };
        let orders = self.orders(&process, &links);
        let restored_operators = ledger.manifest_operators(membership.start);
        let Takeover { lineage, restored, .. } = taken;
        let started = self.deal_splits(total, &restored_operators, &orders).and_then(|splits| {
            process.start_workers(&membership, restored, allocators, others, build)?;
            Ok((splits, self.merge_bench(&membership)?))
        });
        let (splits, merge) = match started {
            Ok(started) => started,
            Err(error) => return Err(given_up(process, error)),
        };
        let now_ms = self.clock.monotonic_ms();
        let plan = protocol_plan(&self.plan, total);
        let loading = plan.parts_of(Kind::State).count();
        let settings = self.settings.clone();
        let timeout = Duration::from_millis(settings.timeout_ms);
        let mut conductor = Conductor {
            coordinator: Coordinator::new(settings, plan, membership.start, now_ms),
            ledger,
            lineage,
            splits,
            tally: Tally::new(self.quiet, restore, loading, now_ms),
            inbox: self.calls.1.clone(),
            orders,
            context: membership.context.clone(),
            overtaken_asked_ms: now_ms,
            is_untidy: false,
            tidy_due_ms: now_ms,
            local: process.control.clone(),
            clock: self.clock.clone(),
            retain: self.retain,
            workers: total,
            workers_each: membership.workers,
            ending: Default::default(),
            owes: false,
            timeout,
            permit: None,
            merge,
            ids: self.plan.operators.iter().map(|operator| operator.id.clone()).collect(),
            requests: Vec::new(),
            pace,
        };
        let end = conductor.run();
        conductor.tally.clear_line();
        let ended = process.end(links.is_empty());
        let outcome = end.and_then(|cause| ended.map(|()| Outcome::from(cause)))?;
        Ok(summarise(outcome, &conductor, started_ms))
    }

    /// What this process and the others are told to do.
    fn orders(&self, process: &Process, links: &Arc<Vec<Link>>) -> Orders {
        let (here, others, calls) = (process.orders(), links.clone(), self.calls.0.clone());
        Arc::new(move |order: &Order| {
            here(order);
            if let Err(error) = Company::tell(&others, &Downward::Order(order.clone())) {
                // IMPORTANT: who has not heard of it would be done without it.
                drop(calls.send(Call::Report(Report::Failed((&error).into()))));
            }
        })
    }

    /// Takes the job over; from here on no older run can publish or commit.
    pub(super) fn set(&self, workers: u32, processes: u32, pace: Arc<dyn Pace>) -> Result<Setting> {
        let (plan, declared, policy) = (&self.plan, &self.declared, &self.policy);
        let taken = takeover::take_over(&self.store, plan, declared, policy, &self.clock)?;
        let generation = taken.lineage.generation();
        let context = self.context(taken.lineage.origin(), taken.lineage.hold(), (0, processes));
        let membership = Membership {
            job: self.name.clone(),
            generation,
            start: taken.epoch(),
            groups: self.declared.key_groups,
            first_worker: 0,
            workers,
            store: self.store.clone(),
            context,
            clock: self.clock.clone(),
            pace,
        };
        let (restore, operators) = (restore_report(&taken, plan), taken.operators_of(plan));
        Ok(Setting { membership, taken, restore, operators })
    }

    fn merge_bench(&self, membership: &Membership) -> Result<Bench> {
        let merger = Merger {
            store: self.store.clone(),
            job: self.name.clone(),
            generation: membership.generation,
        };
        if !membership.pace.parks() {
            return Ok(Bench::Here(merger));
        }
        let calls = self.calls.0.clone();
        let done = Arc::new(move |merged| drop(calls.send(Call::Merged(merged))));
        Bench::thread(merger, failed_to(self.calls.0.clone()), done)
    }

    /// Finishes what earlier runs owe, before any writer opens.
    pub(super) fn recover_sinks(&self, setting: &Setting) -> Result<(Ledger, Committers, Told)> {
        let Setting { membership, taken, .. } = setting;
        let mut ledger = Ledger::restore(setting.operators.clone());
        let mut committers = membership.committers(&self.plan)?;
        let mut due = Vec::new();
        for (index, committer) in &mut committers {
            let ManifestPart::Sink { pending, history, .. } = &setting.operators[*index].part
            else {
                continue;
            };
            let step = taken.operators.get(*index).map(|plan| &plan.step);
            let renamed_from = match step {
                Some(Step::Rename { from, .. }) => Some(from.clone()),
                _ => None,
            };
            committer.fence(renamed_from.as_ref())?;
            let recovery = Recovery {
                pending: pending.iter().map(|pending| pending.effect.clone()).collect(),
                from: taken.from.as_ref().map(|manifest| manifest.epoch),
                renamed_from,
                is_new: matches!(step, None | Some(Step::New)),
                history: history.clone(),
            };
            due.push((*index, committer, recovery));
        }
        // IMPORTANT: only now. What one sink's older run has left open may hide another's from who
        // reads it.
        let mut told = Told::default();
        for (index, committer, recovery) in due {
            told.set_aside.extend(committer.recover(recovery)?);
            ledger.recovered(index, committer.history(), self.plan.target_of(index));
            let owed = self.pending_of(std::slice::from_ref(&setting.operators[index]));
            let outcomes = committer.outcomes().into_iter().map(Some).chain(repeat(None));
            told.pending.extend(owed.iter().zip(outcomes).map(|(owed, outcome)| {
                format!("{owed}: {}", outcome.as_deref().unwrap_or("visible now"))
            }));
        }
        Ok((ledger, committers, told))
    }

    /// Tells the others, if there are any, where the run begins, and connects with them. `None`: asked to
    /// stop before that.
    fn assemble(
        &self,
        company: Option<Company>,
        membership: &Membership,
        taken: &Takeover,
        histories: BTreeMap<usize, String>,
    ) -> Result<Option<(builders::Allocators, Arc<Vec<Link>>)>> {
        let Some(company) = company else {
            let alone = builders::in_process(membership.workers, self.in_bytes)?;
            return Ok(Some((alone, Arc::new(Vec::new()))));
        };
        let Some(addresses) = company.addresses(&self.calls)? else {
            company.dismiss();
            return Ok(None);
        };
        let token = RunToken::new(&self.name, membership.generation)?;
        let start = Start {
            token: token.clone(),
            addresses: addresses.clone(),
            hold: taken.lineage.hold().clone(),
            origin: membership.context.origin.clone(),
            epoch: membership.start,
            histories,
            from: taken.from.clone(),
        };
        Company::tell(&company.links, &Downward::Start(Box::new(start)))?;
        if company.loaded(&self.calls)?.is_none() {
            company.dismiss();
            return Ok(None);
        }
        Company::tell(&company.links, &Downward::Connect)?;
        let Company { me, links, events, listener, .. } = company;
        let party = Party { process: me.process, token, secret: me.secret.clone() };
        let sockets = mesh::connect(&listener, &party, &addresses, GATHER_TIMEOUT)?;
        let allocators = builders::across(sockets, me.process, membership.workers)?;
        listen_to(events, self.calls.0.clone())?;
        Ok(Some((allocators, links)))
    }

    fn deal_splits(
        &self,
        workers: u32,
        restored: &[manifest::Operator],
        orders: &Orders,
    ) -> Result<Splits> {
        let mut splits = Splits::new(workers);
        for (index, _, source) in self.plan.sources() {
            let known = splits_of(&restored[index].part);
            let due = splits.add(index, source.clone(), known)?;
            due.iter().for_each(|order| orders(order));
        }
        for (index, looks_on) in splits.without_input() {
            let id = &self.plan.operators[index].id;
            match looks_on {
                true => tracing::warn!("source `{id}` has found no input yet; it looks on"),
                false => tracing::warn!("source `{id}` has found no input"),
            }
        }
        Ok(splits)
    }
}

/// Ends the threads of a process whose run has failed before it was under way.
fn given_up(process: Process, error: Error) -> Error {
    process.control.fail(Failure::from(&error).into());
    // It failed with this error.
    let _ = process.end(false);
    error
}

/// Says what was given up, whoever listens.
fn announce(restore: &RestoreReport) {
    for line in &restore.passed_over {
        tracing::warn!("passed over: {line}");
    }
    for line in &restore.set_aside {
        tracing::warn!("{line}");
    }
}

fn summarise(outcome: Outcome, conductor: &Conductor, started_ms: u64) -> Summary {
    let tally = &conductor.tally;
    let by_sink = tally.written_by().into_iter();
    let sink =
        |(sink, records): (usize, u64)| Written { sink: conductor.ids[sink].to_string(), records };
    Summary {
        outcome,
        generation: conductor.lineage.generation().0,
        read: tally.read(),
        written: tally.written(),
        sinks: by_sink.map(sink).collect(),
        skipped: tally.skipped(),
        dead_letters: tally.dead_letters(),
        checkpoints: tally.checkpoints.clone(),
        restore: tally.restore.clone(),
        elapsed_ms: conductor.clock.monotonic_ms() - started_ms,
    }
}
