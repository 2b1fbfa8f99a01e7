//! The values of one operator's keys on one worker, in memory, with snapshots in steps.
//!
//! One hash table per key group, so that a table that grows never stops the operator for long.
//! An update costs one probe. A key is marked, and its hash noted in its group, at its first change
//! in an epoch; [`freeze`](Keyspace::freeze) turns the noted keys into a snapshot by swapping the
//! lists, [`snapshot_step`](Keyspace::snapshot_step) encodes them some at a time, group after group
//! so that one table is in work and in the cache, and a key that is about to change before its turn
//! is encoded first. There is no pass over a table, ever.

mod entry;
mod kept;

use std::marker::PhantomData;

use hashbrown::HashTable;
use hashbrown::hash_table::{Entry as Probe, OccupiedEntry};
use isochrone_persistence::ids::{KeyGroup, StateVersion};

use self::entry::{Entry, Epochs};
pub use self::kept::{Kept, Packed, Whole};
use crate::record::{Key, KeyBuffer, KeyHash, group_of, hash_of};
use crate::state::codec;
use crate::state::rows::Rows;
use crate::state::slot::{Slot, row_key_of, split_row_key};
use crate::{Error, Result};

/// Values by key, with the changes since the last snapshot. The caller computes each key's hash,
/// by [`hash_of`], and computes it once. `S` is how keys are kept: [`Whole`] or [`Packed`].
pub struct Keyspace<K, V, S = Whole<K>> {
    /// By number; those of other workers stay empty and take no memory.
    groups: Vec<Group<S, V>>,
    counts: Counts,
    epochs: Epochs,
    /// How many hashes are in the frozen lists of all groups, and the first group that has any.
    frozen: usize,
    frozen_group: usize,
    snapshot: Snapshot,
    keys: PhantomData<fn() -> K>,
}

/// The keys of one key group.
struct Group<S, V> {
    table: HashTable<Entry<S, V>>,
    /// Hashes of keys changed in this epoch.
    dirty: Vec<KeyHash>,
    /// Hashes of keys changed in the frozen epoch that may still have to be encoded.
    frozen: Vec<KeyHash>,
}

impl<S, V> Default for Group<S, V> {
    fn default() -> Self {
        Group { table: HashTable::new(), dirty: Vec::new(), frozen: Vec::new() }
    }
}

#[derive(Clone, Copy, Default)]
struct Counts {
    /// Entries in the tables; some may be vacant and wait for their tombstone.
    entries: usize,
    /// Those with a value.
    keys: usize,
}

/// Rows of the frozen epoch, and what encoding them needs.
#[derive(Default)]
struct Snapshot {
    rows: Rows,
    key: KeyBuffer,
    row_key: Vec<u8>,
    encoding: bool,
}

impl Snapshot {
    /// Encodes an entry as it is now, unless it neither is nor was anything.
    fn encode<K: Key, V: Slot, S: Kept<K>>(&mut self, group: KeyGroup, entry: &mut Entry<S, V>) {
        if !entry.mark.is_vacant() || entry.mark.is_stored() {
            let key = entry.key.encoded(&mut self.key);
            row_key_of(key, &mut self.row_key);
            self.encoding = true;
            entry.value.save(group, &self.row_key, &mut self.rows);
            self.encoding = false;
        }
        entry.mark.set_stored(!entry.mark.is_vacant());
    }
}

/// How many keys [`warm`](Keyspace::warm) is best given at a time: their places fit the nearest
/// cache.
pub const WARM: usize = 128;

/// Hashes that a group may note before those noted twice matter.
const DIRTY_MIN: usize = 1024;

impl<K: Key, V: Slot, S: Kept<K>> Keyspace<K, V, S> {
    /// No keys, for a job with so many key groups.
    ///
    /// # Panics
    /// If there are no groups.
    pub fn new(groups: u16) -> Self {
        assert!(groups > 0, "a job has at least one key group");
        Keyspace {
            groups: (0..groups).map(|_| Group::default()).collect(),
            counts: Counts::default(),
            epochs: Epochs::default(),
            frozen: 0,
            frozen_group: 0,
            snapshot: Snapshot::default(),
            keys: PhantomData,
        }
    }

    /// Touches the places of keys about to be updated, so that the waits for memory overlap. An
    /// entry may lie across two lines of the cache: both ends are touched.
    #[inline]
    pub fn warm(&self, hashes: &[KeyHash]) {
        // No branch may depend on what is read: a wrong guess would wait for the memory.
        let mut touched = 0_u8;
        for &hash in hashes {
            if let Some(entry) = self.table(hash).find(hash.0, |_| true) {
                touched ^= entry.mark.bits() ^ entry.key.touch();
            }
        }
        std::hint::black_box(touched);
    }

