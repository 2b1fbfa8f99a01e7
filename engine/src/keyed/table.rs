//! One keyed operator on one worker: what the dataflow drives.

use isochrone_persistence::ids::{KeyGroup, StateVersion};

use crate::Result;
use crate::keyed::logic::{Logic, Outputs, Step};
use crate::keyed::schedule::Schedule;
use crate::record::{Key, KeyHash, Record};
use crate::state::codec;
use crate::state::keyspace::{Kept, Keyspace, Packed, WARM, Whole};
use crate::state::rows::Rows;
use crate::state::shape::Shape;
use crate::state::slot::Slot;
use crate::time::EventTime;

/// Keyspace, logic and timers of one operator on one worker.
///
/// ```
/// use isochrone_engine::keyed::{Count, Outputs, Table};
/// use isochrone_engine::record::hash_of;
/// let mut table = Table::new(128, Count);
/// let mut out = Outputs::default();
/// let mut batch = vec![("a".to_owned(), ()), ("b".to_owned(), ()), ("a".to_owned(), ())];
/// let hashes: Vec<_> = batch.iter().map(|(key, ())| hash_of(key)).collect();
/// table.apply(&mut batch, |pair| pair, &hashes, &[], &mut out);
/// assert_eq!(out.items[2], ("a".to_owned(), 2));
///
/// table.freeze();
/// while !table.snapshot_step(1000) {}
/// assert_eq!(table.take_rows().len(), 2);
/// ```
pub struct Table<K: Key, T: Record, L: Logic<K, T>, S: Kept<K> = Whole<K>> {
    keyspace: Keyspace<K, L::Slot, S>,
    logic: L,
    schedule: Schedule,
    /// The key in work, to be named should the user's code panic.
    current: Option<KeyHash>,
    records: std::marker::PhantomData<fn(T)>,
}

impl<K: Key, T: Record, L: Logic<K, T>> Table<K, T, L> {
    /// An operator without state yet, in a job with so many key groups.
    pub fn new(groups: u16, logic: L) -> Self {
        Table::keeping(groups, logic)
    }
}

impl<K: Key, T: Record, L: Logic<K, T>> Table<K, T, L, Packed> {
    /// As [`new`](Table::new), for keys that own memory: their encoded bytes are kept.
    ///
    /// ```
    /// use isochrone_engine::keyed::{Count, Outputs, Table};
    /// use isochrone_engine::record::hash_of;
    /// let mut table = Table::packed(128, Count);
    /// let (key, mut out) = ("a".to_owned(), Outputs::default());
    /// let hashes = [hash_of(&key)];
    /// table.apply(&mut vec![(key, ())], |pair| pair, &hashes, &[], &mut out);
    /// assert_eq!(out.items, [("a".to_owned(), 1)]);
    /// ```
    pub fn packed(groups: u16, logic: L) -> Self {
        Table::keeping(groups, logic)
    }
}

impl<K: Key, T: Record, L: Logic<K, T>, S: Kept<K>> Table<K, T, L, S> {
    fn keeping(groups: u16, logic: L) -> Self {
        Table {
            keyspace: Keyspace::new(groups),
            logic,
            schedule: Schedule::default(),
            current: None,
            records: std::marker::PhantomData,
        }
    }

    /// Applies a batch, in order, and leaves `items` empty. `keyed` gives each item's key and
    /// record; `hashes` are those of the keys; `times` are the records' event times, or empty if
    /// they have none.
    ///
    /// # Panics
    /// If the lengths do not match, a key has another hash, or the user's code panics: see
    /// [`failing_key`](Table::failing_key).
    pub fn apply<I>(
        &mut self,
        items: &mut Vec<I>,
        keyed: impl Fn(I) -> (K, T),
        hashes: &[KeyHash],
        times: &[EventTime],
        out: &mut Outputs<L::Out>,
    ) {
        assert_eq!(items.len(), hashes.len(), "one hash for each record");
        assert!(times.is_empty() || times.len() == items.len(), "one time for each record or none");
        out.items.reserve(items.len());
        let mut keyed = items.drain(..).map(keyed).zip(hashes).enumerate();
        for chunk in hashes.chunks(WARM) {
            self.keyspace.warm(chunk);
            for (place, ((key, record), &hash)) in keyed.by_ref().take(chunk.len()) {
                self.current = Some(hash);
                let Table { keyspace, logic, schedule, .. } = self;
                let step = Step { hash, time: times.get(place).copied(), schedule };
                keyspace.update(hash, &key, |slot| logic.on_record(&key, slot, record, step, out));
            }
        }
        self.current = None;
    }

