//! From the bytes of a segment to its rows. Everything is checked once, when it is opened: length
//! and digest before anything is decoded, then who wrote it, then every row. After that, reading
//! cannot fail.

use std::ops::Range;
use std::sync::Arc;

use super::cursor::Cursor;
use super::{END, FORMAT, INDEX_ENTRY_BYTES, Identity, KEY_GROUPS_MAX, MAGIC, Row, TRAILER_BYTES};
use crate::ids::{Epoch, Generation, JobName, KeyGroup, OperatorId, Worker};
use crate::manifest::{self, damaged, digest_of};
use crate::{Error, Result};

/// A segment found intact. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SegmentBytes {
    bytes: Arc<Vec<u8>>,
    index: Arc<[Group]>,
    rows: u64,
}

/// Where the rows of one group lie.
#[derive(Clone, Copy, Debug)]
struct Group {
    group: KeyGroup,
    start: usize,
    end: usize,
    rows: u64,
}

impl SegmentBytes {
    /// Takes the bytes read from the object that `expected` names, after checking all of them.
    ///
    /// Fails with `Corrupt` if they are not what was written there by that operator of that job,
    /// with `Incompatible` if a newer version of the format wrote them.
    pub fn open(
        bytes: impl Into<Arc<Vec<u8>>>,
        expected: &manifest::Segment,
        job: &JobName,
        operator: &OperatorId,
    ) -> Result<Self> {
        let bytes = bytes.into();
        let identity = Identity {
            job: job.clone(),
            generation: expected.generation,
            epoch: expected.epoch,
            operator: operator.clone(),
            worker: expected.worker,
        };
        check_whole(&bytes, expected, &identity)?;
        let rows_at = check_header(&bytes, &expected.name, &identity)?;
        let (index, rows) = check_structure(&bytes, rows_at)
            .map_err(|found| damaged(&expected.name, "sorted rows and their index", found))?;
        if rows != expected.rows {
            return Err(damaged(&expected.name, format!("{} rows", expected.rows), rows));
        }
        Ok(SegmentBytes { bytes, index: index.into(), rows })
    }

    /// The rows of these groups, by group and key.
    pub fn rows(&self, groups: Range<u16>) -> RowsIn<'_> {
        let from = self.index.partition_point(|entry| entry.group.0 < groups.start);
        let to = self.index.partition_point(|entry| entry.group.0 < groups.end);
        let groups = &self.index[from..to.max(from)];
        RowsIn { bytes: &self.bytes, groups, left: 0, cursor: Cursor::new(&self.bytes, 0) }
    }

    /// The groups that have rows here, ascending, with the number of their rows.
    pub fn groups(&self) -> impl Iterator<Item = (KeyGroup, u64)> {
        self.index.iter().map(|entry| (entry.group, entry.rows))
    }

    /// Number of rows, tombstones included.
    pub fn len(&self) -> u64 {
        self.rows
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// The whole object.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// The rows of some groups of a segment; see [`SegmentBytes::rows`].
#[derive(Clone, Debug)]
pub struct RowsIn<'a> {
    bytes: &'a [u8],
    groups: &'a [Group],
    /// Rows of the first of `groups` that are still to come once it was entered.
    left: u64,
    cursor: Cursor<'a>,
}

impl<'a> Iterator for RowsIn<'a> {
    type Item = Row<'a>;

    fn next(&mut self) -> Option<Row<'a>> {
        let entry = self.groups.first()?;
        if self.left == 0 {
            self.left = entry.rows;
            self.cursor = Cursor::new(self.bytes, entry.start);
        }
        self.left -= 1;
        if self.left == 0 {
            self.groups = &self.groups[1..];
        }
        let (key, value) = self.cursor.row().expect("every row was read when it was opened");
        Some(Row { group: entry.group, key, value })
    }
}

/// Number of rows by the trailer, if there is one.
pub(super) fn row_count(bytes: &[u8]) -> Option<u64> {
    read_trailer(bytes).map(|(_, rows, _)| rows)
}

fn check_whole(bytes: &[u8], expected: &manifest::Segment, identity: &Identity) -> Result<()> {
    let name = &expected.name;
    if bytes.len() as u64 != expected.bytes {
        return Err(damaged(name, format!("{} bytes", expected.bytes), bytes.len()));
    }
    let digest = digest_of(bytes);
    if digest == expected.digest {
        return Ok(());
    }
    let found = match read_header(bytes) {
        Some((other, _)) if other != *identity => format!("{digest}, written by {other}"),
        _ => digest,
    };
    Err(damaged(name, format!("digest {}", expected.digest), found))
}

