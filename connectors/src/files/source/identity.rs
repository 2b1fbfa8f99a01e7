//! Whether a file is still the one that was read.

use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};

use isochrone_engine::{Error, Result};
use serde::{Deserialize, Serialize};

/// What is remembered of a file, to find out whether it was cut or replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileIdentity {
    /// The longest it was seen, in bytes.
    pub size: u64,
    /// Its number in the file system, where there is one. A copy elsewhere has another.
    pub inode: Option<u64>,
    /// BLAKE3 over the first bytes before the position and the last ones before it.
    pub digest: String,
}

/// Bytes at the start of a file that are compared.
pub(super) const HEAD_BYTES: usize = 4096;
/// Bytes before a position that are compared.
pub(super) const TAIL_BYTES: usize = 64;

/// The digest of what was consumed: its first and its last bytes.
pub(super) fn digest(head: &[u8], tail: &[u8]) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(head).update(tail);
    hasher.finalize().to_hex().to_string()
}

/// Opens a regular file for reading. Other things, such as pipes, could not be read again.
pub(super) fn open(path: &str) -> Result<(File, Metadata)> {
    let found = std::fs::metadata(path).map_err(|error| unreadable(path, error))?;
    if !found.is_file() {
        return Err(Error::invalid(format!(
            "input `{path}` is not a regular file; only those can be read again after a failure"
        )));
    }
    let file = File::open(path).map_err(|error| unreadable(path, error))?;
    let found = file.metadata().map_err(|error| unreadable(path, error))?;
    Ok((file, found))
}

#[cfg(unix)]
pub(super) fn inode(found: &Metadata) -> Option<u64> {
    Some(std::os::unix::fs::MetadataExt::ino(found))
}

#[cfg(not(unix))]
pub(super) fn inode(_found: &Metadata) -> Option<u64> {
    None
}

/// Reads at a place until the buffer is full or the file ends.
pub(super) fn read_at(mut file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
    file.seek(SeekFrom::Start(offset))?;
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

pub(super) fn unreadable(path: &str, error: io::Error) -> Error {
    use io::ErrorKind::{IsADirectory, NotFound, PermissionDenied};
    // Where the message says what the system said, that is not said again.
    Error::invalid(match error.kind() {
        NotFound => format!("input `{path}` does not exist; name an existing file or directory"),
        PermissionDenied => format!("input `{path}` may not be read; check its permissions"),
        IsADirectory => format!("input `{path}` is a directory where a file was"),
        _ => {
            return Error::unavailable(format!("input `{path}` cannot be read")).with_source(error);
        }
    })
}

/// What to do about a loss.
const ADVICE: &str = "put the file back as it was, or let the source continue without them \
                      (`OnDataLoss::ContinueFromEarliest`)";

/// What is lost, as far as it can be known: a file may have grown since it was last seen.
fn losing(unread: u64) -> String {
    match unread {
        0 => "what was added to it since, if anything, is lost".to_owned(),
        bytes => format!("at least {bytes} bytes that were not read yet are lost"),
    }
}

/// The file is shorter than it was.
pub(super) fn truncated(path: &str, offset: u64, size: u64, found: u64) -> Error {
    let lost = size.saturating_sub(found.max(offset));
    Error::invalid(format!(
        "input `{path}` was {size} bytes long and is {found} now; it was read up to byte {offset}, \
         so that {lost} bytes that were not read yet are lost; {ADVICE}"
    ))
}

/// The file has other content than was read.
pub(super) fn replaced(path: &str, offset: u64, size: u64, found: u64) -> Error {
    let lost = size.saturating_sub(offset);
    Error::invalid(format!(
        "input `{path}` is not the file that was read up to byte {offset} of {size}: it was \
         replaced by another of {found} bytes; {}; {ADVICE}",
        losing(lost)
    ))
}

/// The file got other content while it was read.
pub(super) fn overwritten(path: &str, offset: u64, size: u64, found: u64) -> Error {
    Error::invalid(format!(
        "input `{path}` is not the file that was read up to byte {offset} of {size}: it was \
         overwritten while it was read, and has {found} bytes now; records of both may have been \
         read; put the file back as it was, and start from a checkpoint of before or anew; give a \
         new file another name, and let files grow only"
    ))
}

/// The file is gone before it was read to its end.
pub(super) fn deleted(path: &str, offset: u64, size: u64) -> Error {
    let lost = size.saturating_sub(offset);
    Error::invalid(format!(
        "input `{path}` was deleted; it was read up to byte {offset} of {size}; {}; {ADVICE}",
        losing(lost)
    ))
}
