//! Whether a file still has what is to be read next of it, and where to go on if not.

use std::io::ErrorKind;

use isochrone_engine::connector::{Batch, Poll, Reader};
use isochrone_engine::{Error, Result};

use super::blocks::Blocks;
use super::identity;
use super::position::FilePosition;

/// How a position stands to what was found of its file.
#[derive(Debug)]
pub(super) enum Standing {
    /// What was read is there, and so is all that was seen behind it.
    Fits(Blocks),
    /// What was read is there, and not all that was seen behind it.
    Cut(Blocks),
    /// The file is shorter than what was read of it, or has other content there.
    Other { found: u64 },
    /// There is no such file.
    Gone,
}

pub(super) fn standing(position: &FilePosition) -> Result<Standing> {
    let FilePosition { path, offset, end, file, .. } = position;
    match std::fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Standing::Gone),
        Ok(found) if found.is_file() && found.len() < *offset => {
            return Ok(Standing::Other { found: found.len() });
        }
        // What else may be wrong is told by opening it.
        _ => {}
    }
    let blocks = Blocks::open(path, *offset, *end, *offset)?;
    let found = blocks.identity();
    if found.digest != file.digest {
        return Ok(Standing::Other { found: found.size });
    }
    if found.inode != file.inode {
        tracing::debug!(path, "the input was copied: same content, other inode");
    }
    match found.size < file.size {
        true => Ok(Standing::Cut(blocks)),
        false => Ok(Standing::Fits(blocks)),
    }
}

/// What is said when the job stops because of it; none if nothing is lost.
pub(super) fn stopped(position: &FilePosition, standing: &Standing) -> Option<Error> {
    let FilePosition { path, offset, file, .. } = position;
    match standing {
        Standing::Fits(_) => None,
        Standing::Cut(blocks) => Some(identity::truncated(path, *offset, file.size, blocks.size())),
        Standing::Other { found } if *found < file.size => {
            Some(identity::truncated(path, *offset, file.size, *found))
        }
        Standing::Other { found } => Some(identity::replaced(path, *offset, file.size, *found)),
        Standing::Gone if nothing_is_left(position) => None,
        Standing::Gone if *offset == 0 => {
            Some(identity::unreadable(path, ErrorKind::NotFound.into()))
        }
        Standing::Gone => Some(identity::deleted(path, *offset, file.size)),
    }
}

/// Where to go on without what is lost, and whether there is a file to go on with.
///
/// Of a file that is another one now, the split that began at the first byte reads all; those of
/// other ranges end. So each of its records is read once.
pub(super) fn go_on(
    id: &str,
    position: &FilePosition,
    standing: &Standing,
) -> (FilePosition, bool) {
    let FilePosition { path, offset, end, file, lost, losses, .. } = position;
    let until = end.map_or(file.size, |end| end.min(file.size));
    let (next, reads, more) = match standing {
        Standing::Fits(_) => return (position.clone(), true),
        Standing::Cut(blocks) => {
            let found = blocks.size();
            let mut next = position.clone();
            next.file.size = found;
            // The range ended with a record; now it may end within one, as a file does.
            next.end = end.filter(|end| *end <= found);
            (next, true, until.saturating_sub(found.max(*offset)))
        }
        Standing::Other { .. } | Standing::Gone => {
            let mut next = FilePosition::at_start(path);
            let is_first = begins_its_file(id);
            if !is_first {
                next.end = Some(0);
            }
            let is_there = matches!(standing, Standing::Other { .. });
            (next, is_first && is_there, until.saturating_sub(*offset))
        }
    };
    let losses = losses + u32::from(more > 0);
    (FilePosition { lost: lost + more, losses, ..next }, reads)
}

/// Whether a file need not be there: its range is at its end, or it was given up as lost.
pub(super) fn nothing_is_left(position: &FilePosition) -> bool {
    let FilePosition { offset, end, file, losses, .. } = position;
    end.is_some_and(|end| end <= *offset) || *losses > 0 && *offset == 0 && file.size == 0
}

/// Every id ends with its range in brackets.
fn begins_its_file(id: &str) -> bool {
    id.rfind('[').is_some_and(|at| id[at..].starts_with("[0.."))
}

/// Reads nothing: what there was of its split is lost.
pub(super) struct Ended(pub(super) FilePosition);

impl<T: 'static> Reader<T, FilePosition> for Ended {
    fn poll(&mut self, _batch: &mut Batch<T>, _max: usize) -> Result<Poll> {
        Ok(Poll::Finished)
    }

    fn position(&self) -> FilePosition {
        self.0.clone()
    }
}
