//! What is to happen when the watermark moves: timers in order, and keys to be forgotten.
//!
//! Derived from the slots alone, so nothing here is saved.

use std::collections::{BTreeMap, BTreeSet};

use crate::record::KeyHash;
use crate::time::EventTime;

/// Timers and expiries of one operator on one worker.
pub struct Schedule {
    watermark: EventTime,
    /// What may be forgotten: as the watermark, but the end of input is no reason to forget, since
    /// more input may come in a later run.
    forgotten: EventTime,
    /// By time, then encoded key: the order in which they fire.
    timers: BTreeSet<(EventTime, Box<[u8]>)>,
    /// Set by a firing timer for a time that has come already: for the next advance.
    deferred: Vec<(EventTime, Box<[u8]>)>,
    firing: bool,
    /// Keys that may be forgotten, in buckets by time.
    expiries: BTreeMap<EventTime, Vec<KeyHash>>,
}

impl Default for Schedule {
    fn default() -> Self {
        Schedule {
            watermark: EventTime::MIN,
            forgotten: EventTime::MIN,
            timers: BTreeSet::new(),
            deferred: Vec::new(),
            firing: false,
            expiries: BTreeMap::new(),
        }
    }
}

impl Schedule {
    /// The promise that the operator has been told: nothing older will come.
    pub fn watermark(&self) -> EventTime {
        self.watermark
    }

    /// Up to where keys may be forgotten.
    pub(crate) fn forgotten(&self) -> EventTime {
        self.forgotten
    }

    /// How many timers are set.
    pub fn timers(&self) -> usize {
        self.timers.len() + self.deferred.len()
    }

    /// Notes that a key may be forgotten soon after the watermark reaches `at`: with all others
    /// that fall into the same `grain` of milliseconds. [`EventTime::MAX`] means never.
    pub fn expire(&mut self, hash: KeyHash, at: EventTime, grain: i64) {
        if at < EventTime::MAX {
            let bucket =
                at.0.div_euclid(grain.max(1)).saturating_add(1).saturating_mul(grain.max(1));
            self.expiries.entry(EventTime(bucket)).or_default().push(hash);
        }
    }

    pub(crate) fn set(&mut self, at: EventTime, key: &[u8]) {
        if self.firing && at <= self.watermark {
            self.deferred.push((at, key.into()));
        } else {
            self.timers.insert((at, key.into()));
        }
    }

    pub(crate) fn cancel(&mut self, at: EventTime, key: &[u8]) {
        let timer = (at, key.into());
        self.timers.remove(&timer);
        self.deferred.retain(|other| *other != timer);
    }

    /// Raises the watermark; it never falls.
    pub(crate) fn advance(&mut self, watermark: EventTime) {
        self.watermark = self.watermark.max(watermark);
        if watermark < EventTime::MAX {
            self.forgotten = self.forgotten.max(watermark);
        }
        self.firing = true;
    }

    /// Ends what [`advance`](Schedule::advance) began: deferred timers wait for the next.
    pub(crate) fn finish(&mut self) {
        self.firing = false;
        self.timers.extend(self.deferred.drain(..));
    }

    /// The next timer that is due.
    pub(crate) fn pop_timer(&mut self) -> Option<(EventTime, Box<[u8]>)> {
        if self.timers.first()?.0 > self.watermark {
            return None;
        }
        self.timers.pop_first()
    }

    /// Up to so many keys of the first bucket, if the watermark has reached it.
    pub(crate) fn pop_expiries(&mut self, max: usize) -> Vec<KeyHash> {
        let bucket = self.expiries.first_entry().filter(|bucket| *bucket.key() <= self.forgotten);
        let Some(mut bucket) = bucket else { return Vec::new() };
        let hashes = bucket.get_mut();
        let popped = hashes.split_off(hashes.len().saturating_sub(max));
        if bucket.get().is_empty() {
            bucket.remove();
        }
        popped
    }

    pub(crate) fn is_due(&self) -> bool {
        let timer = self.timers.first().is_some_and(|(at, _)| *at <= self.watermark);
        let bucket = self.expiries.first_key_value();
        timer || bucket.is_some_and(|(at, _)| *at <= self.forgotten)
    }
}
