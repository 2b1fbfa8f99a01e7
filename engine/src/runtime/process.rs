//! One process of a run: its workers, its uploader and its committers, and what orders do here.

use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;

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
const LEAVE_TRIES: u32 = 50;
const LEAVE_PAUSE: std::time::Duration = std::time::Duration::from_millis(20);

/// A process at work.
pub(crate) struct Process {
    pub(crate) control: Arc<Control>,
    handover: Sender<Handover>,
    due: Sender<Due>,
    uploader: JoinHandle<()>,
    committing: JoinHandle<()>,
    workers: Option<JoinHandle<Result<()>>>,
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
        let (sinks, pace) = (membership.local_sinks(plan), membership.pace.clone());
        let committing = Committing::new(commits, report.clone(), committers, sinks, pace);
        let (handover, inbox) = crossbeam_channel::unbounded();
        let clock = membership.clock.clone();
        let control = Arc::new(Control::new(membership.start, handover.clone(), clock));
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
        let uploader = spawn("isochrone-uploader", move || uploader.run())?;
        let committing = spawn("isochrone-committer", move || committing.run())?;
        Ok(Process { control, handover, due, uploader, committing, workers: None })
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
        self.workers = Some(spawn("isochrone-workers", work)?);
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
    /// Threads of timely that wait for a process that is gone may never end. After a failure of a run
    /// of several processes they are given a moment and then left behind.
    pub(crate) fn end(self, alone: bool) -> Result<()> {
        self.control.finish();
        let patient = alone || !self.control.has_failed();
        if let Some(workers) = self.workers {
            let waited = (0..LEAVE_TRIES).any(|_| {
                let ended = patient || workers.is_finished();
                if !ended {
                    crossbeam_channel::after(LEAVE_PAUSE).recv().ok();
                }
                ended
            });
            if waited {
                joined("the workers", workers)??;
            }
        }
        let failure = self.control.take_failure();
        // Who has gone needs no end.
        let _ = self.handover.send(Handover::End);
        let _ = self.due.send(Due::End);
        joined("the uploader", self.uploader)?;
        joined("the committer", self.committing)?;
        failure.map_or(Ok(()), Err)
    }
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

pub(crate) fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>> {
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work);
    thread.map_err(|error| {
        Error::unavailable(format!("thread `{name}` could not be started")).with_source(error)
    })
}

fn joined<T>(what: &str, thread: JoinHandle<T>) -> Result<T> {
    thread.join().map_err(|panic| crate::dataflow::panicked(what, panic.as_ref()))
}
