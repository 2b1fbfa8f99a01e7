//! JSON: a record is one JSON value; in a file, one to a line.

use std::fmt;
use std::marker::PhantomData;

use isochrone_engine::Result;
use isochrone_engine::record::Record;

use super::{Decoder, Format};

/// JSON, one value to a line. Lines of white space only are no records.
///
/// ```
/// use isochrone_connectors::format::{Decoder, Format, Json};
/// let mut decoder = Json::<(String, i64)>::default().decoder(None)?;
/// assert_eq!(decoder.decode(br#"["a", -1]"#), Ok(Some(("a".to_owned(), -1))));
/// assert_eq!(decoder.decode(b"  "), Ok(None));
/// # Ok::<(), isochrone_engine::Error>(())
/// ```
pub struct Json<T>(PhantomData<fn() -> T>);

/// Decodes JSON; made by [`Json`].
pub struct JsonDecoder<T>(PhantomData<fn() -> T>);

impl<T> Default for Json<T> {
    fn default() -> Self {
        Json(PhantomData)
    }
}

impl<T> Clone for Json<T> {
    fn clone(&self) -> Self {
        Json::default()
    }
}

impl<T> fmt::Debug for Json<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Json")
    }
}

impl<T> fmt::Debug for JsonDecoder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JsonDecoder")
    }
}

impl<T: Record> Format for Json<T> {
    type Item = T;
    type Decoder = JsonDecoder<T>;

    fn decoder(&self, _header: Option<&str>) -> Result<JsonDecoder<T>> {
        Ok(JsonDecoder(PhantomData))
    }
}

impl<T: Record> Decoder for JsonDecoder<T> {
    type Item = T;

    fn decode(&mut self, record: &[u8]) -> Result<Option<T>, String> {
        match serde_json::from_slice(record) {
            Ok(item) => Ok(Some(item)),
            Err(_) if record.trim_ascii().is_empty() => Ok(None),
            Err(error) => Err(reason(&error)),
        }
    }
}

/// A record is one line, so that only the column says something.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
    format!("{what} at column {}", error.column())
}
