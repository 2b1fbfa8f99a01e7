//! Reading objects and names from a directory.

use std::fs::{self, DirEntry, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::store::name;
use crate::{Error, Result};

use super::draft::no_object;
use super::failure::{failed, symbolic_link};

/// The whole object at `path`, if there is one.
pub(super) fn whole(path: &Path) -> Result<Option<Vec<u8>>> {
    range(path, 0..u64::MAX)
}

/// The bytes of the object at `path` that lie in `range`.
pub(super) fn range(path: &Path, range: Range<u64>) -> Result<Option<Vec<u8>>> {
    let Some((file, length)) = open(path)? else { return Ok(None) };
    let end = range.end.min(length);
    if range.start >= end {
        return Ok(Some(Vec::new()));
    }
    let wanted = end - range.start;
    let bytes = bytes(file, range.start, wanted).map_err(|error| failed("read", path, error))?;
    if bytes.len() as u64 != wanted {
        return Err(Error::corrupt(format!(
            "{} became shorter while it was read: {wanted} bytes expected, {} found; objects are \
             never changed in place, so see what else writes there",
            path.display(),
            bytes.len()
        )));
    }
    Ok(Some(bytes))
}

fn open(path: &Path) -> Result<Option<(File, u64)>> {
    // Without waiting: a pipe in the place of an object has nobody at its other end.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if no_object(&error) => return Ok(None),
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => {
            return Err(symbolic_link(path));
        }
        Err(error) => return Err(failed("open", path, error)),
    };
    let metadata = file.metadata().map_err(|error| failed("read", path, error))?;
    Ok(metadata.is_file().then_some((file, metadata.len())))
}

fn bytes(mut file: File, start: u64, wanted: u64) -> io::Result<Vec<u8>> {
    let capacity = usize::try_from(wanted).map_err(|_| io::ErrorKind::OutOfMemory)?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(capacity)?;
    file.seek(SeekFrom::Start(start))?;
    file.take(wanted).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The names of all objects below `root` that start with `prefix`, ascending.
pub(super) fn names(root: &Path, prefix: &str) -> Result<Vec<String>> {
    let above = prefix.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut names = Vec::new();
    walk(&root.join(above), &mut |entry, path| {
        if let Entry::Object = entry {
            let below = path.strip_prefix(root).expect("the walk began at or below the root");
            // Only ASCII parts are visited.
            names.push(below.to_string_lossy().into_owned());
        }
        Ok(())
    })?;
    names.retain(|name| name.starts_with(prefix));
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

/// What a walk meets.
pub(super) enum Entry {
    /// A file whose name is legal.
    Object,
    /// A file that begins with a dot: no object.
    Hidden(DirEntry),
}

/// Visits all files in `folder` and below. Names that no object can have are not ours: skipped,
/// folders with all that is in them.
pub(super) fn walk(
    folder: &Path,
    visit: &mut impl FnMut(Entry, &Path) -> Result<()>,
) -> Result<()> {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if no_object(&error) => continue,
            Err(error) => return Err(failed("list", &folder, error)),
        };
        for entry in entries {
            let entry = entry.map_err(|error| failed("list", &folder, error))?;
            let path = entry.path();
            let kind = match entry.file_type() {
                Ok(kind) => kind,
                // Some file systems have to look, and a temporary file may be gone by then.
                Err(error) if no_object(&error) => continue,
                Err(error) => return Err(failed("list", &path, error)),
            };
            let legal = entry.file_name().to_str().is_some_and(|part| name::check(part).is_ok());
            let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
            match (legal, kind.is_file(), kind.is_dir()) {
                // Skipping it could hide checkpoints that reading by name would find.
                (true, ..) if kind.is_symlink() => return Err(symbolic_link(&path)),
                (true, true, _) => visit(Entry::Object, &path)?,
                (true, _, true) => folders.push(path),
                (false, true, _) if hidden => visit(Entry::Hidden(entry), &path)?,
                _ => {}
            }
        }
    }
    Ok(())
}
