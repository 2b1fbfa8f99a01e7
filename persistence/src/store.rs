//! Where the bytes of checkpoints live: named objects, written whole.
//!
//! A store knows names and bytes; not manifests, not epochs. Everything that must be agreed upon
//! rests on one conditional write, [`Store::put_if_absent`], because it is the only one that every
//! backend has. The contract below is checked by `conformance` (feature `testing`) on every
//! implementation.

#[cfg(feature = "testing")]
pub mod faulty;
pub mod local;
pub mod memory;
pub mod name;
pub mod probe;

use std::ops::Range;
use std::sync::Arc;

use crate::Result;

/// What became of a conditional write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    /// The object did not exist and now holds the given bytes, durably.
    Yes,
    /// An object of that name exists; it was not changed. It may be the caller's own, written by
    /// an earlier attempt whose answer was lost: read it back before believing in a rival.
    Exists,
}

/// Named objects of bytes. Names are `/`-separated, relative, made by `paths`; what is
/// legal says [`name`], and every other name is refused with `Invalid`.
///
/// Contract, for every method:
/// - blocking, callable from any thread; never called on a worker's thread;
/// - `Err(Unavailable)` from a write means *unknown*: it may have been applied;
/// - an object is seen whole or not at all: no reader ever sees a part of a write;
/// - what a write acknowledged survives a power cut (memory stores excepted), including its name;
/// - after an acknowledged write, `get` and `list` from anywhere see it.
pub trait Store: Send + Sync + 'static {
    /// The whole object, or `None` if there is no such object.
    fn get(&self, name: &str) -> Result<Option<Vec<u8>>>;

    /// The bytes `range` of the object, or `None` if there is no such object. A range that ends
    /// past the object is cut at its end; one that starts past it gives no bytes.
    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Option<Vec<u8>>>;

    /// Creates or replaces the object.
    fn put(&self, name: &str, bytes: &[u8]) -> Result<()>;

    /// Creates the object only if there is none of that name. Among concurrent callers exactly one
    /// gets [`Created::Yes`].
    fn put_if_absent(&self, name: &str, bytes: &[u8]) -> Result<Created>;

    /// All names that start with `prefix` (a plain string prefix), ascending.
    fn list(&self, prefix: &str) -> Result<Vec<String>>;

    /// Removes the object; removing what is not there is no error.
    fn delete(&self, name: &str) -> Result<()>;

    /// Removes the objects, in no order; what it had removed when it failed is gone. A store that can
    /// do it in fewer steps than one by one does.
    fn delete_all(&self, names: &[String]) -> Result<()> {
        names.iter().try_for_each(|name| self.delete(name))
    }

    /// A name for messages, without credentials: `local directory state`.
    fn describe(&self) -> String;
}

/// A store shared by the threads of a process.
pub type SharedStore = Arc<dyn Store>;

/// A shared store is a store, so that it can be wrapped like any other.
impl<S: Store + ?Sized> Store for Arc<S> {
    fn get(&self, name: &str) -> Result<Option<Vec<u8>>> {
        (**self).get(name)
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Option<Vec<u8>>> {
        (**self).get_range(name, range)
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<()> {
        (**self).put(name, bytes)
    }

    fn put_if_absent(&self, name: &str, bytes: &[u8]) -> Result<Created> {
        (**self).put_if_absent(name, bytes)
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>> {
        (**self).list(prefix)
    }

    fn delete(&self, name: &str) -> Result<()> {
        (**self).delete(name)
    }

    fn delete_all(&self, names: &[String]) -> Result<()> {
        (**self).delete_all(names)
    }

    fn describe(&self) -> String {
        (**self).describe()
    }
}
