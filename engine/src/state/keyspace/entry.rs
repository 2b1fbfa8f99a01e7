//! A key, its value, and what the keyspace remembers about it in one byte.

/// What the table holds for a key.
pub(super) struct Entry<K, V> {
    pub(super) key: K,
    pub(super) value: V,
    pub(super) mark: Mark,
}

impl<K, V: Default> Entry<K, V> {
    #[inline]
    pub(super) fn new(key: K) -> Self {
        Entry { key, value: V::default(), mark: Mark(VACANT) }
    }
}

/// - changed in an even epoch, changed in an odd epoch: see [`Epochs`];
/// - stored: the last snapshot that encoded the key left a row that is no tombstone;
/// - vacant: the value was vacant after its last change, and the key is not counted.
#[derive(Clone, Copy)]
pub(super) struct Mark(u8);

const CHANGED_EVEN: u8 = 1;
const CHANGED_ODD: u8 = 2;
const STORED: u8 = 4;
const VACANT: u8 = 8;

impl Mark {
    #[inline]
    pub(super) fn bits(self) -> u8 {
        self.0
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
    changed: u8,
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
