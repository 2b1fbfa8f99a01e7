//! How a table keeps a key: as it is, or as its encoded bytes.
//!
//! A key that owns memory (a text, a list) lies elsewhere than its entry: each look would wait for
//! memory twice, and each key be an allocation. So of such keys the table keeps the encoded bytes,
//! short ones within the entry. All others it keeps as they are.

use crate::record::{Key, KeyBuffer, encodes_to};

/// One of the two ways to keep a key `K`.
///
/// ```
/// use isochrone_engine::record::KeyBuffer;
/// use isochrone_engine::state::keyspace::{Kept, Packed, Whole};
/// fn keeps<S: Kept<String>>() {
///     let kept = S::keep(&"ab".to_owned());
///     assert!(kept.is(&"ab".to_owned()) && !kept.is(&"a".to_owned()));
///     assert_eq!(kept.encoded(&mut KeyBuffer::default()), b"\x02ab");
/// }
/// keeps::<Whole<String>>();
/// keeps::<Packed>();
/// ```
pub trait Kept<K: Key>: 'static {
    /// Keeps a key.
    fn keep(key: &K) -> Self;

    /// Whether this is that key.
    fn is(&self, key: &K) -> bool;

    /// The key's encoding, in `buffer` if it has to be made.
    fn encoded<'a>(&'a self, buffer: &'a mut KeyBuffer) -> &'a [u8];

    /// Reads something of the key, for no other reason than to have it near.
    fn touch(&self) -> u8;
}

/// A key as it is.
pub struct Whole<K>(K);

impl<K: Key> Kept<K> for Whole<K> {
    #[inline]
    fn keep(key: &K) -> Self {
        Whole(key.clone())
    }

    #[inline]
    fn is(&self, key: &K) -> bool {
        self.0 == *key
    }

    #[inline]
    fn encoded<'a>(&'a self, buffer: &'a mut KeyBuffer) -> &'a [u8] {
        buffer.encode(&self.0)
    }

    #[inline]
    fn touch(&self) -> u8 {
        u8::from(self.0 == *std::hint::black_box(&self.0))
    }
}

/// The encoded bytes of a key.
pub struct Packed(Bytes);

const SHORT_BYTES_MAX: usize = 22;

enum Bytes {
    Short { len: u8, bytes: [u8; SHORT_BYTES_MAX] },
    Long(Box<[u8]>),
}

impl Packed {
    #[inline]
    fn bytes(&self) -> &[u8] {
        match &self.0 {
            Bytes::Short { len, bytes } => &bytes[..usize::from(*len)],
            Bytes::Long(bytes) => bytes,
        }
    }
}

impl<K: Key> Kept<K> for Packed {
    #[inline]
    fn keep(key: &K) -> Self {
        let mut buffer = KeyBuffer::default();
        let encoded = buffer.encode(key);
        if encoded.len() > SHORT_BYTES_MAX {
            return Packed(Bytes::Long(encoded.into()));
        }
        let mut bytes = [0; SHORT_BYTES_MAX];
        bytes[..encoded.len()].copy_from_slice(encoded);
        Packed(Bytes::Short { len: encoded.len() as u8, bytes })
    }

    #[inline]
    fn is(&self, key: &K) -> bool {
        encodes_to(key, self.bytes())
    }

    #[inline]
    fn encoded<'a>(&'a self, _: &'a mut KeyBuffer) -> &'a [u8] {
        self.bytes()
    }

    #[inline]
    fn touch(&self) -> u8 {
        match &self.0 {
            Bytes::Short { len, .. } => *len,
            Bytes::Long(bytes) => bytes[0],
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_packed_key_takes_no_more_than_a_text() {
        assert_eq!(size_of::<Packed>(), size_of::<String>());
    }

    proptest! {
        #[test]
        fn a_kept_key_is_itself_and_no_other(
            (a, b) in ("[ab]{0,30}", "[ab]{0,30}"),
            (m, n) in (0..3_u64, 0..3_u64),
        ) {
            let [mut one, mut two, mut three] = [(); 3].map(|()| KeyBuffer::default());
            let (left, right) = ((m, a), (n, b));
            let packed = <Packed as Kept<(u64, String)>>::keep(&left);
            let whole = Whole::keep(&left);
            prop_assert!(packed.is(&left) && whole.is(&left));
            prop_assert_eq!(packed.is(&right), left == right);
            prop_assert_eq!(whole.is(&right), left == right);
            let packed = <Packed as Kept<(u64, String)>>::encoded(&packed, &mut one);
            prop_assert_eq!(packed, two.encode(&left));
            prop_assert_eq!(packed, whole.encoded(&mut three));
        }
    }
}
