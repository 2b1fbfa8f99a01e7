//! The store of a simulated machine: it fails by plan, tells the trace what is done to it, and takes
//! the machine down with it, or is taken down.

use std::ops::Range;
use std::sync::Arc;

use isochrone_persistence::manifest::{self, Step};
use isochrone_persistence::paths::{self, Object};
use isochrone_persistence::store::faulty::FaultyStore;
use isochrone_persistence::store::memory::MemoryStore;
use isochrone_persistence::{Created, Error, Result, Store};

use super::baton::Baton;
use super::trace::Trace;

/// A store under observation.
pub(crate) struct Watched {
    pub(crate) inner: FaultyStore<MemoryStore>,
    pub(crate) baton: Arc<Baton>,
    pub(crate) trace: Arc<Trace>,
}

impl Watched {
    fn watch<T>(
        &self,
        operation: u64,
        name: &str,
        act: impl FnOnce(&FaultyStore<MemoryStore>) -> Result<T>,
    ) -> Result<T> {
        if self.baton.is_dead() {
            return Err(Error::unavailable(format!("the machine has crashed before {name}")));
        }
        self.trace.note(operation);
        self.note_name(name);
        let answer = act(&self.inner);
        self.trace.note(u64::from(answer.is_ok()));
        if self.inner.is_crashed() {
            self.baton.kill();
        }
        answer
    }

    /// Names hold random digits that no decision depends on.
    fn note_name(&self, name: &str) {
        match paths::parse(name) {
            Some((_, Object::Data(data))) => {
                self.trace.note(data.epoch.0);
                self.trace.note_bytes(data.operator.as_str().as_bytes());
                self.trace.note(data.generation.0 << 32 | u64::from(data.worker.0));
            }
            _ => self.trace.note_bytes(name.as_bytes()),
        }
    }

    /// A manifest holds a nonce and its predecessor's digest; the rest of it is all there is to see.
    fn note_content(&self, name: &str, bytes: &[u8]) {
        match paths::parse(name) {
            Some((_, Object::Data(_))) => self.trace.note_bytes(bytes),
            _ => self.trace.note(bytes.len() as u64),
        }
    }
}

impl Store for Watched {
    fn get(&self, name: &str) -> Result<Option<Vec<u8>>> {
        self.watch(1, name, |inner| inner.get(name))
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Option<Vec<u8>>> {
        self.watch(2, name, |inner| inner.get_range(name, range))
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<()> {
        self.note_content(name, bytes);
        self.watch(3, name, |inner| inner.put(name, bytes))
    }

    fn put_if_absent(&self, name: &str, bytes: &[u8]) -> Result<Created> {
        self.note_content(name, bytes);
        self.watch(4, name, |inner| inner.put_if_absent(name, bytes))
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>> {
        self.watch(5, prefix, |inner| inner.list(prefix))
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.watch(6, name, |inner| inner.delete(name))
    }

    fn describe(&self) -> String {
        format!("simulated {}", self.inner.describe())
    }
}

/// How many of these objects are manifests of checkpoints, and the highest epoch among them.
pub(crate) fn checkpoints_in(store: &MemoryStore) -> (u64, u64) {
    let (mut count, mut newest) = (0, 0);
    for (name, bytes) in store.snapshot() {
        if !matches!(paths::parse(&name), Some((_, Object::Manifest(_)))) {
            continue;
        }
        let Ok(manifest) = manifest::decode(&name, &bytes) else { continue };
        if manifest.step == Step::Checkpoint {
            count += 1;
        }
        newest = newest.max(manifest.epoch.0);
    }
    (count, newest)
}
