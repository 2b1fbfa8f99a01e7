//! Deleting what no restorable checkpoint needs.

use std::collections::{BTreeMap, BTreeSet};

use super::Lineage;
use super::boundary::{self, Boundary};
use super::fence::in_place;
use super::history::{self, Found, sequences};
use super::retention::{Needs, Retain, Retained, plan};
use crate::ids::{JobName, Sequence};
use crate::paths::{self, Object};
use crate::{Error, Result, Store};

/// What a collection did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Manifests up to this one, savepoints excepted, are gone.
    pub boundary: Option<Sequence>,
    /// Number of manifests deleted.
    pub manifests: usize,
    /// Number of data objects deleted.
    pub data_objects: usize,
    /// Manifests that cannot be read. While there are any, no data is deleted, for it may be
    /// theirs; once they are behind the boundary, [`drop_manifest`] ends that.
    pub unreadable: Vec<String>,
}

impl Lineage {
    /// Deletes the manifests that `retain` does not ask for and the data that only they need.
    /// Safe to be cut off anywhere; the next collection goes on.
    ///
    /// Fails with `Fenced` if a newer run has taken over, `Unavailable` if the store does not
    /// answer.
    pub fn collect(&mut self, retain: &Retain, now_ms: u64) -> Result<Collected> {
        self.check_not_fenced()?;
        let unreadable = self.look()?;
        let planned = plan(self.seen.values(), retain, now_ms);
        // IMPORTANT: the boundary comes first. A run that creates a manifest under a name freed
        // below finds the boundary afterwards and stops.
        if let Some(boundary) = planned {
            let name = paths::boundary(&self.job, boundary);
            let mut kept = self.savepoints.clone();
            kept.extend(unreadable.iter().map(|found| (found.sequence, None)));
            kept.retain(|savepoint, _| *savepoint <= boundary);
            self.store.put_if_absent(&name, &boundary::encode(&kept))?;
        }
        // IMPORTANT: and is followed by a second look. A run that claims at the same time either
        // finds the boundary, or is found here.
        // The boundary is read in between, for after the second look it may be a newer run's, which
        // gives up more than this one knows to keep.
        let boundary = history::boundary(&*self.store, &self.job)?;
        self.check_newest()?;
        let gone = |m: &Retained| Some(m.sequence) <= boundary && !m.savepoint;
        let (given_up, kept): (BTreeMap<_, _>, _) =
            std::mem::take(&mut self.seen).into_iter().partition(|(_, manifest)| gone(manifest));
        self.seen = kept;
        let mut collected =
            Collected { boundary, manifests: given_up.len(), ..Collected::default() };
        let name = |sequence: &Sequence| paths::manifest(&self.job, *sequence);
        let manifests: Vec<String> = given_up.keys().map(name).collect();
        self.owed.extend(given_up.into_values().flat_map(|manifest| manifest.names));
        // IMPORTANT: gone for good before their data is.
        self.store.delete_all(&manifests)?;
        self.delete_old_boundaries(boundary)?;
        if unreadable.is_empty() {
            collected.data_objects = self.delete_data()?;
        }
        let unreadable = unreadable.into_iter().map(|found| found.name).collect();
        Ok(Collected { unreadable, ..collected })
    }

    /// Hands over data objects of this run that no manifest will ever name, such as those of a
    /// checkpoint that was dropped, to be deleted by the next collection.
    pub fn discard(&mut self, names: impl IntoIterator<Item = String>) {
        self.owed.extend(names);
    }

