//! Gives prepared parts their final names, and cleans up after runs that crashed.
//!
//! A part is found in one of four states; each has one outcome:
//!
//! | open name | final name | outcome |
//! |---|---|---|
//! | there | free | gets its final name |
//! | there or gone | there, same content | published before; done |
//! | there or gone | there, other content | refused; nothing is ever overwritten |
//! | gone | free | at a restart: published before and taken by a reader; reported. Else `Corrupt` |
//!
//! The last row rests on two facts: a part is durable under its open name before a checkpoint
//! names it, and nothing removes that name but a commit, after the final one is durable. So a
//! missing open name proves that the part was visible. It proves nothing in a folder that is not
//! the same one (its owner file is missing) or where the part was set aside: then it is `Corrupt`,
//! naming both.
//!
//! A run that goes on from an older checkpoint than the one whose output is visible writes those
//! epochs again: finished parts from that cut on are set aside first, never deleted.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use isochrone_engine::connector::{Committer, Recovery};
use isochrone_engine::{Error, Result};

use super::name::Names;
use super::owner::Owner;
use super::part::PreparedPart;
use super::{folder, io_error, owner};

pub(super) struct PartCommitter {
    folder: PathBuf,
    names: Names,
}

impl PartCommitter {
    pub(super) fn new(folder: String, names: Names) -> Self {
        PartCommitter { folder: folder.into(), names }
    }
}

impl Committer<PreparedPart> for PartCommitter {
    fn recover(&mut self, recovery: Recovery<PreparedPart>) -> Result<Vec<String>> {
        let Recovery { pending, from, renamed_from, .. } = recovery;
        folder::make(&self.folder)?;
        folder::probe(&self.folder, &self.names)?;
        let owner = owner::find(&self.folder, &self.names, renamed_from.as_ref())?;
        if from.is_none() || owner == Owner::Nobody {
            folder::refuse_old_parts(&self.folder)?;
        }
        owner::take(&self.folder, &self.names, renamed_from.as_ref())?;
        // IMPORTANT: publish first. What is pending lies under an older generation's names, which
        // is what the clean-up removes.
        let taken = self.publish_all(&pending)?;
        let mut notes: Vec<String> = taken.iter().map(|part| taken_away(part)).collect();
        let removed = folder::remove_leftovers(&self.folder, &self.names)?;
        if removed > 0 {
            let folder = self.folder.display();
            tracing::info!(%folder, removed, "removed unfinished part files of earlier runs");
        }
        if let Some(from) = from {
            let moved = folder::set_aside(&self.folder, &self.names, from)?;
            notes.extend(moved.iter().map(|(part, aside)| set_aside(&self.folder, part, aside)));
        }
        Ok(notes)
    }

    fn commit(&mut self, effects: &[PreparedPart]) -> Result<()> {
        match self.publish_all(effects)?.first() {
            None => Ok(()),
            Some(part) => Err(gone(part)),
        }
    }
}

impl PartCommitter {
    /// Publishes, and answers what somebody has taken away since it was published before.
    fn publish_all<'a>(&self, effects: &'a [PreparedPart]) -> Result<Vec<&'a PreparedPart>> {
        let (mut folders, mut taken) = (BTreeSet::new(), Vec::new());
        for part in effects {
            match publish(part, |from, to| fs::hard_link(from, to))? {
                Outcome::Visible => drop(folders.insert(Path::new(&part.folder))),
                Outcome::Taken => taken.push(part),
            }
        }
        // IMPORTANT: the final names become durable before the open ones go. The other way round,
        // a power cut between the two could leave a part with no name at all.
        for folder in folders {
            folder::sync(folder)?;
        }
        for part in effects {
            folder::remove_if_there(&open_path(part))?;
        }
        Ok(taken)
    }
}

fn taken_away(part: &PreparedPart) -> String {
    let path = finished_path(part);
    format!("part {} was published before and is gone; a reader has taken it", path.display())
}

fn set_aside(folder: &Path, part: &str, aside: &str) -> String {
    format!(
        "SET ASIDE {}: it is newer than the checkpoint and will be written again; it is {aside} now",
        folder.join(part).display()
    )
}

/// What became of a part.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// It has its final name.
    Visible,
    /// It had it, and somebody has taken it away.
    Taken,
}

