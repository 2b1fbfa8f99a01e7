//! Structs as lines of CSV (RFC 4180, lines end in `\n`). Knows one record at a time.
//!
//! One serializer does both passes over a record: first `Header`, the names of its fields, for the
//! first record of a part; then `Row`, their values. Quoted is what holds a quote, a comma or a line break; an absent option is empty, and
//! so is empty text.

use std::fmt::{self, Display};

use isochrone_engine::{Error, Result};
use serde::ser::{self, Impossible, Serialize, SerializeStruct, Serializer};

use super::encode::{Encode, until_full};

/// CSV lines under a header.
#[derive(Default)]
pub(super) struct Csv {
    columns: usize,
}

impl<T: Serialize> Encode<T> for Csv {
    fn begin(&mut self, first: &T, out: &mut Vec<u8>) -> Result<()> {
        self.columns = line(first, Pass::Header, out)?;
        Ok(())
    }

    fn encode(&mut self, items: &[T], out: &mut Vec<u8>) -> Result<usize> {
        let columns = self.columns;
        until_full(items, out, |item, out| {
            let found = line(item, Pass::Row, out)?;
            if found == columns {
                return Ok(());
            }
            Err(Error::invalid(format!(
                "a `{}` has {found} fields where the header of its part has {columns}; a record \
                 written as CSV must always have the same fields",
                std::any::type_name::<T>()
            )))
        })
    }
}

/// Appends one line and says how many fields it has.
fn line<T: Serialize>(item: &T, pass: Pass, out: &mut Vec<u8>) -> Result<usize> {
    let begins = out.len();
    let mut record = Record { pass, out, fields: 0, inside: false };
    item.serialize(&mut record).map_err(|e| {
        let name = std::any::type_name::<T>();
        Error::invalid(format!("a `{name}` cannot be written as CSV")).with_source(e)
    })?;
    let fields = record.fields;
    if fields == 1 && out.len() == begins {
        // Readers of CSV skip an empty line.
        out.extend_from_slice(b"\"\"");
    }
    out.push(b'\n');
    Ok(fields)
}

#[derive(Clone, Copy)]
enum Pass {
    Header,
    Row,
}

struct Record<'a> {
    pass: Pass,
    out: &'a mut Vec<u8>,
    fields: usize,
    inside: bool,
}

impl Record<'_> {
    fn separate(&mut self) {
        if self.fields > 0 {
            self.out.push(b',');
        }
        self.fields += 1;
    }
}

impl SerializeStruct for &mut Record<'_> {
    type Ok = ();
    type Error = Unfit;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<(), Unfit> {
        self.separate();
        match self.pass {
            Pass::Header => push_text(name, self.out),
            Pass::Row => value.serialize(&mut **self)?,
        }
        Ok(())
    }

    /// A field that serde is told to skip keeps its column.
    fn skip_field(&mut self, name: &'static str) -> Result<(), Unfit> {
        self.separate();
        if let Pass::Header = self.pass {
            push_text(name, self.out);
        }
        Ok(())
    }

    fn end(self) -> Result<(), Unfit> {
        Ok(())
    }
}

type Never = Impossible<(), Unfit>;

impl Record<'_> {
    /// Digits as JSON has them, which is how everybody has them, and fast.
    fn number(&mut self, number: impl Serialize) -> Result<(), Unfit> {
        self.in_field("a bare number")?;
        serde_json::to_writer(&mut *self.out, &number).map_err(|e| Unfit(e.to_string()))
    }

    fn text(&mut self, text: &str) -> Result<(), Unfit> {
        self.in_field("bare text")?;
        push_text(text, self.out);
        Ok(())
    }

    fn in_field(&self, what: &str) -> Result<(), Unfit> {
        if self.inside { Ok(()) } else { Err(Unfit(format!("{what} has no named fields"))) }
    }

    fn unfit<T>(&self, what: &str) -> Result<T, Unfit> {
        let place = if self.inside { "in one field" } else { "as a record" };
        Err(Unfit(format!("{what} does not fit {place}")))
    }
}

