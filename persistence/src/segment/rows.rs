//! The buffer that a snapshot pushes rows into: one flat array of bytes and one of offsets.
//!
//! Runs on the hot path, so it only appends; sorting is left to [`super::encode`], which runs on
//! a background thread.

use crate::ids::KeyGroup;

/// Rows in the order in which they were pushed. A later row for the same key wins.
///
/// ```
/// use isochrone_persistence::ids::KeyGroup;
/// use isochrone_persistence::segment::Rows;
/// let mut rows = Rows::new();
/// rows.push(KeyGroup(0), b"key", Some(b"value"));
/// rows.push_with(KeyGroup(0), b"other", |buffer| buffer.extend_from_slice(b"encoded in place"));
/// assert_eq!(rows.len(), 2);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Rows {
    buffer: Vec<u8>,
    entries: Vec<Entry>,
}

/// Where a row lies in the buffer: key, then value.
#[derive(Clone, Copy, Debug)]
struct Entry {
    key_start: usize,
    value_start: usize,
    value_end: usize,
    group: KeyGroup,
    tombstone: bool,
}

impl Rows {
    /// No rows.
    pub fn new() -> Self {
        Rows::default()
    }

    /// Adds a row; `None` says that the key was removed. Groups are below
    /// [`super::KEY_GROUPS_MAX`].
    pub fn push(&mut self, group: KeyGroup, key: &[u8], value: Option<&[u8]>) {
        let key_start = self.push_key(key);
        let value_start = self.buffer.len();
        self.buffer.extend_from_slice(value.unwrap_or_default());
        self.push_entry(group, key_start, value_start, value.is_none());
    }

    /// Adds a row whose value `encode` appends to the buffer. It must not touch what is there.
    pub fn push_with(&mut self, group: KeyGroup, key: &[u8], encode: impl FnOnce(&mut Vec<u8>)) {
        let encoded: Result<(), std::convert::Infallible> =
            self.try_push_with(group, key, |buffer| {
                encode(buffer);
                Ok(())
            });
        match encoded {
            Ok(()) => {}
            Err(never) => match never {},
        }
    }

    /// Like [`Rows::push_with`] for an encoder that can fail; then no row is added.
    pub fn try_push_with<E>(
        &mut self,
        group: KeyGroup,
        key: &[u8],
        encode: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let key_start = self.push_key(key);
        let value_start = self.buffer.len();
        if let Err(error) = encode(&mut self.buffer) {
            self.buffer.truncate(key_start);
            return Err(error);
        }
        assert!(self.buffer.len() >= value_start, "an encoder shortened the buffer of all rows");
        self.push_entry(group, key_start, value_start, false);
        Ok(())
    }

    /// Adds all rows of `other` after the own ones, so that they win.
    pub fn append(&mut self, other: Rows) {
        if self.entries.is_empty() {
            *self = other;
            return;
        }
        let shift = self.buffer.len();
        self.buffer.extend_from_slice(&other.buffer);
        self.entries.extend(other.entries.iter().map(|entry| Entry {
            key_start: entry.key_start + shift,
            value_start: entry.value_start + shift,
            value_end: entry.value_end + shift,
            ..*entry
        }));
    }

    /// Number of rows pushed.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no row was pushed.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of keys and values held.
    pub fn bytes(&self) -> usize {
        self.buffer.len()
    }

    /// The rows in the order in which they were pushed: group, key, and value unless removed.
    pub fn iter(&self) -> impl Iterator<Item = (KeyGroup, &[u8], Option<&[u8]>)> {
        (0..self.len()).map(|index| {
            let super::Row { group, key, value } = self.row(index);
            (group, key, value)
        })
    }

    pub(super) fn row(&self, index: usize) -> super::Row<'_> {
        let Entry { key_start, value_start, value_end, group, tombstone } = self.entries[index];
        let key = &self.buffer[key_start..value_start];
        let value = (!tombstone).then(|| &self.buffer[value_start..value_end]);
        super::Row { group, key, value }
    }

    fn push_key(&mut self, key: &[u8]) -> usize {
        let start = self.buffer.len();
        self.buffer.extend_from_slice(key);
        start
    }

    fn push_entry(&mut self, group: KeyGroup, key_start: usize, value_start: usize, gone: bool) {
        let value_end = self.buffer.len();
        self.entries.push(Entry { key_start, value_start, value_end, group, tombstone: gone });
    }
}
