//! Sinks: writers on the worker, effects that are prepared, then committed by permit.
//!
//! Exactly once means: what a writer wrote in an epoch becomes durable (*prepared*) before the
//! checkpoint that ends the epoch exists, is named in it, and becomes visible (*committed*) only
//! afterwards, by whoever holds the proof that the checkpoint exists.

use std::sync::Arc;

use isochrone_persistence::SharedStore;
use isochrone_persistence::ids::{Epoch, Generation, JobName, OperatorId, Sequence, Worker};
use isochrone_persistence::lineage::{Fence, Hold};
use isochrone_persistence::manifest::Kept;
use isochrone_persistence::store::memory::MemoryStore;
use isochrone_persistence::write_ahead::WriteAhead;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Result;

/// A description of where records go.
///
/// Contract: constructing it does no I/O; `writer` and `committer` may.
pub trait Sink: 'static {
    /// What it takes.
    type Item: 'static;
    /// A prepared effect: all that is needed to commit it, by any process, after any crash.
    type Effect: Serialize + DeserializeOwned + Send + 'static;

    /// Opens the writer of one worker. Called after [`Committer::recover`] has succeeded.
    fn writer(&self, context: &SinkContext) -> Result<Box<dyn Writer<Self::Item, Self::Effect>>>;

    /// What commits effects; lives on a background thread, one per process.
    fn committer(&self, context: &SinkContext) -> Result<Box<dyn Committer<Self::Effect>>>;

    /// What the effect needs of the write-ahead ([`RunContext::write_ahead`]) to be committed: it is
    /// kept as long as a checkpoint names the effect.
    fn kept(_effect: &Self::Effect) -> Vec<Kept> {
        Vec::new()
    }

    /// Where output goes, for people. Each checkpoint keeps it, so that a run which writes elsewhere
    /// than those before can say so.
    fn target(&self) -> Option<String> {
        None
    }

    /// The effect in a line, for people.
    fn describe(effect: &Self::Effect) -> String {
        serde_json::to_string(effect).unwrap_or_else(|error| format!("not readable: {error}"))
    }
}

/// Who asks.
#[derive(Clone, Debug)]
pub struct SinkContext {
    /// The job.
    pub job: JobName,
    /// The sink's id.
    pub operator: OperatorId,
    /// The run; higher than that of every earlier run of the job.
    pub generation: Generation,
    /// The worker that writes; for a committer, the first worker of its process.
    pub worker: Worker,
    /// What is the same for all sinks of a process.
    pub run: Arc<RunContext>,
}

impl SinkContext {
    /// The context of a sink in a run of one process on a store in memory: for tests of sinks.
    ///
    /// ```
    /// use isochrone_engine::connector::SinkContext;
    /// let context = SinkContext::alone("risk", "alerts", 1, 0)?;
    /// assert_eq!(context.operator.as_str(), "alerts");
    /// context.run.fence.check()?;
    /// # Ok::<(), isochrone_engine::Error>(())
    /// ```
    pub fn alone(job: &str, operator: &str, generation: u64, worker: u32) -> Result<SinkContext> {
        let (job, generation) = (JobName::new(job)?, Generation(generation));
        let store = Arc::new(MemoryStore::default());
        Ok(SinkContext {
            operator: OperatorId::new(operator)?,
            generation,
            worker: Worker(worker),
            run: Arc::new(RunContext::alone(store, &job, generation)),
            job,
        })
    }
}

/// What a sink may use of the run that it is in.
#[derive(Debug)]
pub struct RunContext {
    /// What tells the job from another of the same name in another store: random, and the same in
    /// every run.
    pub origin: String,
    /// What tells this run from every other, also from one of the same number on a copy of the store:
    /// random.
    pub run: String,
    /// This process, from 0.
    pub process: u32,
    /// The number of processes.
    pub processes: u32,
    /// Where output is kept that must be durable before it is visible.
    pub write_ahead: WriteAhead,
    /// The question whether a newer run has taken over.
    pub fence: Fence,
}

impl RunContext {
    /// The run as the one process of job `job` on `store` sees it.
    pub(crate) fn alone(store: SharedStore, job: &JobName, generation: Generation) -> RunContext {
        // Nothing has been claimed in the store.
        let hold = Hold { generation, sequence: Sequence(0), nonce: "alone".to_owned() };
        RunContext {
            origin: "alone".to_owned(),
            run: hold.nonce.clone(),
            process: 0,
            processes: 1,
            write_ahead: WriteAhead::new(store.clone(), job.clone(), generation),
            fence: Fence::new(store, job.clone(), hold),
        }
    }
}

