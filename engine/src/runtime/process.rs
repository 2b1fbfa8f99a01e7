//! One process of a run: its workers, its uploader and its committers, and what orders do here.

use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::Sender;
use isochrone_persistence::ids::{Epoch, Generation, JobName, OperatorId, Worker};
use isochrone_persistence::{Error, Result, SharedStore};

use super::committing::{Committers, Committing};
use super::control::Control;
use super::message::{Due, Handover, Order, Progress, Report};
use super::pace::Pace;
use super::restored::Restored;
use super::uploader::{Reporter, Uploader};
use crate::connector::{RunContext, SinkContext};
use crate::dataflow::builders::AllocatorBuilder;
use crate::dataflow::{Run, run_workers};
use crate::erased::AnySink;
use crate::flow::{Flow, Plan};
use crate::protocol::Part;
use crate::threads;
use crate::time::SharedClock;

/// What a process must know to take its part in a run.
pub(crate) struct Membership {
    pub(crate) job: JobName,
    pub(crate) generation: Generation,
    /// The checkpoint that the run goes on from.
    pub(crate) start: Epoch,
    pub(crate) groups: u16,
    /// The first worker of this process.
    pub(crate) first_worker: u32,
    /// The workers of this process.
    pub(crate) workers: u32,
    pub(crate) store: SharedStore,
    pub(crate) context: Arc<RunContext>,
    pub(crate) clock: SharedClock,
    pub(crate) pace: Arc<dyn Pace>,
}

impl Membership {
    /// Committers of all sinks.
    pub(crate) fn committers(&self, plan: &Plan) -> Result<Committers> {
        let open = |(index, id, sink): (usize, &OperatorId, &Rc<dyn AnySink>)| {
            let context = SinkContext {
                job: self.job.clone(),
                operator: id.clone(),
                generation: self.generation,
                worker: Worker(self.first_worker),
                run: self.context.clone(),
            };
            Ok((index, sink.committer(&context)?))
        };
        plan.sinks().map(open).collect()
    }

    fn local_sinks(&self, plan: &Plan) -> Vec<Part> {
        let workers = self.first_worker..self.first_worker + self.workers;
        let parts = |operator: usize| {
            workers.clone().map(move |worker| Part { operator, worker: Worker(worker) })
        };
        plan.sinks().flat_map(|(operator, ..)| parts(operator)).collect()
    }
}

/// How long workers may take to leave after another process was lost.
const LEAVE_WITHOUT_PEERS: Duration = Duration::from_secs(1);
/// How long a thread may take to leave after another failure.
const LEAVE: Duration = Duration::from_secs(3);
const LEAVE_PAUSE: Duration = Duration::from_millis(20);

/// A process at work.
pub(crate) struct Process {
    pub(crate) control: Arc<Control>,
    handover: Sender<Handover>,
    due: Sender<Due>,
    uploader: JoinHandle<Option<()>>,
    committing: JoinHandle<Option<()>>,
    workers: Option<JoinHandle<Option<Result<()>>>>,
    /// Whether threads have no turns, so that one may be waited for without the others.
    parks: bool,
}

impl Process {
    /// Starts the uploader, and what commits. Orders may be applied from now on; workers start with
    /// [`Process::start_workers`].
    pub(crate) fn begin(
        membership: &Membership,
        plan: &Plan,
        committers: Committers,
        report: Reporter,
    ) -> Result<Process> {
        let (due, commits) = crossbeam_channel::unbounded();
        let (handover, inbox) = crossbeam_channel::unbounded();
        let clock = membership.clock.clone();
        let control = Arc::new(Control::new(membership.start, handover.clone(), clock));
        let committing = Committing {
            inbox: commits,
            report: report.clone(),
            committers,
            sinks: membership.local_sinks(plan),
            prepared: Default::default(),
            commits: control.commits.clone(),
            clock: membership.clock.clone(),
            pace: membership.pace.clone(),
        };
        let failed = |report: &Reporter| {
            let report = report.clone();
            move |error: Error| report(Report::Failed((&error).into()))
        };
        let (uploader_failed, committing_failed) = (failed(&report), failed(&report));
        let process = (membership.first_worker / membership.workers) as usize;
        let uploader = Uploader {
            inbox,
            report: counted(process, control.clone(), report),
            store: membership.store.clone(),
            job: membership.job.clone(),
            generation: membership.generation,
            ids: plan.operators.iter().map(|operator| operator.id.clone()).collect(),
            due: due.clone(),
            books: Default::default(),
            pace: membership.pace.clone(),
        };
        let uploader =
            threads::spawn("isochrone-uploader", uploader_failed, move || uploader.run())?;
        let committing =
            threads::spawn("isochrone-committer", committing_failed, move || committing.run())?;
        let parks = membership.pace.parks();
        Ok(Process { control, handover, due, uploader, committing, workers: None, parks })
    }

