//! Reading and writing of numbers and length-prefixed bytes; every read is checked.

/// A place in bytes that are not trusted. Every read gives `None` instead of passing the end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8], at: usize) -> Self {
        Cursor { bytes, at }
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }

    pub(super) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(len)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// A number in base 128, lowest digit first. Longer forms than needed are refused, so that
    /// there is one encoding of each number.
    pub(super) fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.array::<1>()?[0];
            let digit = u64::from(byte & 0x7f);
            if shift == 63 && digit > 1 {
                return None;
            }
            value |= digit << shift;
            if byte & 0x80 == 0 {
                return (byte != 0 || shift == 0).then_some(value);
            }
        }
        None
    }

    pub(super) fn text(&mut self) -> Option<&'a str> {
        let len = usize::try_from(self.varint()?).ok()?;
        std::str::from_utf8(self.take(len)?).ok()
    }

    /// Key and value, as [`put_row`] wrote them.
    pub(super) fn row(&mut self) -> Option<(&'a [u8], Option<&'a [u8]>)> {
        let key_len = usize::try_from(self.varint()?).ok()?;
        let key = self.take(key_len)?;
        let value = match self.varint()?.checked_sub(1) {
            None => None,
            Some(len) => Some(self.take(usize::try_from(len).ok()?)?),
        };
        Some((key, value))
    }
}

pub(super) fn put_varint(into: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

pub(super) fn put_bytes(into: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(into, bytes.len() as u64);
    into.extend_from_slice(bytes);
}

/// The length of a value is written plus one, so that 0 says "removed".
pub(super) fn put_row(into: &mut Vec<u8>, key: &[u8], value: Option<&[u8]>) {
    put_bytes(into, key);
    match value {
        None => put_varint(into, 0),
        Some(value) => {
            put_varint(into, value.len() as u64 + 1);
            into.extend_from_slice(value);
        }
    }
}
