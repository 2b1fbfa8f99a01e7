//! Gives prepared parts their final names, and cleans up after runs that crashed.
//!
//! A part is found in one of four states; each has one outcome:
//!
//! | open name | final name | outcome |
//! |---|---|---|
//! | there | free | gets its final name |
//! | there or gone | there, same content | published before; done |
//! | there or gone | there, other content | refused; nothing is ever overwritten |
//! | gone | free | `Corrupt`, naming both |
//!
//! Not checked at a restart: finished parts newer than the checkpoint, as a store rolled back to
//! an older one would leave. They are met, and refused, when their epoch is published again.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use isochrone_engine::connector::Committer;
use isochrone_engine::{Error, Result};

use super::name::Names;
use super::part::PreparedPart;
use super::{folder, io_error};

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
    fn recover(&mut self, pending: Vec<PreparedPart>, fresh: bool) -> Result<()> {
        folder::make(&self.folder)?;
        folder::probe(&self.folder, &self.names)?;
        if fresh {
            folder::refuse_old_parts(&self.folder)?;
        }
        // IMPORTANT: publish first. What is pending lies under an older generation's names, which
        // is what the clean-up removes.
        self.commit(&pending)?;
        let removed = folder::remove_leftovers(&self.folder, &self.names)?;
        if removed > 0 {
            let folder = self.folder.display();
            tracing::info!(%folder, removed, "removed unfinished part files of earlier runs");
        }
        Ok(())
    }

    fn commit(&mut self, effects: &[PreparedPart]) -> Result<()> {
        let mut folders = BTreeSet::new();
        for part in effects {
            publish(part, |from, to| fs::hard_link(from, to))?;
            folders.insert(Path::new(&part.folder));
        }
        // IMPORTANT: the final names become durable before the open ones go. The other way round,
        // a power cut between the two could leave a part with no name at all.
        for folder in folders {
            folder::sync(folder)?;
        }
        for part in effects {
            folder::remove_if_there(&open_path(part))?;
        }
        Ok(())
    }
}

/// Gives one part its final name, keeping the open one.
///
/// `link` is hard linking: it fails if the name is taken, where a rename would overwrite. On file
/// systems without it, a look and a rename: a foreign file that appears between the two is lost.
fn publish(part: &PreparedPart, link: impl Fn(&Path, &Path) -> io::Result<()>) -> Result<()> {
    let (open, finished) = (open_path(part), finished_path(part));
    check_length(part, &open)?;
    match link(&open, &finished) {
        Ok(()) => Ok(()),
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

fn rename_if_free(part: &PreparedPart, open: &Path, finished: &Path) -> Result<()> {
    match finished.try_exists() {
        Ok(true) => check_published(part, finished),
        Ok(false) => fs::rename(open, finished).map_err(|e| io_error("create", finished, e)),
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

fn published_before(part: &PreparedPart) -> Result<()> {
    let finished = finished_path(part);
    match finished.try_exists() {
        Ok(true) => check_published(part, &finished),
        Ok(false) => Err(Error::corrupt(format!(
            "part {} is gone, and so is {} under which it was prepared; put it back, or restore \
             an older checkpoint",
            finished.display(),
            open_path(part).display()
        ))),
        Err(e) => Err(io_error("look for", &finished, e)),
    }
}

/// Whether the file under the final name is this very part: by length, then by digest.
fn check_published(part: &PreparedPart, finished: &Path) -> Result<()> {
    let mut hasher = blake3::Hasher::new();
    let mut file = File::open(finished).map_err(|e| io_error("read", finished, e))?;
    let bytes = io::copy(&mut file, &mut hasher).map_err(|e| io_error("read", finished, e))?;
    if bytes == part.bytes && hasher.finalize().to_hex().as_str() == part.digest {
        return Ok(());
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
