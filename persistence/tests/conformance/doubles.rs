//! Stores that break the contract, each in one way.

use std::ops::Range;

use isochrone_persistence::store::memory::MemoryStore;
use isochrone_persistence::{Created, Result, Store};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Break {
    /// Conditional writes always write and always succeed.
    IgnoresTheCondition,
    /// Conditional writes succeed without writing when the name is taken.
    SaysYesWithoutWriting,
    /// Conditional writes say `Exists` but write.
    OverwritesAndSaysExists,
    /// Looks first, then writes: right alone, wrong in a race.
    LooksThenWrites,
    /// A list does not show anything written.
    ListsNothing,
    /// A list matches whole folders only.
    ListsFoldersOnly,
    /// A list is not sorted.
    ListsBackwards,
    /// A list stops at a page of 1000.
    ListsOnePage,
    /// A read gives nothing.
    ReadsNothing,
    /// Deleting does nothing.
    KeepsWhatIsDeleted,
    /// Of many that are deleted together, only the first is.
    DeletesOne,
    /// A range past the end fails to be cut: gives the last byte again.
    WrapsRanges,
    /// An absent object has an empty range.
    InventsRanges,
    /// Replacing happens in two steps, with a half in between.
    TearsWrites,
    /// Any name is taken.
    TakesAnyName,
}

pub(crate) struct BrokenStore {
    inner: MemoryStore,
    how: Break,
}

impl BrokenStore {
    pub(crate) fn new(how: Break) -> Self {
        BrokenStore { inner: MemoryStore::new(), how }
    }

    fn create(&self, name: &str, bytes: &[u8]) -> Result<Created> {
        let taken = self.inner.get(name)?.is_some();
        match self.how {
            Break::IgnoresTheCondition => {
                self.inner.put(name, bytes)?;
                Ok(Created::Yes)
            }
            Break::SaysYesWithoutWriting if taken => Ok(Created::Yes),
            Break::OverwritesAndSaysExists if taken => {
                self.inner.put(name, bytes)?;
                Ok(Created::Exists)
            }
            Break::LooksThenWrites if taken => Ok(Created::Exists),
            Break::LooksThenWrites => {
                // Long enough for every rival to look as well.
                for _ in 0..5_000 {
                    std::thread::yield_now();
                }
                self.inner.put(name, bytes)?;
                Ok(Created::Yes)
            }
            _ => self.inner.put_if_absent(name, bytes),
        }
    }
}

impl Store for BrokenStore {
    fn get(&self, name: &str) -> Result<Option<Vec<u8>>> {
        match self.how {
            Break::ReadsNothing => Ok(None),
            Break::TakesAnyName => Ok(self.inner.get(name).unwrap_or(None)),
            _ => self.inner.get(name),
        }
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Option<Vec<u8>>> {
        let bytes = self.inner.get_range(name, range.clone())?;
        match self.how {
            Break::WrapsRanges if range.start < range.end => {
                let whole = self.inner.get(name)?.unwrap_or_default();
                let last = whole.last().copied();
                Ok(bytes.map(|bytes| if bytes.is_empty() { Vec::from_iter(last) } else { bytes }))
            }
            Break::InventsRanges => Ok(Some(bytes.unwrap_or_default())),
            _ => Ok(bytes),
        }
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<()> {
        match self.how {
            Break::TearsWrites => {
                self.inner.put(name, &bytes[..bytes.len() / 2])?;
                for _ in 0..20 {
                    std::thread::yield_now();
                }
            }
            Break::TakesAnyName => return self.inner.put(name, bytes).or(Ok(())),
            _ => {}
        }
        self.inner.put(name, bytes)
    }

    fn put_if_absent(&self, name: &str, bytes: &[u8]) -> Result<Created> {
        self.create(name, bytes)
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>> {
        let mut names = self.inner.list(prefix)?;
        match self.how {
            Break::ListsNothing => names.clear(),
            Break::ListsFoldersOnly => {
                names.retain(|name| name.len() == prefix.len() || prefix.ends_with('/'));
            }
            Break::ListsBackwards => names.reverse(),
            Break::ListsOnePage => names.truncate(1000),
            _ => {}
        }
        Ok(names)
    }

    fn delete(&self, name: &str) -> Result<()> {
        match self.how {
            Break::KeepsWhatIsDeleted => Ok(()),
            _ => self.inner.delete(name),
        }
    }

    fn delete_all(&self, names: &[String]) -> Result<()> {
        let how_many = if self.how == Break::DeletesOne { 1 } else { names.len() };
        names.iter().take(how_many).try_for_each(|name| self.delete(name))
    }

    fn describe(&self) -> String {
        format!("broken double ({:?})", self.how)
    }
}
