//! Segments: immutable files of rows sorted by key group and key, the form in which keyed state
//! is checkpointed.
//!
//! Knows groups and bytes; not what keys and values mean, not where the bytes are kept. The layout
//! is written down in `docs/format.md`.

mod cursor;
mod merge;
mod reader;
mod rows;
mod writer;

#[cfg(test)]
mod tests;

use crate::ids::{Epoch, Generation, JobName, KeyGroup, OperatorId, Worker};
use crate::manifest::{self, digest_of};

pub use merge::{Tombstones, merge, newest_wins};
pub use reader::{RowsIn, SegmentBytes};
pub use rows::Rows;
pub use writer::encode;

/// The format that this library writes.
pub const FORMAT: u16 = 1;

/// More groups than this cannot be counted; see [`KeyGroup`]. The highest group is one less.
pub const KEY_GROUPS_MAX: u16 = u16::MAX;

const MAGIC: &[u8; 8] = b"ISOCSEG\n";
const END: &[u8; 8] = b"ISOCEND\n";
/// Group, offset of its first row, number of its rows.
const INDEX_ENTRY_BYTES: usize = 2 + 8 + 8;
/// Offset of the index, number of rows, number of groups, magic.
const TRAILER_BYTES: usize = 8 + 8 + 4 + 8;

/// Who wrote a segment: stands inside it, so that swapped files are found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The job.
    pub job: JobName,
    /// The run.
    pub generation: Generation,
    /// The checkpoint that it was written for.
    pub epoch: Epoch,
    /// The operator whose rows it holds.
    pub operator: OperatorId,
    /// The worker.
    pub worker: Worker,
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Identity { job, generation, epoch, operator, worker } = self;
        write!(
            f,
            "job {job}, generation {generation}, epoch {epoch}, operator {operator}, worker {worker}"
        )
    }
}

/// One row of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row<'a> {
    /// The key's bucket.
    pub group: KeyGroup,
    /// The encoded key.
    pub key: &'a [u8],
    /// The encoded value, or `None` if the key was removed (a tombstone).
    pub value: Option<&'a [u8]>,
}

/// How a manifest refers to the segment `bytes`, written by [`encode`] or [`merge`] as `identity`
/// and stored as `name`.
///
/// ```
/// use isochrone_persistence::ids::*;
/// use isochrone_persistence::segment::{self, Identity, Rows, SegmentBytes};
/// let identity = Identity {
///     job: JobName::new("risk")?,
///     generation: Generation(1),
///     epoch: Epoch(3),
///     operator: OperatorId::new("count")?,
///     worker: Worker(0),
/// };
/// let mut rows = Rows::new();
/// rows.push(KeyGroup(5), b"alice", Some(b"2"));
/// rows.push(KeyGroup(1), b"bob", None);
/// let bytes = segment::encode(rows, &identity);
/// let reference = segment::reference("risk/d/example", &bytes, &identity);
///
/// let segment = SegmentBytes::open(bytes, &reference, &identity.job, &identity.operator)?;
/// assert_eq!(segment.rows(0..128).count(), 2);
/// assert_eq!(segment.rows(2..128).next().unwrap().key, b"alice");
/// # Ok::<(), isochrone_persistence::Error>(())
/// ```
pub fn reference(name: impl Into<String>, bytes: &[u8], identity: &Identity) -> manifest::Segment {
    manifest::Segment {
        name: name.into(),
        bytes: bytes.len() as u64,
        digest: digest_of(bytes),
        rows: reader::row_count(bytes).unwrap_or(0),
        generation: identity.generation,
        epoch: identity.epoch,
        worker: identity.worker,
    }
}
