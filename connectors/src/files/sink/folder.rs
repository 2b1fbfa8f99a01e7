//! The folder itself: making it, probing it, looking through it. Knows no part's content.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use isochrone_engine::ids::Epoch;
use isochrone_engine::{Error, ErrorKind, Result};

use super::name::{Names, SUPERSEDED, epoch_of, is_finished_part};
use super::{io_error, io_error_kind};

/// Makes the folder and its missing parents, durably.
pub(super) fn make(folder: &Path) -> Result<()> {
    let missing: Vec<&Path> = folder.ancestors().take_while(|path| !path.exists()).collect();
    fs::create_dir_all(folder).map_err(|e| unusable("create", folder, e))?;
    for created in missing {
        if let Some(parent) = created.parent() {
            sync(parent)?;
        }
    }
    Ok(())
}

/// Makes the names in a folder durable.
pub(super) fn sync(folder: &Path) -> Result<()> {
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|e| io_error("sync folder", folder, e))
}

/// Fails with `Invalid` unless files can be created and removed here.
pub(super) fn probe(folder: &Path, names: &Names) -> Result<()> {
    let path = folder.join(names.probe());
    File::create(&path).map_err(|e| unusable("write into", folder, e))?;
    match fs::remove_file(&path) {
        // A newer run took it for a left-over, which it is.
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(unusable("write into", folder, e)),
        _ => Ok(()),
    }
}

/// Removes what earlier generations of this sink were writing when they ended.
pub(super) fn remove_leftovers(folder: &Path, names: &Names) -> Result<usize> {
    let leftovers = list(folder, |name| names.is_leftover(name))?;
    for name in &leftovers {
        let path = folder.join(name);
        remove_if_there(&path)?;
    }
    Ok(leftovers.len())
}

/// Fails with `Invalid` if there are finished parts.
pub(super) fn refuse_old_parts(folder: &Path) -> Result<()> {
    let parts = list(folder, is_finished_part)?;
    let Some(first) = parts.first() else { return Ok(()) };
    let (folder, count) = (folder.display(), parts.len());
    Err(Error::invalid(format!(
        "folder {folder} holds {count} part files that this job's history does not explain \
         (first: {first}); choose an empty folder, or the store that wrote them"
    )))
}

/// Fails with `Invalid` if there are parts in progress that no run before this one can have begun:
/// generations only rise, unless the store has lost them.
pub(super) fn refuse_lost_history(folder: &Path, names: &Names, is_fresh: bool) -> Result<()> {
    let own = names.generation();
    let is_lost = |run| if is_fresh { run >= own } else { run == own };
    let parts = list(folder, |name| names.open_part(name).is_some_and(is_lost))?;
    let Some(first) = parts.first() else { return Ok(()) };
    let (folder, count) = (folder.display(), parts.len());
    Err(Error::invalid(format!(
        "folder {folder} holds {count} unfinished part files (first: {first}) of runs of this job \
         whose checkpoints are gone; to begin again remove what is in the folder too, or give the \
         store that holds the checkpoints"
    )))
}

/// Gives finished parts of epochs from `from` on names that no reader's pattern matches, and
/// answers both names of each. The content stays: somebody may have read it.
pub(super) fn set_aside(
    folder: &Path,
    names: &Names,
    from: Epoch,
) -> Result<Vec<(String, String)>> {
    let mut moved = Vec::new();
    for part in list(folder, |name| epoch_of(name).is_some_and(|epoch| epoch >= from))? {
        let aside = names.superseded(&part);
        let path = folder.join(&aside);
        fs::rename(folder.join(&part), &path).map_err(|e| io_error("create", &path, e))?;
        moved.push((part, aside));
    }
    if !moved.is_empty() {
        sync(folder)?;
    }
    Ok(moved)
}

/// Whether a part of this name was ever set aside.
pub(super) fn was_set_aside(folder: &Path, finished: &str) -> Result<bool> {
    let prefix = format!("{finished}{SUPERSEDED}");
    Ok(!list(folder, |name| name.starts_with(&prefix))?.is_empty())
}

/// Removes a file that somebody else may have removed already.
pub(super) fn remove_if_there(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(io_error("remove", path, e)),
        _ => Ok(()),
    }
}

/// The names that `wanted` accepts, sorted. Those that are not UTF-8 are never ours.
pub(super) fn list(folder: &Path, wanted: impl Fn(&str) -> bool) -> Result<Vec<String>> {
    let failed = |e| io_error("list", folder, e);
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        if let Ok(name) = entry.map_err(failed)?.file_name().into_string()
            && wanted(&name)
        {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// A folder that will not take files, whenever one tries, is the job's settings' fault.
fn unusable(doing: &str, folder: &Path, error: io::Error) -> Error {
    if io_error_kind(&error) != ErrorKind::Invalid {
        return io_error(doing, folder, error);
    }
    let folder = folder.display();
    Error::invalid(format!(
        "cannot {doing} folder {folder}; let this user write there, or choose another folder"
    ))
    .with_source(error)
}
