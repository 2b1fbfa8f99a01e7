//! Where the reading of a partition stands.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The next record of a partition to read, and what is needed to know it again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KafkaPosition {
    /// The next offset. Behind the last record read, or further: some offsets hold no records.
    pub next: i64,
    /// Where reading ends, if it does; see [`super::KafkaTopic::until_end`].
    pub end: Option<i64>,
    /// The topic's identity: another one if it is deleted and created again.
    pub topic_id: Option<String>,
    /// The epoch of the partition's leader when the last record was written.
    pub leader_epoch: Option<i32>,
    /// How many offsets were deleted before they were read, and were passed over as
    /// [`crate::OnDataLoss`] said.
    pub lost: u64,
    /// How many times records were lost, those included of which nobody can say how many.
    pub losses: u32,
}

/// `offset 120, up to 200`; its split's name has topic and partition.
impl fmt::Display for KafkaPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "offset {}", self.next)?;
        if let Some(end) = self.end {
            write!(f, ", up to {end}")?;
        }
        match (self.losses, self.lost) {
            (0, _) => Ok(()),
            (_, 0) => write!(f, ", records lost before"),
            (_, lost) => write!(f, ", {lost} or more records lost before"),
        }
    }
}

impl KafkaPosition {
    pub(super) fn at(next: i64, end: Option<i64>, topic_id: Option<String>) -> KafkaPosition {
        KafkaPosition { next, end, topic_id, leader_epoch: None, lost: 0, losses: 0 }
    }

    /// There is nothing to read before `offset`.
    pub(super) fn pass(&mut self, offset: i64) {
        // IMPORTANT: records behind the end were not handed out; a later run reads them.
        let offset = self.end.map_or(offset, |end| offset.min(end));
        self.next = self.next.max(offset);
    }

    /// Whether all was read up to the end that was set.
    pub(super) fn is_at_end(&self) -> bool {
        self.end.is_some_and(|end| self.next >= end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_offsets() {
        let mut position = KafkaPosition::at(3, Some(7), Some("an-id".to_owned()));
        assert_eq!(position.to_string(), "offset 3, up to 7");
        (position.end, position.losses) = (None, 1);
        assert_eq!(position.to_string(), "offset 3, records lost before");
        position.lost = 30;
        assert_eq!(position.to_string(), "offset 3, 30 or more records lost before");
    }

    #[test]
    fn an_end_is_reached_and_never_passed() {
        let mut position = KafkaPosition::at(3, Some(7), None);
        position.pass(2);
        assert_eq!((position.next, position.is_at_end()), (3, false));
        position.pass(5);
        assert_eq!((position.next, position.is_at_end()), (5, false));
        position.pass(12);
        assert_eq!((position.next, position.is_at_end()), (7, true));
        let mut endless = KafkaPosition::at(3, None, None);
        endless.pass(12);
        assert_eq!((endless.next, endless.is_at_end()), (12, false));
    }
}
