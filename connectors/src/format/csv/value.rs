//! One field of a row, as serde sees it.

use std::fmt::Display;
use std::str::FromStr;

use serde::de::value::StrDeserializer;
use serde::de::{Deserializer, IntoDeserializer, Visitor};

use super::flaw::Flaw;

/// The bytes of a field, without quotes.
#[derive(Clone, Copy)]
pub(super) struct Value<'r>(pub(super) &'r [u8]);

/// Longest text shown of a value that is wrong.
const SHOWN_BYTES_MAX: usize = 60;

impl<'r> Value<'r> {
    fn text(self) -> Result<&'r str, Flaw> {
        std::str::from_utf8(self.0)
            .map_err(|_| Flaw::new(format!("`{}` is not UTF-8", self.shown())))
    }

    #[cold]
    fn shown(self) -> String {
        let cut = &self.0[..self.0.len().min(SHOWN_BYTES_MAX)];
        String::from_utf8_lossy(cut).into_owned()
    }

    #[inline]
    fn integer<N: Integer>(self, min: N, max: N) -> Result<N, Flaw> {
        match short_integer(self.0).and_then(|number| N::try_from(number).ok()) {
            Some(number) => Ok(number),
            None => self.long_integer(min, max),
        }
    }

    /// Numbers of many digits, and what is wrong with the others.
    #[cold]
    fn long_integer<N: Integer>(self, min: N, max: N) -> Result<N, Flaw> {
        if let Ok(number) = self.text()?.parse() {
            return Ok(number);
        }
        let name = std::any::type_name::<N>();
        let shown = self.shown();
        Err(Flaw::new(if is_integer(self.0) {
            format!("`{shown}` does not fit into {name} ({min} to {max})")
        } else {
            format!("`{shown}` is no whole number ({name})")
        }))
    }

    fn float<N: FromStr>(self) -> Result<N, Flaw> {
        self.text()?.parse().map_err(|_| Flaw::new(format!("`{}` is no number", self.shown())))
    }

    fn refuse<T>(self, what: &str) -> Result<T, Flaw> {
        Err(Flaw::new(format!("{what} does not fit into one column")))
    }
}

/// Up to 18 digits with or without a sign: most numbers.
#[inline]
fn short_integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || digits.len() > 18 {
        return None;
    }
    let mut number = 0i64;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number * 10 + i64::from(digit);
    }
    Some(if negative { -number } else { number })
}

fn is_integer(text: &[u8]) -> bool {
    let digits = text.strip_prefix(b"-").or(text.strip_prefix(b"+")).unwrap_or(text);
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

/// The integer types of Rust.
trait Integer: TryFrom<i64> + FromStr + Display {}
impl<N: TryFrom<i64> + FromStr + Display> Integer for N {}

impl<'r> Deserializer<'r> for Value<'r> {
    type Error = Flaw;

    /// For types that take what comes: the narrowest reading of the text.
    fn deserialize_any<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Flaw> {
        let text = self.text()?;
        if let Ok(number) = text.parse() {
            return visitor.visit_i64(number);
        }
        if let Ok(number) = text.parse() {
            return visitor.visit_u64(number);
        }
        if let Ok(number) = text.parse() {
            return visitor.visit_f64(number);
        }
        match text.parse() {
            Ok(truth) => visitor.visit_bool(truth),
            Err(_) => visitor.visit_borrowed_str(text),
        }
    }

    fn deserialize_bool<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Flaw> {
        match self.0 {
            b"true" => visitor.visit_bool(true),
            b"false" => visitor.visit_bool(false),
            _ => Err(Flaw::new(format!("`{}` is neither `true` nor `false`", self.shown()))),
        }
    }

    #[inline]
    fn deserialize_i8<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Flaw> {
        visitor.visit_i8(self.integer(i8::MIN, i8::MAX)?)
    }

    #[inline]
    fn deserialize_i16<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Flaw> {
        visitor.visit_i16(self.integer(i16::MIN, i16::MAX)?)
    }

    #[inline]
    fn deserialize_i32<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Flaw> {
        visitor.visit_i32(self.integer(i32::MIN, i32::MAX)?)
    }

    #[inline]
    fn deserialize_i64<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Flaw> {
        visitor.visit_i64(self.integer(i64::MIN, i64::MAX)?)
    }

    #[inline]
    fn deserialize_i128<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Flaw> {
        visitor.visit_i128(self.integer(i128::MIN, i128::MAX)?)
    }

    #[inline]
    fn deserialize_u8<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Flaw> {
        visitor.visit_u8(self.integer(u8::MIN, u8::MAX)?)
    }

    #[inline]
    fn deserialize_u16<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Flaw> {
        visitor.visit_u16(self.integer(u16::MIN, u16::MAX)?)
    }

    #[inline]
    fn deserialize_u32<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Flaw> {
        visitor.visit_u32(self.integer(u32::MIN, u32::MAX)?)
    }

    #[inline]
    fn deserialize_u64<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Flaw> {
        visitor.visit_u64(self.integer(u64::MIN, u64::MAX)?)
    }

    #[inline]
    fn deserialize_u128<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Flaw> {
        visitor.visit_u128(self.integer(u128::MIN, u128::MAX)?)
    }

    fn deserialize_f32<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Flaw> {
        visitor.visit_f32(self.float()?)
    }

    fn deserialize_f64<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Flaw> {
        visitor.visit_f64(self.float()?)
    }

    fn deserialize_char<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Flaw> {
        visitor.visit_borrowed_str(self.text()?)
    }

    #[inline]
    fn deserialize_str<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Flaw> {
        visitor.visit_borrowed_str(self.text()?)
    }

    #[inline]
    fn deserialize_string<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Flaw> {
        visitor.visit_borrowed_str(self.text()?)
    }

    fn deserialize_bytes<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Flaw> {
        visitor.visit_borrowed_bytes(self.0)
    }

    fn deserialize_byte_buf<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Flaw> {
        visitor.visit_borrowed_bytes(self.0)
    }

    fn deserialize_option<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Flaw> {
        if self.0.is_empty() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_unit<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Flaw> {
        if self.0.is_empty() { visitor.visit_unit() } else { self.refuse("a value for a unit") }
    }

    fn deserialize_unit_struct<V: Visitor<'r>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Flaw> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'r>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Flaw> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'r>>(self, _visitor: V) -> Result<V::Value, Flaw> {
        self.refuse("a list")
    }

    fn deserialize_tuple<V: Visitor<'r>>(self, _len: usize, _visitor: V) -> Result<V::Value, Flaw> {
        self.refuse("a tuple")
    }

    fn deserialize_tuple_struct<V: Visitor<'r>>(
        self,
        _name: &'static str,
        _len: usize,
        _visitor: V,
    ) -> Result<V::Value, Flaw> {
        self.refuse("a tuple")
    }

    fn deserialize_map<V: Visitor<'r>>(self, _visitor: V) -> Result<V::Value, Flaw> {
        self.refuse("a map")
    }

    fn deserialize_struct<V: Visitor<'r>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        _visitor: V,
    ) -> Result<V::Value, Flaw> {
        self.refuse("a struct")
    }

    /// The name of a variant without content.
    fn deserialize_enum<V: Visitor<'r>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Flaw> {
        let name: StrDeserializer<'r, Flaw> = self.text()?.into_deserializer();
        visitor.visit_enum(name)
    }

    fn deserialize_identifier<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Flaw> {
        self.deserialize_str(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Flaw> {
        visitor.visit_unit()
    }
}
