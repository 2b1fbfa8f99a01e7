//! Finds out whether a file changes in other ways than growing while it is read.
//!
//! - While it is read: if its stamp has changed, or cannot be trusted yet, its first bytes and the
//!   last that were read are compared. That is cheap, and finds most.
//! - At the end of what is not followed: if its stamp was ever in doubt, or its name belongs to
//!   another file by now, all that was read is read again and must be the same. Nothing else can
//!   tell a file that was appended to from one that was overwritten in its middle.

use std::io::ErrorKind;

use isochrone_engine::Result;

use super::blocks::Blocks;
use super::identity;
use super::proof::Proof;
use super::stamp::Stamp;

/// What was seen of a file since it was opened.
#[derive(Debug)]
pub(super) struct Watch {
    last: Stamp,
    /// A later change would give another stamp than the last one.
    is_settled: bool,
    in_doubt: bool,
    proof: Option<(Proof, Against)>,
}

/// Which file is read again.
#[derive(Clone, Copy, Debug)]
enum Against {
    Itself,
    /// The one that has its name now.
    Successor,
}

/// What a look finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// What was read is still there. The length is that of now.
    Same { length: u64 },
    /// The file is shorter than it was.
    Shorter { length: u64 },
    /// The file has other content than was read.
    Overwritten { length: u64 },
    /// Another file of other content has its name.
    Replaced { length: u64 },
}

impl Watch {
    pub(super) fn new(blocks: &mut Blocks) -> Result<Watch> {
        let last = blocks.stamp_now()?;
        let is_settled = last.is_settled();
        Ok(Watch { last, is_settled, in_doubt: !is_settled, proof: None })
    }

    /// A quick look.
    pub(super) fn look(&mut self, blocks: &mut Blocks) -> Result<Seen> {
        let now = blocks.stamp_now()?;
        let length = now.length;
        if now == self.last && self.is_settled {
            return Ok(Seen::Same { length });
        }
        self.in_doubt |= now != self.last;
        // IMPORTANT: known before the bytes are compared: what changes after that is seen next time.
        self.is_settled = now.is_settled();
        self.last = now;
        if length < blocks.size() {
            return Ok(Seen::Shorter { length });
        }
        match blocks.is_unchanged()? {
            true => Ok(Seen::Same { length }),
            false => Ok(Seen::Overwritten { length }),
        }
    }

    /// At the end: whether all that was read is what the file has; none if that is not known yet.
    pub(super) fn settle(&mut self, blocks: &mut Blocks) -> Result<Option<Seen>> {
        let unreadable = |blocks: &Blocks, error| identity::unreadable(blocks.path(), error);
        if self.proof.is_none() {
            let seen = self.look(blocks)?;
            if !matches!(seen, Seen::Same { .. }) {
                return Ok(Some(seen));
            }
            let Some(kept) = blocks.kept() else { return Ok(Some(seen)) };
            let (file, against) = match std::fs::metadata(blocks.path()) {
                Ok(found) if identity::inode(&found) != blocks.inode() => {
                    (identity::open(blocks.path())?.0, Against::Successor)
                }
                // One that was deleted is read to its end.
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(unreadable(blocks, error));
                }
                _ if !self.in_doubt => return Ok(Some(seen)),
                _ => {
                    let file = blocks.file().try_clone();
                    (file.map_err(|error| unreadable(blocks, error))?, Against::Itself)
                }
            };
            self.proof = Some((kept.prove(file), against));
        }
        let (proof, against) = self.proof.as_mut().expect("it was begun just above");
        let Some(is_same) = proof.go_on().map_err(|error| unreadable(blocks, error))? else {
            return Ok(None);
        };
        let length = proof.length().map_err(|error| unreadable(blocks, error))?;
        Ok(Some(match against {
            _ if is_same => Seen::Same { length },
            Against::Itself => Seen::Overwritten { length },
            Against::Successor => Seen::Replaced { length },
        }))
    }

    /// All is read, and what was read is being read again.
    pub(super) fn is_settling(&self) -> bool {
        self.proof.is_some()
    }
}
