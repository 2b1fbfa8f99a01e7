//! Asking whether a run is still the newest of its job.

use std::sync::Mutex;
use std::sync::PoisonError;

use super::history::{LISTINGS_MAX, overtaken, read, sequences};
use crate::ids::{Generation, JobName, Sequence};
use crate::{Error, Result, SharedStore};

/// A run's question whether another has taken its job over, for whoever acts on the world outside
/// the store: such a run must not act any more.
///
/// The answer is true of a moment in the past. Who needs more must let the target fence the older
/// run as well, and ask *after* it has: a newer run claims the job before it touches the target.
///
/// ```
/// use std::sync::Arc;
/// use isochrone_persistence::ErrorKind;
/// use isochrone_persistence::ids::JobName;
/// use isochrone_persistence::lineage::{Base, Fence, Lineage};
/// use isochrone_persistence::store::memory::MemoryStore;
///
/// let store = Arc::new(MemoryStore::default());
/// let job = JobName::new("risk")?;
/// let fresh = || Base::Fresh { key_groups: 128, key_hash: "example".to_owned() };
/// let (first, _) = Lineage::claim(store.clone(), &job, 0, |_| Ok(fresh()))?;
/// let fence = Fence::new(store.clone(), job.clone(), first.generation());
/// fence.check()?;
/// Lineage::claim(store, &job, 1, |_| Ok(fresh()))?;
/// assert_eq!(fence.check().unwrap_err().kind(), ErrorKind::Fenced);
/// # Ok::<(), isochrone_persistence::Error>(())
/// ```
pub struct Fence {
    store: SharedStore,
    job: JobName,
    generation: Generation,
    /// The newest manifest that was found to be no newer run's.
    seen: Mutex<Option<Sequence>>,
}

impl Fence {
    /// The question of run `generation`.
    pub fn new(store: SharedStore, job: JobName, generation: Generation) -> Fence {
        Fence { store, job, generation, seen: Mutex::new(None) }
    }

    /// Fails with `Fenced` if a newer run has claimed the job, with `Unavailable` if the store does
    /// not answer, with `Corrupt` if the newest manifest cannot be read.
    pub fn check(&self) -> Result<()> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..LISTINGS_MAX {
            let newest = sequences(&*self.store, &self.job)?.last().copied();
            let Some(newest) = newest.filter(|newest| Some(*newest) > *seen) else { return Ok(()) };
            // IMPORTANT: gone since it was listed, it was collected, and a newer one stands that may be
            // another run's: what this listing says is no answer.
            let Some(found) = read(&*self.store, &self.job, newest)? else { continue };
            let generation = found.manifest?.generation;
            if generation > self.generation {
                return Err(Error::fenced(format!(
                    "job `{}`: a newer run, generation {generation}, has taken over from \
                     generation {}: stop this one",
                    self.job, self.generation
                )));
            }
            *seen = Some(newest);
            return Ok(());
        }
        Err(overtaken(&self.job))
    }
}

impl std::fmt::Debug for Fence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "fence of job {}, generation {}", self.job, self.generation)
    }
}
