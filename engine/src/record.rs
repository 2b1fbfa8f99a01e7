//! What may flow and what may be a key; the encoding of keys, its stable hash, and who owns a key.
//!
//! A key's hash and key group depend on its *encoded bytes* only: the same on every machine, in
//! every release, whatever `std` does. Encoding: bincode 2, `config::standard()` (little endian,
//! variable-length integers). See `docs/format.md`.
//!
//! # The hash `fold64`
//!
//! `fold(a, b)` is the 128-bit product of `a` and `b`, its upper half xored with its lower half.
//! The bytes are read as little-endian 64-bit words, the last one padded with zeroes:
//!
//! ```text
//! h = 0x9e3779b97f4a7c15
//! for each word w:  h = fold(h ^ w, 0xa0761d6478bd642f)
//! hash = fold(h ^ number of bytes, 0xe7037ed1a0b428db)
//! ```
//!
//! Bits 32 to 47 choose the key group (modulo the number of groups), so that the bits a hash table
//! uses, the lowest and the seven highest, stay independent of the group.

use std::hash::Hash;
use std::ops::Range;

use isochrone_persistence::ids::{KeyGroup, Worker};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The name of the hash and its routing, for the manifest: another name is another placement.
pub const KEY_HASH: &str = "fold64-32..48";

/// How many key groups a job has unless it says otherwise.
pub const KEY_GROUPS: u16 = 128;

const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
const WORD: u64 = 0xa076_1d64_78bd_642f;
const LAST: u64 = 0xe703_7ed1_a0b4_28db;

/// Anything that can flow along a stream.
pub trait Record: Clone + Send + Serialize + DeserializeOwned + 'static {}
impl<T: Clone + Send + Serialize + DeserializeOwned + 'static> Record for T {}

/// Anything that can be a key: equal keys must encode to equal bytes.
pub trait Key: Record + Eq + Hash {}
impl<T: Record + Eq + Hash> Key for T {}

/// The hash of a key's encoded bytes: computed once per record, carried along, used for the route,
/// the key group and the table.
///
/// ```
/// use isochrone_engine::record::{KeyHash, hash_of};
/// assert_eq!(hash_of(&7_u64), KeyHash::of_bytes(&[7]));
/// assert_eq!(hash_of("ab"), KeyHash::of_bytes(b"\x02ab"));
/// ```
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct KeyHash(pub u64);

impl KeyHash {
    /// The hash of bytes that a key was encoded to.
    #[inline]
    pub fn of_bytes(bytes: &[u8]) -> KeyHash {
        let mut hasher = Hasher::default();
        hasher.absorb(bytes);
        hasher.finish()
    }
}

/// Hashes bytes as the codec gives them, in registers. Never through memory: reading a word back
/// that was stored byte by byte waits for all stores before it, those to cold table places too,
/// and made an update of a large table five times slower.
struct Hasher {
    hash: u64,
    /// Bytes not hashed yet, the first in the lowest place.
    word: u64,
    filled: u32,
    len: u64,
}

impl Default for Hasher {
    #[inline]
    fn default() -> Self {
        Hasher { hash: SEED, word: 0, filled: 0, len: 0 }
    }
}

impl Hasher {
    #[inline(always)]
    fn absorb(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some((word, tail)) = rest.split_first_chunk::<8>() {
            self.push(u64::from_le_bytes(*word), 8);
            rest = tail;
        }
        match *rest {
            [] => {}
            [a] => self.push(u64::from(a), 1),
            [a, b] => self.push(u64::from(u16::from_le_bytes([a, b])), 2),
            [a, b, c, d] => self.push(u64::from(u32::from_le_bytes([a, b, c, d])), 4),
            _ => rest.iter().for_each(|&byte| self.push(u64::from(byte), 1)),
        }
    }

    /// Takes 1 to 8 bytes.
    #[inline(always)]
    fn push(&mut self, bytes: u64, count: u32) {
        self.len += u64::from(count);
        self.word |= bytes << (8 * self.filled);
        self.filled += count;
        if self.filled >= 8 {
            self.hash = fold(self.hash ^ self.word, WORD);
            self.filled -= 8;
            let taken = count - self.filled;
            self.word = if self.filled == 0 { 0 } else { bytes >> (8 * taken) };
        }
    }

    #[inline]
    fn finish(self) -> KeyHash {
        let hash = if self.filled == 0 { self.hash } else { fold(self.hash ^ self.word, WORD) };
        KeyHash(fold(hash ^ self.len, LAST))
    }
}

impl bincode::enc::write::Writer for Hasher {
    #[inline(always)]
    fn write(&mut self, bytes: &[u8]) -> Result<(), bincode::error::EncodeError> {
        self.absorb(bytes);
        Ok(())
    }
}

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

/// The hash of a key: that of its encoded bytes, which are not kept.
///
/// # Panics
/// If the key's `Serialize` fails: such a type cannot be a key.
#[inline]
pub fn hash_of<K: Serialize + ?Sized>(key: &K) -> KeyHash {
    let mut hasher = Hasher::default();
    bincode::serde::encode_into_writer(key, &mut hasher, bincode::config::standard())
        .expect("a key encodes: its Serialize neither fails nor hides lengths");
    hasher.finish()
}

