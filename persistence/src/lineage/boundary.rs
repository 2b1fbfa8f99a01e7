//! The collection boundary: up to where manifests are given up, and which savepoints below it stay.
//!
//! A run that was overtaken may create a manifest once more under a name that a collector has freed.
//! Such a manifest is no part of the history. Above the boundary there can be none, for names are
//! freed only below; below it only what the boundary names is one.

use std::collections::BTreeMap;

use super::history;
use crate::ids::{JobName, Sequence};
use crate::manifest::digest_of;
use crate::{ErrorKind, Result, Store, paths};

/// The highest boundary of a job.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Boundary {
    pub(super) sequence: Sequence,
    /// `None` if it does not say: then every savepoint counts.
    savepoints: Option<Savepoints>,
}

/// Savepoints and their digests; without one where the manifest could not be read.
pub(super) type Savepoints = BTreeMap<Sequence, Option<String>>;

impl Boundary {
    /// Reads the highest boundary, if there is any.
    pub(super) fn read(store: &dyn Store, job: &JobName) -> Result<Option<Boundary>> {
        for _ in 0..history::LISTINGS_MAX {
            let Some(sequence) = history::boundary(store, job)? else { return Ok(None) };
            let savepoints = match store.get(&paths::boundary(job, sequence)) {
                Ok(Some(bytes)) => decode(&bytes),
                // A collector has put a higher one in its place.
                Ok(None) => continue,
                Err(error) if error.kind() == ErrorKind::Corrupt => None,
                Err(error) => return Err(error),
            };
            return Ok(Some(Boundary { sequence, savepoints }));
        }
        Err(history::overtaken(job))
    }

    /// Whether a savepoint of this number and digest is part of the history. To be asked with a
    /// boundary that was read after the savepoint.
    pub(super) fn keeps(&self, sequence: Sequence, digest: Option<&str>) -> bool {
        let Some(savepoints) = &self.savepoints else { return true };
        sequence > self.sequence
            || savepoints
                .get(&sequence)
                .is_some_and(|kept| kept.is_none() || kept.as_deref() == digest)
    }
}

/// What a boundary says: a line with the digest of the rest, then the savepoints as JSON.
pub(super) fn encode(savepoints: &Savepoints) -> Vec<u8> {
    let text = serde_json::to_string(savepoints).expect("numbers and text encode as json");
    format!("{}\n{text}", digest_of(text.as_bytes())).into_bytes()
}

/// A boundary that is ruined, or empty as older versions wrote it, says nothing: no savepoint may be
/// lost by it.
fn decode(bytes: &[u8]) -> Option<Savepoints> {
    let (digest, text) = std::str::from_utf8(bytes).ok()?.split_once('\n')?;
    (digest_of(text.as_bytes()) == digest).then(|| serde_json::from_str(text).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_savepoint_below_the_boundary_is_known_by_its_digest() {
        let of = |digest: &str| Some(digest.to_owned());
        let savepoints = Savepoints::from([(Sequence(3), of("three")), (Sequence(4), None)]);
        let bytes = encode(&savepoints);
        assert!(bytes.ends_with(br#"{"3":"three","4":null}"#));
        let boundary = Boundary { sequence: Sequence(5), savepoints: decode(&bytes) };
        assert!(boundary.keeps(Sequence(3), Some("three")));
        assert!(!boundary.keeps(Sequence(3), Some("of a run that was overtaken")));
        assert!(!boundary.keeps(Sequence(2), Some("two")));
        assert!(boundary.keeps(Sequence(4), Some("readable again")));
        assert!(boundary.keeps(Sequence(6), Some("above")));
    }

    #[test]
    fn a_boundary_that_is_ruined_hides_no_savepoint() {
        let bytes = encode(&Savepoints::from([(Sequence(3), Some("three".to_owned()))]));
        for bit in 0..8 * bytes.len() {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let boundary = Boundary { sequence: Sequence(5), savepoints: decode(&flipped) };
            assert!(boundary.keeps(Sequence(3), Some("three")), "bit {bit}");
        }
        let empty = Boundary { sequence: Sequence(5), savepoints: decode(b"") };
        assert!(empty.keeps(Sequence(3), Some("three")));
    }
}
