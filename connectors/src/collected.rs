//! A sink that collects in memory, exactly once, for tests.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use isochrone_engine::connector::{
    Committer, Prepare, Readiness, Recovery, Sink, SinkContext, Writer,
};
use isochrone_engine::ids::{Epoch, Generation, Worker};
use isochrone_engine::record::Record;
use isochrone_engine::{Error, Result};
use serde::{Deserialize, Serialize};

/// Collects records in memory; they become visible when their epoch is committed.
///
/// Clones share what they collect, so that a test keeps one across restarts of a job inside its
/// process. The items travel in the effect, as a real sink's would lie on a disk.
///
/// ```
/// use isochrone_connectors::Collected;
/// let collected = Collected::<u64>::default();
/// let sink = collected.clone();
/// assert!(collected.items().is_empty());
/// ```
pub struct Collected<T> {
    shared: Arc<Mutex<Shared<T>>>,
}

struct Shared<T> {
    visible: BTreeMap<(Epoch, Worker), (Generation, Vec<T>)>,
    commits: Vec<CollectedCommit>,
}

/// One effect that was handed in for committing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectedCommit {
    /// The epoch.
    pub epoch: Epoch,
    /// Who wrote it.
    pub worker: Worker,
    /// The run that wrote it.
    pub generation: Generation,
    /// How many items it held.
    pub items: usize,
    /// Whether it had been committed before.
    pub repeated: bool,
}

/// What one worker wrote in one epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectedEffect<T> {
    epoch: Epoch,
    worker: Worker,
    generation: Generation,
    items: Vec<T>,
}

impl<T> Default for Collected<T> {
    fn default() -> Self {
        let shared = Shared { visible: BTreeMap::new(), commits: Vec::new() };
        Collected { shared: Arc::new(Mutex::new(shared)) }
    }
}

impl<T> Clone for Collected<T> {
    fn clone(&self) -> Self {
        Collected { shared: self.shared.clone() }
    }
}

impl<T: Clone> Collected<T> {
    /// What is visible, by epoch, then by worker, then in the order written.
    pub fn items(&self) -> Vec<T> {
        let shared = self.lock();
        shared.visible.values().flat_map(|(_, items)| items).cloned().collect()
    }

    /// Every effect handed in so far, in that order, repeated ones too.
    pub fn commits(&self) -> Vec<CollectedCommit> {
        self.lock().commits.clone()
    }
}

impl<T> Collected<T> {
    fn lock(&self) -> MutexGuard<'_, Shared<T>> {
        self.shared.lock().expect("nothing panics while it holds this lock")
    }
}

impl<T: Record> Sink for Collected<T> {
    type Item = T;
    type Effect = CollectedEffect<T>;

    fn writer(&self, context: &SinkContext) -> Result<Box<dyn Writer<T, CollectedEffect<T>>>> {
        let (worker, generation) = (context.worker, context.generation);
        Ok(Box::new(Collecting { worker, generation, items: Vec::new() }))
    }

    fn committer(&self, _context: &SinkContext) -> Result<Box<dyn Committer<CollectedEffect<T>>>> {
        Ok(Box::new(self.clone()))
    }
}

struct Collecting<T> {
    worker: Worker,
    generation: Generation,
    items: Vec<T>,
}

impl<T: Record> Writer<T, CollectedEffect<T>> for Collecting<T> {
    fn write(&mut self, batch: &mut Vec<T>, _epoch: Epoch) -> Result<Readiness> {
        self.items.append(batch);
        Ok(Readiness::Ready)
    }

    fn prepare(&mut self, epoch: Epoch) -> Result<Prepare<CollectedEffect<T>>> {
        let (worker, generation) = (self.worker, self.generation);
        let items = std::mem::take(&mut self.items);
        if items.is_empty() {
            return Ok(Box::new(|| Ok(None)));
        }
        let effect = CollectedEffect { epoch, worker, generation, items };
        Ok(Box::new(move || Ok(Some(effect.clone()))))
    }
}

impl<T: Record> Committer<CollectedEffect<T>> for Collected<T> {
    fn recover(&mut self, recovery: Recovery<CollectedEffect<T>>) -> Result<Vec<String>> {
        let visible = self.lock().visible.len();
        if recovery.from.is_none() && visible > 0 {
            return Err(Error::invalid(format!(
                "{visible} epochs are collected already that this job's history does not explain; \
                 start with a new `Collected`, or with the store of the job that filled it"
            )));
        }
        self.commit(&recovery.pending)?;
        let Some(from) = recovery.from else { return Ok(Vec::new()) };
        let superseded = self.lock().visible.split_off(&(from, Worker(0)));
        let line = |((epoch, worker), (_, items)): (&(Epoch, Worker), &(_, Vec<T>))| {
            format!("{} items of epoch {epoch}, worker {worker}, are taken back", items.len())
        };
        Ok(superseded.iter().map(line).collect())
    }

    fn commit(&mut self, effects: &[CollectedEffect<T>]) -> Result<()> {
        let mut shared = self.lock();
        effects.iter().try_for_each(|effect| shared.commit(effect))
    }
}

impl<T: Clone> Shared<T> {
    fn commit(&mut self, effect: &CollectedEffect<T>) -> Result<()> {
        let CollectedEffect { epoch, worker, generation, ref items } = *effect;
        let before = self.visible.get(&(epoch, worker));
        if let Some((other, _)) = before
            && *other != generation
        {
            return Err(Error::internal(format!(
                "epoch {epoch} of worker {worker} was committed by generation {other}, and now \
                 again, with other items, by generation {generation}"
            )));
        }
        let repeated = before.is_some();
        let commit = CollectedCommit { epoch, worker, generation, items: items.len(), repeated };
        self.commits.push(commit);
        self.visible.entry((epoch, worker)).or_insert_with(|| (generation, items.clone()));
        Ok(())
    }
}
