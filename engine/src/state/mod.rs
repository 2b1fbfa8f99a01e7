//! State of keyed operators: types, encoding, and the table of keys.
//!
//! Knows keys, values and rows of bytes. Knows neither timely nor threads nor clocks nor a store.

pub mod codec;
pub mod keyspace;
pub mod rows;
pub mod shape;
pub mod slot;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Error, Result};

/// What an operator keeps for each key. A key whose state equals the default is not stored.
///
/// Change [`VERSION`](State::VERSION) whenever a field is added, removed, moved or retyped, and
/// say in [`upgrade`](State::upgrade) how older bytes become the new type:
///
/// ```
/// use isochrone_engine::state::State;
/// use isochrone_engine::state::codec::{decode, encode};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct ExposureV1 { cents: i64 }
///
/// #[derive(Default, Debug, PartialEq, Serialize, Deserialize)]
/// struct Exposure { cents: i64, transfers: u64 }
///
/// impl State for Exposure {
///     const VERSION: u16 = 2;
///     fn upgrade(from: u16, bytes: &[u8]) -> isochrone_engine::Result<Self> {
///         match from {
///             1 => decode::<ExposureV1>(bytes).map(|old| Exposure { cents: old.cents, transfers: 0 }),
///             other => Err(isochrone_engine::state::no_upgrade::<Self>(other)),
///         }
///     }
/// }
///
/// let old = encode(&ExposureV1 { cents: 5 }).unwrap();
/// assert_eq!(Exposure::upgrade(1, &old).unwrap(), Exposure { cents: 5, transfers: 0 });
/// ```
pub trait State: Default + PartialEq + Serialize + DeserializeOwned + 'static {
    /// Number of this form of the type.
    const VERSION: u16;

    /// Makes a value of bytes that version `from` wrote. Fails with `Incompatible` unless written.
    fn upgrade(from: u16, bytes: &[u8]) -> Result<Self> {
        let _ = bytes;
        Err(no_upgrade::<Self>(from))
    }
}

/// The error of a [`State::upgrade`] that does not know a version.
pub fn no_upgrade<S: State>(from: u16) -> Error {
    let (name, version) = (std::any::type_name::<S>(), S::VERSION);
    Error::incompatible(format!(
        "state was written as version {from} and `{name}` is version {version} without an \
         upgrade from it; write `State::upgrade`"
    ))
}

/// Decodes state that version `from` of its type wrote.
pub(crate) fn decode_state<S: State>(from: u16, bytes: &[u8]) -> Result<S> {
    if from == S::VERSION { codec::decode(bytes) } else { S::upgrade(from, bytes) }
}

macro_rules! plain_state {
    ($($type:ty)*) => { $(impl State for $type { const VERSION: u16 = 1; })* };
}
plain_state!(u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 usize isize f32 f64 bool char String);

impl<A: State, B: State> State for (A, B) {
    const VERSION: u16 = 1;
}

impl<A: State, B: State, C: State> State for (A, B, C) {
    const VERSION: u16 = 1;
}
