//! What every keyed operator is to the table that drives it.

use crate::keyed::schedule::Schedule;
use crate::record::{Key, KeyHash, Record};
use crate::state::slot::Slot;
use crate::time::EventTime;

/// One keyed operator: what it keeps per key and what it does with a record.
///
/// - `on_record` sees the records of a key in the order in which they came.
/// - It depends on nothing but its arguments: a replay repeats it.
pub trait Logic<K: Key, T: Record>: 'static {
    /// What is kept per key.
    type Slot: Slot;
    /// What is emitted.
    type Out: Record;

    /// Applies a record to its key's slot.
    fn on_record(
        &self,
        key: &K,
        slot: &mut Self::Slot,
        record: T,
        step: Step<'_>,
        out: &mut Outputs<Self::Out>,
    );

    /// A timer of the key is due; `step.time` is the time it was set for. Called once per timer.
    fn on_timer(
        &self,
        key: &K,
        slot: &mut Self::Slot,
        step: Step<'_>,
        out: &mut Outputs<Self::Out>,
    ) {
        let _ = (key, slot, step, out);
    }

    /// When the slot may be forgotten: as soon as the watermark reaches this time. An operator
    /// that answers also calls [`Schedule::expire`] whenever the answer changes.
    fn expires_at(&self, slot: &Self::Slot) -> Option<EventTime> {
        let _ = slot;
        None
    }

    /// How many milliseconds of expiries are forgotten together.
    fn expiry_grain(&self) -> i64 {
        1
    }
}

/// What a logic may know besides key, slot and record.
pub struct Step<'a> {
    /// The key's hash.
    pub hash: KeyHash,
    /// The record's event time, or the time a timer was set for.
    pub time: Option<EventTime>,
    /// Watermark, timers and expiries of the operator.
    pub schedule: &'a mut Schedule,
}

/// What an operator has emitted, in order.
///
/// ```
/// use isochrone_engine::keyed::Outputs;
/// use isochrone_engine::time::EventTime;
/// let mut out = Outputs::default();
/// out.emit('a', Some(EventTime(5)));
/// assert_eq!((out.items, out.times), (vec!['a'], vec![EventTime(5)]));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outputs<O> {
    /// The records.
    pub items: Vec<O>,
    /// The event time of each, or empty if none has one. Where only some have one, the others
    /// count as [`EventTime::MIN`].
    pub times: Vec<EventTime>,
}

impl<O> Default for Outputs<O> {
    fn default() -> Self {
        Outputs { items: Vec::new(), times: Vec::new() }
    }
}

impl<O> Outputs<O> {
    /// Adds a record.
    #[inline]
    pub fn emit(&mut self, item: O, time: Option<EventTime>) {
        if time.is_some() || !self.times.is_empty() {
            self.times.resize(self.items.len(), EventTime::MIN);
            self.times.push(time.unwrap_or(EventTime::MIN));
        }
        self.items.push(item);
    }

    /// Adds records that share a time.
    #[inline]
    pub fn emit_all(&mut self, items: impl IntoIterator<Item = O>, time: Option<EventTime>) {
        for item in items {
            self.emit(item, time);
        }
    }

    /// Forgets the records and keeps the memory.
    pub fn clear(&mut self) {
        self.items.clear();
        self.times.clear();
    }
}
