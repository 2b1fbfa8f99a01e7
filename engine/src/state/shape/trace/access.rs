//! Access to the parts of compound types: elements, fields, entries, variants.

use serde::de::value::U32Deserializer;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};

use super::tracer::Tracer;
use super::{Stop, Trace};

/// The children of a node, one after another.
pub(super) struct Children<'t> {
    pub(super) trace: &'t mut Trace,
    pub(super) node: usize,
    pub(super) next: usize,
    pub(super) end: usize,
}

impl Children<'_> {
    fn take<'de, S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Stop> {
        let child = self.trace.child(self.node, self.next)?;
        self.next += 1;
        self.trace.depth += 1;
        let value = seed.deserialize(Tracer { trace: &mut *self.trace, node: child });
        self.trace.depth -= 1;
        self.trace.close(child, value.is_ok());
        value
    }
}

impl<'de> SeqAccess<'de> for Children<'_> {
    type Error = Stop;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Stop> {
        if self.next == self.end { Ok(None) } else { self.take(seed).map(Some) }
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.end - self.next)
    }
}

impl<'de> MapAccess<'de> for Children<'_> {
    type Error = Stop;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Stop> {
        self.next_element_seed(seed)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Stop> {
        if self.next == self.end { Err(Stop) } else { self.take(seed) }
    }
}

/// One variant: its place among the others and its node.
pub(super) struct Variant<'t> {
    pub(super) trace: &'t mut Trace,
    pub(super) node: usize,
    pub(super) place: usize,
}

impl<'de> EnumAccess<'de> for Variant<'_> {
    type Error = Stop;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), Stop> {
        let place = u32::try_from(self.place).map_err(|_| Stop)?;
        let place: U32Deserializer<Stop> = place.into_deserializer();
        Ok((seed.deserialize(place)?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_> {
    type Error = Stop;

    fn unit_variant(self) -> Result<(), Stop> {
        self.trace.see(self.node, super::Kind::Leaf("unit"), &[], 0);
        Ok(())
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Stop> {
        seed.deserialize(Tracer { trace: self.trace, node: self.node })
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Stop> {
        Tracer { trace: self.trace, node: self.node }.deserialize_tuple(len, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Stop> {
        let Variant { trace, node, .. } = self;
        trace.see(node, super::Kind::Struct, fields, fields.len());
        let end = fields.len().min(trace.nodes[node].children.len());
        visitor.visit_seq(Children { trace, node, next: 0, end })
    }
}
