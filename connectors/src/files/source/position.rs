//! Where the reading of a file stands.

use std::fmt;

use isochrone_engine::connector::Split;
use serde::{Deserialize, Serialize};

use super::identity::FileIdentity;

/// The next byte of a file to read, and what is needed to go on there and nowhere else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePosition {
    /// The file.
    pub path: String,
    /// The next byte, always the first of a record.
    pub offset: u64,
    /// The end of the split; none if the split ends with the file, however long it grows.
    pub end: Option<u64>,
    /// The line of the next record, counted from 1, where it is known; for messages.
    pub line: Option<u64>,
    /// The header that names the columns, once it was read.
    pub header: Option<String>,
    /// The record before was the last of its file and had no line feed.
    pub open_line: bool,
    /// The file that was read.
    pub file: FileIdentity,
}

/// `byte 120, line 7`; its split's name has the file.
impl fmt::Display for FilePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {}", self.offset)?;
        self.line.map_or(Ok(()), |line| write!(f, ", line {line}"))
    }
}

impl FilePosition {
    /// The split that begins here. Its name tells the range, so that it stays the same.
    pub(super) fn into_split(self) -> Split<FilePosition> {
        let end = self.end.map(|end| end.to_string()).unwrap_or_default();
        Split { id: format!("{}[{}..{end}]", self.path, self.offset), position: self }
    }
}
