//! Small matters of one record: its line end, its lines, what is shown of it.

use isochrone_engine::connector::Malformed;

use super::RAW_BYTES_MAX;
use crate::format::RecordEnd;

/// A record without the first half of its line end.
#[inline]
pub(super) fn without_carriage_return(record: &[u8]) -> &[u8] {
    record.strip_suffix(b"\r").unwrap_or(record)
}

/// Counts the line feeds of a whole record.
#[inline]
pub(super) fn count_lines(line: &mut Option<u64>, end: &RecordEnd, record: &[u8]) {
    if let Some(line) = line {
        *line += if end.has_quotes() { line_feeds(record) } else { 1 };
    }
}

pub(super) fn line_feeds(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}

/// `a.csv, line 7, byte 120`: bytes are counted from 0, as `tail -c +121` finds them.
pub(super) fn place(path: &str, line: Option<u64>, offset: u64) -> String {
    match line {
        Some(line) => format!("{path}, line {line}, byte {offset}"),
        None => format!("{path}, byte {offset}"),
    }
}

#[cold]
pub(super) fn malformed(place: String, reason: String, raw: &[u8]) -> Malformed {
    Malformed { place, reason, raw: raw[..raw.len().min(RAW_BYTES_MAX)].to_vec() }
}

pub(super) fn too_long(record_bytes_max: usize) -> String {
    format!("longer than {record_bytes_max} bytes, the most that a record may have here")
}
