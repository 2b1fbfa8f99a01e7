//! Which manifests and data objects are still needed: a pure function of what there is.

use std::collections::BTreeSet;

use crate::ids::{Epoch, Generation, Sequence};
use crate::manifest::{Manifest, Part, Step};
use crate::paths::DataName;

/// How much of the past to keep: the last few checkpoints and all young ones, whichever is more.
/// Savepoints are kept besides, and the newest manifest always.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retain {
    /// So many checkpoints, savepoints not counted.
    pub last: usize,
    /// And those that were taken less long ago than this.
    pub younger_than_ms: u64,
}

/// What retention needs to know about a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retained {
    /// Its number.
    pub sequence: Sequence,
    /// Claims do not count as checkpoints.
    pub step: Step,
    /// The cut that it describes.
    pub epoch: Epoch,
    /// When it was written, in milliseconds since 1970.
    pub taken_at_ms: u64,
    /// Whether the user asked for it by name.
    pub savepoint: bool,
    /// The data objects that it names.
    pub names: BTreeSet<String>,
}

impl From<&Manifest> for Retained {
    fn from(manifest: &Manifest) -> Retained {
        let states = manifest.operators.iter().flat_map(|operator| match &operator.part {
            Part::State { segments, .. } => segments.as_slice(),
            Part::Source { .. } | Part::Sink { .. } => &[],
        });
        let segments = states.chain(&manifest.in_flight).map(|segment| segment.name.clone());
        let outputs = manifest.outputs().map(|(_, kept)| kept.name.clone());
        Retained {
            sequence: manifest.sequence,
            step: manifest.step,
            epoch: manifest.epoch,
            taken_at_ms: manifest.taken_at_ms,
            savepoint: manifest.savepoint.is_some(),
            names: segments.chain(outputs).collect(),
        }
    }
}

/// The boundary up to which manifests, savepoints excepted, are given up; `None` if none is.
///
/// ```
/// use isochrone_persistence::ids::{Epoch, Sequence};
/// use isochrone_persistence::lineage::{Retain, Retained, plan};
/// use isochrone_persistence::manifest::Step;
/// let checkpoint = |number: u64| Retained {
///     sequence: Sequence(number),
///     step: Step::Checkpoint,
///     epoch: Epoch(number),
///     taken_at_ms: 1_000 * number,
///     savepoint: false,
///     names: Default::default(),
/// };
/// let all: Vec<_> = (1..=9).map(checkpoint).collect();
/// let last_three = Retain { last: 3, younger_than_ms: 0 };
/// assert_eq!(plan(&all, &last_three, 9_000), Some(Sequence(6)));
/// let five_seconds = Retain { last: 3, younger_than_ms: 5_000 };
/// assert_eq!(plan(&all, &five_seconds, 9_000), Some(Sequence(4)));
/// ```
pub fn plan<'a>(
    manifests: impl IntoIterator<Item = &'a Retained>,
    retain: &Retain,
    now_ms: u64,
) -> Option<Sequence> {
    let manifests: Vec<&Retained> = manifests.into_iter().collect();
    let newest = manifests.iter().map(|m| m.sequence).max()?;
    let mut counted: Vec<&Retained> =
        manifests.iter().copied().filter(|m| m.step == Step::Checkpoint && !m.savepoint).collect();
    counted.sort_unstable_by_key(|m| std::cmp::Reverse(m.sequence));
    let young = |m: &Retained| now_ms.saturating_sub(m.taken_at_ms) < retain.younger_than_ms;
    let oldest_kept = counted
        .iter()
        .enumerate()
        .filter(|(rank, m)| *rank < retain.last || young(m))
        .map(|(_, m)| m.sequence)
        .min()
        .unwrap_or(newest);
    let boundary = Sequence(oldest_kept.min(newest).0.checked_sub(1)?);
    manifests.iter().any(|m| m.sequence <= boundary && !m.savepoint).then_some(boundary)
}

/// What a collection may delete among data objects.
pub(super) struct Needs<'a> {
    /// Named by a manifest that is kept.
    pub(super) kept: BTreeSet<&'a str>,
    /// Named by a manifest that is given up, or known to be useless.
    pub(super) given_up: BTreeSet<&'a str>,
    /// The run that collects.
    pub(super) generation: Generation,
}

impl Needs<'_> {
    /// Whether nobody can need this object any more.
    ///
    /// Objects of older generations that no kept manifest names are left-overs: their writers can
    /// never publish again. Of the own generation, an unnamed object may be an upload in progress,
    /// for any epoch, so only what a manifest named and none names now is deleted.
    pub(super) fn is_garbage(&self, name: &str, data: &DataName) -> bool {
        if self.kept.contains(name) {
            return false;
        }
        data.generation < self.generation || self.given_up.contains(name)
    }
}
