//! Small matters of one record: its line end, its lines, what is shown of it.

use isochrone_engine::connector::Malformed;

use super::RAW_BYTES_MAX;
use crate::format::{Framing, RecordEnd};

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
    let raw = raw[..raw.len().min(RAW_BYTES_MAX)].to_vec();
    Malformed { place, reason, raw, origin: Vec::new() }
}

/// Why a record is malformed that begins at a line and a byte with `unread`, of which more bytes than
/// the most are there. Often a closing quote is missing far above the place where that shows.
#[cold]
pub(super) fn too_long(
    bytes_max: usize,
    framing: Framing,
    at: (Option<u64>, u64),
    unread: &[u8],
) -> String {
    let text = format!("longer than {bytes_max} bytes, the most that a record may have here");
    let (mut end, head) = (RecordEnd::new(framing), &unread[..bytes_max]);
    end.find(head);
    match end.open_quote(head) {
        Some(quote) => format!(
            "{text}; its quoted field that begins {} may lack the closing quote",
            place_within(at, unread, quote)
        ),
        None => text,
    }
}

/// Where a byte of a record is that begins at a line and a byte.
pub(super) fn place_within(at: (Option<u64>, u64), record: &[u8], byte: usize) -> String {
    match at {
        (Some(line), _) => format!("in line {}", line + line_feeds(&record[..byte])),
        (None, offset) => format!("at byte {}", offset + byte as u64),
    }
}
