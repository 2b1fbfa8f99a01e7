//! From rows to the bytes of a segment.

use super::cursor::{put_bytes, put_row};
use super::rows::GroupRows;
use super::{END, FORMAT, INDEX_ENTRY_BYTES, Identity, KEY_GROUPS_MAX, MAGIC, Row, Rows};
use crate::ids::KeyGroup;

/// The bytes of a segment of these rows: sorted, the last row pushed for a key only.
pub fn encode(rows: Rows, identity: &Identity) -> Vec<u8> {
    let mut writer = Writer::new(identity, rows.bytes() + 4 * rows.len());
    let mut order = Vec::new();
    for (group, rows) in rows.into_groups() {
        sort(&rows, &mut order);
        for (place, slot) in order.iter().enumerate() {
            let key = rows.key(slot.index as usize);
            let replaced =
                |next: &Slot| next.prefix == slot.prefix && rows.key(next.index as usize) == key;
            if !order.get(place + 1).is_some_and(replaced) {
                writer.row(Row { group, key, value: rows.value(slot.index as usize) });
            }
        }
    }
    writer.finish()
}

/// glibc takes the size of a freed mapping for what a program frees often, and from then on keeps as
/// much in each thread's arena for good, as it does with the bytes of one large segment. Mappings of
/// more than 32 MiB (`DEFAULT_MMAP_THRESHOLD_MAX` of malloc on 64 bits) are exempt. What is not
/// written of a mapping takes no memory.
const EXEMPT: usize = 33 << 20;

/// How much to reserve for so many bytes.
fn room(bytes: usize) -> usize {
    if bytes > 1 << 20 { bytes.max(EXEMPT) } else { bytes }
}

/// A row's place in the order of its group. The first bytes of its key that differ from those of
/// other keys stand here, since most comparisons end with them and need not touch the buffer.
struct Slot {
    prefix: u64,
    index: u32,
}

fn sort(rows: &GroupRows, order: &mut Vec<Slot>) {
    let shared = shared_bytes(rows);
    order.clear();
    order.extend((0..rows.len()).map(|index| {
        let prefix = prefix_of(&rows.key(index)[shared..]);
        let index = u32::try_from(index).expect("2^32 rows need 64 GiB for offsets alone");
        Slot { prefix, index }
    }));
    order.sort_unstable_by(|a, b| {
        a.prefix
            .cmp(&b.prefix)
            .then_with(|| rows.key(a.index as usize).cmp(rows.key(b.index as usize)))
            .then(a.index.cmp(&b.index))
    });
}

/// How many bytes all keys begin with.
fn shared_bytes(rows: &GroupRows) -> usize {
    let first = rows.key(0);
    (1..rows.len()).fold(first.len(), |shared, index| {
        let both = first[..shared].iter().zip(rows.key(index));
        both.take_while(|(a, b)| a == b).count()
    })
}

/// The first eight bytes, such that prefixes compare like keys; equal prefixes say nothing.
fn prefix_of(key: &[u8]) -> u64 {
    let mut first = [0; 8];
    let len = key.len().min(8);
    first[..len].copy_from_slice(&key[..len]);
    u64::from_be_bytes(first)
}

/// Writes rows that come in strictly ascending order.
pub(super) struct Writer {
    bytes: Vec<u8>,
    index: Vec<(KeyGroup, u64, u64)>,
    rows: u64,
}

impl Writer {
    pub(super) fn new(identity: &Identity, capacity: usize) -> Self {
        let mut bytes = Vec::with_capacity(room(capacity + 256));
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&FORMAT.to_le_bytes());
        put_bytes(&mut bytes, identity.job.as_str().as_bytes());
        put_bytes(&mut bytes, identity.operator.as_str().as_bytes());
        bytes.extend_from_slice(&identity.generation.0.to_le_bytes());
        bytes.extend_from_slice(&identity.epoch.0.to_le_bytes());
        bytes.extend_from_slice(&identity.worker.0.to_le_bytes());
        Writer { bytes, index: Vec::new(), rows: 0 }
    }

    pub(super) fn row(&mut self, row: Row<'_>) {
        assert!(row.group.0 < KEY_GROUPS_MAX, "key group {} does not exist", row.group);
        if self.index.last().is_none_or(|(group, ..)| *group != row.group) {
            self.index.push((row.group, self.bytes.len() as u64, 0));
        }
        let entry = self.index.last_mut().expect("an entry for this group was just made sure of");
        entry.2 += 1;
        self.rows += 1;
        put_row(&mut self.bytes, row.key, row.value);
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        let index_at = self.bytes.len() as u64;
        self.bytes.reserve(self.index.len() * INDEX_ENTRY_BYTES);
        for (group, offset, rows) in &self.index {
            self.bytes.extend_from_slice(&group.0.to_le_bytes());
            self.bytes.extend_from_slice(&offset.to_le_bytes());
            self.bytes.extend_from_slice(&rows.to_le_bytes());
        }
        let groups = u32::try_from(self.index.len()).expect("there are at most 65535 groups");
        self.bytes.extend_from_slice(&index_at.to_le_bytes());
        self.bytes.extend_from_slice(&self.rows.to_le_bytes());
        self.bytes.extend_from_slice(&groups.to_le_bytes());
        self.bytes.extend_from_slice(END);
        self.bytes
    }
}
