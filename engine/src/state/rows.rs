//! Changed rows of one operator on their way to a segment: flat bytes and where each row starts.
//!
//! Stand-in with the interface of the persistence crate's `segment::Rows`.

use isochrone_persistence::ids::KeyGroup;

/// Rows (key group, key, value or tombstone). Of several rows with one key the last counts.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    flat: Vec<u8>,
    starts: Vec<usize>,
}

/// Key group (2 bytes), length of the key (4 bytes), whether there is a value (1 byte).
const HEADER_BYTES: usize = 7;

impl Rows {
    /// Adds a row, or with `None` the tombstone of one.
    pub fn push(&mut self, group: KeyGroup, key: &[u8], value: Option<&[u8]>) {
        self.begin(group, key, value.is_some());
        self.flat.extend_from_slice(value.unwrap_or_default());
    }

    /// Adds a row whose value is encoded in place: `encode` appends it.
    pub fn push_with(&mut self, group: KeyGroup, key: &[u8], encode: impl FnOnce(&mut Vec<u8>)) {
        self.begin(group, key, true);
        encode(&mut self.flat);
    }

    fn begin(&mut self, group: KeyGroup, key: &[u8], live: bool) {
        self.starts.push(self.flat.len());
        self.flat.extend_from_slice(&group.0.to_le_bytes());
        let len = u32::try_from(key.len()).expect("a key is shorter than 4 GiB");
        self.flat.extend_from_slice(&len.to_le_bytes());
        self.flat.push(u8::from(live));
        self.flat.extend_from_slice(key);
    }

    /// How many rows were added.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Bytes of keys and values.
    pub fn bytes(&self) -> usize {
        self.flat.len() - self.starts.len() * HEADER_BYTES
    }

    /// The rows in the order they were added.
    pub fn iter(&self) -> impl Iterator<Item = (KeyGroup, &[u8], Option<&[u8]>)> {
        (0..self.starts.len()).map(|row| {
            let end = self.starts.get(row + 1).copied().unwrap_or(self.flat.len());
            let row = &self.flat[self.starts[row]..end];
            let group = KeyGroup(u16::from_le_bytes([row[0], row[1]]));
            let len = u32::from_le_bytes([row[2], row[3], row[4], row[5]]) as usize;
            let (key, value) = row[HEADER_BYTES..].split_at(len);
            (group, key, (row[6] == 1).then_some(value))
        })
    }
}
