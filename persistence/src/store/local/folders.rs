//! The root and the folders below it: made, made durable, and watched for being the same ones.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::{Error, Result};

use super::draft::no_object;
use super::failure::{failed, symbolic_link, unknown};

const FOLDER_MODE: u32 = 0o700;
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// The folders of one store object.
#[derive(Debug)]
pub(super) struct Folders {
    root: PathBuf,
    identity: (u64, u64),
    /// Folders whose own entry in their parent was synced by this store object. A folder that
    /// merely exists may have been made a moment ago by somebody who has not synced it yet.
    durable: Mutex<BTreeSet<PathBuf>>,
    /// Why nothing more can be known, once a folder failed to sync.
    broken: OnceLock<String>,
}

impl Folders {
    /// The root as it is now. Fails when it is missing, no directory, or open to others.
    pub(super) fn at(given: &Path) -> Result<Self> {
        let read = |error| failed("open directory", given, error);
        let root = fs::canonicalize(given).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::invalid(format!(
                "directory {} does not exist; check the path of the store",
                given.display()
            )),
            _ => read(error),
        })?;
        let metadata = fs::metadata(&root).map_err(read)?;
        check_root(given, &metadata)?;
        Ok(Folders {
            root,
            identity: (metadata.dev(), metadata.ino()),
            durable: Mutex::default(),
            broken: OnceLock::new(),
        })
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Fails when the root is no longer the directory that was opened, or a sync has failed.
    pub(super) fn check(&self) -> Result<()> {
        if let Some(reason) = self.broken.get() {
            return Err(Error::unavailable(format!("this store was given up earlier: {reason}")));
        }
        let gone = |what: String| {
            Error::unavailable(format!(
                "the root {} {what}; mount or restore it and start a new run",
                self.root.display()
            ))
        };
        let metadata = fs::metadata(&self.root)
            .map_err(|error| gone("is gone".to_owned()).with_source(error))?;
        if (metadata.dev(), metadata.ino()) != self.identity {
            return Err(gone("is not the directory that was opened".to_owned()));
        }
        Ok(())
    }

    /// Makes `folder` and all between it and the root, durably.
    pub(super) fn ensure(&self, folder: &Path) -> Result<()> {
        if self.known().contains(folder) {
            return Ok(());
        }
        let below = |path: &&Path| path.starts_with(&self.root) && *path != self.root;
        let mut wanted: Vec<&Path> = folder.ancestors().take_while(below).collect();
        wanted.reverse();
        for path in wanted {
            let parent = Folder::open(super::folder_of(path))?;
            make(path)?;
            // IMPORTANT: also when it existed. Whoever made it may not have synced its parent yet,
            // and our own acknowledgement must not depend on that.
            self.sync(&parent)?;
            self.known().insert(path.to_owned());
        }
        Ok(())
    }

    /// Forgets which folders exist, so that the next write makes what somebody removed.
    pub(super) fn forget(&self) {
        self.known().clear();
    }

    /// Makes the entries of `folder` durable. After a failure this store object is broken: a later
    /// sync may succeed although the entries are lost.
    pub(super) fn sync(&self, folder: &Folder) -> Result<()> {
        folder.file.sync_all().map_err(|error| {
            let error = unknown("sync folder", &folder.path, error);
            self.give_up(&error);
            error
        })
    }

    /// Makes every later call fail with this reason.
    pub(super) fn give_up(&self, reason: &Error) {
        let _the_first_reason_stays = self.broken.set(reason.report());
    }

    /// Makes sure that the root can be synced, before anything is entrusted to it, and that its
    /// own entry is durable even if whoever made it died before syncing.
    pub(super) fn sync_root(&self) -> Result<()> {
        sync_entries(&self.root)?;
        let Some(parent) = self.root.parent() else { return Ok(()) };
        match File::open(parent) {
            // Not ours to open, so not ours to have made the root in.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            _ => sync_entries(parent),
        }
    }

    /// Fails when a folder on the way from the root to `path` is a symbolic link.
    pub(super) fn confine(&self, path: &Path) -> Result<()> {
        let below = |path: &&Path| *path != self.root && path.starts_with(&self.root);
        let linked =
            |path: &&Path| fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
        let mut folders = path.ancestors().skip(1).take_while(below);
        folders.find(linked).map_or(Ok(()), |link| Err(symbolic_link(link)))
    }

    fn known(&self) -> MutexGuard<'_, BTreeSet<PathBuf>> {
        self.durable.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A folder opened before anything in it is changed, so that what can fail early does.
pub(super) struct Folder {
    path: PathBuf,
    file: File,
}

impl Folder {
    pub(super) fn open(path: &Path) -> Result<Folder> {
        let opened = File::open(path).map_err(|error| failed("open folder", path, error));
        Ok(Folder { path: path.to_owned(), file: opened? })
    }

    /// The folder, or `None` if there is none of that name.
    pub(super) fn find(path: &Path) -> Result<Option<Folder>> {
        match File::open(path) {
            Ok(file) => Ok(Some(Folder { path: path.to_owned(), file })),
            Err(error) if no_object(&error) => Ok(None),
            Err(error) => Err(failed("open folder", path, error)),
        }
    }
}

/// Creates the root and its missing parents and syncs the folder of each one made.
pub(super) fn create_root(root: &Path) -> Result<()> {
    let missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
    let mut wanted: Vec<&Path> = root.ancestors().take_while(missing).collect();
    wanted.reverse();
    for path in wanted {
        make(path).map_err(|error| takes_no_folders(path, error))?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        sync_entries(parent.unwrap_or(Path::new(".")))?;
    }
    Ok(())
}

fn make(path: &Path) -> Result<()> {
    match DirBuilder::new().mode(FOLDER_MODE).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(failed("create folder", path, error))
        }
        _ => Ok(()),
    }
}

/// Its parent is there: then "no such file" means a file system that is not for files, such as
/// `/proc`.
fn takes_no_folders(path: &Path, error: Error) -> Error {
    let source = std::error::Error::source(&error).and_then(|e| e.downcast_ref::<io::Error>());
    let is_strange = source.is_some_and(|source| {
        source.kind() == io::ErrorKind::NotFound || source.raw_os_error() == Some(libc::EPERM)
    });
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    if !is_strange || !parent.is_dir() {
        return error;
    }
    Error::invalid(format!(
        "cannot create folder {}: the file system of {} takes no folders; use another path for the \
         store",
        path.display(),
        parent.display()
    ))
}

fn sync_entries(folder: &Path) -> Result<()> {
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|error| failed("sync folder", folder, error))
}

fn check_root(given: &Path, metadata: &Metadata) -> Result<()> {
    if !metadata.is_dir() {
        return Err(Error::invalid(format!(
            "{} is not a directory; give the path of a directory for the store",
            given.display()
        )));
    }
    let mode = metadata.mode() & 0o7777;
    if mode & WRITABLE_BY_OTHERS != 0 {
        return Err(Error::invalid(format!(
            "directory {} has mode {mode:04o}: group or others may write it, and whoever writes a \
             store controls the job; run `chmod go-w` on it or use another path",
            given.display()
        )));
    }
    Ok(())
}
