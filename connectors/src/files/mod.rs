//! Files as a place to read from and to write to.

mod sink;
mod source;

pub use sink::{PartFiles, PartSink, PreparedPart};
pub(crate) use sink::{json_line, text_line};
pub use source::{FileIdentity, FilePosition, FileSource, Files};
