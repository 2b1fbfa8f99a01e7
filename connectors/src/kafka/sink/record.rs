//! A record on its way out, as bytes in a part of the write-ahead.
//!
//! ```text
//! part   = magic record*
//! record = partition:u32 flags:u32 key:u32 value:u32 headers:u32 [time:i64] key value headers
//! header = name:u32 value:u32 name value
//! ```
//!
//! Numbers are little-endian, `key`, `value` and `headers` in the head are lengths; bits of `flags`
//! say whether key, value and time are there at all, since an empty value is not a missing one. A
//! header without a value has the length `u32::MAX`.

use std::ops::Range;

use isochrone_engine::{Error, Result};

pub(super) const MAGIC: &[u8; 8] = b"iso-out1";
const HEAD: usize = 20;
const HAS_KEY: u32 = 1;
const HAS_VALUE: u32 = 2;
const HAS_TIME: u32 = 4;
const NO_VALUE: u32 = u32::MAX;

/// Takes what a record shall be: value, key, headers, time, partition.
///
/// Each is set at most once; set again, the last one counts. What is not set: no key, no value (a
/// tombstone), no headers, the time of publication, and a partition by the key as Kafka's own
/// clients choose it, or one after the other without a key.
#[derive(Debug, Default)]
pub struct Draft {
    pub(super) key: Option<Range<usize>>,
    pub(super) value: Option<Range<usize>>,
    pub(super) time_ms: Option<i64>,
    pub(super) partition: Option<i32>,
    bytes: Vec<u8>,
    headers: Vec<u8>,
}

impl Draft {
    /// Sets the key.
    pub fn key(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        self.key = Some(self.append(key.as_ref()));
        self
    }

    /// Sets the value.
    pub fn value(&mut self, value: impl AsRef<[u8]>) -> &mut Self {
        self.value = Some(self.append(value.as_ref()));
        self
    }

    /// Adds a header; a name may be there several times.
    pub fn header(&mut self, name: &str, value: Option<&[u8]>) -> &mut Self {
        let value_len = value.map_or(NO_VALUE, length);
        self.headers.extend(length(name.as_bytes()).to_le_bytes());
        self.headers.extend(value_len.to_le_bytes());
        self.headers.extend(name.as_bytes());
        self.headers.extend(value.unwrap_or_default());
        self
    }

    /// Sets the time of the record, in milliseconds since 1970.
    pub fn time_ms(&mut self, time_ms: i64) -> &mut Self {
        self.time_ms = Some(time_ms);
        self
    }

    /// Sets the partition.
    pub fn partition(&mut self, partition: i32) -> &mut Self {
        self.partition = Some(partition);
        self
    }

    /// Encodes the value in place.
    pub(super) fn value_with<E>(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let start = self.bytes.len();
        write(&mut self.bytes)?;
        self.value = Some(start..self.bytes.len());
        Ok(())
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.headers.clear();
        (self.key, self.value) = (None, None);
        (self.time_ms, self.partition) = (None, None);
    }

    pub(super) fn key_bytes(&self) -> Option<&[u8]> {
        self.key.clone().map(|range| &self.bytes[range])
    }

    pub(super) fn value_bytes(&self) -> Option<&[u8]> {
        self.value.clone().map(|range| &self.bytes[range])
    }

    /// About what the record takes in a broker's batch, in bytes.
    pub(super) fn size(&self) -> usize {
        let of = |range: &Option<Range<usize>>| range.as_ref().map_or(0, Range::len);
        of(&self.key) + of(&self.value) + self.headers.len()
    }

    /// Appends the record to a part.
    pub(super) fn write(&self, partition: i32, part: &mut Vec<u8>) {
        let (key, value) = (self.key_bytes(), self.value_bytes());
        let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
        let flags = flag(key.is_some(), HAS_KEY)
            | flag(value.is_some(), HAS_VALUE)
            | flag(self.time_ms.is_some(), HAS_TIME);
        let (key, value) = (key.unwrap_or_default(), value.unwrap_or_default());
        let lengths = [length(key), length(value), length(&self.headers)];
        part.extend(partition.to_le_bytes());
        part.extend(flags.to_le_bytes());
        lengths.iter().for_each(|length| part.extend(length.to_le_bytes()));
        part.extend(self.time_ms.iter().flat_map(|time| time.to_le_bytes()));
        part.extend(key);
        part.extend(value);
        part.extend(&self.headers);
    }

