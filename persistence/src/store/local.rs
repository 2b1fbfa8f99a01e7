//! A store in a directory: one machine, or a shared drive.
//!
//! Knows files and folders; not what is in them. An object is written under a temporary name in
//! its own folder, made durable, and only then given its name, so that no reader sees a part of it
//! and a crash leaves nothing but temporary names, which no method shows.

mod draft;
mod failure;
mod folders;
mod leftovers;
mod read;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::store::name;
use crate::{Created, Error, Result, Store};

use draft::Draft;
use folders::{Folder, Folders};
use leftovers::Writer;

/// Objects as files under a root directory. Needs a file system with hard links.
///
/// - **Durable**: acknowledged only after the file, its folder and every folder that this store had
///   not used before are synced. A failed sync of a file abandons that file. A failed sync of a
///   folder ends this store object: each later call fails with `Unavailable`, since no later sync
///   and no read could tell what really reached the disk. Open it again in a new run.
/// - **Private**: files 0600, folders 0700; a root that group or others may write is refused.
/// - **Confined**: names are checked and symbolic links are not followed below the root. A root
///   that disappears or changes under the store (an unmounted drive) is an error, never "empty".
/// - **Ambiguity**: on a network file system `link` may report an error though it worked. The link
///   count of the temporary file tells; what it cannot tell is `Unavailable`, and the caller
///   resolves it as always, by reading back and comparing its nonce.
/// - **Listing** goes on during writes. A name that is being *replaced* at that moment may be
///   missed on some file systems; one that was created and is left alone never is.
/// - `a` and `a/b` cannot both be objects: the second is refused. Empty folders are left.
///
/// ```
/// use isochrone_persistence::store::local::LocalStore;
/// use isochrone_persistence::{Created, Store};
///
/// let folder = tempfile::tempdir()?;
/// let store = LocalStore::open(folder.path().join("state"))?;
/// assert_eq!(store.put_if_absent("orders/m/1", b"one")?, Created::Yes);
/// assert_eq!(store.list("orders/")?, ["orders/m/1"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct LocalStore {
    folders: Folders,
    shown: String,
    access: Access,
}

/// What this store object may do.
#[derive(Debug)]
enum Access {
    Read,
    Write(Writer),
}

impl LocalStore {
    /// Opens the directory `root`, creating it with its parents (0700) when it is missing, and
    /// removes what dead writers left, as [`LocalStore::sweep_leftovers`] does.
    ///
    /// Fails with `Invalid` when `root` is not a directory, is writable by group or others, or may
    /// not be written by this process.
    pub fn open(root: impl AsRef<Path>) -> Result<Self> {
        let root = root.as_ref();
        folders::create_root(root)?;
        let store = LocalStore::at(root, Access::Write(Writer::this()))?;
        store.folders.sync_root()?;
        if let Err(error) = store.sweep_leftovers() {
            tracing::warn!(root = %root.display(), %error, "leftover files were not removed");
        }
        Ok(store)
    }

    /// Opens an existing directory for reading: creates nothing, removes nothing, and every write
    /// fails with `Invalid`.
    ///
    /// ```
    /// use isochrone_persistence::store::local::LocalStore;
    /// use isochrone_persistence::{ErrorKind, Store};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let store = LocalStore::open_read_only(folder.path())?;
    /// assert_eq!(store.put("a", b"1").unwrap_err().kind(), ErrorKind::Invalid);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open_read_only(root: impl AsRef<Path>) -> Result<Self> {
        LocalStore::at(root.as_ref(), Access::Read)
    }

    fn at(root: &Path, access: Access) -> Result<Self> {
        let shown = format!("local directory {}", root.display());
        Ok(LocalStore { folders: Folders::at(root)?, shown, access })
    }

    /// Removes temporary files that no living writer will use, and says how many.
    ///
    /// Removed are files whose name shows that their writer ran on this boot of this machine, in
    /// this process namespace, and is gone; and files of any other writer (a shared drive, another
    /// container) that are a day old by the file system's own clock. The rule only spares work: a
    /// living writer whose file is removed fails that one write and publishes nothing, because a
    /// missing file can be given no name.
    ///
    /// ```
    /// use isochrone_persistence::store::local::LocalStore;
    ///
    /// let folder = tempfile::tempdir()?;
    /// let store = LocalStore::open(folder.path())?;
    /// assert_eq!(store.sweep_leftovers()?, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sweep_leftovers(&self) -> Result<usize> {
        let writer = self.writer()?;
        self.folders.check()?;
        leftovers::sweep(self.folders.root(), writer)
    }

    fn writer(&self) -> Result<&Writer> {
        match &self.access {
            Access::Write(writer) => Ok(writer),
            Access::Read => Err(Error::invalid(format!(
                "{} is open for reading only; open it for writing to change it",
                self.shown
            ))),
        }
    }

    fn path(&self, name: &str) -> Result<PathBuf> {
        name::check(name)?;
        self.folders.check()?;
        let path = self.folders.root().join(name);
        self.folders.confine(&path)?;
        Ok(path)
    }

    /// The target's path, its folder, and the bytes durable under a temporary name in that folder.
    fn draft(&self, name: &str, bytes: &[u8]) -> Result<(PathBuf, Folder, Draft)> {
        let writer = self.writer()?;
        let path = self.path(name)?;
        self.folders.ensure(folder_of(&path))?;
        let opened = Folder::open(folder_of(&path)).and_then(|folder| {
            let draft = Draft::write(folder_of(&path), writer, bytes)?;
            Ok((folder, draft))
        });
        // Perhaps somebody removed the folder: the next attempt makes it again.
        let (folder, draft) = opened.inspect_err(|_| self.folders.forget())?;
        Ok((path, folder, draft))
    }
}

/// The folder of a path below the root.
fn folder_of(path: &Path) -> &Path {
    path.parent().expect("the path of an object is below the root")
}

impl Store for LocalStore {
    fn get(&self, name: &str) -> Result<Option<Vec<u8>>> {
        read::whole(&self.path(name)?)
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Option<Vec<u8>>> {
        read::range(&self.path(name)?, range)
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let (path, folder, draft) = self.draft(name, bytes)?;
        draft.replace(&path)?;
        self.folders.sync(&folder)
    }

    fn put_if_absent(&self, name: &str, bytes: &[u8]) -> Result<Created> {
        let (path, folder, draft) = self.draft(name, bytes)?;
        let created = draft.create(&path)?;
        // Also when it exists: its writer may have died between naming and syncing, and nobody may
        // build on what a power cut could still take away.
        self.folders.sync(&folder)?;
        Ok(created)
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>> {
        name::check_prefix(prefix)?;
        self.folders.check()?;
        self.folders.confine(&self.folders.root().join(format!("{prefix}_")))?;
        read::names(self.folders.root(), prefix)
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.delete_all(&[name.to_owned()])
    }

    /// A folder is synced once.
    fn delete_all(&self, names: &[String]) -> Result<()> {
        self.writer()?;
        let mut folders = BTreeMap::<PathBuf, Folder>::new();
        let mut removed = || {
            for name in names {
                let path = self.path(name)?;
                let of = folder_of(&path);
                let Some(folder) = Folder::find(of)? else { continue };
                if draft::remove(&path)? {
                    folders.entry(of.to_owned()).or_insert(folder);
                }
            }
            Ok(())
        };
        let removed = removed();
        // What was removed is removed for good, also if another could not be.
        folders.values().try_for_each(|folder| self.folders.sync(folder))?;
        removed
    }

    fn describe(&self) -> String {
        self.shown.clone()
    }
}
