//! Counts the records of each key and says the count so far.

use crate::keyed::logic::{Logic, Outputs, Step};
use crate::keyed::plain::Plain;
use crate::record::{Key, Record};

/// Emits the key and how many of its records have come, for each record.
pub struct Count;

impl<K: Key, T: Record> Logic<K, T> for Count {
    type Slot = Plain<u64>;
    type Out = (K, u64);

    #[inline]
    fn on_record(
        &self,
        key: &K,
        slot: &mut Plain<u64>,
        _: T,
        step: Step<'_>,
        out: &mut Outputs<(K, u64)>,
    ) {
        slot.0 += 1;
        out.emit((key.clone(), slot.0), step.time);
    }
}
