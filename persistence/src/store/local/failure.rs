//! What an error of the operating system means to the caller of a local store.

use std::io;
use std::path::Path;

use crate::{Error, ErrorKind};

/// An error of a call on `path` that has certainly changed nothing that a reader can see.
pub(super) fn failed(action: &str, path: &Path, error: io::Error) -> Error {
    let (kind, advice) = meaning(&error);
    let message = format!("cannot {action} {}; {advice}", path.display());
    Error::new(kind, message).with_source(error)
}

/// An error of a call on `path` after which nobody knows what is on the disk.
pub(super) fn unknown(action: &str, path: &Path, error: io::Error) -> Error {
    let message = format!(
        "cannot {action} {}, so what reached the disk is unknown; look into the system log for \
         disk errors and start a new run",
        path.display()
    );
    Error::unavailable(message).with_source(error)
}

/// Refusal of something other than a file or a folder.
pub(super) fn symbolic_link(path: &Path) -> Error {
    Error::invalid(format!(
        "{} is a symbolic link; a store holds files and folders only, so put the real one there",
        path.display()
    ))
}

fn meaning(error: &io::Error) -> (ErrorKind, &'static str) {
    use ErrorKind::{Invalid, Unavailable};
    match error.kind() {
        // What `link` says where there are no hard links, and more rarely a matter of rights.
        _ if error.raw_os_error() == Some(libc::EPERM) => (
            Invalid,
            "its file system lacks hard links or the job's user lacks the right: use another path",
        ),
        io::ErrorKind::StorageFull => (Unavailable, "free space on its file system"),
        io::ErrorKind::QuotaExceeded => (Unavailable, "free space or raise the user's quota"),
        io::ErrorKind::FileTooLarge => (Unavailable, "raise the process's limit on file size"),
        io::ErrorKind::PermissionDenied => {
            (Invalid, "give the job's user read and write permission there, or use another path")
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            (Invalid, "mount its file system for writing, or use another path")
        }
        io::ErrorKind::NotADirectory => {
            (Invalid, "a file stands where a folder is needed: move it, or use another path")
        }
        io::ErrorKind::IsADirectory | io::ErrorKind::AlreadyExists => {
            (Invalid, "a folder stands where the file is to be: move it, or use another path")
        }
        io::ErrorKind::InvalidFilename => (Invalid, "use a shorter path"),
        // What syncing a folder says where that is not possible.
        io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput => {
            (Invalid, "its file system lacks hard links or folder sync: use another one")
        }
        io::ErrorKind::NotFound => {
            (Unavailable, "it was there a moment ago: see who removes files")
        }
        _ => (Unavailable, "see that its file system works, then try again"),
    }
}
