//! Reading the manifests of a job. Writes nothing, so it serves read-only tools as well.

use super::boundary::Boundary;
use crate::ids::{JobName, Sequence};
use crate::manifest::{self, Manifest, damaged, digest_of};
use crate::paths::{self, Object};
use crate::{Error, ErrorKind, Result, Store};

/// How often a listing may be overtaken by a collector before that is an error.
pub(super) const LISTINGS_MAX: usize = 8;

/// A manifest in the store, readable or not.
#[derive(Debug)]
pub struct Found {
    /// Its number.
    pub sequence: Sequence,
    /// The name of its object.
    pub name: String,
    /// Digest of its bytes as found; `None` if there are none though there should be.
    pub digest: Option<String>,
    /// What it says, or why that cannot be known: `Corrupt`, or `Incompatible` if a newer version
    /// of the format wrote it.
    pub manifest: Result<Manifest>,
}

/// The end of a job's history when it was read.
#[derive(Debug)]
pub struct Newest {
    /// The manifest with the highest number; `None` if the job has never run.
    pub top: Option<Found>,
}

impl Newest {
    /// The number that the next manifest gets.
    pub fn next_sequence(&self) -> Sequence {
        self.top.as_ref().map_or(Sequence(1), |top| top.sequence.next())
    }
}

/// Reads the newest manifest of a job, found by listing. A damaged one is a fact, not an error.
///
/// Fails with `Corrupt` if there must have been manifests that are gone, `Unavailable` if the
/// store does not answer.
pub fn read_newest(store: &dyn Store, job: &JobName) -> Result<Newest> {
    for _ in 0..LISTINGS_MAX {
        let boundary = boundary(store, job)?;
        let hint = hinted(store, job)?;
        let newest = sequences(store, job)?.last().copied();
        let known = boundary.map(Sequence::next).max(hint);
        if known > newest {
            let missing = known.expect("it is more than another option");
            return Ok(Newest { top: Some(missing_manifest(job, missing)) });
        }
        let Some(newest) = newest else { return Ok(Newest { top: None }) };
        if let Some(found) = read(store, job, newest)? {
            return Ok(Newest { top: Some(found) });
        }
    }
    Err(overtaken(job))
}

/// Reads all manifests that have not been given up to collection, newest first.
///
/// IMPORTANT: the boundary is read after them. A manifest of a run that was overtaken, created
/// again under a freed name, stands behind a boundary that was there before it.
pub fn read_all(store: &dyn Store, job: &JobName) -> Result<Vec<Found>> {
    let mut before = boundary(store, job)?;
    for _ in 0..LISTINGS_MAX {
        let mut all = Vec::new();
        for sequence in sequences(store, job)?.into_iter().rev() {
            all.extend(read(store, job, sequence)?);
        }
        let after = Boundary::read(store, job)?;
        let reached = after.as_ref().map(|boundary| boundary.sequence);
        if reached == before {
            all.retain(|found| is_of_history(found, after.as_ref()));
            return Ok(all);
        }
        // What was collected meanwhile is gone, and what is new may not have been listed.
        before = reached;
    }
    Err(overtaken(job))
}

fn is_of_history(found: &Found, boundary: Option<&Boundary>) -> bool {
    let Some(boundary) = boundary else { return true };
    let is_savepoint = found.manifest.as_ref().is_ok_and(|m| m.savepoint.is_some());
    found.sequence > boundary.sequence
        || is_savepoint && boundary.keeps(found.sequence, found.digest.as_deref())
}

/// One manifest; `None` if there is none of that number.
pub(super) fn read(store: &dyn Store, job: &JobName, sequence: Sequence) -> Result<Option<Found>> {
    let name = paths::manifest(job, sequence);
    let Some(bytes) = store.get(&name)? else { return Ok(None) };
    let manifest = manifest::decode(&name, &bytes);
    let digest = Some(digest_of(&bytes));
    Ok(Some(Found { sequence, name, digest, manifest }))
}

/// The numbers of all manifests, ascending.
pub(super) fn sequences(store: &dyn Store, job: &JobName) -> Result<Vec<Sequence>> {
    let names = store.list(&paths::manifests(job))?;
    Ok(names
        .iter()
        .filter_map(|name| match paths::parse(name)?.1 {
            Object::Manifest(sequence) => Some(sequence),
            _ => None,
        })
        .collect())
}

/// The highest collection boundary.
pub(super) fn boundary(store: &dyn Store, job: &JobName) -> Result<Option<Sequence>> {
    let names = store.list(&paths::boundaries(job))?;
    Ok(names
        .iter()
        .filter_map(|name| match paths::parse(name)?.1 {
            Object::Boundary(sequence) => Some(sequence),
            _ => None,
        })
        .max())
}

/// The number in the hint, which is written after the manifest: if it is higher than all
/// manifests, one is gone. A hint that cannot be read says nothing.
fn hinted(store: &dyn Store, job: &JobName) -> Result<Option<Sequence>> {
    let bytes = match store.get(&paths::latest(job)) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::Corrupt => None,
        Err(error) => return Err(error),
    };
    let hint: Option<serde_json::Value> =
        bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    Ok(hint.and_then(|hint| hint.get("sequence")?.as_u64()).map(Sequence))
}

fn missing_manifest(job: &JobName, sequence: Sequence) -> Found {
    let name = paths::manifest(job, sequence);
    let manifest = Err(damaged(&name, "a manifest, for others show that it existed", "nothing"));
    Found { sequence, name, digest: None, manifest }
}

pub(super) fn overtaken(job: &JobName) -> Error {
    Error::unavailable(format!(
        "job `{job}`: manifests were listed {LISTINGS_MAX} times and each time the newest was gone \
         when read; the store's listing lies, or another run collects very fast: try again"
    ))
}
