//! Where the reading of a file stands.

use std::fmt;

use isochrone_engine::connector::Split;
use serde::{Deserialize, Serialize};

use super::identity::{FileIdentity, digest};

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
    /// How many bytes were gone before they were read, and were passed over as
    /// [`crate::OnDataLoss`] said.
    #[serde(default)]
    pub lost: u64,
    /// How many times something was lost.
    #[serde(default)]
    pub losses: u32,
}

/// `byte 120, line 7`, and what was lost before; its split's name has the file.
impl fmt::Display for FilePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {}", self.offset)?;
        self.line.map_or(Ok(()), |line| write!(f, ", line {line}"))?;
        match self.losses {
            0 => Ok(()),
            _ => write!(f, ", {} bytes lost before", self.lost),
        }
    }
}

impl FilePosition {
    /// Before the first byte of a file of which nothing is known.
    pub(super) fn at_start(path: &str) -> FilePosition {
        FilePosition {
            path: path.to_owned(),
            offset: 0,
            end: None,
            line: Some(1),
            header: None,
            open_line: false,
            file: FileIdentity { size: 0, inode: None, digest: digest(&[], &[]) },
            lost: 0,
            losses: 0,
        }
    }

    /// The split that begins here. Its name tells the range, so that it stays the same.
    pub(super) fn into_split(self) -> Split<FilePosition> {
        let end = self.end.map(|end| end.to_string()).unwrap_or_default();
        Split { id: format!("{}[{}..{end}]", self.path, self.offset), position: self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_of_before_losses_were_counted_decodes_and_a_loss_is_shown() {
        let mut position = FilePosition::at_start("a.txt");
        let mut json = serde_json::to_value(&position).unwrap();
        let fields = json.as_object_mut().unwrap();
        assert!(fields.remove("lost").is_some() && fields.remove("losses").is_some());
        assert_eq!(serde_json::from_value::<FilePosition>(json).unwrap(), position);
        assert_eq!(position.to_string(), "byte 0, line 1");
        (position.lost, position.losses) = (7, 2);
        assert_eq!(position.to_string(), "byte 0, line 1, 7 bytes lost before");
    }
}