/// Takes records on a worker's thread.
pub trait Writer<T, E>: 'static {
    /// Takes all of the batch, in order, leaving it empty. `epoch` never falls; it rises only
    /// after `prepare` of the one before.
    ///
    /// [`Readiness::Full`] says that the writer has taken what it was given and wants no more for
    /// the moment; the engine stops feeding it and asks [`Writer::readiness`] again later.
    fn write(&mut self, batch: &mut Vec<T>, epoch: Epoch) -> Result<Readiness>;

    /// Whether more can be written now.
    fn readiness(&mut self) -> Result<Readiness> {
        Ok(Readiness::Ready)
    }

    /// Ends `epoch`: hands everything written in it to a closure that makes it durable on a
    /// background thread and says how to commit it, or `None` if nothing was written. The closure
    /// may be called again after it failed.
    fn prepare(&mut self, epoch: Epoch) -> Result<Prepare<E>>;
}

/// Makes an epoch's output durable; runs on a background thread, may be retried.
pub type Prepare<E> = Box<dyn FnMut() -> Result<Option<E>> + Send>;

/// Whether a writer takes more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Yes.
    Ready,
    /// Not now.
    Full,
}

/// What a run goes on from, as one sink must know it.
#[derive(Clone, Debug)]
pub struct Recovery<E> {
    /// Effects that the checkpoint names; some or all of them may have been committed already.
    pub pending: Vec<E>,
    /// The cut of the checkpoint: output of epochs before it is settled, with `pending`. Anything
    /// visible of a later one was committed by a run that went on from here before, and whose
    /// checkpoints were given up. `None` at a fresh start: nothing of this sink may be visible yet.
    pub from: Option<Epoch>,
    /// The id of the sink in the checkpoint, if it has another now.
    pub renamed_from: Option<OperatorId>,
    /// Whether the checkpoint knows no such sink.
    pub is_new: bool,
    /// What [`Committer::history`] answered in the run that took the checkpoint.
    pub history: Option<String>,
}

/// Makes prepared effects visible, on a background thread.
///
/// Contract:
/// - all methods are idempotent: an effect may be handed in again after a crash at any point;
/// - an effect is handed in only after a checkpoint that names it exists.
pub trait Committer<E>: Send + 'static {
    /// First call of a run, in one process; no sink of the job recovers before all have returned
    /// from it. Shuts out whoever publishes for this sink in an older run, under its id and the one
    /// that it had in the checkpoint, where something that such a run has left open could be in the
    /// way of another sink. Changes nothing that is visible.
    fn fence(&mut self, _renamed_from: Option<&OperatorId>) -> Result<()> {
        Ok(())
    }

    /// Second call, before any writer opens. Finishes what is pending,
    /// removes what earlier generations of this job left unprepared, takes out of sight what was
    /// committed for epochs at or after [`Recovery::from`], since those will be written again, and
    /// refuses (`Invalid`) a target whose content this job's history does not explain.
    ///
    /// Answers what people should know of it, a line each: it goes into the restore report.
    fn recover(&mut self, recovery: Recovery<E>) -> Result<Vec<String>>;

    /// Asked when the sink has recovered: what tells the history that its output goes on with from
    /// others that began with the same checkpoints. Each checkpoint keeps it, for
    /// [`Recovery::history`]. Without more than one there is nothing to tell.
    fn history(&self) -> Option<String> {
        None
    }

    /// In each other process, instead of [`Committer::fence`] and [`Committer::recover`]: what
    /// [`Committer::history`] answered in the first, where that has been done by now.
    fn join(&mut self, _history: Option<&str>) -> Result<()> {
        Ok(())
    }

    /// Asked when the sink has recovered: what became of each of [`Recovery::pending`], in their order,
    /// such as `published now`. An empty answer says that all of it is visible, and no more.
    fn outcomes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Makes the effects visible, durably. After an error, or a panic, of this nothing more is handed
    /// in during the run.
    ///
    /// It may wait for its target, for a time: one that has not returned after as long as a checkpoint
    /// may take is warned of, and after so many times that as checkpoints may fail in a row the run ends
    /// with `Unavailable`. A call that returns after that has an effect, but no other follows.
    fn commit(&mut self, effects: &[E]) -> Result<()>;
}
