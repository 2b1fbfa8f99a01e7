//! CSV with a header: a record is a row. The fields of the item are mapped to columns once per
//! header; no name is compared per row.

mod columns;
mod flaw;
mod probe;
mod row;
#[cfg(test)]
mod tests;
mod value;

use std::fmt;
use std::marker::PhantomData;

use isochrone_engine::record::Record;
use isochrone_engine::{Error, Result};

use super::{Decoder, Format, Framing};
use columns::{Columns, RowDeserializer};
use row::RowSplitter;

/// Comma-separated values as in RFC 4180, with a header.
///
/// A struct takes the columns named like its fields, in any order; other columns are passed over.
/// A tuple takes the first columns in order. An empty field is `None` of an `Option`.
///
/// ```
/// use isochrone_connectors::format::{Csv, Decoder, Format};
/// #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
/// struct Sale { item: String, cents: u32 }
///
/// let mut decoder = Csv::<Sale>::default().decoder(Some("cents,shop,item"))?;
/// let sale = Sale { item: "tea, green".to_owned(), cents: 250 };
/// assert_eq!(decoder.decode(b"250,Jena,\"tea, green\""), Ok(Some(sale)));
/// assert_eq!(
///     decoder.decode(b"-1,Jena,tea"),
///     Err("column `cents`: `-1` does not fit into u32 (0 to 4294967295)".to_owned()),
/// );
/// # Ok::<(), isochrone_engine::Error>(())
/// ```
pub struct Csv<T> {
    delimiter: u8,
    item: PhantomData<fn() -> T>,
}

impl<T> Csv<T> {
    /// Another character than a comma between fields.
    ///
    /// ```
    /// use isochrone_connectors::format::{Csv, Decoder, Format};
    /// let mut decoder = Csv::<(u8, u8)>::default().delimiter(b';').decoder(Some("a;b"))?;
    /// assert_eq!(decoder.decode(b"1;2"), Ok(Some((1, 2))));
    /// # Ok::<(), isochrone_engine::Error>(())
    /// ```
    #[must_use]
    pub fn delimiter(self, delimiter: u8) -> Self {
        Csv { delimiter, ..self }
    }
}

impl<T> Default for Csv<T> {
    fn default() -> Self {
        Csv { delimiter: b',', item: PhantomData }
    }
}

impl<T> Clone for Csv<T> {
    fn clone(&self) -> Self {
        Csv { delimiter: self.delimiter, item: PhantomData }
    }
}

impl<T> fmt::Debug for Csv<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Csv").field("delimiter", &char::from(self.delimiter)).finish()
    }
}

impl<T: Record> Format for Csv<T> {
    type Item = T;
    type Decoder = CsvDecoder<T>;

    fn framing(&self) -> Framing {
        Framing::Quoted { delimiter: self.delimiter }
    }

    fn has_header(&self) -> bool {
        true
    }

    fn decoder(&self, header: Option<&str>) -> Result<CsvDecoder<T>> {
        let header = header.ok_or_else(|| Error::internal("csv without its header"))?;
        let mut rows = RowSplitter::new(self.delimiter);
        let fields = rows.split(header.as_bytes()).map_err(Error::invalid)?;
        let names = fields.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        let columns = Columns::of::<T>(names)?;
        Ok(CsvDecoder { rows, columns, item: PhantomData })
    }
}

/// Decodes rows below one header; made by [`Csv`].
pub struct CsvDecoder<T> {
    rows: RowSplitter,
    columns: Columns,
    item: PhantomData<fn() -> T>,
}

impl<T> fmt::Debug for CsvDecoder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CsvDecoder").field("columns", &self.columns).finish()
    }
}

impl<T: Record> Decoder for CsvDecoder<T> {
    type Item = T;

    fn decode(&mut self, record: &[u8]) -> Result<Option<T>, String> {
        if record.is_empty() {
            return Ok(None);
        }
        let fields = self.rows.split(record)?;
        if fields.len() != self.columns.names.len() {
            let wanted = self.columns.names.len();
            return Err(format!("{} fields, but the header has {wanted}", fields.len()));
        }
        let row = RowDeserializer { fields, columns: &self.columns };
        T::deserialize(row).map(Some).map_err(|flaw| flaw.to_string())
    }
}
