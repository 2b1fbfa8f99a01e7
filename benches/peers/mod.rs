//! The same job from topic to topic by several contenders, and how they are measured.
//!
//! The job: purchases come in as JSON, keyed by account; per account a count and a total are kept;
//! for each purchase one assessment goes out as JSON, keyed by account. Nothing is left out as seen
//! before. Both topics have four partitions.

pub(crate) mod bare;
pub(crate) mod check;
pub(crate) mod contender;
pub(crate) mod isochrone;
pub(crate) mod kill;
pub(crate) mod latency;
pub(crate) mod purchases;
pub(crate) mod reader;
pub(crate) mod throughput;

use super::kafka::{Broker, Topic};

pub(crate) const PARTITIONS: u32 = 4;

/// A topic whose records have the time at which the broker took them: nobody needs to read a topic
/// to learn how fast it grows.
pub(crate) fn topic(broker: &Broker, name: &str) -> Topic {
    Topic::create_with(broker, name, PARTITIONS, &[("message.timestamp.type", "LogAppendTime")])
}
