//! Gives prepared parts their final names, and cleans up after runs that crashed.
//!
//! A part is found in one of these states; each has one outcome:
//!
//! | open name | final name | proof | outcome |
//! |---|---|---|---|
//! | there | free | any | gets its final name, then its proof |
//! | there or gone | there, same content | any | published before; gets its proof if it has none |
//! | there or gone | there, other content | any | refused; nothing is ever overwritten |
//! | gone | free | there | published before, and taken by a reader |
//! | gone | free | none | lost: `Corrupt`, naming all three, at every start |
//!
//! The order, for all parts of a commit: rename (which never replaces), then the proof (`done.rs`),
//! for each part; then one sync of the folder. What a crash leaves:
//!
//! - before the rename: the open name. Published at the next start.
//! - between rename and proof: the final name. Gets its proof at the next start. Should a reader take
//!   the part before that, nothing tells it from a lost one, and the job asks: a gap that nobody
//!   sees would be worse.
//! - after the proof: the final name and the proof, or only the proof if a reader was there.
//! - a power cut before the sync may have kept either, both or none of the two, in any order. Where the
//!   open name is back, the rename was not durable, so a proof beside it says nothing: it is
//!   published again, under the same name.
//! - after the sync: both are durable, and the open name is gone for good.
//!
//! Proofs are removed three commits later, so a return to an older checkpoint than the one before the
//! newest finds parts that were taken without a proof, and asks.
//!
//! A run that goes on from an older checkpoint than the one whose output is visible writes those
//! epochs again: finished parts from that cut on are set aside first, never deleted.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use isochrone_engine::connector::{Committer, Recovery};
use isochrone_engine::{Error, Result};

use super::done::{self, Proofs};
use super::name::Names;
use super::owner::Owner;
use super::part::PreparedPart;
use super::{folder, io_error, owner};

pub(super) struct PartCommitter {
    folder: PathBuf,
    names: Names,
    proofs: Proofs,
    outcomes: Vec<String>,
}

impl PartCommitter {
    pub(super) fn new(folder: String, names: Names) -> Self {
        let (proofs, outcomes) = (Proofs::default(), Vec::new());
        PartCommitter { folder: folder.into(), names, proofs, outcomes }
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
        folder::refuse_lost_history(&self.folder, &self.names, from.is_none())?;
        owner::take(&self.folder, &self.names, renamed_from.as_ref())?;
        // IMPORTANT: publish first. What is pending lies under an older generation's names, which
        // is what the clean-up removes.
        let (taken, _) = publish_all(&pending)?;
        let mut notes: Vec<String> = taken.iter().map(|part| taken_away(part)).collect();
        let outcome = |part: &PreparedPart| match taken.contains(&part) {
            true => "taken by a reader".to_owned(),
            false => "visible now".to_owned(),
        };
        self.outcomes = pending.iter().map(outcome).collect();
        let removed = folder::remove_leftovers(&self.folder, &self.names)?;
        if removed > 0 {
            let folder = self.folder.display();
            tracing::info!(%folder, removed, "removed unfinished part files of earlier runs");
        }
        if let Some(from) = from {
            let moved = folder::set_aside(&self.folder, &self.names, from)?;
            notes.extend(moved.iter().map(|(part, aside)| set_aside(&self.folder, part, aside)));
        }
        self.proofs = Proofs::recover(&self.folder, &self.names, &pending, from)?;
        Ok(notes)
    }

    fn outcomes(&self) -> Vec<String> {
        self.outcomes.clone()
    }

    fn commit(&mut self, effects: &[PreparedPart]) -> Result<()> {
        match publish_all(effects)? {
            (_, new) if new.is_empty() => Ok(()),
            (_, new) => self.proofs.add(new),
        }
    }
}

/// Publishes. Answers what readers have taken away since it was published before, and the proofs
/// that are new.
fn publish_all(effects: &[PreparedPart]) -> Result<(Vec<&PreparedPart>, Vec<PathBuf>)> {
    let (mut folders, mut taken, mut proofs) = (BTreeSet::new(), Vec::new(), Vec::new());
    for part in effects {
        match publish(part, rename_new)? {
            Outcome::Visible => {
                if done::prove(part)? {
                    proofs.push(done::path(part));
                }
                folders.insert(Path::new(&part.folder));
            }
            Outcome::Taken => taken.push(part),
        }
    }
    for folder in folders {
        folder::sync(folder)?;
    }
    // Of a part that was found under both names. IMPORTANT: the final one is durable by now.
    for part in effects {
        folder::remove_if_there(&open_path(part))?;
    }
    Ok((taken, proofs))
}

/// Renames in one step, and fails with `AlreadyExists` where a plain rename would replace.
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    Ok(renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)?)
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

/// Gives one part its final name.
///
/// `rename` fails if the name is taken. On file systems without that, a look and a plain rename: a
/// foreign file that appears between the two is lost.
fn publish(
    part: &PreparedPart,
    rename: impl Fn(&Path, &Path) -> io::Result<()>,
) -> Result<Outcome> {
    let (open, finished) = (open_path(part), finished_path(part));
    check_length(part, &open)?;
    match rename(&open, &finished) {
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

/// Renaming without replacing is an invalid argument to file systems such as NFS, and unknown to old
/// kernels.
fn is_unsupported(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::InvalidInput)
}

fn rename_if_free(part: &PreparedPart, open: &Path, finished: &Path) -> Result<Outcome> {
    match finished.try_exists() {
        Ok(true) => check_published(part, finished),
        Ok(false) => match fs::rename(open, finished) {
            Ok(()) => Ok(Outcome::Visible),
            Err(e) if e.kind() == ErrorKind::NotFound => published_before(part),
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
        Ok(false) if done::is_proved(part)? && !folder::was_set_aside(folder, &part.finished)? => {
            Ok(Outcome::Taken)
        }
        Ok(false) => Err(lost(part)),
        Err(e) => Err(io_error("look for", &finished, e)),
    }
}

fn lost(part: &PreparedPart) -> Error {
    Error::corrupt(format!(
        "part {} is gone, so is {} under which it was prepared, and nothing proves that it was ever \
         published: its records would be missing; put one of the two back, or, if a reader has \
         taken the part, say so by creating the empty file {}",
        finished_path(part).display(),
        open_path(part).display(),
        done::path(part).display()
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
        Err(rustix::io::Errno::INVAL.into())
    }

    #[test]
    fn where_renaming_always_replaces_a_part_is_renamed_but_never_over_a_foreign_file() {
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
        publish(&part, rename_new).unwrap();
    }
}