    /// Raises the watermark and fires what is due: timers by time, then by encoded key, each once.
    pub fn advance(&mut self, watermark: EventTime, out: &mut Outputs<L::Out>) {
        while self.advance_some(watermark, usize::MAX, out) {}
    }

    /// Like [`advance`](Table::advance), but stops after so many timers and forgotten keys.
    /// Returns whether more are due: call it again.
    pub fn advance_some(
        &mut self,
        watermark: EventTime,
        max: usize,
        out: &mut Outputs<L::Out>,
    ) -> bool {
        self.schedule.advance(watermark);
        let mut left = max;
        while left > 0 {
            if let Some((at, key)) = self.schedule.pop_timer() {
                self.fire(at, &key, out);
                left -= 1;
                continue;
            }
            let expired = self.schedule.pop_expiries(WARM.min(left));
            if expired.is_empty() {
                break;
            }
            left -= expired.len();
            self.keyspace.warm(&expired);
            expired.into_iter().for_each(|hash| self.forget(hash));
        }
        if self.schedule.is_due() {
            return true;
        }
        self.schedule.finish();
        false
    }

    fn fire(&mut self, at: EventTime, key_bytes: &[u8], out: &mut Outputs<L::Out>) {
        let key = codec::decode::<K>(key_bytes).expect("a key decodes from its own encoding");
        let hash = KeyHash::of_bytes(key_bytes);
        self.current = Some(hash);
        let Table { keyspace, logic, schedule, .. } = self;
        let step = Step { hash, time: Some(at), schedule };
        keyspace.update(hash, &key, |slot| logic.on_timer(&key, slot, step, out));
        self.current = None;
    }

    fn forget(&mut self, hash: KeyHash) {
        let Table { keyspace, logic, schedule, .. } = self;
        let until = schedule.forgotten();
        let expired = |slot: &L::Slot| logic.expires_at(slot).is_some_and(|at| at <= until);
        keyspace.clear_if(hash, expired);
    }

    /// Ends the epoch: see [`Keyspace::freeze`].
    pub fn freeze(&mut self) {
        self.keyspace.freeze();
    }

    /// Encodes up to so many keys of the snapshot; returns whether it is complete.
    ///
    /// # Panics
    /// If a user's `Serialize` fails.
    pub fn snapshot_step(&mut self, max_keys: usize) -> bool {
        self.keyspace.snapshot_step(max_keys)
    }

    /// The rows of the complete snapshot: see [`Keyspace::take_rows`].
    pub fn take_rows(&mut self) -> Rows {
        self.keyspace.take_rows()
    }

    /// Takes back a row of an earlier run, with its timers: see [`Keyspace::load`].
    pub fn load(
        &mut self,
        from: StateVersion,
        group: KeyGroup,
        row_key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        let Table { keyspace, logic, schedule, .. } = self;
        let (hash, key, slot) = keyspace.load(from, group, row_key, value)?;
        let timers = slot.timers();
        if !timers.is_empty() {
            let key = codec::encode(&key)?;
            timers.iter().for_each(|&at| schedule.set(at, &key));
        }
        if let Some(at) = logic.expires_at(slot) {
            schedule.expire(hash, at, logic.expiry_grain());
        }
        Ok(())
    }

    /// Version of the state's type in this code, for the manifest.
    pub fn state_version(&self) -> StateVersion {
        StateVersion(L::Slot::VERSION)
    }

    /// Shape of the state's type in this code, for the manifest.
    pub fn shape(&self) -> Shape {
        L::Slot::shape()
    }

    /// The watermark that the operator has been told.
    pub fn watermark(&self) -> EventTime {
        self.schedule.watermark()
    }

    /// How many keys have state.
    pub fn keys(&self) -> usize {
        self.keyspace.len()
    }

    /// Memory taken, about: see [`Keyspace::bytes_estimate`].
    pub fn bytes_estimate(&self) -> usize {
        self.keyspace.bytes_estimate()
    }

    /// The state of a key, unless vacant.
    pub fn get(&self, hash: KeyHash, key: &K) -> Option<&L::Slot> {
        self.keyspace.get(hash, key)
    }

    /// After a panic of the user's code has unwound through this table: the key that it was
    /// working on, as JSON.
    pub fn failing_key(&self) -> Option<String> {
        let print = |key: &K| serde_json::to_string(key).unwrap_or("(not printable)".to_owned());
        let encoding = self.keyspace.failing_key().map(|key| print(&key));
        encoding.or_else(|| self.keyspace.key_of(self.current?).map(|key| print(&key)))
    }
}

#[cfg(test)]
mod tests;
