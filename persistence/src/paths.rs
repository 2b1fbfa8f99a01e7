//! The names of all objects of a job. No other module formats or takes apart a name.
//!
//! ```text
//! <job>/m/<sequence>.json      manifests: created once, never replaced; the truth
//! <job>/b/<sequence>           collection boundaries: the highest one counts
//! <job>/latest.json            a hint for people and tools
//! <job>/d/<epoch>/<operator>-<worker>-<generation>-<random>.seg     data, under unique names
//! ```
//!
//! Sequence and epoch have twenty digits, so that ascending names are ascending numbers. Knows
//! names only: whether an object exists is for a store to say.

use std::fmt::Write as _;

use crate::ids::{Epoch, Generation, JobName, OperatorId, Sequence, Worker};
use crate::{Error, Result};

/// What a name stands for.
///
/// ```
/// use isochrone_persistence::ids::{JobName, Sequence};
/// use isochrone_persistence::paths::{self, Object};
/// let job = JobName::new("risk")?;
/// let name = paths::manifest(&job, Sequence(7));
/// assert_eq!(name, "risk/m/00000000000000000007.json");
/// assert_eq!(paths::parse(&name), Some((job, Object::Manifest(Sequence(7)))));
/// # Ok::<(), isochrone_persistence::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// A manifest.
    Manifest(Sequence),
    /// Everything up to this sequence may have been collected.
    Boundary(Sequence),
    /// The hint to the newest manifest.
    Latest,
    /// A data object.
    Data(DataName),
}

/// What the name of a data object says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataName {
    /// The checkpoint that it was first written for.
    pub epoch: Epoch,
    /// The operator whose rows it holds.
    pub operator: OperatorId,
    /// The worker that wrote it.
    pub worker: Worker,
    /// The run that wrote it.
    pub generation: Generation,
    /// Sixteen hex digits, so that a name is never used twice.
    pub random: String,
    /// What is in it.
    pub kind: DataKind,
}

/// What a data object holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataKind {
    /// Rows of state, or records in flight.
    Segment,
    /// Output of a sink that is not visible yet.
    Output,
}

impl DataKind {
    fn suffix(self) -> &'static str {
        match self {
            DataKind::Segment => ".seg",
            DataKind::Output => ".out",
        }
    }
}

impl DataName {
    /// A name that no other writer has. Fails only if the system has no randomness to give.
    pub fn fresh(
        epoch: Epoch,
        operator: &OperatorId,
        worker: Worker,
        generation: Generation,
        kind: DataKind,
    ) -> Result<Self> {
        let random = random_hex::<8>()?;
        Ok(DataName { epoch, operator: operator.clone(), worker, generation, random, kind })
    }
}

/// Name of a manifest.
pub fn manifest(job: &JobName, sequence: Sequence) -> String {
    format!("{}{sequence:020}.json", manifests(job))
}

/// Prefix of all manifests of a job.
pub fn manifests(job: &JobName) -> String {
    format!("{job}/m/")
}

/// Name of a collection boundary.
pub fn boundary(job: &JobName, sequence: Sequence) -> String {
    format!("{}{sequence:020}", boundaries(job))
}

/// Prefix of all collection boundaries of a job.
pub fn boundaries(job: &JobName) -> String {
    format!("{job}/b/")
}

/// Name of the hint to the newest manifest.
pub fn latest(job: &JobName) -> String {
    format!("{job}/latest.json")
}

/// Name of a data object.
pub fn data(job: &JobName, name: &DataName) -> String {
    let DataName { epoch, operator, worker, generation, random, kind } = name;
    let (folder, suffix) = (data_objects(job), kind.suffix());
    format!("{folder}{epoch:020}/{operator}-{worker}-{generation}-{random}{suffix}")
}

/// Prefix of all data objects of a job.
pub fn data_objects(job: &JobName) -> String {
    format!("{job}/d/")
}

/// What `name` stands for, or `None` if this module never makes such a name.
pub fn parse(name: &str) -> Option<(JobName, Object)> {
    let (job, rest) = name.split_once('/')?;
    let job = JobName::new(job).ok()?;
    let object = parse_object(rest)?;
    (format_object(&job, &object) == name).then_some((job, object))
}

fn parse_object(rest: &str) -> Option<Object> {
    if rest == "latest.json" {
        return Some(Object::Latest);
    }
    let (folder, rest) = rest.split_once('/')?;
    match folder {
        "m" => Some(Object::Manifest(Sequence(rest.strip_suffix(".json")?.parse().ok()?))),
        "b" => Some(Object::Boundary(Sequence(rest.parse().ok()?))),
        "d" => parse_data(rest).map(Object::Data),
        _ => None,
    }
}

/// An operator id may hold `-`, so the parts are taken from the right.
fn parse_data(rest: &str) -> Option<DataName> {
    let (epoch, file) = rest.split_once('/')?;
    let named = |kind: DataKind| Some((file.strip_suffix(kind.suffix())?, kind));
    let (stem, kind) = named(DataKind::Segment).or_else(|| named(DataKind::Output))?;
    let mut parts = stem.rsplitn(4, '-');
    let random = parts.next()?.to_owned();
    let generation = Generation(parts.next()?.parse().ok()?);
    let worker = Worker(parts.next()?.parse().ok()?);
    let operator = OperatorId::new(parts.next()?).ok()?;
    let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    if random.len() != 16 || !random.bytes().all(hex) {
        return None;
    }
    let epoch = Epoch(epoch.parse().ok()?);
    Some(DataName { epoch, operator, worker, generation, random, kind })
}

fn format_object(job: &JobName, object: &Object) -> String {
    match object {
        Object::Manifest(sequence) => manifest(job, *sequence),
        Object::Boundary(sequence) => boundary(job, *sequence),
        Object::Latest => latest(job),
        Object::Data(name) => data(job, name),
    }
}

/// `N` random bytes in hex.
pub(crate) fn random_hex<const N: usize>() -> Result<String> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|cause| {
        Error::internal("the operating system gave no random bytes").with_source(cause)
    })?;
    Ok(bytes.iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").expect("writing to a string does not fail");
        hex
    }))
}

#[cfg(test)]
mod tests;
