//! Taking a job over: the next manifest, under a higher generation, with the content to start from.

use std::collections::{BTreeMap, BTreeSet};

use super::attempt::{Attempt, Outcome};
use super::{Found, Hold, Lineage, Newest, carry_out, read_newest};
use crate::ids::{Epoch, Generation, JobName, Sequence};
use crate::manifest::{FORMAT, Manifest, Step, digest_of, encode};
use crate::{Error, Result, SharedStore, Store, paths};

/// How often a claim may be lost to other runs that start at the same time.
const RACES_MAX: usize = 16;

/// What a run starts from.
#[derive(Clone, Debug, PartialEq)]
pub enum Base {
    /// Nothing: the job has no checkpoint.
    Fresh {
        /// Number of key groups, fixed from now on.
        key_groups: u16,
        /// Name of the hash from encoded key to key group.
        key_hash: String,
    },
    /// The content of this manifest, the newest or an older one.
    From(Box<Manifest>),
}

impl Lineage {
    /// Claims `job` for a new run. `decide` looks at the newest manifest and says what to start
    /// from; it is asked again when another run was faster, since there may be more to start from
    /// then. Gives the hold on the job and the manifest to restore from, if any.
    ///
    /// When this returns, no run with a lower generation can publish or commit any more. Sinks may
    /// be opened only after.
    ///
    /// Fails with what `decide` fails with; `Invalid` if it wants a fresh start though there is a
    /// checkpoint; `Unavailable` if the store does not answer or other runs are always faster.
    pub fn claim(
        store: SharedStore,
        job: &JobName,
        now_ms: u64,
        mut decide: impl FnMut(&Newest) -> Result<Base>,
    ) -> Result<(Lineage, Option<Manifest>)> {
        for _ in 0..RACES_MAX {
            let newest = read_newest(&*store, job)?;
            let base = decide(&newest)?;
            let Some(newest) = fence_first(&*store, newest, job, &base, now_ms)? else { continue };
            let claim = claim_manifest(job, &newest, &base, now_ms)?;
            if let Some(bytes) = add(&*store, &claim, claim.sequence)? {
                return Ok(begin(store, claim, &bytes, base));
            }
        }
        Err(Error::unavailable(format!(
            "job `{job}`: {RACES_MAX} times another run claimed it first; stop the other runs"
        )))
    }
}

/// Nothing to do if the run starts from the newest manifest. Otherwise a collector that has not
/// heard of this run may be deleting what it wants to start from. IMPORTANT: so all others are
/// shut out first, by a manifest that nobody restores; then the boundary tells what may still be
/// deleted; and only then the claim is written. Gives the new end of the history, or `None` if
/// the decision no longer holds.
fn fence_first(
    store: &dyn Store,
    newest: Newest,
    job: &JobName,
    base: &Base,
    now_ms: u64,
) -> Result<Option<Newest>> {
    let Base::From(manifest) = base else { return Ok(Some(newest)) };
    if newest.top.as_ref().is_some_and(|top| top.sequence == manifest.sequence) {
        return Ok(Some(newest));
    }
    let claim = claim_manifest(job, &newest, base, now_ms)?;
    let fence =
        Manifest { step: Step::Fence, operators: Vec::new(), in_flight: Vec::new(), ..claim };
    // Savepoints are not collected.
    let needs = if manifest.savepoint.is_some() { fence.sequence } else { manifest.sequence };
    let Some(bytes) = add(store, &fence, needs)? else { return Ok(None) };
    let top = Found {
        sequence: fence.sequence,
        name: paths::manifest(job, fence.sequence),
        digest: Some(digest_of(&bytes)),
        manifest: Ok(fence),
    };
    Ok(Some(Newest { top: Some(top) }))
}

/// Adds a manifest to the history. Gives its bytes, or `None` if another run was faster.
fn add(store: &dyn Store, manifest: &Manifest, needs: Sequence) -> Result<Option<Vec<u8>>> {
    let bytes = encode(manifest);
    let mut attempt = Attempt::new(manifest.sequence, needs);
    let (outcome, last) = carry_out(store, &manifest.job, &bytes, &mut attempt)?;
    match outcome {
        Outcome::Durable => Ok(Some(bytes)),
        Outcome::Taken | Outcome::Collected(_) => Ok(None),
        Outcome::Unknown => Err(unknown(store, &manifest.job, last)),
    }
}

