//! Asks a type, once per header, what serde would do with a row: its shape, whether its fields have
//! aliases, which field it misses.

use std::cell::Cell;

use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, Visitor,
};

use super::flaw::Flaw;

/// What a type wants a row to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Shape {
    /// A struct of these fields; aliases are among them.
    Struct(&'static [&'static str]),
    /// So many columns.
    Tuple(usize),
    /// All columns.
    Sequence,
    /// Names and values.
    Map,
    /// Something else.
    Other,
}

pub(super) fn shape_of<T: DeserializeOwned>() -> Shape {
    let shape = Cell::new(Shape::Other);
    let stopped = T::deserialize(ShapeProbe(&shape));
    debug_assert!(stopped.is_err() || shape.get() == Shape::Other, "the probe holds no values");
    shape.get()
}

/// Whether the numbers of the fields differ from their places among the names.
pub(super) fn has_aliases<T: DeserializeOwned>(fields: &[&str]) -> bool {
    let Some(last) = fields.len().checked_sub(1) else { return false };
    let taken = Cell::new(false);
    let keys = [last as u64];
    // Stopped at the first value.
    let _stopped = T::deserialize(Sample { fields: &keys, taken: Some(&taken) });
    !taken.get()
}

/// A field that must be there and is not among those given, as far as one can know without data.
pub(super) fn missing_field<T: DeserializeOwned>(given: &[u64]) -> Option<&'static str> {
    T::deserialize(Sample { fields: given, taken: None })
        .err()
        .and_then(|flaw| flaw.missing_field())
}

#[derive(Clone, Copy)]
struct ShapeProbe<'c>(&'c Cell<Shape>);

impl ShapeProbe<'_> {
    fn is<T>(self, shape: Shape) -> Result<T, Flaw> {
        self.0.set(shape);
        Err(Flaw::new("only asking"))
    }
}

impl<'de> Deserializer<'de> for ShapeProbe<'_> {
    type Error = Flaw;

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Flaw> {
        self.is(Shape::Other)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        _visitor: V,
    ) -> Result<V::Value, Flaw> {
        self.is(Shape::Struct(fields))
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, _visitor: V) -> Result<V::Value, Flaw> {
        self.is(Shape::Tuple(len))
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        len: usize,
        _visitor: V,
    ) -> Result<V::Value, Flaw> {
        self.is(Shape::Tuple(len))
    }

    fn deserialize_seq<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Flaw> {
        self.is(Shape::Sequence)
    }

    fn deserialize_map<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Flaw> {
        self.is(Shape::Map)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Flaw> {
        visitor.visit_newtype_struct(self)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct enum identifier ignored_any
    }
}

/// A value of any type, so that a struct of which some fields are given says what it misses.
#[derive(Clone, Copy)]
struct Sample<'c> {
    fields: &'c [u64],
    /// Set when the first value is wanted by a field, then stops.
    taken: Option<&'c Cell<bool>>,
}

impl<'de> Deserializer<'de> for Sample<'_> {
    type Error = Flaw;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Flaw> {
        visitor.visit_map(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Flaw> {
        visitor.visit_newtype_struct(self)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de> MapAccess<'de> for Sample<'_> {
    type Error = Flaw;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Flaw> {
        let Some((&number, rest)) = self.fields.split_first() else { return Ok(None) };
        self.fields = rest;
        seed.deserialize(number.into_deserializer()).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Flaw> {
        seed.deserialize(SampleValue { taken: self.taken })
    }
}

/// A plausible value of whatever type is asked for.
#[derive(Clone, Copy)]
struct SampleValue<'c> {
    taken: Option<&'c Cell<bool>>,
}

impl SampleValue<'_> {
    fn wanted(self) -> Result<(), Flaw> {
        match self.taken {
            Some(taken) => {
                taken.set(true);
                Err(Flaw::new("only asking"))
            }
            None => Ok(()),
        }
    }
}

impl<'de> Deserializer<'de> for SampleValue<'_> {
    type Error = Flaw;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Flaw> {
        self.wanted()?;
        // Integers take it; so does all that converts from them.
        visitor.visit_u8(1)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Flaw> {
        self.wanted()?;
        visitor.visit_bool(false)
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Flaw> {
        self.wanted()?;
        visitor.visit_char('1')
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Flaw> {
        self.wanted()?;
        visitor.visit_str("1")
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Flaw> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Flaw> {
        self.wanted()?;
        visitor.visit_bytes(b"1")
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Flaw> {
        self.deserialize_bytes(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Flaw> {
        self.wanted()?;
        visitor.visit_none()
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Flaw> {
        self.wanted()?;
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Flaw> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Flaw> {
        self.wanted()?;
        let first: StrDeserializer<'_, Flaw> =
            variants.first().copied().unwrap_or_default().into_deserializer();
        visitor.visit_enum(first)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Flaw> {
        // Wanted by no field.
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 unit_struct seq tuple tuple_struct map
        struct identifier
    }
}
