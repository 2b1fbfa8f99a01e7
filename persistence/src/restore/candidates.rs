//! The facts that a decision is made from, read from a store as they are asked for, and the data
//! of the checkpoint that was chosen.

use crate::ids::{JobName, OperatorId};
use crate::lineage::{Found, read_all};
use crate::manifest::{Manifest, Part, Segment, Step, damaged, digest_of};
use crate::paths::{self, Object};
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

/// The manifests of a job as candidates, newest first. The newest is `newest`, which was read
/// already; older ones are read only when asked for. With `check_data`, all data of each is read
/// and checked as well.
pub fn candidates<'a>(
    store: &'a dyn Store,
    job: &'a JobName,
    newest: Option<Found>,
    check_data: bool,
) -> impl Iterator<Item = Result<Candidate>> + 'a {
    let below = newest.as_ref().map(|found| found.sequence);
    let older = std::iter::once_with(move || older_than(store, job, below)).flatten();
    let checked = move |found: Found| -> Result<Candidate> {
        let Found { name, manifest, .. } = found;
        let manifest = match manifest {
            Ok(manifest) if check_data => match verify_data(store, &manifest) {
                Ok(()) => Ok(manifest),
                Err(error) if error.is_about_bytes() => Err(error),
                Err(error) => return Err(error),
            },
            manifest => manifest,
        };
        Ok(Candidate { name, manifest })
    };
    let restorable = |found: &Result<Found>| !found.as_ref().is_ok_and(is_fence);
    newest
        .into_iter()
        .map(Ok)
        .chain(older)
        .filter(restorable)
        .map(move |found| found.and_then(checked))
}

fn is_fence(found: &Found) -> bool {
    found.manifest.as_ref().is_ok_and(|manifest| manifest.step == Step::Fence)
}

fn older_than(
    store: &dyn Store,
    job: &JobName,
    below: Option<crate::ids::Sequence>,
) -> Vec<Result<Found>> {
    match (below, read_all(store, job)) {
        (None, _) => Vec::new(),
        (Some(below), Ok(all)) => {
            all.into_iter().filter(|found| found.sequence < below).map(Ok).collect()
        }
        (Some(_), Err(error)) => vec![Err(error)],
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
        let bytes = fetch(store, log)?;
        let digest = digest_of(&bytes);
        if digest != log.digest {
            return Err(damaged(&log.name, format!("digest {}", log.digest), digest));
        }
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
        Some((owner, Object::Data(data))) if owner == *job => data.operator,
        _ => {
            return Err(damaged(
                &segment.name,
                format!("the name of a segment of job {job}, operator {operator}"),
                "another name in the manifest",
            ));
        }
    };
    SegmentBytes::open(fetch(store, segment)?, segment, job, &writer)
}

fn fetch(store: &dyn Store, segment: &Segment) -> Result<Vec<u8>> {
    let found = store.get(&segment.name)?;
    let expected = || format!("{} bytes", segment.bytes);
    let bytes = found.ok_or_else(|| damaged(&segment.name, expected(), "no such object"))?;
    if bytes.len() as u64 != segment.bytes {
        return Err(damaged(&segment.name, expected(), bytes.len()));
    }
    Ok(bytes)
}

impl Error {
    /// Whether an older checkpoint may do: what was read is ruined, or too new.
    pub(super) fn is_about_bytes(&self) -> bool {
        matches!(self.kind(), crate::ErrorKind::Corrupt | crate::ErrorKind::Incompatible)
    }
}
