//! What an operator keeps for one key, and how it becomes rows.
//!
//! # Row keys
//!
//! ```text
//! row key = length of the encoded key (LEB128) | encoded key | encoded subkey
//! ```
//!
//! A plain value has the empty subkey; each entry of a map has its own. So any row tells which key
//! it belongs to without knowing a type, and the rows of one key lie together when sorted.

use isochrone_persistence::ids::{KeyGroup, StateVersion};

use crate::state::rows::Rows;
use crate::state::shape::Shape;
use crate::time::EventTime;
use crate::{Error, Result};

/// What an operator keeps for one key.
///
/// - Between two calls of `save` a slot knows by itself which of its rows changed, if it has
///   several; that something changed at all is the keyspace's knowledge.
/// - `save` is called only after a change, and never for a vacant slot that has no rows stored.
/// - Rows that `save` wrote since the beginning, the last of each row key, give `load` the same
///   slot, in any order.
pub trait Slot: Default + 'static {
    /// Version of the user's types in here, for the manifest.
    const VERSION: u16;

    /// Fingerprint of the user's types in here, for the manifest.
    fn shape() -> Shape;

    /// Whether there is nothing to keep: the same as a key never seen.
    fn is_vacant(&self) -> bool;

    /// Writes the changed rows, tombstones for those that are gone, and takes them as stored.
    /// `key` is the row key with the empty subkey: the row itself, or what entries append to.
    ///
    /// # Panics
    /// If a user's `Serialize` fails.
    fn save(&mut self, group: KeyGroup, key: &[u8], rows: &mut Rows);

    /// Takes a row back, written by code whose [`VERSION`](Slot::VERSION) was `from`.
    fn load(&mut self, from: StateVersion, subkey: &[u8], value: &[u8]) -> Result<()>;

    /// Forgets everything; the next `save` writes what that means.
    fn clear(&mut self) {
        *self = Self::default();
    }

    /// The event times at which this key wants to be woken.
    fn timers(&self) -> &[EventTime] {
        &[]
    }
}

/// The row key with the empty subkey: the encoded key with its length before it.
pub fn row_key_of(key: &[u8], row_key: &mut Vec<u8>) {
    row_key.clear();
    let mut len = key.len();
    while len >= 0x80 {
        row_key.push(len as u8 | 0x80);
        len >>= 7;
    }
    row_key.push(len as u8);
    row_key.extend_from_slice(key);
}

/// Splits a row key into encoded key and encoded subkey. Fails with `Corrupt` if it is cut short.
///
/// ```
/// use isochrone_engine::state::slot::split_row_key;
/// assert_eq!(split_row_key(&[2, 8, 9, 5]).unwrap(), (&[8, 9][..], &[5][..]));
/// ```
pub fn split_row_key(row_key: &[u8]) -> Result<(&[u8], &[u8])> {
    let cut = || Error::corrupt(format!("row key of {} bytes is cut short", row_key.len()));
    let mut len = 0_usize;
    for (place, byte) in row_key.iter().enumerate().take(4) {
        len |= usize::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return row_key[place + 1..].split_at_checked(len).ok_or_else(cut);
        }
    }
    Err(cut())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_keys_split_into_what_they_were_made_of_at_every_length() {
        for len in [0, 1, 2, 127, 128, 129, 300, 16_384, 70_000] {
            let (key, mut row_key) = (vec![0xfe; len], Vec::new());
            row_key_of(&key, &mut row_key);
            assert_eq!(split_row_key(&row_key).unwrap(), (&key[..], &[][..]));
            row_key.extend_from_slice(b"sub");
            assert_eq!(split_row_key(&row_key).unwrap(), (&key[..], &b"sub"[..]));
        }
    }

    #[test]
    fn row_keys_cut_short_are_corrupt() {
        for bytes in [&[][..], &[1], &[0x80], &[5, 1, 2], &[0xff, 0xff, 0xff, 0xff, 0xff, 1]] {
            assert_eq!(split_row_key(bytes).unwrap_err().kind(), crate::ErrorKind::Corrupt);
        }
    }
}
