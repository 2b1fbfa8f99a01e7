//! Whether a partition still has what is to be read next, and what is said if not. Facts in, verdict
//! out: nothing is asked here.

use isochrone_engine::Error;

use super::position::KafkaPosition;
use crate::kafka::batch::Described;
use crate::kafka::topics::Offsets;

/// What was found of a partition.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) topic: Described,
    /// None if the topic has no such partition any more.
    pub(super) offsets: Option<Offsets>,
}

/// How a position stands to what was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// The next record is there, or will be the next one written.
    Fits,
    /// Records were deleted before they were read, at most so many.
    Expired { lost: u64, low: i64 },
    /// The topic was deleted and created again.
    Recreated { low: i64 },
    /// The partition is not there any more: the topic was created again with fewer.
    Gone,
    /// The partition is not there, and the topic is the one that is known to have had it, or not to
    /// have it any more: a broker may not have heard of it yet.
    Missing,
    /// The log ends before what was read of it, by so many offsets.
    CutBack { missing: u64 },
}

/// The identity is another one. Unknown ones are no reason.
pub(super) fn is_other_topic(position: &KafkaPosition, found: &Described) -> bool {
    matches!((&position.topic_id, &found.id), (Some(known), Some(found)) if known != found)
}

/// The identity is known, and the same.
pub(super) fn is_same_topic(position: &KafkaPosition, found: &Described) -> bool {
    position.topic_id.is_some() && position.topic_id == found.id
}

pub(super) fn standing(position: &KafkaPosition, found: &Found) -> Standing {
    let next = position.next;
    let Some(Offsets { low, high }) = found.offsets else {
        return match is_same_topic(position, &found.topic) {
            true => Standing::Missing,
            false => Standing::Gone,
        };
    };
    if is_other_topic(position, &found.topic) {
        return Standing::Recreated { low };
    }
    if next < low {
        return Standing::Expired { lost: low.abs_diff(next), low };
    }
    if next > high {
        return match is_same_topic(position, &found.topic) {
            true => Standing::CutBack { missing: next.abs_diff(high) },
            // Without identities, a topic that was created again looks like this.
            false => Standing::Recreated { low },
        };
    }
    Standing::Fits
}

/// What is said when the job stops because of it.
pub(super) fn stopped(place: &str, position: &KafkaPosition, found: Standing) -> Error {
    let next = position.next;
    let advice = "restore a checkpoint of before, or let the source continue from the earliest \
                  record (`OnDataLoss::ContinueFromEarliest`)";
    Error::invalid(match found {
        Standing::Fits => format!(
            "{place}: offset {next} is there and still cannot be read; look at the broker's log"
        ),
        Standing::Expired { lost, low } => format!(
            "{place}: offset {next} is to be read next, and the oldest record there is has offset \
             {low}: up to {lost} records were deleted before they were read, as the topic's \
             retention says; {advice}, and raise `retention.ms` or `retention.bytes`"
        ),
        Standing::Recreated { low } => format!(
            "{place}: the topic was deleted and created again since: offset {next} is to be read \
             next of the old one, the new one begins at {low}; nobody can say how many records were \
             lost; {advice}"
        ),
        Standing::Gone | Standing::Missing => format!(
            "{place}: the topic has no such partition any more: it was deleted and created again \
             with fewer, and what was to be read from offset {next} on is lost; {advice}"
        ),
        Standing::CutBack { missing } => format!(
            "{place}: offset {next} is to be read next, and the log ends {missing} offsets before: \
             it lost records that were read already, as after the election of a leader that lacked \
             them (`unclean.leader.election.enable`); start again from an older checkpoint or anew"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(id: Option<&str>, offsets: Option<(i64, i64)>) -> Found {
        Found {
            topic: Described { id: id.map(str::to_owned), partitions: 1 },
            offsets: offsets.map(|(low, high)| Offsets { low, high }),
        }
    }

    #[test]
    fn a_position_fits_between_the_ends_and_at_them() {
        let position =
            |next, id: Option<&str>| KafkaPosition::at(next, None, id.map(str::to_owned));
        for (next, known, id, offsets, expected) in [
            (5, Some("a"), Some("a"), Some((0, 9)), Standing::Fits),
            (0, Some("a"), Some("a"), Some((0, 9)), Standing::Fits),
            (9, Some("a"), Some("a"), Some((0, 9)), Standing::Fits),
            (2, Some("a"), Some("a"), Some((7, 9)), Standing::Expired { lost: 5, low: 7 }),
            (12, Some("a"), Some("a"), Some((7, 9)), Standing::CutBack { missing: 3 }),
            (5, Some("a"), Some("b"), Some((0, 9)), Standing::Recreated { low: 0 }),
            (12, Some("a"), Some("b"), Some((0, 9)), Standing::Recreated { low: 0 }),
            (12, None, None, Some((3, 9)), Standing::Recreated { low: 3 }),
            (5, None, Some("b"), Some((0, 9)), Standing::Fits),
            (5, Some("a"), None, Some((0, 9)), Standing::Fits),
            (5, Some("a"), Some("b"), None, Standing::Gone),
            (5, None, None, None, Standing::Gone),
            (5, Some("a"), Some("a"), None, Standing::Missing),
        ] {
            let what = format!("{next} of {known:?} in {id:?} {offsets:?}");
            assert_eq!(standing(&position(next, known), &found(id, offsets)), expected, "{what}");
        }
    }

    #[test]
    fn what_is_lost_is_said_in_numbers() {
        let position = KafkaPosition::at(2, None, None);
        let expired = Standing::Expired { lost: 5, low: 7 };
        let text = stopped("topic t, partition 3", &position, expired).to_string();
        assert!(
            text.starts_with(
                "topic t, partition 3: offset 2 is to be read next, and the oldest record there is \
                 has offset 7: up to 5 records were deleted"
            ),
            "{text}"
        );
    }
}
