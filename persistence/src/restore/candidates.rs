//! The facts that a decision is made from, read from a store as they are asked for, and the data
//! of the checkpoint that was chosen.

use crate::ids::{JobName, OperatorId};
use crate::lineage::{Found, Newest, read_all};
use crate::manifest::{Manifest, Part, Segment, Step, damaged, digest_of};
use crate::paths::{self, DataKind, Object};
use crate::segment::SegmentBytes;
use crate::{Error, Result, Store};

/// A checkpoint that may be restored.
#[derive(Debug)]
pub struct Candidate {
    /// Name of its manifest.
    pub name: String,
    /// The manifest, or why it, or data that it names, cannot be used.
    pub manifest: Result<Manifest>,
}

/// The manifests of a job as candidates, newest first. Older ones than the newest, which was read
/// already, are read only when asked for. With `check_data`, all data of each is read and checked
/// as well.
pub fn candidates<'a>(
    store: &'a dyn Store,
    job: &'a JobName,
    newest: &'a Newest,
    check_data: bool,
) -> impl Iterator<Item = Result<Candidate>> + 'a {
    let older = std::iter::once_with(move || older_than(store, job, newest)).flatten();
    let restorable = |found: &Result<Found>| !found.as_ref().is_ok_and(is_fence);
    newest
        .top
        .iter()
        .map(|top| Ok(again(top)))
        .chain(older)
        .filter(restorable)
        .map(move |found| check(store, found?, check_data))
}

/// Only an error about the bytes is a fact about the candidate; any other is a failure to look.
fn check(store: &dyn Store, found: Found, check_data: bool) -> Result<Candidate> {
    let Found { name, manifest, .. } = found;
    let data = match &manifest {
        Ok(manifest) if check_data => verify_data(store, manifest),
        _ => Ok(()),
    };
    match data {
        Ok(()) => Ok(Candidate { name, manifest }),
        Err(error) if error.is_about_bytes() => Ok(Candidate { name, manifest: Err(error) }),
        Err(error) => Err(error),
    }
}

/// The same fact once more; errors are not clonable, so that of the copy is in one piece.
fn again(found: &Found) -> Found {
    let manifest = match &found.manifest {
        Ok(manifest) => Ok(manifest.clone()),
        Err(error) => Err(Error::new(error.kind(), error.report())),
    };
    let Found { sequence, name, digest, .. } = found;
    Found { sequence: *sequence, name: name.clone(), digest: digest.clone(), manifest }
}

fn is_fence(found: &Found) -> bool {
    found.manifest.as_ref().is_ok_and(|manifest| manifest.step == Step::Fence)
}

fn older_than(store: &dyn Store, job: &JobName, newest: &Newest) -> Vec<Result<Found>> {
    let Some(top) = &newest.top else { return Vec::new() };
    match read_all(store, job) {
        Ok(all) => all.into_iter().filter(|found| found.sequence < top.sequence).map(Ok).collect(),
        Err(error) => vec![Err(error)],
    }
}

/// Checks that everything a manifest names is there and intact. Reads all of it.
///
/// Fails with `Corrupt`, naming the operator and the object, at the first that is not.
pub fn verify_data(store: &dyn Store, manifest: &Manifest) -> Result<()> {
    for operator in &manifest.operators {
        if let Part::State { segments, .. } = &operator.part {
            for segment in segments {
                load(store, &manifest.job, &operator.id, segment)?;
            }
        }
    }
    for log in &manifest.in_flight {
        let Segment { name, bytes, digest, .. } = log;
        fetch_intact(store, name, *bytes, digest)?;
    }
    for (_, kept) in manifest.outputs() {
        fetch_intact(store, &kept.name, kept.bytes, &kept.digest)?;
    }
    Ok(())
}

/// Reads a segment and checks it. `operator` is the one that it is restored into; the one that
/// wrote it, which may have been renamed since, stands in the object's name and inside it.
pub fn load(
    store: &dyn Store,
    job: &JobName,
    operator: &OperatorId,
    segment: &Segment,
) -> Result<SegmentBytes> {
    let writer = match paths::parse(&segment.name) {
        Some((owner, Object::Data(data))) if owner == *job && data.kind == DataKind::Segment => {
            data.operator
        }
        _ => {
            return Err(damaged(
                &segment.name,
                format!("the name of a segment of job {job}, operator {operator}"),
                "another name in the manifest",
            ));
        }
    };
    SegmentBytes::open(fetch(store, &segment.name, segment.bytes)?, segment, job, &writer)
}

/// Reads an object and checks it against what a manifest says of it. Fails with `Corrupt`.
pub(crate) fn fetch_intact(
    store: &dyn Store,
    name: &str,
    bytes: u64,
    digest: &str,
) -> Result<Vec<u8>> {
    let found = fetch(store, name, bytes)?;
    let actual = digest_of(&found);
    if actual != digest {
        return Err(damaged(name, format!("digest {digest}"), actual));
    }
    Ok(found)
}

fn fetch(store: &dyn Store, name: &str, bytes: u64) -> Result<Vec<u8>> {
    let found = store.get(name)?;
    let expected = || format!("{bytes} bytes");
    let found = found.ok_or_else(|| damaged(name, expected(), "no such object"))?;
    if found.len() as u64 != bytes {
        return Err(damaged(name, expected(), found.len()));
    }
    Ok(found)
}

impl Error {
    /// Whether an older checkpoint may do: what was read is ruined, or too new.
    pub(super) fn is_about_bytes(&self) -> bool {
        matches!(self.kind(), crate::ErrorKind::Corrupt | crate::ErrorKind::Incompatible)
    }
}
