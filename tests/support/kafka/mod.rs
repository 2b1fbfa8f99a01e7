//! Real Kafka for tests: a broker, topics with what is in them, a reader that owes nothing to our
//! source, and an oracle.
//!
//! - [`Broker`] starts one or three brokers by `tests/services/kafka.sh`; they die with the process
//!   of the test. Where none can be started the test fails and says what is missing.
//! - [`Topic`] is created, filled, cut and deleted here; [`Transaction`] fills it as a producer of
//!   others would, to the end, back, or neither.
//! - [`read_committed`] reads what a consumer of the output sees, up to the end.
//! - [`Proxy`] stands before a broker and loses or delays requests to end a transaction.
//! - [`judge`] compares what was found with what had to be there.

#![allow(unused_imports, reason = "each test binary uses its part")]

mod broker;
mod frame;
mod judge;
mod proxy;
mod reader;
mod topic;
mod write;

pub use broker::{Broker, Options};
pub use judge::{Found, Verdict, judge};
pub use proxy::{Fault, Proxy, Seen};
pub use reader::{Content, Hanging, Record, each_committed, read_committed};
pub use topic::Topic;
pub use write::{Row, Transaction, row, write};