fn claim_manifest(job: &JobName, newest: &Newest, base: &Base, now_ms: u64) -> Result<Manifest> {
    let content = match base {
        Base::From(manifest) => copied(job, manifest)?,
        Base::Fresh { key_groups, key_hash } => {
            // A run that ended before its first checkpoint was this job too.
            let origin = check_nothing_to_lose(newest)?.and_then(|first| first.origin.clone());
            Manifest { origin, ..empty(job, *key_groups, key_hash) }
        }
    };
    let nonce = paths::random_hex::<16>()?;
    Ok(Manifest {
        format: FORMAT,
        sequence: newest.next_sequence(),
        generation: next_generation(newest, &content),
        origin: content.origin.or_else(|| Some(nonce.clone())),
        run: Some(nonce.clone()),
        nonce,
        predecessor: newest.top.as_ref().and_then(|top| top.digest.clone()),
        step: Step::Claim,
        taken_at_ms: now_ms,
        duration_ms: 0,
        bytes: 0,
        savepoint: None,
        ..content
    })
}

fn copied(job: &JobName, manifest: &Manifest) -> Result<Manifest> {
    if manifest.job != *job {
        return Err(Error::invalid(format!(
            "job `{job}` cannot start from a checkpoint of job `{}`; name the job as it was",
            manifest.job
        )));
    }
    Ok(manifest.clone())
}

/// Gives the claim of a run before, if there was one.
fn check_nothing_to_lose(newest: &Newest) -> Result<Option<&Manifest>> {
    let Some(top) = &newest.top else { return Ok(None) };
    match &top.manifest {
        Ok(manifest) if manifest.epoch == Epoch(0) => Ok(Some(manifest)),
        _ => Err(Error::invalid(format!(
            "refusing to start fresh beside `{}`; restore from it, or give the job another name",
            top.name
        ))),
    }
}

fn empty(job: &JobName, key_groups: u16, key_hash: &str) -> Manifest {
    Manifest {
        format: FORMAT,
        job: job.clone(),
        sequence: Sequence(0),
        generation: Generation(0),
        nonce: String::new(),
        run: None,
        origin: None,
        predecessor: None,
        step: Step::Claim,
        epoch: Epoch(0),
        taken_at_ms: 0,
        duration_ms: 0,
        bytes: 0,
        finished: false,
        workers: 0,
        key_groups,
        key_hash: key_hash.to_owned(),
        savepoint: None,
        operators: Vec::new(),
        in_flight: Vec::new(),
    }
}

/// Higher than that of every manifest there is. The newest may be unreadable; then the number of
/// manifests since the base bounds its generation, as each raises it by one at most.
fn next_generation(newest: &Newest, content: &Manifest) -> Generation {
    let Some(top) = &newest.top else { return content.generation.next() };
    match &top.manifest {
        Ok(manifest) => manifest.generation.max(content.generation).next(),
        Err(_) => {
            let since = top.sequence.0.saturating_sub(content.sequence.0);
            Generation(content.generation.0 + since).next()
        }
    }
}

fn begin(
    store: SharedStore,
    claim: Manifest,
    bytes: &[u8],
    base: Base,
) -> (Lineage, Option<Manifest>) {
    let lineage = Lineage {
        store,
        job: claim.job,
        hold: Hold { generation: claim.generation, sequence: claim.sequence, nonce: claim.nonce },
        sequence: claim.sequence,
        origin: claim.origin.expect("a claim has an origin"),
        digest: digest_of(bytes),
        epoch: claim.epoch,
        key_groups: claim.key_groups,
        key_hash: claim.key_hash,
        pending: None,
        hint: None,
        fenced: None,
        seen: BTreeMap::new(),
        savepoints: BTreeMap::new(),
        owed: BTreeSet::new(),
    };
    let restored = match base {
        Base::Fresh { .. } => None,
        Base::From(manifest) => Some(*manifest),
    };
    (lineage, restored)
}

fn unknown(store: &dyn Store, job: &JobName, last: Option<Error>) -> Error {
    let error = Error::unavailable(format!(
        "job `{job}` could not be claimed: {} does not answer",
        store.describe()
    ));
    match last {
        Some(last) => error.with_source(last),
        None => error,
    }
}