impl<'a, 'b> Serializer for &'a mut Record<'b> {
    type Ok = ();
    type Error = Unfit;
    type SerializeSeq = Never;
    type SerializeTuple = Never;
    type SerializeTupleStruct = Never;
    type SerializeTupleVariant = Never;
    type SerializeMap = Never;
    type SerializeStruct = Self;
    type SerializeStructVariant = Never;

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, Unfit> {
        if self.inside {
            return self.unfit("a struct");
        }
        self.inside = true;
        Ok(self)
    }

    fn serialize_bool(self, v: bool) -> Result<(), Unfit> {
        self.text(if v { "true" } else { "false" })
    }
    fn serialize_i8(self, v: i8) -> Result<(), Unfit> {
        self.number(v)
    }
    fn serialize_i16(self, v: i16) -> Result<(), Unfit> {
        self.number(v)
    }
    fn serialize_i32(self, v: i32) -> Result<(), Unfit> {
        self.number(v)
    }
    fn serialize_i64(self, v: i64) -> Result<(), Unfit> {
        self.number(v)
    }
    fn serialize_i128(self, v: i128) -> Result<(), Unfit> {
        self.number(v)
    }
    fn serialize_u8(self, v: u8) -> Result<(), Unfit> {
        self.number(v)
    }
    fn serialize_u16(self, v: u16) -> Result<(), Unfit> {
        self.number(v)
    }
    fn serialize_u32(self, v: u32) -> Result<(), Unfit> {
        self.number(v)
    }
    fn serialize_u64(self, v: u64) -> Result<(), Unfit> {
        self.number(v)
    }
    fn serialize_u128(self, v: u128) -> Result<(), Unfit> {
        self.number(v)
    }
    fn serialize_f32(self, v: f32) -> Result<(), Unfit> {
        if v.is_finite() { self.number(v) } else { self.text(&v.to_string()) }
    }
    fn serialize_f64(self, v: f64) -> Result<(), Unfit> {
        if v.is_finite() { self.number(v) } else { self.text(&v.to_string()) }
    }
    fn serialize_char(self, v: char) -> Result<(), Unfit> {
        self.text(v.encode_utf8(&mut [0; 4]))
    }
    fn serialize_str(self, v: &str) -> Result<(), Unfit> {
        self.text(v)
    }
    fn serialize_none(self) -> Result<(), Unfit> {
        self.text("")
    }
    fn serialize_some<T: Serialize + ?Sized>(self, v: &T) -> Result<(), Unfit> {
        v.serialize(self)
    }
    fn serialize_unit(self) -> Result<(), Unfit> {
        self.text("")
    }
    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Unfit> {
        self.text("")
    }
    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<(), Unfit> {
        self.text(variant)
    }
    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        v: &T,
    ) -> Result<(), Unfit> {
        v.serialize(self)
    }

    fn serialize_bytes(self, _: &[u8]) -> Result<(), Unfit> {
        self.unfit("a run of bytes")
    }
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<(), Unfit> {
        self.unfit("an enum variant with content")
    }
    fn serialize_seq(self, _: Option<usize>) -> Result<Never, Unfit> {
        self.unfit("a sequence")
    }
    fn serialize_tuple(self, _: usize) -> Result<Never, Unfit> {
        self.unfit("a tuple")
    }
    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Never, Unfit> {
        self.unfit("a tuple struct")
    }
    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Never, Unfit> {
        self.unfit("an enum variant with content")
    }
    fn serialize_map(self, _: Option<usize>) -> Result<Never, Unfit> {
        self.unfit("a map or a struct with flattened fields")
    }
    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Never, Unfit> {
        self.unfit("an enum variant with content")
    }
}

/// Why a record does not fit a line of CSV.
#[derive(Debug)]
struct Unfit(String);

impl Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unfit {}

impl ser::Error for Unfit {
    fn custom<T: Display>(message: T) -> Self {
        Unfit(message.to_string())
    }
}

fn push_text(text: &str, out: &mut Vec<u8>) {
    if !text.bytes().any(|b| matches!(b, b'"' | b',' | b'\n' | b'\r')) {
        return out.extend_from_slice(text.as_bytes());
    }
    out.push(b'"');
    for byte in text.bytes() {
        if byte == b'"' {
            out.push(b'"');
        }
        out.push(byte);
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests;
