//! A store in memory, for tests and for jobs that keep nothing: a real map with the whole contract
//! but for power cuts.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::store::name;
use crate::{Created, Result, Store};

type Objects = BTreeMap<String, Arc<[u8]>>;

/// Objects in a map behind a lock. A clone is the same store; [`MemoryStore::fork`] copies.
///
/// ```
/// use isochrone_persistence::store::memory::MemoryStore;
/// use isochrone_persistence::{Created, Store};
///
/// let store = MemoryStore::new();
/// assert_eq!(store.put_if_absent("orders/m/1", b"one")?, Created::Yes);
/// assert_eq!(store.put_if_absent("orders/m/1", b"two")?, Created::Exists);
/// assert_eq!(store.clone().get("orders/m/1")?.as_deref(), Some(&b"one"[..]));
/// # Ok::<(), isochrone_persistence::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    objects: Arc<RwLock<Objects>>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        MemoryStore::default()
    }

    /// A store of its own with the same content: what a crash would leave at this moment.
    ///
    /// ```
    /// use isochrone_persistence::store::memory::MemoryStore;
    /// use isochrone_persistence::Store;
    ///
    /// let store = MemoryStore::new();
    /// let before = store.fork();
    /// store.put("orders/latest.json", b"{}")?;
    /// assert_eq!(before.get("orders/latest.json")?, None);
    /// # Ok::<(), isochrone_persistence::Error>(())
    /// ```
    #[must_use]
    pub fn fork(&self) -> MemoryStore {
        MemoryStore { objects: Arc::new(RwLock::new(self.read().clone())) }
    }

    /// A copy of all names and bytes, for comparing in tests.
    ///
    /// ```
    /// use isochrone_persistence::store::memory::MemoryStore;
    /// use isochrone_persistence::Store;
    ///
    /// let store = MemoryStore::new();
    /// store.put("a", b"1")?;
    /// assert_eq!(store.snapshot()["a"], b"1");
    /// # Ok::<(), isochrone_persistence::Error>(())
    /// ```
    #[must_use]
    pub fn snapshot(&self) -> BTreeMap<String, Vec<u8>> {
        self.read().iter().map(|(name, bytes)| (name.clone(), bytes.to_vec())).collect()
    }

    // Nothing that runs under the lock can leave the map half changed, so a panic elsewhere in a
    // thread that held it says nothing about the content.
    fn read(&self) -> RwLockReadGuard<'_, Objects> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Objects> {
        self.objects.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn object(&self, name: &str) -> Result<Option<Arc<[u8]>>> {
        name::check(name)?;
        Ok(self.read().get(name).cloned())
    }
}

impl Store for MemoryStore {
    fn get(&self, name: &str) -> Result<Option<Vec<u8>>> {
        Ok(self.object(name)?.map(|bytes| bytes.to_vec()))
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Option<Vec<u8>>> {
        Ok(self.object(name)?.map(|bytes| {
            let cut = |at: u64| usize::try_from(at).map_or(bytes.len(), |at| at.min(bytes.len()));
            bytes.get(cut(range.start)..cut(range.end)).unwrap_or_default().to_vec()
        }))
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<()> {
        name::check(name)?;
        self.write().insert(name.to_owned(), bytes.into());
        Ok(())
    }

    fn put_if_absent(&self, name: &str, bytes: &[u8]) -> Result<Created> {
        name::check(name)?;
        let mut objects = self.write();
        if objects.contains_key(name) {
            return Ok(Created::Exists);
        }
        objects.insert(name.to_owned(), bytes.into());
        Ok(Created::Yes)
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>> {
        name::check_prefix(prefix)?;
        let objects = self.read();
        let from = objects.range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
        let names = from.map(|(name, _)| name).take_while(|name| name.starts_with(prefix));
        Ok(names.cloned().collect())
    }

    fn delete(&self, name: &str) -> Result<()> {
        name::check(name)?;
        self.write().remove(name);
        Ok(())
    }

    fn describe(&self) -> String {
        "memory".to_owned()
    }
}
