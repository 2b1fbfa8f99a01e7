//! Several segments as one: for each key the newest row.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::ops::Range;

use super::writer::Writer;
use super::{Identity, KEY_GROUPS_MAX, Row, RowsIn, SegmentBytes};
use crate::ids::KeyGroup;

/// What becomes of the rows that say "removed".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tombstones {
    /// They are given: older segments, not merged here, may hold the key.
    Keep,
    /// They are left out: there is no older segment.
    Drop,
}

/// For each key of these groups its row in the newest segment that has one, by group and key.
///
/// ```
/// # use isochrone_persistence::{ids::*, segment::*};
/// # let identity = Identity {
/// #     job: JobName::new("risk")?, generation: Generation(1), epoch: Epoch(3),
/// #     operator: OperatorId::new("count")?, worker: Worker(0),
/// # };
/// # let segment = |rows: &[(&[u8], Option<&[u8]>)]| {
/// #     let mut buffer = Rows::new();
/// #     rows.iter().for_each(|(key, value)| buffer.push(KeyGroup(0), key, *value));
/// #     let bytes = encode(buffer, &identity);
/// #     let expected = reference("risk/d/example", &bytes, &identity);
/// #     SegmentBytes::open(bytes, &expected, &identity.job, &identity.operator)
/// # };
/// let older = segment(&[(b"alice", Some(b"1")), (b"bob", Some(b"1"))])?;
/// let newer = segment(&[(b"alice", Some(b"2")), (b"bob", None)])?;
/// let segments = [older, newer];
/// let rows: Vec<_> = newest_wins(&segments, 0..128, Tombstones::Drop).collect();
/// assert_eq!(rows.len(), 1);
/// assert_eq!(rows[0].value, Some(&b"2"[..]));
/// # Ok::<(), isochrone_persistence::Error>(())
/// ```
pub fn newest_wins(
    segments_oldest_first: &[SegmentBytes],
    groups: Range<u16>,
    tombstones: Tombstones,
) -> impl Iterator<Item = Row<'_>> {
    let heads = segments_oldest_first
        .iter()
        .enumerate()
        .filter_map(|(age, segment)| Head::start(age, segment.rows(groups.clone())))
        .collect();
    Merge { heads, last: None }
        .filter(move |row| tombstones == Tombstones::Keep || row.value.is_some())
}

/// One segment that holds what [`newest_wins`] gives for all groups.
pub fn merge(
    segments_oldest_first: &[SegmentBytes],
    identity: &Identity,
    tombstones: Tombstones,
) -> Vec<u8> {
    let largest = segments_oldest_first.iter().map(|segment| segment.as_bytes().len()).max();
    let mut writer = Writer::new(identity, largest.unwrap_or(0));
    newest_wins(segments_oldest_first, 0..KEY_GROUPS_MAX, tombstones)
        .for_each(|row| writer.row(row));
    writer.finish()
}

struct Merge<'a> {
    heads: BinaryHeap<Head<'a>>,
    last: Option<(KeyGroup, &'a [u8])>,
}

impl<'a> Iterator for Merge<'a> {
    type Item = Row<'a>;

    fn next(&mut self) -> Option<Row<'a>> {
        loop {
            let row = self.pop()?;
            let place = (row.group, row.key);
            if self.last != Some(place) {
                self.last = Some(place);
                return Some(row);
            }
        }
    }
}

impl<'a> Merge<'a> {
    fn pop(&mut self) -> Option<Row<'a>> {
        let mut head = self.heads.peek_mut()?;
        let row = head.row;
        match head.rest.next() {
            Some(next) => head.row = next,
            None => {
                PeekMut::pop(head);
            }
        }
        Some(row)
    }
}

/// The next row of a segment and those after it. The greatest head is the row that comes first;
/// of the same key, that of the newest segment.
struct Head<'a> {
    row: Row<'a>,
    age: usize,
    rest: RowsIn<'a>,
}

impl<'a> Head<'a> {
    fn start(age: usize, mut rest: RowsIn<'a>) -> Option<Self> {
        rest.next().map(|row| Head { row, age, rest })
    }
}

impl Ord for Head<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        Reverse((self.row.group, self.row.key))
            .cmp(&Reverse((other.row.group, other.row.key)))
            .then(self.age.cmp(&other.age))
    }
}

impl PartialOrd for Head<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Head<'_> {}
