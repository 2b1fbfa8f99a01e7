//! The bytes of a claim: what a process says it is, decoded only after its proof was checked.

use crate::{Error, Result};

/// Claims are small and of our own making; the limit bounds what a decoder may ask for.
const CLAIM_CONFIG: bincode::config::Configuration<
    bincode::config::LittleEndian,
    bincode::config::Varint,
    bincode::config::Limit<4096>,
> = bincode::config::standard().with_limit::<4096>();

pub(crate) fn encode<T: serde::Serialize>(claim: &T) -> Result<Vec<u8>> {
    bincode::serde::encode_to_vec(claim, CLAIM_CONFIG)
        .map_err(|error| Error::internal("a claim cannot be encoded").with_source(error))
}

pub(crate) fn decode<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    match bincode::serde::decode_from_slice(bytes, CLAIM_CONFIG) {
        Ok((claim, length)) if length == bytes.len() => Ok(claim),
        _ => Err(Error::invalid(
            "the peer says who it is in an unknown form; start all processes from the same binary",
        )),
    }
}
