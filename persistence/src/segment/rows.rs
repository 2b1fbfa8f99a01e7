//! The buffer that a snapshot pushes rows into: per key group one flat array of bytes and one of
//! places in it.
//!
//! Runs on the hot path, so it only appends; sorting is left to [`super::encode`], which runs on
//! a background thread. There each group is sorted and copied by itself, so that what is read out
//! of order fits into the cache.

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
    groups: Vec<GroupRows>,
    rows: usize,
    bytes: usize,
}

/// The rows of one group.
#[derive(Clone, Debug, Default)]
pub(super) struct GroupRows {
    buffer: Vec<u8>,
    entries: Vec<Entry>,
}

/// Where a row lies in the buffer: key, then value.
#[derive(Clone, Copy, Debug)]
struct Entry {
    key_start: usize,
    key_bytes: u32,
    /// Or [`TOMBSTONE`].
    value_bytes: u32,
}

const TOMBSTONE: u32 = u32::MAX;

impl Rows {
    /// No rows.
    pub fn new() -> Self {
        Rows::default()
    }

    /// Adds a row; `None` says that the key was removed. Groups are below
    /// [`super::KEY_GROUPS_MAX`].
    pub fn push(&mut self, group: KeyGroup, key: &[u8], value: Option<&[u8]>) {
        match value {
            Some(value) => self.push_with(group, key, |buffer| buffer.extend_from_slice(value)),
            None => {
                let rows = self.of_group(group);
                let key_start = rows.push_key(key);
                rows.push_entry(key_start, key.len(), TOMBSTONE);
                self.count(key.len());
            }
        }
    }

    /// Adds a row whose value `encode` appends to the buffer. It must not touch what is there.
    #[inline]
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
    #[inline]
    pub fn try_push_with<E>(
        &mut self,
        group: KeyGroup,
        key: &[u8],
        encode: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let rows = self.of_group(group);
        let key_start = rows.push_key(key);
        let value_start = rows.buffer.len();
        if let Err(error) = encode(&mut rows.buffer) {
            rows.buffer.truncate(key_start);
            return Err(error);
        }
        let end = rows.buffer.len();
        assert!(end >= value_start, "an encoder shortened the buffer of all rows");
        let value_bytes = u32::try_from(end - value_start).ok().filter(|&len| len != TOMBSTONE);
        rows.push_entry(key_start, key.len(), value_bytes.expect("a value is below 4 GiB"));
        self.count(end - key_start);
        Ok(())
    }

    /// Adds all rows of `other` after the own ones, so that they win.
    pub fn append(&mut self, other: Rows) {
        self.rows += other.rows;
        self.bytes += other.bytes;
        if self.groups.len() < other.groups.len() {
            self.groups.resize_with(other.groups.len(), GroupRows::default);
        }
        for (own, other) in self.groups.iter_mut().zip(other.groups) {
            own.append(other);
        }
    }

    /// Number of rows pushed.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether no row was pushed.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Bytes of keys and values held.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The rows by group, and in a group in the order in which they were pushed: group, key, and
    /// value unless removed.
    pub fn iter(&self) -> impl Iterator<Item = (KeyGroup, &[u8], Option<&[u8]>)> {
        (0..).zip(&self.groups).flat_map(|(group, rows)| {
            (0..rows.len()).map(move |row| (KeyGroup(group), rows.key(row), rows.value(row)))
        })
    }

    /// The rows of each group, in the order of groups.
    pub(super) fn into_groups(self) -> impl Iterator<Item = (KeyGroup, GroupRows)> {
        let groups = self.groups.into_iter().enumerate();
        groups.filter(|(_, rows)| !rows.entries.is_empty()).map(|(group, rows)| {
            (KeyGroup(u16::try_from(group).expect("groups are made by number")), rows)
        })
    }

    #[inline]
    fn of_group(&mut self, group: KeyGroup) -> &mut GroupRows {
        let group = usize::from(group.0);
        if group >= self.groups.len() {
            self.groups.resize_with(group + 1, GroupRows::default);
        }
        &mut self.groups[group]
    }

    #[inline]
    fn count(&mut self, bytes: usize) {
        self.rows += 1;
        self.bytes += bytes;
    }
}

impl GroupRows {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    #[inline]
    pub(super) fn key(&self, index: usize) -> &[u8] {
        let Entry { key_start, key_bytes, .. } = self.entries[index];
        &self.buffer[key_start..key_start + key_bytes as usize]
    }

    #[inline]
    pub(super) fn value(&self, index: usize) -> Option<&[u8]> {
        let Entry { key_start, key_bytes, value_bytes } = self.entries[index];
        let start = key_start + key_bytes as usize;
        (value_bytes != TOMBSTONE).then(|| &self.buffer[start..start + value_bytes as usize])
    }

    fn append(&mut self, other: GroupRows) {
        if self.entries.is_empty() {
            *self = other;
            return;
        }
        let shift = self.buffer.len();
        self.buffer.extend_from_slice(&other.buffer);
        let shifted = |entry: &Entry| Entry { key_start: entry.key_start + shift, ..*entry };
        self.entries.extend(other.entries.iter().map(shifted));
    }

    #[inline]
    fn push_key(&mut self, key: &[u8]) -> usize {
        let start = self.buffer.len();
        self.buffer.extend_from_slice(key);
        start
    }

    #[inline]
    fn push_entry(&mut self, key_start: usize, key_bytes: usize, value_bytes: u32) {
        let key_bytes = u32::try_from(key_bytes).expect("a key is below 4 GiB");
        self.entries.push(Entry { key_start, key_bytes, value_bytes });
    }
}
