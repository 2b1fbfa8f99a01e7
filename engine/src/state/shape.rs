//! Fingerprint of a type's serde shape: what its `Deserialize` asks for, field by field.
//!
//! The state codec is positional, so a struct that changed decodes without an error and wrongly. The
//! manifest keeps the shape next to the state's version: the same version with another shape is
//! refused. Part of the shape are the order, names and kinds of fields and variants; names of
//! types are not, so that a type can be renamed.
//!
//! What a shape cannot see: the inside of a type that refuses every dummy value (it counts as what
//! it asked for, and what follows it may stay `?`), and a change of meaning. Recursive types are
//! followed to the second level.

mod trace;

use serde::de::DeserializeOwned;

/// A type's shape as text, and a short digest of it.
///
/// ```
/// use isochrone_engine::state::shape::Shape;
/// #[derive(serde::Deserialize)]
/// struct Exposure { cents: i64, tags: Vec<(u8, String)>, limit: Option<f64> }
/// let shape = Shape::of::<Exposure>();
/// assert_eq!(shape.text, "{cents:i64,tags:[(u8,str)],limit:f64?}");
/// assert_eq!(shape.digest.len(), 16);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Kinds, and names of fields and variants, for people.
    pub text: String,
    /// Sixteen hexadecimal digits that stand for the text: the start of its BLAKE3.
    pub digest: String,
}

impl Shape {
    /// The shape of a type.
    pub fn of<T: DeserializeOwned>() -> Shape {
        let text = trace::text_of::<T>();
        let digest = blake3::hash(text.as_bytes()).to_hex()[..16].to_owned();
        Shape { text, digest }
    }
}

#[cfg(test)]
mod tests;
