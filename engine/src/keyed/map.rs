//! A collection per key whose entries are rows of their own: only changed entries are written.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use isochrone_persistence::ids::{KeyGroup, StateVersion};

use crate::Result;
use crate::keyed::logic::{Logic, Outputs, Step};
use crate::record::{Key, KeyBuffer, Record};
use crate::state::rows::Rows;
use crate::state::shape::Shape;
use crate::state::slot::Slot;
use crate::state::{State, codec, decode_state};

/// Values by a second key, in its order: the same order after a restore.
///
/// ```
/// use isochrone_engine::keyed::MapState;
/// let mut seats = MapState::<u32, String>::default();
/// seats.insert(7, "Ada".into());
/// seats.get_mut(&7).unwrap().push('!');
/// assert_eq!(seats.get(&7).unwrap(), "Ada!");
/// assert_eq!(seats.remove(&7).as_deref(), Some("Ada!"));
/// assert!(seats.is_empty());
/// ```
#[derive(Clone, Debug)]
pub struct MapState<K2, V> {
    /// An entry without a value waits for its tombstone.
    entries: BTreeMap<K2, Item<V>>,
    live: usize,
    changed: Vec<K2>,
}

#[derive(Clone, Debug)]
struct Item<V> {
    value: Option<V>,
    changed: bool,
    stored: bool,
}

impl<K2, V> Default for MapState<K2, V> {
    fn default() -> Self {
        MapState { entries: BTreeMap::new(), live: 0, changed: Vec::new() }
    }
}

impl<K2: Key + Ord, V> MapState<K2, V> {
    /// The value of an entry.
    pub fn get(&self, key: &K2) -> Option<&V> {
        self.entries.get(key)?.value.as_ref()
    }

    /// The value of an entry, to be changed: it will be written at the next checkpoint.
    pub fn get_mut(&mut self, key: &K2) -> Option<&mut V> {
        let item = self.entries.get_mut(key).filter(|item| item.value.is_some())?;
        mark(&mut self.changed, item, key);
        item.value.as_mut()
    }

    /// Sets the value of an entry and gives the one before.
    pub fn insert(&mut self, key: K2, value: V) -> Option<V> {
        let new = || Item { value: None, changed: false, stored: false };
        let item = self.entries.entry(key.clone()).or_insert_with(new);
        mark(&mut self.changed, item, &key);
        let before = item.value.replace(value);
        self.live += usize::from(before.is_none());
        before
    }

    /// Removes an entry and gives its value.
    pub fn remove(&mut self, key: &K2) -> Option<V> {
        let item = self.entries.get_mut(key)?;
        let before = item.value.take()?;
        self.live -= 1;
        if item.stored {
            mark(&mut self.changed, item, key);
        } else {
            self.entries.remove(key);
        }
        Some(before)
    }

    /// The entries in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&K2, &V)> {
        self.entries.iter().filter_map(|(key, item)| Some((key, item.value.as_ref()?)))
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.live
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }
}

fn mark<K2: Clone, V>(changed: &mut Vec<K2>, item: &mut Item<V>, key: &K2) {
    if !item.changed {
        item.changed = true;
        changed.push(key.clone());
    }
}

/// The slot of a map: one row per entry.
#[derive(Clone, Debug)]
pub struct Entries<K2, V>(pub MapState<K2, V>);

impl<K2, V> Default for Entries<K2, V> {
    fn default() -> Self {
        Entries(MapState::default())
    }
}

impl<K2: Key + Ord, V: State> Slot for Entries<K2, V> {
    const VERSION: u16 = V::VERSION;

    fn shape() -> Shape {
        Shape::of::<BTreeMap<K2, V>>()
    }

    fn is_vacant(&self) -> bool {
        self.0.is_empty()
    }

    fn save(&mut self, group: KeyGroup, key: &[u8], rows: &mut Rows) {
        let MapState { entries, changed, .. } = &mut self.0;
        let (mut buffer, mut row_key) = (KeyBuffer::default(), key.to_vec());
        for subkey in changed.drain(..) {
            // An entry that came and went is gone, or noted twice.
            let Some(item) = entries.get_mut(&subkey).filter(|item| item.changed) else { continue };
            row_key.truncate(key.len());
            row_key.extend_from_slice(buffer.encode(&subkey));
            item.changed = false;
            item.stored = item.value.is_some();
            match &item.value {
                Some(value) => rows.push_with(group, &row_key, |bytes| {
                    codec::encode_into(value, bytes).expect("state encodes");
                }),
                None => {
                    rows.push(group, &row_key, None);
                    entries.remove(&subkey);
                }
            }
        }
    }

    fn load(&mut self, from: StateVersion, subkey: &[u8], value: &[u8]) -> Result<()> {
        let key = codec::decode::<K2>(subkey)?;
        let value = decode_state(from.0, value)?;
        self.0.insert(key.clone(), value);
        let written_so = from.0 == V::VERSION;
        if let Some(item) = self.0.entries.get_mut(&key) {
            (item.stored, item.changed) = (true, !written_so);
        }
        if written_so {
            self.0.changed.pop();
        }
        Ok(())
    }

    fn clear(&mut self) {
        let keys: Vec<K2> = self.0.iter().map(|(key, _)| key.clone()).collect();
        for key in &keys {
            self.0.remove(key);
        }
    }
}

/// Emits any number of records for each: `Fn(&mut MapState<K2, V>, T) -> impl IntoIterator`.
pub struct StateMap<K2, V, F> {
    f: F,
    state: PhantomData<fn(K2, V)>,
}

impl<K2, V, F> StateMap<K2, V, F> {
    /// The operator of this closure.
    pub fn new(f: F) -> Self {
        StateMap { f, state: PhantomData }
    }
}

impl<K, T, K2, V, I, F> Logic<K, T> for StateMap<K2, V, F>
where
    K: Key,
    T: Record,
    K2: Key + Ord,
    V: State,
    I: IntoIterator<Item: Record>,
    F: Fn(&mut MapState<K2, V>, T) -> I + 'static,
{
    type Slot = Entries<K2, V>;
    type Out = I::Item;

    fn on_record(
        &self,
        _: &K,
        slot: &mut Entries<K2, V>,
        record: T,
        step: Step<'_>,
        out: &mut Outputs<I::Item>,
    ) {
        out.emit_all((self.f)(&mut slot.0, record), step.time);
    }
}

#[cfg(test)]
mod tests;
