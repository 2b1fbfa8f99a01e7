//! One object on its way: durable under a temporary name, then given its name.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::{Created, Result};

use super::failure::{failed, unknown};
use super::leftovers::Writer;

const FILE_MODE: u32 = 0o600;

/// Bytes that are durable under a temporary name, which is removed when this is dropped.
pub(super) struct Draft {
    path: PathBuf,
}

impl Draft {
    /// Writes and syncs a new file in `folder`.
    pub(super) fn write(folder: &Path, writer: &Writer, bytes: &[u8]) -> Result<Draft> {
        let path = folder.join(writer.temporary_name()?);
        let mut options = OpenOptions::new();
        let opened = options.write(true).create_new(true).mode(FILE_MODE).open(&path);
        let mut file = opened.map_err(|error| failed("create a file in", folder, error))?;
        let draft = Draft { path };
        file.write_all(bytes).map_err(|error| failed("write into", folder, error))?;
        // Never synced a second time: after an error the kernel may call the pages clean. The
        // file is abandoned, and a new attempt writes a new one.
        file.sync_all().map_err(|error| abandoned(folder, error))?;
        Ok(draft)
    }

    /// Gives the bytes the name `target` in place of whatever has it.
    pub(super) fn replace(self, target: &Path) -> Result<()> {
        match fs::rename(&self.path, target) {
            Ok(()) => Ok(()),
            Err(error) if surely_not_done(&error) => Err(failed("write", target, error)),
            Err(error) => Err(unknown("rename a file to", target, error)),
        }
    }

    /// Gives the bytes the name `target` if nothing has it.
    pub(super) fn create(self, target: &Path) -> Result<Created> {
        let Err(error) = fs::hard_link(&self.path, target) else {
            return Ok(Created::Yes);
        };
        // A network file system may repeat a link whose answer was lost, and then report that the
        // name exists. Nobody else knows our temporary name, so a second link is the target.
        if fs::symlink_metadata(&self.path).is_ok_and(|metadata| metadata.nlink() > 1) {
            return Ok(Created::Yes);
        }
        match error.kind() {
            io::ErrorKind::AlreadyExists if is_folder(target) => {
                Err(failed("create", target, error))
            }
            io::ErrorKind::AlreadyExists => Ok(Created::Exists),
            _ if surely_not_done(&error) => Err(failed("create", target, error)),
            _ => Err(unknown("link a file to", target, error)),
        }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // After a rename it is gone; if it cannot be removed, the next sweep does.
        let _left_to_the_sweep = fs::remove_file(&self.path);
    }
}

/// Removes an object; says whether there was one.
pub(super) fn remove(path: &Path) -> Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if no_object(&error) || is_folder(path) => Ok(false),
        Err(error) if surely_not_done(&error) => Err(failed("delete", path, error)),
        Err(error) => Err(unknown("delete", path, error)),
    }
}

/// Whether the error says that no object has that name.
pub(super) fn no_object(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn is_folder(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir())
}

/// Refusals that the kernel gives before it touches anything.
fn surely_not_done(error: &io::Error) -> bool {
    use io::ErrorKind::*;
    matches!(
        error.kind(),
        PermissionDenied
            | ReadOnlyFilesystem
            | IsADirectory
            | NotADirectory
            | Unsupported
            | StorageFull
            | QuotaExceeded
    )
}

fn abandoned(folder: &Path, error: io::Error) -> crate::Error {
    let message = format!(
        "cannot sync a file in {}; it was abandoned and nothing was published: free space or look \
         into the system log for disk errors, then write again",
        folder.display()
    );
    crate::Error::unavailable(message).with_source(error)
}