    /// Lends the value of a key for a change; a key never seen starts with the default. Whatever
    /// `f` does, the key counts as changed; a value that is vacant afterwards is forgotten, by a
    /// tombstone in the next snapshot if it was ever stored.
    ///
    /// # Panics
    /// If the key is new and has another hash.
    #[inline]
    pub fn update<R>(&mut self, hash: KeyHash, key: &K, f: impl FnOnce(&mut V) -> R) -> R {
        let group = self.group(hash);
        let Group { table, dirty, .. } = &mut self.groups[usize::from(group.0)];
        let same = |e: &Entry<S, V>| e.mark.is_of(hash) && e.key.is(key);
        let mut place = match table.entry(hash.0, same, |e| e.mark.hash_for_table()) {
            Probe::Occupied(place) => place,
            Probe::Vacant(place) => {
                assert!(
                    hash_of(key) == hash,
                    "a record was routed by another key: `key_by` must depend on the record alone"
                );
                self.counts.entries += 1;
                place.insert(Entry::new(key, hash))
            }
        };
        let entry = place.get_mut();
        if !self.epochs.is_dirty(entry.mark) {
            if self.epochs.is_waiting(entry.mark) {
                self.snapshot.encode::<K, _, _>(group, entry);
            }
            self.epochs.set_dirty(&mut entry.mark);
            dirty.push(hash);
        }
        let result = f(&mut entry.value);
        settle(place, &mut self.counts);
        if dirty.len() > DIRTY_MIN + 4 * table.len() {
            compact_dirty(dirty, table);
        }
        result
    }

    /// Clears the values of a hash for which `f` says so: a change like any other.
    pub fn clear_if(&mut self, hash: KeyHash, mut f: impl FnMut(&V) -> bool) {
        let group = self.group(hash);
        let Group { table, dirty, .. } = &mut self.groups[usize::from(group.0)];
        let mut due = |e: &Entry<S, V>| e.mark.is_of(hash) && !e.mark.is_vacant() && f(&e.value);
        while let Ok(mut place) = table.find_entry(hash.0, &mut due) {
            let entry = place.get_mut();
            if !self.epochs.is_dirty(entry.mark) {
                if self.epochs.is_waiting(entry.mark) {
                    self.snapshot.encode::<K, _, _>(group, entry);
                }
                self.epochs.set_dirty(&mut entry.mark);
                dirty.push(hash);
            }
            entry.value.clear();
            settle(place, &mut self.counts);
        }
    }

    /// The value of a key, unless vacant.
    pub fn get(&self, hash: KeyHash, key: &K) -> Option<&V> {
        let entry = self.table(hash).find(hash.0, |entry| entry.key.is(key))?;
        (!entry.mark.is_vacant()).then_some(&entry.value)
    }

    /// A key that has this hash, even while its value is being changed.
    pub fn key_of(&self, hash: KeyHash) -> Option<K> {
        let entry = self.table(hash).find(hash.0, |entry| entry.mark.is_of(hash))?;
        codec::decode(entry.key.encoded(&mut KeyBuffer::default())).ok()
    }

    /// After a panic in a user's `Serialize` has unwound through a snapshot: the key whose value
    /// it was.
    pub fn failing_key(&self) -> Option<K> {
        let Snapshot { row_key, encoding, .. } = &self.snapshot;
        let key = encoding.then(|| split_row_key(row_key).ok())?;
        key.and_then(|(key, _)| codec::decode(key).ok())
    }

    /// Ends the epoch: what changed in it becomes the snapshot, as it is now. Takes no time that
    /// depends on the number of keys, provided that the snapshot before is done; otherwise that
    /// one is finished first. Rows not taken yet become part of the new snapshot.
    pub fn freeze(&mut self) {
        self.snapshot_step(usize::MAX);
        for group in &mut self.groups {
            std::mem::swap(&mut group.dirty, &mut group.frozen);
            self.frozen += group.frozen.len();
        }
        self.frozen_group = 0;
        self.epochs.next();
    }

    /// Encodes up to so many keys of the snapshot. Returns whether it is complete.
    pub fn snapshot_step(&mut self, max_keys: usize) -> bool {
        let mut left = max_keys;
        while left > 0 && self.frozen > 0 {
            let frozen = &self.groups[self.frozen_group].frozen;
            let count = frozen.len().min(WARM).min(left);
            if count == 0 {
                self.frozen_group += 1;
                continue;
            }
            self.warm(&frozen[frozen.len() - count..]);
            for _ in 0..count {
                self.encode_frozen();
            }
            left -= count;
        }
        self.frozen == 0
    }