/// Gives one part its final name, keeping the open one.
///
/// `link` is hard linking: it fails if the name is taken, where a rename would overwrite. On file
/// systems without it, a look and a rename: a foreign file that appears between the two is lost.
fn publish(part: &PreparedPart, link: impl Fn(&Path, &Path) -> io::Result<()>) -> Result<Outcome> {
    let (open, finished) = (open_path(part), finished_path(part));
    check_length(part, &open)?;
    match link(&open, &finished) {
        Ok(()) => Ok(Outcome::Visible),
        Err(e) if e.kind() == ErrorKind::AlreadyExists => check_published(part, &finished),
        Err(e) if e.kind() == ErrorKind::NotFound => published_before(part),
        Err(e) if is_unsupported(&e) => rename_if_free(part, &open, &finished),
        Err(e) => Err(io_error("create", &finished, e)),
    }
}

fn open_path(part: &PreparedPart) -> PathBuf {
    Path::new(&part.folder).join(&part.open)
}

fn finished_path(part: &PreparedPart) -> PathBuf {
    Path::new(&part.folder).join(&part.finished)
}

/// Link is refused with "not permitted" by file systems such as FAT.
fn is_unsupported(error: &io::Error) -> bool {
    error.kind() == ErrorKind::Unsupported || error.raw_os_error() == Some(libc::EPERM)
}

fn rename_if_free(part: &PreparedPart, open: &Path, finished: &Path) -> Result<Outcome> {
    match finished.try_exists() {
        Ok(true) => check_published(part, finished),
        Ok(false) => match fs::rename(open, finished) {
            Ok(()) => Ok(Outcome::Visible),
            Err(e) => Err(io_error("create", finished, e)),
        },
        Err(e) => Err(io_error("look for", finished, e)),
    }
}

/// A part that lost bytes since it was prepared must not become visible.
fn check_length(part: &PreparedPart, open: &Path) -> Result<()> {
    let found = match fs::metadata(open) {
        Ok(metadata) => metadata.len(),
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(io_error("look at", open, e)),
    };
    if found == part.bytes {
        return Ok(());
    }
    let (open, bytes) = (open.display(), part.bytes);
    Err(Error::corrupt(format!(
        "prepared part {open} has {found} bytes instead of {bytes}; restore an older checkpoint"
    )))
}

fn published_before(part: &PreparedPart) -> Result<Outcome> {
    let (finished, folder) = (finished_path(part), Path::new(&part.folder));
    match finished.try_exists() {
        Ok(true) => check_published(part, &finished),
        Ok(false) if owner::is_owned(folder) && !folder::was_set_aside(folder, &part.finished)? => {
            Ok(Outcome::Taken)
        }
        Ok(false) => Err(gone(part)),
        Err(e) => Err(io_error("look for", &finished, e)),
    }
}

fn gone(part: &PreparedPart) -> Error {
    Error::corrupt(format!(
        "part {} is gone, and so is {} under which it was prepared; put it back, or restore an \
         older checkpoint",
        finished_path(part).display(),
        open_path(part).display()
    ))
}

/// Whether the file under the final name is this very part: by length, then by digest.
fn check_published(part: &PreparedPart, finished: &Path) -> Result<Outcome> {
    let mut hasher = blake3::Hasher::new();
    let mut file = File::open(finished).map_err(|e| io_error("read", finished, e))?;
    let bytes = io::copy(&mut file, &mut hasher).map_err(|e| io_error("read", finished, e))?;
    if bytes == part.bytes && hasher.finalize().to_hex().as_str() == part.digest {
        return Ok(Outcome::Visible);
    }
    Err(Error::invalid(format!(
        "file {} holds {bytes} bytes that are not the {} this job prepared for it; did somebody \
         change it, or does another sink write into this folder? move it away, or put back what \
         was there",
        finished.display(),
        part.bytes
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unsupported(_: &Path, _: &Path) -> io::Result<()> {
        Err(io::Error::from_raw_os_error(libc::EPERM))
    }

    #[test]
    fn without_hard_links_a_part_is_renamed_but_never_over_a_foreign_file() {
        let folder = tempfile::TempDir::new().unwrap();
        let part = PreparedPart {
            folder: folder.path().to_str().unwrap().into(),
            open: ".open".into(),
            finished: "finished".into(),
            bytes: 4,
            digest: blake3::hash(b"mine").to_hex().to_string(),
        };
        let finished = finished_path(&part);
        fs::write(open_path(&part), "mine").unwrap();
        fs::write(&finished, "them").unwrap();
        publish(&part, unsupported).unwrap_err();
        assert_eq!(fs::read(&finished).unwrap(), b"them");

        fs::remove_file(&finished).unwrap();
        publish(&part, unsupported).unwrap();
        assert_eq!(fs::read(&finished).unwrap(), b"mine");
        assert!(!open_path(&part).exists());
        publish(&part, |from, to| fs::hard_link(from, to)).unwrap();
    }
}
