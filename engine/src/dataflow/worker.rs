//! Workers: threads that build the dataflow and step it until the run is over.
//!
//! A bare timely worker that panics leaves the others waiting for ever. Here a panic is caught,
//! becomes the failure of the run, and every worker of the process leaves at its next step.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use isochrone_persistence::ids::{Epoch, Generation, JobName};
use isochrone_persistence::store::memory::MemoryStore;
use timely::WorkerConfig;
use timely::communication::{Allocator, AllocatorBuilder};
use timely::scheduling::Activator;
use timely::worker::Worker;

use super::pressure::Pressure;
use crate::connector::RunContext;
use crate::flow::{Flow, Plan};
use crate::runtime::control::Control;
use crate::runtime::pace::{Free, Pace};
use crate::runtime::restored::Restored;
use crate::time::SharedClock;
use crate::{Error, Result, threads};

/// How long a worker without anything to do sleeps before it looks again whether the run is over.
/// Everything else wakes it.
const PARK: Duration = Duration::from_millis(50);

/// What the operators of one worker share.
#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) job: JobName,
    pub(crate) generation: Generation,
    pub(crate) start: Epoch,
    pub(crate) worker: u32,
    pub(crate) peers: u32,
    pub(crate) groups: u16,
    pub(crate) control: Arc<Control>,
    pub(crate) restored: Arc<Restored>,
    pub(crate) run: Arc<RunContext>,
    pub(crate) pressure: Pressure,
    pub(crate) pace: Arc<dyn Pace>,
}

/// The run as all workers of a process see it; [`Site`] without what is the worker's own.
#[derive(Clone)]
pub(crate) struct Run {
    pub(crate) job: JobName,
    pub(crate) generation: Generation,
    pub(crate) start: Epoch,
    pub(crate) groups: u16,
    pub(crate) control: Arc<Control>,
    pub(crate) restored: Arc<Restored>,
    pub(crate) context: Arc<RunContext>,
    pub(crate) pace: Arc<dyn Pace>,
}

/// Builds the job's dataflow on a worker that never runs, to learn what it declares.
pub(crate) fn plan(
    job: &JobName,
    groups: u16,
    clock: &SharedClock,
    build: &dyn Fn(&Flow<'_>) -> Result<()>,
) -> Result<Plan> {
    let allocator = Allocator::Thread(Default::default());
    let mut worker = Worker::new(WorkerConfig::default(), allocator, None);
    let index = worker.next_dataflow_index();
    let plan = worker.dataflow_named::<u64, _, _>("plan", |scope| {
        let (handover, _) = crossbeam_channel::unbounded();
        let run = Run {
            job: job.clone(),
            generation: Generation(0),
            start: Epoch(0),
            groups,
            control: Arc::new(Control::new(Epoch(0), handover, clock.clone())),
            restored: Arc::default(),
            context: Arc::new(RunContext::alone(
                Arc::new(MemoryStore::default()),
                job,
                Generation(0),
            )),
            pace: Arc::new(Free),
        };
        let flow = Flow::new(scope, run.site(0, 1), true);
        build(&flow).and_then(|()| flow.into_plan())
    });
    worker.drop_dataflow(index);
    plan
}

/// Runs the job on the workers of this process until the run is over. A failure is in the control.
pub(crate) fn run_workers<F>(
    builders: Vec<AllocatorBuilder>,
    others: Box<dyn Any + Send>,
    run: Run,
    build: Arc<F>,
) -> Result<()>
where
    F: Fn(&Flow<'_>) -> Result<()> + Send + Sync + 'static,
{
    let control = run.control.clone();
    let guards = timely::execute::execute_from(builders, others, WorkerConfig::default(), {
        let control = control.clone();
        move |worker| {
            let run = run.clone();
            let pace = run.pace.clone();
            let index = worker.index();
            let work = catch_unwind(AssertUnwindSafe(|| work(worker, run, &*build)));
            if let Err(panic) = work {
                control.fail(panicked(&format!("worker {index}"), panic.as_ref()));
            }
            // A dataflow that is left half-way must not be stepped again.
            let _ = catch_unwind(AssertUnwindSafe(|| {
                worker.installed_dataflows().into_iter().for_each(|id| worker.drop_dataflow(id));
            }));
            pace.leave(index);
        }
    });
    let guards = guards.map_err(|error| Error::unavailable(format!("workers: {error}")))?;
    let joined = catch_unwind(AssertUnwindSafe(|| {
        guards.join().into_iter().for_each(|end| {
            if let Err(error) = end {
                control.fail(Error::internal(format!("a worker ended badly: {error}")));
            }
        });
    }));
    if let Err(panic) = joined {
        control.fail(panicked("the network between processes", panic.as_ref()));
    }
    Ok(())
}

fn work<F>(worker: &mut Worker, run: Run, build: &F)
where
    F: Fn(&Flow<'_>) -> Result<()>,
{
    let index = worker.index();
    // Building is a step too: it hands over and registers.
    if !run.pace.turn(index) {
        return;
    }
    let narrow = |number| u32::try_from(number).expect("fewer than 2^32 workers");
    let site = run.site(narrow(worker.index()), narrow(worker.peers()));
    let built = worker.dataflow_named::<u64, _, _>(run.job.as_str(), |scope| {
        let flow = Flow::new(scope, site.clone(), false);
        build(&flow).and_then(|()| flow.into_plan()).map(drop)
    });
    run.control.check(built);
    run.pace.pass(index);
    // Whether the run is over is asked within the turn, so that the number of turns is no race.
    while run.pace.turn(index) && !run.control.is_over() {
        if run.pace.parks() {
            worker.step_or_park(Some(PARK));
        } else {
            worker.step();
        }
        run.pace.pass(index);
    }
}

impl Run {
    fn site(&self, worker: u32, peers: u32) -> Site {
        Site {
            job: self.job.clone(),
            generation: self.generation,
            start: self.start,
            worker,
            peers,
            groups: self.groups,
            control: self.control.clone(),
            restored: self.restored.clone(),
            run: self.context.clone(),
            pressure: Pressure::default(),
            pace: self.pace.clone(),
        }
    }
}

impl Site {
    /// Activates an operator after about this long. timely's own delays go by the machine's clock;
    /// in a simulation the operator asks at each step instead, and its clock decides.
    pub(crate) fn activate_after(&self, activator: &Activator, delay: Duration) {
        if self.pace.parks() {
            activator.activate_after(delay);
        } else {
            activator.activate();
        }
    }
}

/// Runs user code; its error or panic becomes the failure of the run, and the answer is `None`.
pub(crate) fn guarded<T>(
    control: &Control,
    place: &str,
    work: impl FnOnce() -> Result<T>,
) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => control.check(result),
        Err(panic) => {
            control.fail(panicked(place, panic.as_ref()));
            None
        }
    }
}

/// What a worker knows when data connections break; their loss is told by name elsewhere.
pub(crate) const PEER_GONE: &str = "another process of this run is gone";

/// What a panic said, as an error that names the place.
pub(crate) fn panicked(place: &str, panic: &(dyn Any + Send)) -> Error {
    let text = threads::text_of(panic);
    if text.starts_with("timely communication error:") || text.contains("MergeQueue poisoned") {
        tracing::debug!("{place}: {text}");
        return Error::unavailable(PEER_GONE);
    }
    threads::panicked(place, panic)
}