    /// Encodes all waiting keys that the table finds by the next frozen hash. One of another hash
    /// may be among them: it waits as well, and is the same now as when its own turn comes.
    fn encode_frozen(&mut self) {
        let Keyspace { groups, epochs, snapshot, counts, .. } = self;
        let number = KeyGroup(self.frozen_group as u16);
        let Group { table, frozen, .. } = &mut groups[self.frozen_group];
        let hash = frozen.pop().expect("the group has frozen keys left");
        self.frozen -= 1;
        while let Ok(mut place) = table.find_entry(hash.0, |entry| epochs.is_waiting(entry.mark)) {
            let entry = place.get_mut();
            snapshot.encode::<K, _, _>(number, entry);
            epochs.set_encoded(&mut entry.mark);
            if entry.mark.is_vacant() {
                counts.entries -= 1;
                place.remove();
            }
        }
    }

    /// The rows of a complete snapshot, moved out.
    ///
    /// # Panics
    /// If [`snapshot_step`](Keyspace::snapshot_step) has not said that it is complete.
    pub fn take_rows(&mut self) -> Rows {
        assert!(self.frozen == 0, "rows are taken from a snapshot that is not complete");
        std::mem::take(&mut self.snapshot.rows)
    }

    /// Takes back a row that an earlier run saved, written by state version `from`, and gives the
    /// hash and key that it belongs to. A row that is not exactly what this code would save counts
    /// as changed, so that the next snapshot holds it in today's form.
    ///
    /// Fails with `Corrupt` if the bytes are no such row or of another key group, and as
    /// [`Slot::load`] does.
    pub fn load(
        &mut self,
        from: StateVersion,
        group: KeyGroup,
        row_key: &[u8],
        value: &[u8],
    ) -> Result<(KeyHash, K, &V)> {
        let (key_bytes, subkey) = split_row_key(row_key)?;
        let key = codec::decode::<K>(key_bytes)?;
        let hash = hash_of(&key);
        if self.group(hash) != group || KeyHash::of_bytes(key_bytes) != hash {
            return Err(Error::corrupt(format!(
                "a row of key group {group} has a key of group {}",
                self.group(hash)
            )));
        }
        let Group { table, dirty, .. } = &mut self.groups[usize::from(group.0)];
        let same = |e: &Entry<S, V>| e.mark.is_of(hash) && e.key.is(&key);
        let mut place = match table.entry(hash.0, same, |e| e.mark.hash_for_table()) {
            Probe::Occupied(place) => place,
            Probe::Vacant(place) => {
                self.counts.entries += 1;
                place.insert(Entry::new(&key, hash))
            }
        };
        let entry = place.get_mut();
        entry.mark.set_stored(true);
        entry.value.load(from, subkey, value)?;
        let vacant = entry.value.is_vacant();
        let was_vacant = entry.mark.is_vacant();
        self.counts.keys = self.counts.keys + usize::from(was_vacant) - usize::from(vacant);
        entry.mark.set_vacant(vacant);
        if (vacant || from.0 != V::VERSION) && !self.epochs.is_dirty(entry.mark) {
            self.epochs.set_dirty(&mut entry.mark);
            dirty.push(hash);
        }
        Ok((hash, key, &place.into_mut().value))
    }

    /// How many keys have a value.
    pub fn len(&self) -> usize {
        self.counts.keys
    }

    /// Whether no key has a value.
    pub fn is_empty(&self) -> bool {
        self.counts.keys == 0
    }

    /// Memory taken, without what the values themselves own elsewhere.
    pub fn bytes_estimate(&self) -> usize {
        let of_group = |Group { table, dirty, frozen }: &Group<S, V>| {
            let hashes = dirty.capacity() + frozen.capacity();
            table.allocation_size() + hashes * size_of::<KeyHash>()
        };
        self.groups.iter().map(of_group).sum::<usize>() + self.snapshot.rows.bytes()
    }

    #[inline]
    fn group(&self, hash: KeyHash) -> KeyGroup {
        group_of(hash, self.groups.len() as u16)
    }

    #[inline]
    fn table(&self, hash: KeyHash) -> &HashTable<Entry<S, V>> {
        &self.groups[usize::from(self.group(hash).0)].table
    }
}

/// Keys that came and went many times in one epoch were noted each time: note them once.
#[cold]
fn compact_dirty<S, V>(dirty: &mut Vec<KeyHash>, table: &HashTable<Entry<S, V>>) {
    dirty.sort_unstable();
    dirty.dedup();
    dirty.retain(|&hash| table.find(hash.0, |entry| entry.mark.is_of(hash)).is_some());
}

/// After a change: counts the key and forgets it at once if nothing of it was ever stored.
#[inline]
fn settle<S, V: Slot>(mut place: OccupiedEntry<'_, Entry<S, V>>, counts: &mut Counts) {
    let entry = place.get_mut();
    let (was, is) = (entry.mark.is_vacant(), entry.value.is_vacant());
    counts.keys = counts.keys + usize::from(was) - usize::from(is);
    entry.mark.set_vacant(is);
    if is && !entry.mark.is_stored() {
        counts.entries -= 1;
        place.remove();
    }
}

#[cfg(test)]
mod tests;
