//! The source of Kafka on a real broker, whose address is in `ISOCHRONE_TEST_KAFKA`.

#![cfg(feature = "kafka")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod added;
mod event_time;
mod failures;
mod job;
mod jobs;
mod lag;
mod loss;
mod mock;
mod positions;
mod records;
mod splits;
mod starts;
mod support;
mod transactions;