/// Whether a key encodes to exactly these bytes.
///
/// # Panics
/// If the key's `Serialize` fails: such a type cannot be a key.
///
/// ```
/// use isochrone_engine::record::encodes_to;
/// assert!(encodes_to("ab", b"\x02ab"));
/// assert!(!encodes_to("ab", b"\x02ac") && !encodes_to("ab", b"\x02abc"));
/// ```
#[inline]
pub fn encodes_to<K: Serialize + ?Sized>(key: &K, bytes: &[u8]) -> bool {
    let mut comparison = Comparison { rest: bytes, equal: true };
    bincode::serde::encode_into_writer(key, &mut comparison, bincode::config::standard())
        .expect("a key encodes: its Serialize neither fails nor hides lengths");
    comparison.equal && comparison.rest.is_empty()
}

/// Compares bytes as the codec gives them; not through memory, for the same reason as [`Hasher`].
struct Comparison<'a> {
    rest: &'a [u8],
    equal: bool,
}

impl bincode::enc::write::Writer for Comparison<'_> {
    #[inline(always)]
    fn write(&mut self, bytes: &[u8]) -> Result<(), bincode::error::EncodeError> {
        match self.rest.split_at_checked(bytes.len()) {
            Some((these, rest)) => {
                self.equal &= these == bytes;
                self.rest = rest;
            }
            None => self.equal = false,
        }
        Ok(())
    }
}

const INLINE_BYTES: usize = 32;

/// A place to encode one key after another. Integers and short strings, tuples and structs need no
/// memory beyond the buffer itself; longer keys use one allocation for the life of the buffer.
///
/// ```
/// use isochrone_engine::record::KeyBuffer;
/// let mut buffer = KeyBuffer::default();
/// assert_eq!(buffer.encode(&300_u32), [251, 44, 1]);
/// assert_eq!(buffer.encode("a"), [1, b'a']);
/// ```
#[derive(Clone, Debug)]
pub struct KeyBuffer {
    inline: [u8; INLINE_BYTES],
    len: usize,
    long: Vec<u8>,
}

impl Default for KeyBuffer {
    #[inline]
    fn default() -> Self {
        KeyBuffer { inline: [0; INLINE_BYTES], len: 0, long: Vec::new() }
    }
}

impl KeyBuffer {
    /// Encodes a key and lends its bytes until the next call.
    ///
    /// # Panics
    /// If the key's `Serialize` fails: such a type cannot be a key.
    #[inline]
    pub fn encode<K: Serialize + ?Sized>(&mut self, key: &K) -> &[u8] {
        self.len = 0;
        bincode::serde::encode_into_writer(key, &mut *self, bincode::config::standard())
            .expect("a key encodes: its Serialize neither fails nor hides lengths");
        self.bytes()
    }

    /// The bytes of the key encoded last.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        if self.len <= INLINE_BYTES { &self.inline[..self.len] } else { &self.long[..self.len] }
    }
}

impl bincode::enc::write::Writer for KeyBuffer {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> Result<(), bincode::error::EncodeError> {
        let end = self.len + bytes.len();
        if end <= INLINE_BYTES {
            self.inline[self.len..end].copy_from_slice(bytes);
        } else {
            self.write_long(bytes);
        }
        self.len = end;
        Ok(())
    }
}

impl KeyBuffer {
    #[cold]
    fn write_long(&mut self, bytes: &[u8]) {
        if self.len <= INLINE_BYTES {
            self.long.clear();
            self.long.extend_from_slice(&self.inline[..self.len]);
        }
        self.long.extend_from_slice(bytes);
    }
}

/// The key group of a hash, of so many.
///
/// # Panics
/// If there are no groups.
#[inline]
pub fn group_of(hash: KeyHash, groups: u16) -> KeyGroup {
    let bits = (hash.0 >> 32) as u16;
    // The same without a division.
    KeyGroup(if groups.is_power_of_two() { bits & (groups - 1) } else { bits % groups })
}

/// The worker that owns a key group: contiguous ranges, as even as they can be.
///
/// # Panics
/// If there are no workers, or the group is not one of `groups`.
pub fn owner(group: KeyGroup, groups: u16, workers: u32) -> Worker {
    assert!(group.0 < groups, "key group {group} of {groups}");
    let worker = u64::from(group.0) * u64::from(workers) / u64::from(groups);
    Worker(u32::try_from(worker).expect("below the number of workers, which is a u32"))
}

/// The key groups that a worker owns: those whose [`owner`] it is. Empty for some when there are
/// more workers than groups.
///
/// ```
/// use isochrone_engine::record::groups_of;
/// use isochrone_persistence::ids::Worker;
/// assert_eq!(groups_of(Worker(0), 128, 3), 0..43);
/// assert_eq!(groups_of(Worker(2), 128, 3), 86..128);
/// ```
pub fn groups_of(worker: Worker, groups: u16, workers: u32) -> Range<u16> {
    let first = |worker: u64| {
        let group = (worker * u64::from(groups)).div_ceil(u64::from(workers));
        u16::try_from(group).expect("at most the number of groups, which is a u16")
    };
    let worker = u64::from(worker.0);
    first(worker)..first(worker + 1)
}

#[cfg(test)]
mod tests;
