//! Items become records: value, key, partition, and a check that a broker will take them.

use std::rc::Rc;

use isochrone_engine::{Error, Result};

use super::partition;
use super::record::Draft;

/// Describes an item's record.
pub(super) type Fill<T> = Rc<dyn Fn(&T, &mut Draft) -> Result<(), String>>;

/// Encodes the items of one writer.
pub(super) struct Encoder<T> {
    pub(super) fill: Vec<Fill<T>>,
    /// As messages name it.
    pub(super) sink: String,
    pub(super) topic: String,
    pub(super) partitions: i32,
    /// The largest record that the topic takes, in bytes, its batch included.
    pub(super) record_max: usize,
    pub(super) draft: Draft,
    /// The partition of the next record without a key.
    pub(super) next: i32,
}

/// What a record needs in a broker's batch beside key, value and headers.
const OVERHEAD: usize = 128;

impl<T> Encoder<T> {
    /// Appends the item's record to a part. Fails with `User` if it has none, `Invalid` if the topic
    /// would not take it.
    pub(super) fn encode(&mut self, item: &T, part: &mut Vec<u8>) -> Result<()> {
        self.fill(item)?;
        let partition = self.partition()?;
        self.draft.write(partition, part);
        Ok(())
    }

    /// Makes the item's record in the draft.
    pub(super) fn fill(&mut self, item: &T) -> Result<()> {
        self.draft.clear();
        for fill in &self.fill {
            fill(item, &mut self.draft).map_err(|reason| {
                Error::user(format!("{}: an item does not become a record: {reason}", self.sink))
            })?;
        }
        let size = self.draft.size() + OVERHEAD;
        if size > self.record_max {
            return Err(Error::invalid(format!(
                "{}: a record of {size} bytes, {}, is larger than topic `{}` takes ({} bytes): \
                 raise its `max.message.bytes`, or write smaller records",
                self.sink,
                self.key_text(),
                self.topic,
                self.record_max
            )));
        }
        Ok(())
    }

    /// The partition of the record in the draft.
    pub(super) fn partition(&mut self) -> Result<i32> {
        if let Some(partition) = self.draft.partition {
            if (0..self.partitions).contains(&partition) {
                return Ok(partition);
            }
            return Err(Error::user(format!(
                "{}: a record, {}, is for partition {partition}, and topic `{}` has partitions 0 to \
                 {}",
                self.sink,
                self.key_text(),
                self.topic,
                self.partitions - 1
            )));
        }
        if let Some(key) = self.draft.key_bytes() {
            return Ok(partition::of_key(key, self.partitions));
        }
        self.next = (self.next + 1) % self.partitions;
        Ok(self.next)
    }

    fn key_text(&self) -> String {
        let key =
            self.draft.key_bytes().map(|key| String::from_utf8_lossy(&key[..key.len().min(80)]));
        key.map_or("without a key".to_owned(), |key| format!("key `{key}`"))
    }
}
