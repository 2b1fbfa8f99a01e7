//! Deleting what no restorable checkpoint needs.

use std::collections::BTreeSet;

use super::Lineage;
use super::history::{self, sequences};
use super::retention::{Needs, Retain, Retained, plan};
use crate::ids::Sequence;
use crate::paths::{self, Object};
use crate::{ErrorKind, Result};

/// What a collection did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Manifests up to this one, savepoints excepted, are gone.
    pub boundary: Option<Sequence>,
    /// Number of manifests deleted.
    pub manifests: usize,
    /// Number of data objects deleted.
    pub data_objects: usize,
    /// Manifests that cannot be read. While there are any, no data is deleted, for it may be theirs.
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
        let mut unreadable = self.look()?;
        let manifests: Vec<Retained> = self.seen.values().cloned().collect();
        let planned = plan(&manifests, retain, now_ms);
        // IMPORTANT: the boundary comes first. A run that creates a manifest under a name freed
        // below finds the boundary afterwards and stops.
        if let Some(boundary) = planned {
            let name = paths::boundary(&self.job, boundary);
            self.store.put_if_absent(&name, b"")?;
        }
        // IMPORTANT: and is followed by a second look. A run that claims at the same time either
        // finds the boundary, or is found here.
        // The boundary is read in between, for after the second look it may be a newer run's, which
        // gives up more than this one knows to keep.
        let boundary = history::boundary(&*self.store, &self.job)?;
        self.check_newest()?;
        let gone = |m: &Retained| Some(m.sequence) <= boundary && !m.savepoint;
        let (given_up, kept): (Vec<_>, Vec<_>) = manifests.iter().partition(|m| gone(m));
        let mut collected = Collected { boundary, ..Collected::default() };
        for manifest in &given_up {
            self.store.delete(&paths::manifest(&self.job, manifest.sequence))?;
            self.seen.remove(&manifest.sequence);
            self.owed.extend(manifest.names.iter().cloned());
            collected.manifests += 1;
        }
        self.delete_ruins(boundary, &mut unreadable, &mut collected)?;
        self.delete_old_boundaries(boundary)?;
        if unreadable.is_empty() {
            collected.data_objects = self.delete_data(&kept)?;
        }
        collected.unreadable = unreadable.into_iter().map(|ruin| ruin.name).collect();
        Ok(collected)
    }

    /// Hands over data objects of this run that no manifest will ever name, such as those of a
    /// checkpoint that was dropped, to be deleted by the next collection.
    pub fn discard(&mut self, names: impl IntoIterator<Item = String>) {
        self.owed.extend(names);
    }

    /// Reads the manifests not read before. Gives those that cannot be read.
    fn look(&mut self) -> Result<Vec<Ruin>> {
        let there = sequences(&*self.store, &self.job)?;
        self.check_top(there.last().copied())?;
        let listed: BTreeSet<Sequence> = there.into_iter().collect();
        self.seen.retain(|sequence, _| listed.contains(sequence));
        let mut unreadable = Vec::new();
        for sequence in listed {
            if self.seen.contains_key(&sequence) {
                continue;
            }
            let Some(found) = history::read(&*self.store, &self.job, sequence)? else { continue };
            match found.manifest {
                Ok(manifest) => drop(self.seen.insert(sequence, Retained::from(&manifest))),
                Err(error) => {
                    let corrupt = error.kind() == ErrorKind::Corrupt;
                    unreadable.push(Ruin { sequence, name: found.name, corrupt });
                }
            }
        }
        Ok(unreadable)
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
            Some(top) if top > self.sequence => Err(crate::Error::unavailable(format!(
                "job `{}`: nothing is collected while it is not known whose manifest {top} is",
                self.job
            ))),
            _ => Ok(()),
        }
    }

    /// Deletes manifests below the boundary whose bytes are ruined. Those of a newer format stay:
    /// a newer library can read them.
    fn delete_ruins(
        &self,
        boundary: Option<Sequence>,
        unreadable: &mut Vec<Ruin>,
        collected: &mut Collected,
    ) -> Result<()> {
        let (gone, stay): (Vec<Ruin>, Vec<Ruin>) = std::mem::take(unreadable)
            .into_iter()
            .partition(|ruin| ruin.corrupt && Some(ruin.sequence) <= boundary);
        *unreadable = stay;
        for ruin in gone {
            self.store.delete(&ruin.name)?;
            collected.manifests += 1;
        }
        Ok(())
    }

    fn delete_old_boundaries(&self, highest: Option<Sequence>) -> Result<()> {
        for name in self.store.list(&paths::boundaries(&self.job))? {
            match paths::parse(&name) {
                Some((_, Object::Boundary(boundary))) if Some(boundary) < highest => {
                    self.store.delete(&name)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn delete_data(&mut self, kept: &[&Retained]) -> Result<usize> {
        let owed = self.owed.clone();
        let needs = Needs {
            kept: kept.iter().flat_map(|m| m.names.iter().map(String::as_str)).collect(),
            given_up: owed.iter().map(String::as_str).collect(),
            generation: self.generation,
        };
        let mut deleted = 0;
        for name in self.store.list(&paths::data_objects(&self.job))? {
            match paths::parse(&name) {
                Some((_, Object::Data(data))) if needs.is_garbage(&name, &data) => {
                    self.store.delete(&name)?;
                    deleted += 1;
                }
                _ => {}
            }
        }
        self.owed.retain(|name| needs.kept.contains(name.as_str()));
        Ok(deleted)
    }
}

/// A manifest that cannot be read.
struct Ruin {
    sequence: Sequence,
    name: String,
    corrupt: bool,
}
