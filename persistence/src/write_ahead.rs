//! Output that is durable before it is visible.
//!
//! A sink whose target cannot take output back, such as a log of messages, keeps an epoch's output
//! here before the checkpoint that ends the epoch exists. The manifest names what is kept, so that
//! it lives exactly as long as a checkpoint needs it, and any process can make it visible after any
//! crash. What no manifest ever names goes with a later collection.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::ids::{Epoch, Generation, JobName, OperatorId, Worker};
use crate::manifest::{Kept, digest_of};
use crate::paths::{self, DataKind, DataName};
use crate::restore::fetch_intact;
use crate::{Result, SharedStore};

/// The write-ahead of one run in one process. Clones share what is held in memory.
///
/// Blocking; not for a worker's thread.
///
/// ```
/// use std::sync::Arc;
/// use isochrone_persistence::ids::{Epoch, Generation, JobName, OperatorId, Worker};
/// use isochrone_persistence::store::memory::MemoryStore;
/// use isochrone_persistence::write_ahead::WriteAhead;
///
/// let store = Arc::new(MemoryStore::default());
/// let job = JobName::new("risk")?;
/// let ahead = WriteAhead::new(store, job, Generation(1));
/// let sink = OperatorId::new("alerts")?;
/// let kept = ahead.keep(Epoch(7), &sink, Worker(0), Arc::new(b"alice: high".to_vec()))?;
/// assert_eq!(**ahead.read(&kept)?, *b"alice: high");
/// ahead.release(&kept);
/// assert_eq!(**ahead.read(&kept)?, *b"alice: high", "from the store now");
/// # Ok::<(), isochrone_persistence::Error>(())
/// ```
#[derive(Clone)]
pub struct WriteAhead {
    store: SharedStore,
    job: JobName,
    generation: Generation,
    held: Arc<Mutex<HashMap<String, Arc<Vec<u8>>>>>,
}

impl WriteAhead {
    /// The write-ahead of a run.
    pub fn new(store: SharedStore, job: JobName, generation: Generation) -> WriteAhead {
        WriteAhead { store, job, generation, held: Arc::default() }
    }

    /// Makes bytes durable, and holds them in memory until they are released.
    ///
    /// Fails with `Unavailable` if the store does not take them; may be called again then.
    pub fn keep(
        &self,
        epoch: Epoch,
        sink: &OperatorId,
        worker: Worker,
        bytes: Arc<Vec<u8>>,
    ) -> Result<Kept> {
        let name = DataName::fresh(epoch, sink, worker, self.generation, DataKind::Output)?;
        let name = paths::data(&self.job, &name);
        self.store.put(&name, &bytes)?;
        let kept = Kept { name, bytes: bytes.len() as u64, digest: digest_of(&bytes) };
        self.held().insert(kept.name.clone(), bytes);
        Ok(kept)
    }

    /// The bytes, from memory or else from the store, which may have been written by another
    /// process.
    ///
    /// Fails with `Corrupt` if they are missing or not what was kept, `Unavailable` if the store
    /// does not answer.
    pub fn read(&self, kept: &Kept) -> Result<Arc<Vec<u8>>> {
        if let Some(bytes) = self.held().get(&kept.name) {
            return Ok(bytes.clone());
        }
        fetch_intact(&*self.store, &kept.name, kept.bytes, &kept.digest).map(Arc::new)
    }

    /// Lets go of the bytes in memory: they are visible now. The object stays until no manifest
    /// names it.
    pub fn release(&self, kept: &Kept) {
        self.held().remove(&kept.name);
    }

    fn held(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<Vec<u8>>>> {
        // A map is never left half-changed by a panic.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for WriteAhead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "write-ahead of job {}, generation {}", self.job, self.generation)
    }
}
