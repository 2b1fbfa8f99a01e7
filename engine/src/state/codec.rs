//! How state becomes bytes and back: the one file that names the codec.
//!
//! bincode 2, `config::standard()`: little endian, variable-length integers, fields by position,
//! no names. A changed type is therefore found by its version and its
//! [shape](crate::state::shape::Shape), never by decoding.

use bincode::config::{Configuration, Limit, LittleEndian, Varint};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Error, Result};

/// The name of the codec, for the manifest.
pub const CODEC: &str = "bincode2";

/// The longest encoded value, so that damaged lengths cannot ask for all memory.
pub const VALUE_BYTES_MAX: usize = 1 << 30;

const CONFIG: Configuration<LittleEndian, Varint, Limit<VALUE_BYTES_MAX>> =
    bincode::config::standard().with_limit::<VALUE_BYTES_MAX>();

/// Encodes a value and appends it. Fails with `Invalid` if its `Serialize` fails or it is longer
/// than [`VALUE_BYTES_MAX`]; then nothing is appended.
pub fn encode_into<T: Serialize + ?Sized>(value: &T, bytes: &mut Vec<u8>) -> Result<()> {
    let start = bytes.len();
    let encoded = bincode::serde::encode_into_writer(value, Appender(bytes), CONFIG);
    let failed = match encoded {
        Ok(()) if bytes.len() - start <= VALUE_BYTES_MAX => return Ok(()),
        Ok(()) => format!("it takes more than {VALUE_BYTES_MAX} bytes"),
        Err(error) => error.to_string(),
    };
    bytes.truncate(start);
    Err(Error::invalid(format!("{} does not encode: {failed}", std::any::type_name::<T>())))
}

/// Encodes a value. Fails as [`encode_into`] does.
pub fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    encode_into(value, &mut bytes)?;
    Ok(bytes)
}

/// Decodes a value from exactly these bytes. Fails with `Corrupt` if they are too few, too many or
/// not a value of this type. Meant for [`State::upgrade`](crate::state::State::upgrade).
///
/// ```
/// use isochrone_engine::state::codec::{decode, encode};
/// let bytes = encode(&(7_u64, -1_i64)).unwrap();
/// assert_eq!(decode::<(u64, i64)>(&bytes).unwrap(), (7, -1));
/// assert!(decode::<u64>(&bytes).is_err());
/// ```
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    let (value, rest) = decode_prefix(bytes)?;
    if !rest.is_empty() {
        let (name, extra) = (std::any::type_name::<T>(), rest.len());
        return Err(Error::corrupt(format!("{extra} bytes are left over after a {name}")));
    }
    Ok(value)
}

/// Decodes a value from the start of these bytes and gives the rest.
pub(crate) fn decode_prefix<T: DeserializeOwned>(bytes: &[u8]) -> Result<(T, &[u8])> {
    match bincode::serde::decode_from_slice(bytes, CONFIG) {
        Ok((value, used)) => Ok((value, &bytes[used..])),
        Err(error) => {
            let (name, len) = (std::any::type_name::<T>(), bytes.len());
            Err(Error::corrupt(format!("{len} bytes are not a {name}")).with_source(error))
        }
    }
}

struct Appender<'a>(&'a mut Vec<u8>);

impl bincode::enc::write::Writer for Appender<'_> {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> Result<(), bincode::error::EncodeError> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn bytes_that_are_cut_or_left_over_or_claim_too_much_are_corrupt() {
        let value = (vec![1_u64, 300, u64::MAX], "text".to_owned(), Some(-5_i64));
        let bytes = encode(&value).unwrap();
        type Value = (Vec<u64>, String, Option<i64>);
        assert_eq!(decode::<Value>(&bytes).unwrap(), value);
        for end in 0..bytes.len() {
            let error = decode::<Value>(&bytes[..end]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt);
        }
        assert!(decode::<Value>(&[&bytes[..], &[0]].concat()).is_err());
        for claim in [1_u64 << 31, 1 << 40, u64::MAX] {
            let bytes = [encode(&claim).unwrap(), vec![7; 20]].concat();
            assert!(decode::<Vec<u8>>(&bytes).is_err());
            assert!(decode::<String>(&bytes).is_err());
            assert!(decode::<Vec<u64>>(&bytes).is_err());
        }
    }

    #[test]
    fn a_value_that_does_not_encode_appends_nothing() {
        struct Half;
        impl Serialize for Half {
            fn serialize<S: serde::Serializer>(
                &self,
                to: S,
            ) -> std::result::Result<S::Ok, S::Error> {
                use serde::ser::{Error, SerializeTuple};
                to.serialize_tuple(2)?.serialize_element(&1_u8)?;
                Err(S::Error::custom("only half"))
            }
        }
        let mut bytes = vec![9];
        assert_eq!(encode_into(&Half, &mut bytes).unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(bytes, [9]);
    }

    /// Bytes of all state ever stored: must not change with a release of the codec.
    #[test]
    fn encoding_never_changes() {
        let value = (250_u8, 300_u32, -1_i64, "ab", Some(true), None::<u8>, [1_u64 << 40]);
        let hex: String = encode(&value).unwrap().iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, "fafb2c010102616201010 0fd0000000000010000".replace(' ', ""));
    }
}
