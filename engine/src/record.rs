//! What may flow and what may be a key; the encoding of keys and its stable hash.
//!
//! A key's hash and key group depend on its *encoded bytes* only: the same on every machine, in
//! every release, whatever `std` does. Encoding: bincode 2, `config::standard()` (little endian,
//! variable-length integers). See `docs/format.md`.

use std::hash::Hash;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Anything that can flow along a stream.
pub trait Record: Clone + Send + Serialize + DeserializeOwned + 'static {}
impl<T: Clone + Send + Serialize + DeserializeOwned + 'static> Record for T {}

/// Anything that can be a key: equal keys must encode to equal bytes.
pub trait Key: Record + Eq + Hash {}
impl<T: Record + Eq + Hash> Key for T {}
