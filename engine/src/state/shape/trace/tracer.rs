//! The deserializer: writes down what is asked for and answers with a dummy.

use serde::de::{Deserializer, Visitor};

use super::access::{Children, Variant};
use super::{Kind, Stop, Trace};

pub(super) struct Tracer<'t> {
    pub(super) trace: &'t mut Trace,
    pub(super) node: usize,
}

impl<'t> Tracer<'t> {
    fn leaf(&mut self, name: &'static str) -> usize {
        self.trace.see(self.node, Kind::Leaf(name), &[], 0);
        self.trace.runs % 3
    }

    fn children(self, kind: Kind, names: &'static [&'static str], len: usize) -> Children<'t> {
        self.trace.see(self.node, kind, names, len);
        // A type that asks for something else the second time gets what there is.
        let end = len.min(self.trace.nodes[self.node].children.len());
        Children { trace: self.trace, node: self.node, next: 0, end }
    }

    /// Runs `visit` inside a named type.
    fn inside<V>(
        self,
        name: &'static str,
        names: &'static [&'static str],
        visit: impl FnOnce(Tracer<'_>) -> Result<V, Stop>,
    ) -> Result<V, Stop> {
        if !self.trace.enter(self.node, name, names) {
            return Err(Stop);
        }
        let result = visit(Tracer { trace: &mut *self.trace, node: self.node });
        self.trace.open.pop();
        result
    }
}

/// Dummies are small and not zero at first: zero is refused more often.
const NUMBERS: [u8; 3] = [1, 0, 2];
const TEXTS: [&str; 3] = ["a", "", "0"];

macro_rules! leaves {
    ($($method:ident $visit:ident $type:ty;)*) => { $(
        fn $method<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Stop> {
            let dummy = self.leaf(stringify!($type));
            visitor.$visit(<$type>::from(NUMBERS[dummy]))
        }
    )* };
}

impl<'de> Deserializer<'de> for Tracer<'_> {
    type Error = Stop;

    leaves! {
        deserialize_u8 visit_u8 u8;
        deserialize_u16 visit_u16 u16;
        deserialize_u32 visit_u32 u32;
        deserialize_u64 visit_u64 u64;
        deserialize_u128 visit_u128 u128;
        deserialize_i16 visit_i16 i16;
        deserialize_i32 visit_i32 i32;
        deserialize_i64 visit_i64 i64;
        deserialize_i128 visit_i128 i128;
        deserialize_f32 visit_f32 f32;
        deserialize_f64 visit_f64 f64;
    }

    fn deserialize_i8<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Stop> {
        let dummy = self.leaf("i8");
        visitor.visit_i8([1, 0, 2][dummy])
    }

    fn deserialize_bool<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Stop> {
        let dummy = self.leaf("bool");
        visitor.visit_bool(dummy == 0)
    }

    fn deserialize_char<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Stop> {
        let dummy = self.leaf("char");
        visitor.visit_char(['a', ' ', '0'][dummy])
    }

    fn deserialize_str<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Stop> {
        let dummy = self.leaf("str");
        visitor.visit_str(TEXTS[dummy])
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Stop> {
        let dummy = self.leaf("bytes");
        visitor.visit_bytes(TEXTS[dummy].as_bytes())
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        self.deserialize_bytes(visitor)
    }

    fn deserialize_unit<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Stop> {
        self.leaf("unit");
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Stop> {
        self.deserialize_unit(visitor)
    }

    /// What is not positional has no shape; the codec refuses it as well.
    fn deserialize_any<V: Visitor<'de>>(mut self, _visitor: V) -> Result<V::Value, Stop> {
        self.leaf("any");
        Err(Stop)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        self.deserialize_any(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        self.deserialize_any(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        self.trace.see(self.node, Kind::Option, &[], 1);
        if !self.trace.is_worth_a_visit(self.node, 0) {
            return visitor.visit_none();
        }
        let child = self.trace.child(self.node, 0)?;
        let value = visitor.visit_some(Tracer { trace: &mut *self.trace, node: child });
        self.trace.close(child, value.is_ok());
        value
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Stop> {
        self.inside(name, &[], |tracer| visitor.visit_newtype_struct(tracer))
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        let mut children = self.children(Kind::Seq, &[], 1);
        if !children.trace.is_worth_a_visit(children.node, 0) {
            children.end = 0;
        }
        visitor.visit_seq(children)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Stop> {
        visitor.visit_seq(self.children(Kind::Tuple, &[], len))
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, Stop> {
        self.inside(name, &[], |tracer| tracer.deserialize_tuple(len, visitor))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        let mut children = self.children(Kind::Map, &[], 2);
        if !(0..2).all(|place| children.trace.is_worth_a_visit(children.node, place)) {
            children.end = 0;
        }
        visitor.visit_map(children)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Stop> {
        self.inside(name, fields, |tracer| {
            visitor.visit_seq(tracer.children(Kind::Struct, fields, fields.len()))
        })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Stop> {
        self.inside(name, variants, |tracer| {
            let Tracer { trace, node } = tracer;
            trace.see(node, Kind::Enum, variants, variants.len());
            let place = trace.variant(node);
            let child = trace.child(node, place)?;
            let value = visitor.visit_enum(Variant { trace: &mut *trace, node: child, place });
            trace.close(child, value.is_ok());
            value
        })
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}
