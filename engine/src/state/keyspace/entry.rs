//! A key, its value, and what the keyspace remembers about it in one word.

use super::kept::Kept;
use crate::record::{Key, KeyHash};

/// What the table holds for a key.
pub(super) struct Entry<S, V> {
    pub(super) key: S,
    pub(super) value: V,
    pub(super) mark: Mark,
}

impl<S, V: Default> Entry<S, V> {
    #[inline]
    pub(super) fn new<K: Key>(key: &K, hash: KeyHash) -> Self
    where
        S: Kept<K>,
    {
        Entry { key: S::keep(key), value: V::default(), mark: Mark(hash.0 & !FLAGS | VACANT) }
    }
}

/// The hash of the key, so that a table that grows need not look at its keys, but for eight bits in
/// the middle, which no table uses and which are flags here:
///
/// - changed in an even epoch, changed in an odd epoch: see [`Epochs`];
/// - stored: the last snapshot that encoded the key left a row that is no tombstone;
/// - vacant: the value was vacant after its last change, and the key is not counted.
#[derive(Clone, Copy)]
pub(super) struct Mark(u64);

const CHANGED_EVEN: u64 = 1 << 40;
const CHANGED_ODD: u64 = 2 << 40;
const STORED: u64 = 4 << 40;
const VACANT: u64 = 8 << 40;
const FLAGS: u64 = 0xff << 40;

impl Mark {
    /// As good as the key's hash for a table of fewer than 2^40 places.
    #[inline]
    pub(super) fn hash_for_table(self) -> u64 {
        self.0
    }

    /// Whether the key has this hash, as far as it is known.
    #[inline]
    pub(super) fn is_of(self, hash: KeyHash) -> bool {
        (self.0 ^ hash.0) & !FLAGS == 0
    }

    #[inline]
    pub(super) fn bits(self) -> u8 {
        (self.0 >> 40) as u8
    }

    #[inline]
    pub(super) fn is_stored(self) -> bool {
        self.0 & STORED != 0
    }

    #[inline]
    pub(super) fn set_stored(&mut self, stored: bool) {
        self.0 = self.0 & !STORED | if stored { STORED } else { 0 };
    }

    #[inline]
    pub(super) fn is_vacant(self) -> bool {
        self.0 & VACANT != 0
    }

    #[inline]
    pub(super) fn set_vacant(&mut self, vacant: bool) {
        self.0 = self.0 & !VACANT | if vacant { VACANT } else { 0 };
    }
}

/// Which of the two bits of change means this epoch and which the frozen one. The two swap at each
/// freeze instead of being cleared: at that moment no key has the frozen one any more.
pub(super) struct Epochs {
    changed: u64,
}

impl Default for Epochs {
    fn default() -> Self {
        Epochs { changed: CHANGED_EVEN }
    }
}

impl Epochs {
    pub(super) fn next(&mut self) {
        self.changed ^= CHANGED_EVEN | CHANGED_ODD;
    }

    /// Changed in this epoch.
    #[inline]
    pub(super) fn is_dirty(&self, mark: Mark) -> bool {
        mark.0 & self.changed != 0
    }

    /// Changed in the frozen epoch, not in this one, and not encoded yet.
    #[inline]
    pub(super) fn is_waiting(&self, mark: Mark) -> bool {
        mark.0 & (self.changed ^ (CHANGED_EVEN | CHANGED_ODD)) != 0
    }

    /// Changed in this epoch, after whatever waited was encoded.
    #[inline]
    pub(super) fn set_dirty(&self, mark: &mut Mark) {
        mark.0 = mark.0 & !(CHANGED_EVEN | CHANGED_ODD) | self.changed;
    }

    /// Encoded for the frozen epoch.
    #[inline]
    pub(super) fn set_encoded(&self, mark: &mut Mark) {
        mark.0 &= !(self.changed ^ (CHANGED_EVEN | CHANGED_ODD));
    }
}
