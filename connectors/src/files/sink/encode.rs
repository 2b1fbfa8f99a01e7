//! Records to bytes, straight into the buffer that is written to disk. Knows no file.

use isochrone_engine::{Error, Result};
use serde::Serialize;

/// When a buffer is written out.
pub(super) const BUFFER_BYTES: usize = 256 * 1024;

/// Formats records; one call per buffer, so that the choice of format costs nothing per record.
///
/// Contract: takes items in order until `out` holds [`BUFFER_BYTES`] or more, and returns how
/// many it took: at least one of a non-empty slice if `out` was not full.
pub(super) trait Encode<T>: 'static {
    /// Appends what a part begins with and forgets the part before.
    fn begin(&mut self, _first: &T, _out: &mut Vec<u8>) -> Result<()> {
        Ok(())
    }

    /// Appends items.
    fn encode(&mut self, items: &[T], out: &mut Vec<u8>) -> Result<usize>;
}

/// Calls `one` per item until the buffer is full; inlined into each encoder.
#[inline]
pub(super) fn until_full<T>(
    items: &[T],
    out: &mut Vec<u8>,
    mut one: impl FnMut(&T, &mut Vec<u8>) -> Result<()>,
) -> Result<usize> {
    for (taken, item) in items.iter().enumerate() {
        if out.len() >= BUFFER_BYTES {
            return Ok(taken);
        }
        one(item, out)?;
    }
    Ok(items.len())
}

/// JSON lines.
pub(super) struct Json;

impl<T: Serialize> Encode<T> for Json {
    fn encode(&mut self, items: &[T], out: &mut Vec<u8>) -> Result<usize> {
        until_full(items, out, json_line)
    }
}

/// Appends `item` as a line of JSON.
#[inline]
pub(crate) fn json_line<T: Serialize>(item: &T, out: &mut Vec<u8>) -> Result<()> {
    serde_json::to_writer(&mut *out, item).map_err(|e| {
        let name = std::any::type_name::<T>();
        Error::invalid(format!("a `{name}` cannot be written as JSON")).with_source(e)
    })?;
    out.push(b'\n');
    Ok(())
}

/// Lines of text.
pub(super) struct Text;

impl<T: AsRef<str>> Encode<T> for Text {
    fn encode(&mut self, items: &[T], out: &mut Vec<u8>) -> Result<usize> {
        until_full(items, out, text_line)
    }
}

/// Appends `item` as a line of text.
#[inline]
pub(crate) fn text_line<T: AsRef<str>>(item: &T, out: &mut Vec<u8>) -> Result<()> {
    out.extend_from_slice(item.as_ref().as_bytes());
    out.push(b'\n');
    Ok(())
}
