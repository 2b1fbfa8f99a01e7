//! What comes before the records of a file: a byte-order mark, empty lines, a header.

use isochrone_engine::{Error, Result};

use super::blocks::Blocks;
use super::record::{count_lines, without_carriage_return};
use crate::format::RecordEnd;

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// Passes over a mark at the start of the file; `false` if more bytes are needed to know.
pub(super) fn pass_byte_order_mark(blocks: &mut Blocks) -> bool {
    if blocks.offset() > 0 {
        return true;
    }
    let unread = blocks.unread();
    if unread.starts_with(BYTE_ORDER_MARK) {
        blocks.consume(BYTE_ORDER_MARK.len());
        return true;
    }
    !BYTE_ORDER_MARK.starts_with(unread)
}

/// Takes the header, if it is all there. `at_end` says that the file ends with the unread bytes.
pub(super) fn take_header(
    blocks: &mut Blocks,
    end: &mut RecordEnd,
    line: &mut Option<u64>,
    record_bytes_max: usize,
    at_end: bool,
) -> Result<Option<String>> {
    loop {
        let unread = blocks.unread();
        let (bytes, consumed) = match end.find(unread) {
            Some(at) => (at, at + 1),
            None if at_end && !unread.is_empty() => (unread.len(), unread.len()),
            None => (unread.len(), 0),
        };
        if bytes > record_bytes_max {
            return Err(Error::invalid(format!(
                "input `{}` has a header of more than {record_bytes_max} bytes",
                blocks.path()
            )));
        }
        if consumed == 0 {
            return Ok(None);
        }
        let header = without_carriage_return(&unread[..bytes]);
        let text = std::str::from_utf8(header).map(str::to_owned).map_err(|error| {
            let path = blocks.path();
            Error::invalid(format!("input `{path}` has a header that is not UTF-8; write it so"))
                .with_source(error)
        })?;
        count_lines(line, end, &unread[..consumed]);
        blocks.consume(consumed);
        end.reset();
        if !text.is_empty() {
            return Ok(Some(text));
        }
    }
}
