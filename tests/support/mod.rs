//! What the tests of whole jobs share: seeds, generated logs, an oracle that knows the truth, child
//! processes, looks into a store, and Kafka brokers. Knows the facade only, and of Kafka a client
//! that is not ours.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

pub mod child;
pub mod example;
#[cfg(feature = "kafka")]
pub mod kafka;
pub mod oracle;
pub mod purchases;
pub mod rights;
pub mod seed;
pub mod stored;
pub mod wait;