    pub(crate) fn start_workers<F>(
        &mut self,
        membership: &Membership,
        restored: Restored,
        builders: Vec<AllocatorBuilder>,
        others: Box<dyn Any + Send>,
        build: Arc<F>,
    ) -> Result<()>
    where
        F: Fn(&Flow<'_>) -> Result<()> + Send + Sync + 'static,
    {
        let run = Run {
            job: membership.job.clone(),
            generation: membership.generation,
            start: membership.start,
            groups: membership.groups,
            control: self.control.clone(),
            restored: Arc::new(restored),
            context: membership.context.clone(),
            pace: membership.pace.clone(),
        };
        let work = move || run_workers(builders, others, run, build);
        let control = self.control.clone();
        let on_panic = move |error| control.fail(error);
        self.workers = Some(threads::spawn("isochrone-workers", on_panic, work)?);
        Ok(())
    }

    /// Does what an order means in this process.
    pub(crate) fn orders(&self) -> impl Fn(&Order) + Send + Sync + 'static {
        let (control, due) = (self.control.clone(), self.due.clone());
        move |order| match order {
            Order::Trigger { epoch } => control.trigger(*epoch),
            // Without a committer the run is over.
            Order::Commit { epoch } => drop(due.send(Due::Commit { epoch: *epoch })),
            Order::Assign { part, splits } => control.assign(*part, splits.clone()),
            Order::Dealt { operator, complete } => control.deal(*operator, *complete),
            Order::Finish => control.finish(),
            Order::Abort(failure) => control.fail(failure.clone().into()),
        }
    }

    /// Waits for the workers, the uploader and what commits. The run must be over.
    ///
    /// After a failure they are given some time and then left behind: a closure, a store or the target of
    /// a sink may be the failure, and never return. Threads of timely that wait for a process that is
    /// gone may never end either; without being `alone`, the workers get less.
    pub(crate) fn end(self, alone: bool) -> Result<()> {
        self.control.finish();
        let patient = !self.control.has_failed() || !self.parks;
        let workers_time = if alone { LEAVE } else { LEAVE_WITHOUT_PEERS };
        if let Some(workers) = self.workers {
            if patient || ends_within(&workers, workers_time) {
                joined("the workers", workers)?.transpose()?;
            } else if alone {
                left_behind("a worker");
            }
        }
        let failure = self.control.take_failure();
        // Who has gone needs no end.
        let _ = self.handover.send(Handover::End);
        let _ = self.due.send(Due::End);
        let threads = [("the uploader", self.uploader), ("the committer", self.committing)];
        for (name, thread) in threads {
            if patient || ends_within(&thread, LEAVE) {
                joined(name, thread)?;
            } else {
                self.control.commits.leave_behind();
                left_behind(name);
            }
        }
        failure.map_or(Ok(()), Err)
    }
}

fn left_behind(name: &str) {
    tracing::warn!("{name} does not return, and is left behind; the process should end soon");
}

/// Whether a thread ends in time.
fn ends_within<T>(thread: &JoinHandle<T>, time: Duration) -> bool {
    let mut left = time;
    while !thread.is_finished() && !left.is_zero() {
        let pause = left.min(LEAVE_PAUSE);
        crossbeam_channel::after(pause).recv().ok();
        left -= pause;
    }
    thread.is_finished()
}

/// What this process has noted of a cut is told before its parts are acknowledged, so that it is known
/// when the checkpoint exists. Process 0 sees it by itself.
fn counted(process: usize, control: Arc<Control>, report: Reporter) -> Reporter {
    if process == 0 {
        return report;
    }
    Arc::new(move |told| {
        if matches!(told, Report::Ack { .. }) && control.has_alignment() {
            report(Report::Progress(Progress::of(process, &control)));
        }
        report(told);
    })
}

fn joined<T>(what: &str, thread: JoinHandle<T>) -> Result<T> {
    thread.join().map_err(|panic| crate::dataflow::panicked(what, panic.as_ref()))
}

#[cfg(test)]
mod tests;
