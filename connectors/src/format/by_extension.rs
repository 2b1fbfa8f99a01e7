//! CSV or JSON, as each file's name says.

use std::fmt;
use std::path::Path;

use isochrone_engine::record::Record;
use isochrone_engine::{Error, Result};

use super::{Csv, CsvDecoder, Decoder, Format, Framing, Json, JsonDecoder};

/// CSV with a header in files that end in `.csv`, one JSON value to a line in those that end in
/// `.jsonl`, `.ndjson` or `.json`. A file with another ending is refused (`Invalid`).
///
/// ```
/// use isochrone_connectors::format::{ByExtension, Decoder, Format};
/// let format = ByExtension::<(String, u32)>::default();
/// let mut csv = format.for_file("tea.csv")?.decoder(Some("item,cents"))?;
/// let mut json = format.for_file("tea.jsonl")?.decoder(None)?;
/// assert_eq!(csv.decode(b"tea,250"), json.decode(br#"["tea",250]"#));
/// assert!(format.for_file("tea.xlsx").is_err());
/// # Ok::<(), isochrone_engine::Error>(())
/// ```
pub struct ByExtension<T>(Found<Csv<T>, Json<T>>);

/// Decodes what a file's name promised; made by [`ByExtension`].
pub struct ByExtensionDecoder<T>(Found<CsvDecoder<T>, JsonDecoder<T>>);

#[derive(Clone, Debug)]
enum Found<C, J> {
    Nothing,
    Csv(C),
    Json(J),
}

impl<T> Default for ByExtension<T> {
    fn default() -> Self {
        ByExtension(Found::Nothing)
    }
}

impl<T> Clone for ByExtension<T> {
    fn clone(&self) -> Self {
        ByExtension(match &self.0 {
            Found::Nothing => Found::Nothing,
            Found::Csv(csv) => Found::Csv(csv.clone()),
            Found::Json(json) => Found::Json(json.clone()),
        })
    }
}

impl<T> fmt::Debug for ByExtension<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ByExtension").field(&self.0).finish()
    }
}

impl<T: Record> Format for ByExtension<T> {
    type Item = T;
    type Decoder = ByExtensionDecoder<T>;

    fn for_file(&self, path: &str) -> Result<Self> {
        let extension = Path::new(path).extension().map(|e| e.to_ascii_lowercase());
        match extension.as_deref().and_then(|e| e.to_str()) {
            Some("csv") => Ok(ByExtension(Found::Csv(Csv::default()))),
            Some("jsonl" | "ndjson" | "json") => Ok(ByExtension(Found::Json(Json::default()))),
            _ => Err(Error::invalid(format!(
                "input `{path}` ends neither in .csv nor in .jsonl; rename it, or name the files to \
                 read by a pattern such as `folder/*.csv`"
            ))),
        }
    }

    fn framing(&self) -> Framing {
        match &self.0 {
            Found::Csv(csv) => csv.framing(),
            Found::Json(_) | Found::Nothing => Framing::Lines,
        }
    }

    fn has_header(&self) -> bool {
        matches!(self.0, Found::Csv(_))
    }

    fn decoder(&self, header: Option<&str>) -> Result<ByExtensionDecoder<T>> {
        Ok(ByExtensionDecoder(match &self.0 {
            Found::Csv(csv) => Found::Csv(csv.decoder(header)?),
            Found::Json(json) => Found::Json(json.decoder(header)?),
            Found::Nothing => Found::Nothing,
        }))
    }
}

impl<T: Record> Decoder for ByExtensionDecoder<T> {
    type Item = T;

    #[inline]
    fn decode(&mut self, record: &[u8]) -> Result<Option<T>, String> {
        match &mut self.0 {
            Found::Csv(csv) => csv.decode(record),
            Found::Json(json) => json.decode(record),
            Found::Nothing => Err("no file, and so no format".to_owned()),
        }
    }
}

impl<T> fmt::Debug for ByExtensionDecoder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ByExtensionDecoder").field(&self.0).finish()
    }
}