/// Gives where the rows begin.
fn check_header(bytes: &[u8], name: &str, identity: &Identity) -> Result<usize> {
    let mut cursor = Cursor::new(bytes, 0);
    if cursor.take(MAGIC.len()) != Some(MAGIC) {
        return Err(damaged(name, "a segment", "something else"));
    }
    match cursor.u16() {
        Some(version) if version > FORMAT => {
            return Err(Error::incompatible(format!(
                "object `{name}` was written by format {version} of segments, this library reads \
                 up to {FORMAT}; run the newer release"
            )));
        }
        _ => {}
    }
    let (found, rows_at) = read_header(bytes)
        .ok_or_else(|| damaged(name, "the header of a segment", "something else"))?;
    if found != *identity {
        return Err(damaged(name, format!("a segment of {identity}"), format!("one of {found}")));
    }
    Ok(rows_at)
}

fn read_header(bytes: &[u8]) -> Option<(Identity, usize)> {
    let mut cursor = Cursor::new(bytes, 0);
    if cursor.take(MAGIC.len())? != MAGIC || cursor.u16()? != FORMAT {
        return None;
    }
    let identity = Identity {
        job: JobName::new(cursor.text()?).ok()?,
        operator: OperatorId::new(cursor.text()?).ok()?,
        generation: Generation(cursor.u64()?),
        epoch: Epoch(cursor.u64()?),
        worker: Worker(cursor.u32()?),
    };
    Some((identity, cursor.at()))
}

/// Offset of the index, number of rows, number of groups.
fn read_trailer(bytes: &[u8]) -> Option<(usize, u64, usize)> {
    let mut cursor = Cursor::new(bytes, bytes.len().checked_sub(TRAILER_BYTES)?);
    let trailer = (cursor.u64()?, cursor.u64()?, cursor.u32()?);
    if cursor.take(END.len())? != END {
        return None;
    }
    Some((usize::try_from(trailer.0).ok()?, trailer.1, usize::try_from(trailer.2).ok()?))
}

/// Index and number of rows, or what is wrong. Nothing is allocated before the lengths that ask
/// for it are known to fit into the bytes at hand.
fn check_structure(bytes: &[u8], rows_at: usize) -> Result<(Vec<Group>, u64), &'static str> {
    let (index_at, rows, groups) = read_trailer(bytes).ok_or("no trailer")?;
    let index_bytes = groups.checked_mul(INDEX_ENTRY_BYTES).ok_or("an endless index")?;
    let index_end = index_at.checked_add(index_bytes).ok_or("an endless index")?;
    if index_at < rows_at || index_end != bytes.len() - TRAILER_BYTES {
        return Err("an index that does not fit");
    }
    let mut index = read_index(bytes, index_at, groups).ok_or("a cut index")?;
    let body = &bytes[..index_at];
    let mut at = rows_at;
    let mut total = 0u64;
    for entry in &mut index {
        if entry.start != at {
            return Err("a group that does not begin where the one before ends");
        }
        at = end_of_group(body, entry).ok_or("rows that are cut or not ascending")?;
        entry.end = at;
        total += entry.rows;
    }
    let ascending = index.windows(2).all(|pair| pair[0].group < pair[1].group);
    let exist = index.last().is_none_or(|entry| entry.group.0 < KEY_GROUPS_MAX);
    match at == index_at && total == rows && ascending && exist {
        true => Ok((index, rows)),
        false => Err("rows and index that do not agree"),
    }
}

fn read_index(bytes: &[u8], index_at: usize, groups: usize) -> Option<Vec<Group>> {
    let mut cursor = Cursor::new(bytes, index_at);
    let mut entry = || {
        let group = KeyGroup(cursor.u16()?);
        let start = usize::try_from(cursor.u64()?).ok()?;
        Some(Group { group, start, end: start, rows: cursor.u64()? })
    };
    (0..groups).map(|_| entry()).collect()
}

/// Reads all rows of a group, at least one.
fn end_of_group(body: &[u8], entry: &Group) -> Option<usize> {
    let mut cursor = Cursor::new(body, entry.start);
    let (mut last, _) = cursor.row()?;
    for _ in 1..entry.rows {
        let (key, _) = cursor.row()?;
        if key <= last {
            return None;
        }
        last = key;
    }
    (entry.rows > 0).then_some(cursor.at())
}
