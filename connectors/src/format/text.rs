//! Text: a record is a line, whatever is in it.

use isochrone_engine::Result;

use super::{Decoder, Format};

/// Lines of UTF-8. An empty line is an empty record.
///
/// ```
/// use isochrone_connectors::format::{Decoder, Format, Text};
/// let mut decoder = Text.decoder(None)?;
/// assert_eq!(decoder.decode(b""), Ok(Some(String::new())));
/// # Ok::<(), isochrone_engine::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Text;

/// Decodes lines; made by [`Text`].
#[derive(Clone, Copy, Debug, Default)]
pub struct TextDecoder;

impl Format for Text {
    type Item = String;
    type Decoder = TextDecoder;

    fn decoder(&self, _header: Option<&str>) -> Result<TextDecoder> {
        Ok(TextDecoder)
    }
}

impl Decoder for TextDecoder {
    type Item = String;

    fn decode(&mut self, record: &[u8]) -> Result<Option<String>, String> {
        match std::str::from_utf8(record) {
            Ok(text) => Ok(Some(text.to_owned())),
            Err(error) => Err(not_utf8(error)),
        }
    }
}

fn not_utf8(error: std::str::Utf8Error) -> String {
    format!("not UTF-8 from byte {} of the record on; write the file as UTF-8", error.valid_up_to())
}
