//! A job's history as one line of manifests that no two runs can fork.
//!
//! Rests on [`Store::put_if_absent`] alone: no lock, no lease, no clock. A new run *claims* the job
//! by creating the next manifest under a higher generation; every checkpoint is *published* by
//! creating the next one; old ones are *collected* behind a boundary that is written first.
//!
//! What must be decided is in `attempt.rs` and `retention.rs`, which know no store; the rest does
//! the reads and writes that they ask for. Knows manifests and names of data; never their content.

mod attempt;
mod boundary;
mod claim;
mod collect;
mod fence;
mod history;
mod publish;
mod retention;

#[cfg(test)]
mod copies;
#[cfg(test)]
mod crashes;
#[cfg(test)]
mod explore;
#[cfg(test)]
pub(crate) mod test_store;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

pub use claim::Base;
pub use collect::{Collected, drop_manifest};
pub use fence::Fence;
pub use history::{Found, Newest, read_all, read_newest};
pub use publish::{Checkpoint, Published};
pub use retention::{Retain, Retained, plan};

use serde::{Deserialize, Serialize};

use crate::ids::{Epoch, Generation, JobName, Sequence};
use crate::{Error, Result, SharedStore, Store};
use attempt::{Attempt, Fact, Next, Outcome};

/// One run's hold on a job: made by [`Lineage::claim`], used until another run takes over.
///
/// Blocking; not for a worker's thread.
///
/// ```
/// # use std::{collections::BTreeMap, ops::Range, sync::{Arc, Mutex}};
/// # use isochrone_persistence::{Created, Store};
/// # #[derive(Default)]
/// # struct Map(Mutex<BTreeMap<String, Vec<u8>>>);
/// # impl Store for Map {
/// #     fn get(&self, name: &str) -> Result<Option<Vec<u8>>> {
/// #         Ok(self.0.lock().unwrap().get(name).cloned())
/// #     }
/// #     fn get_range(&self, _: &str, _: Range<u64>) -> Result<Option<Vec<u8>>> { Ok(None) }
/// #     fn put(&self, name: &str, bytes: &[u8]) -> Result<()> {
/// #         self.0.lock().unwrap().insert(name.into(), bytes.into());
/// #         Ok(())
/// #     }
/// #     fn put_if_absent(&self, name: &str, bytes: &[u8]) -> Result<Created> {
/// #         if self.get(name)?.is_some() { return Ok(Created::Exists); }
/// #         self.put(name, bytes).map(|()| Created::Yes)
/// #     }
/// #     fn list(&self, prefix: &str) -> Result<Vec<String>> {
/// #         let objects = self.0.lock().unwrap();
/// #         Ok(objects.keys().filter(|name| name.starts_with(prefix)).cloned().collect())
/// #     }
/// #     fn delete(&self, name: &str) -> Result<()> {
/// #         self.0.lock().unwrap().remove(name);
/// #         Ok(())
/// #     }
/// #     fn describe(&self) -> String { "map".into() }
/// # }
/// use isochrone_persistence::ids::{Epoch, JobName};
/// use isochrone_persistence::lineage::{Checkpoint, Lineage, Retain};
/// use isochrone_persistence::restore::{Declared, Policy, candidates, decide};
/// use isochrone_persistence::{ErrorKind, Result, SharedStore};
///
/// # let store: SharedStore = Arc::new(Map::default());
/// let job = Declared {
///     job: JobName::new("risk")?,
///     key_groups: 128,
///     key_hash: "example".to_owned(),
///     operators: vec![],
/// };
/// let start = |now_ms| {
///     Lineage::claim(store.clone(), &job.job, now_ms, |newest| {
///         let found = candidates(&*store, &job.job, newest, false);
///         decide(&job, &Policy::default(), found).base(&job)
///     })
/// };
/// let checkpoint = |number: u64| Checkpoint {
///     epoch: Epoch(number),
///     taken_at_ms: 1_000,
///     duration_ms: 10,
///     bytes: 0,
///     finished: false,
///     workers: 1,
///     savepoint: None,
///     operators: vec![],
///     in_flight: vec![],
/// };
/// let (mut first, nothing) = start(0)?;
/// assert!(nothing.is_none());
/// let permit = first.publish(checkpoint(1))?;
/// assert_eq!(permit.epoch(), Epoch(1));
///
/// let (mut second, restored) = start(2_000)?;
/// assert_eq!(restored.expect("there is a checkpoint").epoch, Epoch(1));
/// assert_eq!(first.publish(checkpoint(2)).unwrap_err().kind(), ErrorKind::Fenced);
/// second.publish(checkpoint(2))?;
/// second.leave_hint();
/// second.collect(&Retain { last: 3, younger_than_ms: 0 }, 3_000)?;
/// # Ok::<(), isochrone_persistence::Error>(())
/// ```
pub struct Lineage {
    store: SharedStore,
    job: JobName,
    hold: Hold,
    sequence: Sequence,
    origin: String,
    /// Digest of the manifest at `sequence`.
    digest: String,
    epoch: Epoch,
    key_groups: u16,
    key_hash: String,
    pending: Option<publish::PendingPublish>,
    /// Of the newest checkpoint, until it is left in the store.
    hint: Option<serde_json::Value>,
    /// Why nothing may be written any more.
    fenced: Option<String>,
    /// Manifests are never changed, so each is read once.
    seen: BTreeMap<Sequence, Retained>,
    /// The savepoints among them.
    savepoints: boundary::Savepoints,
    /// Data of this generation that no manifest needs and that is still to be deleted.
    owed: BTreeSet<String>,
}

