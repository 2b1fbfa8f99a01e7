//! What serde reports about a row.

use std::fmt;

/// Why a row or a header does not make an item.
#[derive(Debug)]
pub(super) struct Flaw(Box<Kind>);

#[derive(Debug)]
enum Kind {
    MissingField(&'static str),
    Other(String),
}

impl Flaw {
    pub(super) fn new(reason: impl Into<String>) -> Self {
        Flaw(Box::new(Kind::Other(reason.into())))
    }

    /// The field that the item needs and that was not there.
    pub(super) fn missing_field(&self) -> Option<&'static str> {
        match *self.0 {
            Kind::MissingField(name) => Some(name),
            Kind::Other(_) => None,
        }
    }

    #[cold]
    pub(super) fn in_column(self, name: &str) -> Self {
        Flaw::new(format!("column `{name}`: {self}"))
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Kind::MissingField(name) => write!(f, "no column `{name}`"),
            Kind::Other(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for Flaw {}

impl serde::de::Error for Flaw {
    fn custom<T: fmt::Display>(reason: T) -> Self {
        Flaw::new(reason.to_string())
    }

    fn missing_field(field: &'static str) -> Self {
        Flaw(Box::new(Kind::MissingField(field)))
    }
}
