//! Asking whether a run is still the newest of its job.

use std::sync::Mutex;
use std::sync::PoisonError;

use super::Hold;
use super::history::{Found, LISTINGS_MAX, overtaken, read, sequences};
use crate::ids::{JobName, Sequence};
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
            // A listing may be behind what has been seen: then that one is asked for by its name.
            let newest = newest.unwrap_or(Sequence(0)).max(*seen);
            if newest == Sequence(0) {
                return Ok(());
            }
            let Some(found) = read(&*self.store, &self.job, newest)? else {
                if newest == *seen && in_place(&*self.store, &self.job, &self.hold, newest).is_err()
                {
                    return Err(gone(&*self.store, &self.job, newest));
                }
                // IMPORTANT: gone since it was listed, it was collected, and a newer one stands that may
                // be another run's: what this listing says is no answer.
                continue;
            };
            check_own(&self.hold, &found.manifest?)?;
            *seen = newest;
            return Ok(());
        }
        Err(overtaken(&self.job))
    }
}

/// Fails with `Fenced` if the manifest is not of the run that holds the job with this.
fn check_own(hold: &Hold, found: &Manifest) -> Result<()> {
    if found.run.as_deref() == Some(&hold.nonce) {
        return Ok(());
    }
    let (job, by, own) = (&found.job, found.generation, hold.generation);
    Err(Error::fenced(if by > own {
        format!(
            "job `{job}`: a newer run, generation {by}, has taken over from generation {own}: stop \
             this one"
        )
    } else {
        format!(
            "job `{job}`: the newest manifest of the store is of generation {by} and not of this run, \
             generation {own}: the store has been replaced by an older copy, on which another run goes \
             on; stop this one"
        )
    }))
}

/// Before a run writes: fails with `Unavailable` if the store has not got the newest manifest that the
/// run has written, and with `Fenced` if another run's stands in its place. What is there then is not
/// what the run has written to. Whoever writes finds out by itself that a store does not answer, or
/// that newer manifests stand there.
pub(super) fn in_place(
    store: &dyn Store,
    job: &JobName,
    hold: &Hold,
    newest: Sequence,
) -> Result<()> {
    match read(store, job, newest) {
        Ok(Some(Found { manifest: Ok(manifest), .. })) => check_own(hold, &manifest),
        Ok(None) => match sequences(store, job) {
            Ok(listed) if listed.last() < Some(&newest) => Err(gone(store, job, newest)),
            _ => Ok(()),
        },
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
