//! What proves that a part was published once a reader has taken it: a hidden, empty file beside it,
//! named like the part in progress but ending in `.done`.
//!
//! The proof is made right after the part got its final name, never before: a proof without a part
//! would turn lost records into read ones. It is kept for the last three commits, which is as far
//! as the newest checkpoint and the one before it look back, since each may name the output of two
//! epochs, and then removed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use isochrone_engine::Result;
use isochrone_engine::ids::Epoch;

use super::name::{self, Names};
use super::part::PreparedPart;
use super::{folder, io_error};

const COMMITS_KEPT: usize = 3;

/// Where the proof of a part is.
pub(super) fn path(part: &PreparedPart) -> PathBuf {
    Path::new(&part.folder).join(name::done(&part.open))
}

/// Whether the part is proved to have been published.
pub(super) fn is_proved(part: &PreparedPart) -> Result<bool> {
    let path = path(part);
    path.try_exists().map_err(|e| io_error("look for", &path, e))
}

/// Makes the proof, and says whether it is new. Durable with the folder's next sync.
pub(super) fn prove(part: &PreparedPart) -> Result<bool> {
    let path = path(part);
    match OpenOptions::new().write(true).create_new(true).open(&path) {
        Ok(_) => Ok(true),
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(e) => Err(io_error("create", &path, e)),
    }
}

/// The proofs of the last commits, oldest first.
#[derive(Debug, Default)]
pub(super) struct Proofs(VecDeque<Vec<PathBuf>>);

impl Proofs {
    /// What earlier runs left: that of `pending`, and of the two epochs before. Removes the older
    /// ones, and those of epochs from `from` on, which will be written again; all of them at a
    /// fresh start, whose names would meet them.
    pub(super) fn recover(
        folder: &Path,
        names: &Names,
        pending: &[PreparedPart],
        from: Option<Epoch>,
    ) -> Result<Proofs> {
        let pending: BTreeSet<PathBuf> = pending.iter().map(path).collect();
        let mut by_epoch: BTreeMap<Epoch, Vec<PathBuf>> = BTreeMap::new();
        for name in folder::list(folder, |name| names.done_epoch(name).is_some())? {
            let (epoch, path) = (names.done_epoch(&name), folder.join(&name));
            if !pending.contains(&path) {
                by_epoch.entry(epoch.expect("listed as such")).or_default().push(path);
            }
        }
        let mut gone = by_epoch.split_off(&from.unwrap_or(Epoch(0)));
        let kept = match by_epoch.keys().rev().nth(1).copied() {
            Some(last_but_one) => by_epoch.split_off(&last_but_one),
            None => std::mem::take(&mut by_epoch),
        };
        gone.append(&mut by_epoch);
        remove(gone.values().flatten())?;
        if !gone.is_empty() {
            folder::sync(folder)?;
        }
        let batches = [kept.into_values().flatten().collect(), pending.into_iter().collect()];
        Ok(Proofs(batches.into_iter().filter(|batch: &Vec<_>| !batch.is_empty()).collect()))
    }

    /// Takes those of one more commit, and removes those of the oldest.
    pub(super) fn add(&mut self, batch: Vec<PathBuf>) -> Result<()> {
        self.0.push_back(batch);
        while self.0.len() > COMMITS_KEPT {
            remove(self.0.pop_front().iter().flatten())?;
        }
        Ok(())
    }
}

fn remove<'a>(paths: impl IntoIterator<Item = &'a PathBuf>) -> Result<()> {
    paths.into_iter().try_for_each(|path| folder::remove_if_there(path))
}
