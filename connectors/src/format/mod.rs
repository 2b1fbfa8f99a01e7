//! How bytes become records: JSON, CSV, text lines.
//!
//! A format knows the bytes of one record and how records lie in a file; it does not know where the
//! bytes come from, so that the payloads of a message queue use the same decoders.

mod by_extension;
mod csv;
mod framing;
mod json;
mod text;

pub use by_extension::{ByExtension, ByExtensionDecoder};
pub use csv::{Csv, CsvDecoder};
pub use framing::{Framing, RecordEnd};
pub use json::{Json, JsonDecoder};
pub use text::{Text, TextDecoder};

use isochrone_engine::Result;
use isochrone_engine::record::Record;

/// A description of how records are written.
///
/// ```
/// use isochrone_connectors::format::{Decoder, Format, Json};
/// let mut decoder = Json::<u32>::default().decoder(None)?;
/// assert_eq!(decoder.decode(b"7"), Ok(Some(7)));
/// assert!(decoder.decode(b"seven").is_err());
/// # Ok::<(), isochrone_engine::Error>(())
/// ```
pub trait Format: Clone + 'static {
    /// What a record becomes.
    type Item: Record;
    /// What decodes one record after the other.
    type Decoder: Decoder<Item = Self::Item>;

    /// The format of the file of this name; the same for every file unless written.
    fn for_file(&self, path: &str) -> Result<Self> {
        let _ = path;
        Ok(self.clone())
    }

    /// How records are told apart in a file.
    fn framing(&self) -> Framing {
        Framing::Lines
    }

    /// Whether the first record of a file names the columns of the others.
    fn has_header(&self) -> bool {
        false
    }

    /// A decoder for the records below `header`, which is there exactly if the format has one.
    /// Refuses (`Invalid`) a header that lacks what the item needs.
    fn decoder(&self, header: Option<&str>) -> Result<Self::Decoder>;
}

/// Decodes records, reusing its buffers from one to the next.
pub trait Decoder: 'static {
    /// What a record becomes.
    type Item;

    /// Decodes the bytes of one record, without its line end. `None` says that there is no record,
    /// as in an empty line of JSON or CSV; an error says what is wrong, for people.
    fn decode(&mut self, record: &[u8]) -> Result<Option<Self::Item>, String>;
}