    /// Reads the manifests not read before. Gives those that cannot be read.
    fn look(&mut self) -> Result<Vec<Found>> {
        let there = sequences(&*self.store, &self.job)?;
        self.check_top(there.last().copied())?;
        let listed: BTreeSet<Sequence> = there.into_iter().collect();
        let dropped = |sequence: &Sequence| !listed.contains(sequence);
        for (_, savepoint) in self.seen.extract_if(.., |sequence, _| dropped(sequence)) {
            self.savepoints.remove(&savepoint.sequence);
            self.owed.extend(savepoint.names);
        }
        let mut unreadable = Vec::new();
        for sequence in listed {
            if self.seen.contains_key(&sequence) {
                continue;
            }
            let Some(found) = history::read(&*self.store, &self.job, sequence)? else { continue };
            match &found.manifest {
                Ok(manifest) => self.note(Retained::from(manifest), found.digest)?,
                Err(_) => unreadable.push(found),
            }
        }
        Ok(unreadable)
    }

    /// A savepoint below the boundary that the boundary does not name is one of a run that was
    /// overtaken: it is given up like any other manifest there.
    fn note(&mut self, mut manifest: Retained, digest: Option<String>) -> Result<()> {
        let sequence = manifest.sequence;
        if manifest.savepoint {
            let boundary = Boundary::read(&*self.store, &self.job)?;
            manifest.savepoint = boundary.is_none_or(|b| b.keeps(sequence, digest.as_deref()));
        }
        if manifest.savepoint {
            self.savepoints.insert(sequence, digest);
        }
        self.seen.insert(sequence, manifest);
        Ok(())
    }

    fn check_newest(&mut self) -> Result<()> {
        let there = sequences(&*self.store, &self.job)?;
        self.check_top(there.last().copied())
    }

    /// The newest manifest must be this run's own, or one whose publish is not settled.
    fn check_top(&mut self, top: Option<Sequence>) -> Result<()> {
        match top {
            Some(top) if top > self.sequence && self.pending.is_none() => {
                Err(self.fence(&format!("manifest {top} was written by another run")))
            }
            Some(top) if top > self.sequence => Err(Error::unavailable(format!(
                "job `{}`: nothing is collected while it is not known whose manifest {top} is",
                self.job
            ))),
            _ => in_place(&*self.store, &self.job, &self.hold, self.sequence),
        }
    }

    fn delete_old_boundaries(&self, highest: Option<Sequence>) -> Result<()> {
        let mut lower = self.store.list(&paths::boundaries(&self.job))?;
        lower.retain(|name| match paths::parse(name) {
            Some((_, Object::Boundary(boundary))) => Some(boundary) < highest,
            _ => false,
        });
        self.store.delete_all(&lower)
    }

    fn delete_data(&mut self) -> Result<usize> {
        let needs = Needs {
            kept: self.seen.values().flat_map(|m| m.names.iter().map(String::as_str)).collect(),
            given_up: self.owed.iter().map(String::as_str).collect(),
            generation: self.hold.generation,
        };
        let mut garbage = self.store.list(&paths::data_objects(&self.job))?;
        garbage.retain(|name| match paths::parse(name) {
            Some((_, Object::Data(data))) => needs.is_garbage(name, &data),
            _ => false,
        });
        self.store.delete_all(&garbage)?;
        self.owed.clear();
        Ok(garbage.len())
    }
}

/// Deletes a manifest that retention has left behind and collection does not touch: a savepoint,
/// or one that cannot be read. The data that only it needs goes with a later
/// collection.
///
/// Fails with `Invalid` if there is no such manifest, or if it is still among the checkpoints that
/// retention keeps, of which none may be missing.
pub fn drop_manifest(store: &dyn Store, job: &JobName, sequence: Sequence) -> Result<()> {
    let name = paths::manifest(job, sequence);
    let is_kept_apart = match history::read(store, job, sequence)?.map(|found| found.manifest) {
        None => false,
        Some(Ok(manifest)) => manifest.savepoint.is_some(),
        Some(Err(_)) => true,
    };
    if !is_kept_apart {
        return Err(Error::invalid(format!(
            "`{name}` is no savepoint; list the job's checkpoints to see which are"
        )));
    }
    if history::boundary(store, job)? < Some(sequence) {
        return Err(Error::invalid(format!(
            "`{name}` is still among the newest checkpoints; drop it when the job has collected \
             past it"
        )));
    }
    store.delete(&name)
}
