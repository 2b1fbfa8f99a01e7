//! Whose folder it is: a hidden file that says which sink of which job writes there.
//!
//! It keeps two sinks from writing the same names.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;

use isochrone_engine::ids::OperatorId;
use isochrone_engine::{Error, Result};

use super::name::Names;
use super::{folder, io_error};

const NAME: &str = ".isochrone-owner";

/// Who may write into a folder.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// Nobody has so far.
    Nobody,
    /// This sink has before.
    This,
}

/// Looks whose folder it is. Fails with `Invalid` if it is another sink's.
pub(super) fn find(
    folder: &Path,
    names: &Names,
    renamed_from: Option<&OperatorId>,
) -> Result<Owner> {
    let path = folder.join(NAME);
    let found = match fs::read_to_string(&path) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Owner::Nobody),
        Err(error) => return Err(io_error("read", &path, error)),
    };
    if found == names.owner(None) || found == names.owner(renamed_from) {
        return Ok(Owner::This);
    }
    Err(Error::invalid(format!(
        "folder {} belongs to {}; give each sink a folder of its own, or remove {} once that one \
         is no longer used",
        folder.display(),
        found.trim_end(),
        path.display()
    )))
}

/// Takes the folder, which nobody or this very sink has, in one step and durably.
pub(super) fn take(folder: &Path, names: &Names, renamed_from: Option<&OperatorId>) -> Result<()> {
    if find(folder, names, None).is_ok_and(|owner| owner == Owner::This) {
        return Ok(());
    }
    let (path, draft) = (folder.join(NAME), folder.join(names.probe()));
    let text = names.owner(None);
    let written = File::create(&draft).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.map_err(|error| io_error("write", &draft, error))?;
    let taken = match find(folder, names, renamed_from)? {
        Owner::This => fs::rename(&draft, &path),
        // Linking fails where another job was faster; where it is unsupported, renaming must do.
        Owner::Nobody => match fs::hard_link(&draft, &path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            Err(_) => fs::rename(&draft, &path),
            Ok(()) => Ok(()),
        },
    };
    match taken {
        // A newer run of this job took the draft for a left-over; the folder is its now.
        Err(error) if error.kind() == ErrorKind::NotFound && !draft.exists() => {}
        taken => taken.map_err(|error| io_error("create", &path, error))?,
    }
    folder::remove_if_there(&draft)?;
    folder::sync(folder)?;
    find(folder, names, None).map(drop)
}
