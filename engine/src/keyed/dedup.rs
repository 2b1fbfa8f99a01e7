//! Lets the first record of each key pass and drops the others for a time.
//!
//! A record is a duplicate if its key was seen and the record's event time is before the first
//! sight plus the time to live. When the watermark reaches that moment the sight is forgotten: a
//! record that comes so late starts fresh, whether its memory is freed already or not, so the
//! answer depends on records and watermark alone. Without event times a sight lasts forever.

use std::time::Duration;

use isochrone_persistence::ids::{KeyGroup, StateVersion};

use crate::Result;
use crate::keyed::logic::{Logic, Outputs, Step};
use crate::record::{Key, Record};
use crate::state::codec;
use crate::state::rows::Rows;
use crate::state::shape::Shape;
use crate::state::slot::Slot;
use crate::time::EventTime;

/// When a key was first seen, if it was; [`EventTime::MAX`] without event time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen(Option<EventTime>);

impl Slot for Seen {
    const VERSION: u16 = 1;

    fn shape() -> Shape {
        Shape::of::<EventTime>()
    }

    #[inline]
    fn is_vacant(&self) -> bool {
        self.0.is_none()
    }

    fn save(&mut self, group: KeyGroup, key: &[u8], rows: &mut Rows) {
        match self.0 {
            Some(first) => rows.push_with(group, key, |bytes| {
                codec::encode_into(&first, bytes).expect("a time encodes");
            }),
            None => rows.push(group, key, None),
        }
    }

    fn load(&mut self, _from: StateVersion, _subkey: &[u8], value: &[u8]) -> Result<()> {
        self.0 = Some(codec::decode(value)?);
        Ok(())
    }
}

/// The operator.
pub struct Dedup {
    ttl: Duration,
    /// Sights are forgotten in so many portions during one time to live.
    grain: i64,
}

const PORTIONS: u128 = 64;

impl Dedup {
    /// Remembers a key for so long after its first record.
    pub fn new(ttl: Duration) -> Self {
        let grain = i64::try_from(ttl.as_millis() / PORTIONS).unwrap_or(i64::MAX).max(1);
        Dedup { ttl, grain }
    }

    /// When the sight ends; never, if there is no later time.
    fn end(&self, seen: Seen) -> Option<EventTime> {
        seen.0.map(|first| first.plus(self.ttl)).filter(|&end| end < EventTime::MAX)
    }
}

impl<K: Key, T: Record> Logic<K, T> for Dedup {
    type Slot = Seen;
    type Out = T;

    #[inline]
    fn on_record(&self, _: &K, seen: &mut Seen, record: T, step: Step<'_>, out: &mut Outputs<T>) {
        let time = step.time.unwrap_or(EventTime::MAX);
        let lasts = self.end(*seen).is_none_or(|end| time < end && step.schedule.watermark() < end);
        if seen.0.is_some() && lasts {
            return;
        }
        *seen = Seen(Some(time));
        match self.end(*seen) {
            Some(end) if end <= step.schedule.watermark() => *seen = Seen(None),
            Some(end) => step.schedule.expire(step.hash, end, self.grain),
            None => {}
        }
        out.emit(record, step.time);
    }

    fn expires_at(&self, seen: &Seen) -> Option<EventTime> {
        self.end(*seen)
    }

    fn expiry_grain(&self) -> i64 {
        self.grain
    }
}

#[cfg(test)]
mod tests;
