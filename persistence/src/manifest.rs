//! The manifest: the small JSON object whose existence makes a checkpoint exist.
//!
//! Knows ids, numbers and references to objects; not stores, not clocks, not users' types.

mod codec;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::{Epoch, Generation, JobName, OperatorId, Sequence, StateVersion, Worker};

pub(crate) use codec::damaged;
pub use codec::{TAKE_AN_OLDER_ONE, decode, digest_of, encode};

/// The format that this library writes.
pub const FORMAT: u32 = 1;

/// One durable step in a job's history: a claim by a new generation, or a checkpoint.
///
/// A claim is a copy of its predecessor's content under a higher generation, so that the newest
/// manifest alone is enough to restore from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of this format; see [`FORMAT`].
    pub format: u32,
    /// The job that it belongs to.
    pub job: JobName,
    /// Consecutive number, also in the object's name.
    pub sequence: Sequence,
    /// The run that wrote it.
    pub generation: Generation,
    /// Random, fresh for each manifest: how a writer recognises its own.
    pub nonce: String,
    /// The nonce of the claim of the run that wrote it. `None` if an early version of the library
    /// wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// The nonce of the first claim that this history goes back to: tells two jobs of one name
    /// apart. `None` if an early version of the library wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// Digest of the encoded predecessor, or `None` for the first of a job.
    pub predecessor: Option<String>,
    /// Claim or checkpoint.
    pub step: Step,
    /// The cut that it describes; 0 when nothing has been checkpointed yet.
    pub epoch: Epoch,
    /// Wall-clock time when it was written, in milliseconds since 1970.
    pub taken_at_ms: u64,
    /// From trigger to the last acknowledgement, in milliseconds.
    pub duration_ms: u64,
    /// Bytes written for this checkpoint alone.
    pub bytes: u64,
    /// Whether all input had been read and all output committed or listed as pending here.
    pub finished: bool,
    /// How many workers wrote it.
    pub workers: u32,
    /// Number of key groups, fixed for the job's life.
    pub key_groups: u16,
    /// Name of the hash from encoded key to key group.
    pub key_hash: String,
    /// Savepoint label given by the user; such a manifest is kept until dropped.
    pub savepoint: Option<String>,
    /// What each durable operator left.
    pub operators: Vec<Operator>,
    /// Logs of in-flight records (unaligned checkpoints only).
    pub in_flight: Vec<Segment>,
}

impl Manifest {
    /// Output that it keeps in the write-ahead, with the sink that it is of.
    pub fn outputs(&self) -> impl Iterator<Item = (&OperatorId, &Kept)> {
        self.operators.iter().flat_map(|operator| {
            let pending = match &operator.part {
                Part::Sink { pending, .. } => pending.as_slice(),
                Part::Source { .. } | Part::State { .. } => &[],
            };
            pending.iter().flat_map(|pending| &pending.kept).map(|kept| (&operator.id, kept))
        })
    }
}

/// Why a manifest was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// A new generation took the job over.
    Claim,
    /// A new generation that starts from an older checkpoint shut all others out, before its
    /// claim. Holds nothing to restore.
    Fence,
    /// A checkpoint was completed.
    Checkpoint,
}

/// What one durable operator left in a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Operator {
    /// The user's id.
    pub id: OperatorId,
    /// What it left, by kind.
    pub part: Part,
}

/// Content by kind of operator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Part {
    /// Positions of a source.
    Source {
        /// All splits ever known, finished ones included.
        splits: Vec<Split>,
        /// Records skipped as malformed since the job's first run.
        skipped: u64,
    },
    /// Keyed state.
    State {
        /// Version given by the author of the state type.
        version: StateVersion,
        /// Fingerprint of the shape of key and state type.
        shape: String,
        /// Encoding of keys and values.
        codec: String,
        /// Segments, oldest first; a newer row for the same key wins.
        segments: Vec<Segment>,
    },
    /// Output that is durable but perhaps not yet visible.
    Sink {
        /// What a successor must finish.
        pending: Vec<Pending>,
        /// Which history of its output this checkpoint belongs to, in the connector's own terms;
        /// `None` while there is only one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        history: Option<String>,
        /// Where its output goes, for people; `None` if its connector does not say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        target: Option<String>,
    },
}

/// An independently readable part of a source and how far it has been read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Split {
    /// Stable name within the source.
    pub id: String,
    /// Next to read, in the connector's own terms.
    pub position: Value,
    /// Event-time promise in milliseconds since 1970, if the source has event time.
    pub watermark: Option<i64>,
    /// Whether it has been read to its end.
    pub finished: bool,
}

/// Output of one sink writer for one epoch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pending {
    /// The worker that wrote it.
    pub worker: Worker,
    /// The epoch that it belongs to.
    pub epoch: Epoch,
    /// What commits it, in the connector's own terms.
    pub effect: Value,
    /// Objects that must be there to commit it: kept as long as this manifest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<Kept>,
}

/// Reference to an immutable object of output in the write-ahead, with what proves it intact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Name of the object in the store.
    pub name: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// BLAKE3 digest of the whole object, in hex.
    pub digest: String,
}

/// Reference to an immutable data object, with what proves it intact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Segment {
    /// Name of the object in the store.
    pub name: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// BLAKE3 digest of the whole object, in hex.
    pub digest: String,
    /// Number of rows, tombstones included.
    pub rows: u64,
    /// Generation, epoch and worker that wrote it: the same as inside the object.
    pub generation: Generation,
    /// See `generation`.
    pub epoch: Epoch,
    /// See `generation`.
    pub worker: Worker,
}
