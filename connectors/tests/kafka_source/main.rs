//! The source of Kafka on a real broker, whose address is in `ISOCHRONE_TEST_KAFKA`.

#![cfg(feature = "kafka")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod failures;
mod job;
mod lag;
mod loss;
mod mock;
mod positions;
mod records;
mod splits;
mod support;
mod transactions;
