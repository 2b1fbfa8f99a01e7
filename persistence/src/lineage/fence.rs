//! Asking whether a run is still the newest of its job.

use std::sync::Mutex;
use std::sync::PoisonError;

use super::Hold;
use super::history::{LISTINGS_MAX, overtaken, read, sequences};
use crate::ids::{Generation, JobName, Sequence};
use crate::manifest::Manifest;
use crate::{Error, Result, SharedStore, Store};

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
/// let fence = Fence::new(store.clone(), job.clone(), first.hold().clone());
/// fence.check()?;
/// Lineage::claim(store, &job, 1, |_| Ok(fresh()))?;
/// assert_eq!(fence.check().unwrap_err().kind(), ErrorKind::Fenced);
/// # Ok::<(), isochrone_persistence::Error>(())
/// ```
pub struct Fence {
    store: SharedStore,
    job: JobName,
    hold: Hold,
    /// The newest manifest that was found to be of this run.
    seen: Mutex<Sequence>,
}

impl Fence {
    /// The question of the run that holds the job with this.
    pub fn new(store: SharedStore, job: JobName, hold: Hold) -> Fence {
        let seen = Mutex::new(hold.sequence);
        Fence { store, job, hold, seen }
    }

    /// Fails with `Fenced` if the newest manifest is another run's: a newer one has claimed the job,
    /// or the store was replaced by an older copy of itself, on which another has. With
    /// `Unavailable` if the store does not answer, or has not got what this run has written; with
    /// `Corrupt` if the newest manifest cannot be read.
    pub fn check(&self) -> Result<()> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..LISTINGS_MAX {
            let newest = sequences(&*self.store, &self.job)?.last().copied();
            let newest = newest.unwrap_or(Sequence(0));
            if newest < *seen {
                return Err(gone(&*self.store, &self.job, *seen));
            }
            if newest == *seen && newest > self.hold.sequence || newest == Sequence(0) {
                return Ok(());
            }
            // IMPORTANT: gone since it was listed, it was collected, and a newer one stands that may be
            // another run's: what this listing says is no answer.
            let Some(found) = read(&*self.store, &self.job, newest)? else { continue };
            let Manifest { generation, run, .. } = found.manifest?;
            if run.as_deref() != Some(&self.hold.nonce) {
                return Err(self.overtaken(generation));
            }
            *seen = newest;
            return Ok(());
        }
        Err(overtaken(&self.job))
    }

    fn overtaken(&self, by: Generation) -> Error {
        let Fence { job, hold: Hold { generation: own, .. }, .. } = self;
        Error::fenced(if by > *own {
            format!(
                "job `{job}`: a newer run, generation {by}, has taken over from generation {own}: \
                 stop this one"
            )
        } else {
            format!(
                "job `{job}`: the newest manifest of the store is of generation {by} and not of this \
                 run, generation {own}: the store has been replaced by an older copy, on which \
                 another run goes on; stop this one"
            )
        })
    }
}

/// Fails with `Unavailable` if the store has not got the newest manifest that a run has written: what
/// is there then is not what the run has written to, and nothing may be added. Whoever adds finds
/// out by itself that a store does not answer.
pub(super) fn in_place(store: &dyn Store, job: &JobName, own: Sequence) -> Result<()> {
    match sequences(store, job) {
        Ok(listed) if listed.last() < Some(&own) => Err(gone(store, job, own)),
        _ => Ok(()),
    }
}

fn gone(store: &dyn Store, job: &JobName, own: Sequence) -> Error {
    Error::unavailable(format!(
        "job `{job}`: manifest {own} of this run is gone from {}: it is not mounted any more, was \
         replaced by an older copy, or somebody has deleted the manifest",
        store.describe()
    ))
}

impl std::fmt::Debug for Fence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "fence of job {}, generation {}", self.job, self.hold.generation)
    }
}
