//! Which column goes to which field of the item, and a row as serde sees it.

use isochrone_engine::{Error, Result};
use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess,
    Visitor,
};

use super::flaw::Flaw;
use super::probe::{self, Shape};
use super::row::Fields;
use super::value::Value;

/// The columns of a header and how an item takes them.
#[derive(Debug)]
pub(super) struct Columns {
    pub(super) names: Vec<String>,
    plan: Plan,
}

#[derive(Debug)]
enum Plan {
    /// Every field has its column: the columns in the order of the fields.
    InOrder(Vec<usize>),
    /// Some fields have none and are optional: the number of each field that has one.
    ByNumber(Vec<(u64, usize)>),
    /// Fields with aliases, whose numbers serde does not tell, and maps: by name.
    ByName(Vec<usize>),
}

impl Columns {
    /// Maps once what every row repeats. Refuses a header that lacks a column that `T` needs.
    pub(super) fn of<T: DeserializeOwned>(names: Vec<String>) -> Result<Columns> {
        let plan = match probe::shape_of::<T>() {
            Shape::Struct(fields) => plan_struct::<T>(&names, fields)?,
            Shape::Tuple(len) if len <= names.len() => Plan::InOrder((0..len).collect()),
            Shape::Tuple(len) => {
                let found = listed(&names);
                return Err(Error::invalid(format!("{len} columns are needed, found {found}")));
            }
            Shape::Sequence => Plan::InOrder((0..names.len()).collect()),
            Shape::Map => Plan::ByName((0..names.len()).collect()),
            Shape::Other => {
                return Err(Error::invalid("a csv row makes a struct, a tuple or a map only"));
            }
        };
        Ok(Columns { names, plan })
    }
}

fn plan_struct<T: DeserializeOwned>(names: &[String], fields: &[&str]) -> Result<Plan> {
    let mut present = Vec::with_capacity(fields.len());
    for (number, field) in fields.iter().enumerate() {
        let mut at = names.iter().enumerate().filter(|(_, name)| name == field).map(|(at, _)| at);
        if let Some(column) = at.next() {
            present.push((number as u64, column));
        }
        if at.next().is_some() {
            return Err(Error::invalid(format!("column `{field}` is there twice")));
        }
    }
    if probe::has_aliases::<T>(fields) {
        return Ok(Plan::ByName(present.into_iter().map(|(_, column)| column).collect()));
    }
    if present.len() == fields.len() {
        return Ok(Plan::InOrder(present.into_iter().map(|(_, column)| column).collect()));
    }
    let numbers: Vec<u64> = present.iter().map(|(number, _)| *number).collect();
    match probe::missing_field::<T>(&numbers) {
        Some(field) => Err(Error::invalid(format!("no column `{field}`; found {}", listed(names)))),
        None => Ok(Plan::ByNumber(present)),
    }
}

fn listed(names: &[String]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
}

/// A row, to be made an item.
#[derive(Clone, Copy)]
pub(super) struct RowDeserializer<'r> {
    pub(super) fields: Fields<'r>,
    pub(super) columns: &'r Columns,
}

impl<'r> RowDeserializer<'r> {
    #[inline]
    fn value(&self, column: usize) -> Value<'r> {
        Value(self.fields.get(column))
    }

    #[inline]
    fn take<S: DeserializeSeed<'r>>(&self, column: usize, seed: S) -> Result<S::Value, Flaw> {
        match seed.deserialize(self.value(column)) {
            Ok(value) => Ok(value),
            Err(flaw) => Err(flaw.in_column(&self.columns.names[column])),
        }
    }
}

impl<'r> Deserializer<'r> for RowDeserializer<'r> {
    type Error = Flaw;

    #[inline]
    fn deserialize_any<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Flaw> {
        match &self.columns.plan {
            Plan::InOrder(columns) => visitor.visit_seq(InOrder { row: self, columns }),
            Plan::ByNumber(columns) => visitor.visit_map(ByNumber { row: self, columns }),
            Plan::ByName(columns) => visitor.visit_map(ByName { row: self, columns }),
        }
    }

    #[inline]
    fn deserialize_newtype_struct<V: Visitor<'r>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Flaw> {
        visitor.visit_newtype_struct(self)
    }

    serde::forward_to_deserialize_any! {
        <W: Visitor<'r>>
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

struct InOrder<'r> {
    row: RowDeserializer<'r>,
    columns: &'r [usize],
}

impl<'r> SeqAccess<'r> for InOrder<'r> {
    type Error = Flaw;

    #[inline]
    fn next_element_seed<S: DeserializeSeed<'r>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Flaw> {
        let Some((&column, rest)) = self.columns.split_first() else { return Ok(None) };
        self.columns = rest;
        self.row.take(column, seed).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.columns.len())
    }
}

struct ByNumber<'r> {
    row: RowDeserializer<'r>,
    columns: &'r [(u64, usize)],
}

impl<'r> MapAccess<'r> for ByNumber<'r> {
    type Error = Flaw;

    fn next_key_seed<K: DeserializeSeed<'r>>(&mut self, seed: K) -> Result<Option<K::Value>, Flaw> {
        let Some(&(number, _)) = self.columns.first() else { return Ok(None) };
        seed.deserialize(number.into_deserializer()).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'r>>(&mut self, seed: S) -> Result<S::Value, Flaw> {
        let (&(_, column), rest) = self.columns.split_first().expect("serde asked for a key first");
        self.columns = rest;
        self.row.take(column, seed)
    }
}

struct ByName<'r> {
    row: RowDeserializer<'r>,
    columns: &'r [usize],
}

impl<'r> MapAccess<'r> for ByName<'r> {
    type Error = Flaw;

    fn next_key_seed<K: DeserializeSeed<'r>>(&mut self, seed: K) -> Result<Option<K::Value>, Flaw> {
        let Some(&column) = self.columns.first() else { return Ok(None) };
        let name: StrDeserializer<'_, Flaw> =
            self.row.columns.names[column].as_str().into_deserializer();
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'r>>(&mut self, seed: S) -> Result<S::Value, Flaw> {
        let (&column, rest) = self.columns.split_first().expect("serde asked for a key first");
        self.columns = rest;
        self.row.take(column, seed)
    }
}