/// What a run holds its job with: its claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// The number of the run.
    pub generation: Generation,
    /// The number of the manifest that is the claim.
    pub sequence: Sequence,
    /// Random: tells the run from every other, also from one of the same number in a copy of the
    /// store.
    pub nonce: String,
}

impl Lineage {
    /// The job.
    pub fn job(&self) -> &JobName {
        &self.job
    }

    /// The number of this run.
    pub fn generation(&self) -> Generation {
        self.hold.generation
    }

    /// What this run holds the job with.
    pub fn hold(&self) -> &Hold {
        &self.hold
    }

    /// What tells this job from another of the same name in another store: fixed when the job
    /// first ran, random.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// The newest manifest of this run.
    pub fn sequence(&self) -> Sequence {
        self.sequence
    }

    /// The newest checkpoint; 0 if there is none.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn check_not_fenced(&self) -> Result<()> {
        match &self.fenced {
            None => Ok(()),
            Some(why) => Err(Error::fenced(why.clone())),
        }
    }

    fn fence(&mut self, found: &str) -> Error {
        let why = format!(
            "job `{}`: {found}; a newer run has taken over from generation {}: stop this one",
            self.job, self.hold.generation
        );
        self.fenced = Some(why.clone());
        Error::fenced(why)
    }
}

impl std::fmt::Debug for Lineage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "job {}, generation {}, sequence {}",
            self.job, self.hold.generation, self.sequence
        )
    }
}

/// Does what `attempt` asks for until it stops. Gives the outcome and the last error seen.
fn carry_out(
    store: &dyn Store,
    job: &JobName,
    bytes: &[u8],
    attempt: &mut Attempt,
) -> Result<(Outcome, Option<Error>)> {
    let name = crate::paths::manifest(job, attempt.sequence());
    let mut last = None;
    loop {
        let fact = match attempt.next() {
            Next::Create => store.put_if_absent(&name, bytes).map(Fact::from),
            Next::ReadBack => match store.get(&name) {
                Ok(found) => Ok(compare(&name, bytes, found)?),
                Err(error) => Err(error),
            },
            Next::ReadBoundary => history::boundary(store, job).map(Fact::Boundary),
            Next::Stop(outcome) => {
                if let Outcome::Collected(boundary) = outcome
                    && boundary >= attempt.sequence()
                {
                    withdraw(store, job, attempt.sequence(), bytes);
                }
                return Ok((outcome, last));
            }
        };
        attempt.learn(fact.unwrap_or_else(|error| {
            last = Some(error);
            Fact::NoAnswer
        }));
    }
}

/// Deletes one's own manifest that was created under a name freed by a collector, so that it is no
/// part of the history. Should that fail, no listing shows it, and the next collection deletes it.
fn withdraw(store: &dyn Store, job: &JobName, sequence: Sequence, own: &[u8]) {
    let name = crate::paths::manifest(job, sequence);
    let withdrawn = || -> Result<()> {
        if store.get(&name)?.as_deref() != Some(own) {
            return Ok(());
        }
        // It may have been in time, and be kept as a savepoint.
        let digest = crate::manifest::digest_of(own);
        let kept = boundary::Boundary::read(store, job)?;
        if kept.is_some_and(|boundary| boundary.keeps(sequence, Some(&digest))) {
            return Ok(());
        }
        store.delete(&name)
    };
    if let Err(error) = withdrawn() {
        tracing::warn!(%name, error = %error.report(), "a manifest that came too late stays behind");
    }
}

/// The nonce makes the bytes of two manifests differ, so equal bytes are one's own. Ruined bytes
/// are no rival: that would stop a job for good for the wrong reason.
fn compare(name: &str, own: &[u8], found: Option<Vec<u8>>) -> Result<Fact> {
    let Some(found) = found else { return Ok(Fact::Nothing) };
    if found == own {
        return Ok(Fact::Mine);
    }
    match crate::manifest::decode(name, &found) {
        Err(error) if error.kind() == crate::ErrorKind::Corrupt => Err(error),
        _ => Ok(Fact::Other),
    }
}