    fn append(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend(bytes);
        start..self.bytes.len()
    }
}

/// A record in a part: where its pieces lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) partition: i32,
    pub(super) time_ms: Option<i64>,
    pub(super) key: Option<Range<usize>>,
    pub(super) value: Option<Range<usize>>,
    pub(super) headers: Range<usize>,
}

impl Place {
    /// Reads the record at `at`, and where the next one begins. Fails with `Corrupt`.
    #[inline]
    pub(super) fn read(part: &[u8], at: usize) -> Result<(Place, usize)> {
        let ruined = || Error::corrupt(format!("output in the write-ahead ends in byte {at}"));
        let head = part.get(at..at + HEAD).ok_or_else(ruined)?;
        let word = |n: usize| {
            u32::from_le_bytes(head[4 * n..4 * n + 4].try_into().expect("a slice of four bytes"))
        };
        let flags = word(1);
        let mut next = at + HEAD;
        let mut piece = |length: u32| {
            let start = next;
            next += length as usize;
            start..next
        };
        let time = piece(if flags & HAS_TIME != 0 { 8 } else { 0 });
        let (key, value, headers) = (piece(word(2)), piece(word(3)), piece(word(4)));
        if next > part.len() {
            return Err(ruined());
        }
        let time_ms = part[time].try_into().ok().map(i64::from_le_bytes);
        let place = Place {
            partition: word(0).cast_signed(),
            time_ms,
            key: (flags & HAS_KEY != 0).then_some(key),
            value: (flags & HAS_VALUE != 0).then_some(value),
            headers,
        };
        Ok((place, next))
    }
}

/// Encoded headers.
#[derive(Clone, Copy)]
pub(super) struct Headers<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Headers<'a> {
    type Item = (&'a str, Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        let (lengths, rest) = self.0.split_at_checked(8)?;
        let length = |n: usize| {
            u32::from_le_bytes(lengths[n..n + 4].try_into().expect("a slice of four bytes"))
        };
        let (name, rest) = rest.split_at_checked(length(0) as usize)?;
        let value_len = Some(length(4)).filter(|length| *length != NO_VALUE);
        let (value, rest) = rest.split_at_checked(value_len.unwrap_or(0) as usize)?;
        self.0 = rest;
        Some((std::str::from_utf8(name).ok()?, value_len.map(|_| value)))
    }
}

/// Lengths fit: a broker takes no record of 2 GiB, and the writer refuses what a broker does not.
fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_as_they_were_written() {
        let mut part = MAGIC.to_vec();
        let mut draft = Draft::default();
        draft.key("k").value("v").time_ms(-5).header("h", None).header("h", Some(b"x"));
        draft.write(3, &mut part);
        draft.clear();
        draft.value("");
        draft.write(0, &mut part);
        draft.clear();
        draft.key("");
        draft.write(1, &mut part);
        let (first, next) = Place::read(&part, MAGIC.len()).unwrap();
        assert_eq!((first.partition, first.time_ms), (3, Some(-5)));
        assert_eq!(&part[first.key.unwrap()], b"k");
        assert_eq!(&part[first.value.unwrap()], b"v");
        let headers: Vec<_> = Headers(&part[first.headers]).collect();
        assert_eq!(headers, [("h", None), ("h", Some(b"x".as_slice()))]);
        let (second, next) = Place::read(&part, next).unwrap();
        assert_eq!((second.key, second.value.map(|value| value.len())), (None, Some(0)));
        let (third, next) = Place::read(&part, next).unwrap();
        assert_eq!((third.key.map(|key| key.len()), third.value), (Some(0), None));
        assert_eq!(next, part.len());
    }

    #[test]
    fn a_part_that_is_cut_off_is_refused() {
        let mut part = MAGIC.to_vec();
        let mut draft = Draft::default();
        draft.key("key").value("value").time_ms(1);
        draft.write(0, &mut part);
        for length in MAGIC.len()..part.len() {
            assert!(Place::read(&part[..length], MAGIC.len()).is_err(), "{length} bytes");
        }
    }
}
