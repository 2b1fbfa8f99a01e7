//! From Kafka to Kafka, exactly once, on real brokers: whatever is killed, stopped, lost or mistaken.
//!
//! ```sh
//! cargo test --profile checked --all-features --test kafka            # all of it
//! cargo test --profile checked --all-features --test kafka crash::    # one story
//! SEED=4711 cargo test --profile checked --all-features --test kafka kills::
//! ```
//!
//! The truth of all stories is `support::kafka::judge`: each account's purchases are counted from 1
//! to n in the output, once each and in the order of the input, as a client sees them that is not
//! ours and reads only what is committed.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]
#![allow(clippy::duplicate_mod, reason = "each example brings its ends along")]

#[path = "../../examples/account_risk.rs"]
#[expect(dead_code, reason = "the example's own entrance is not used here")]
mod account_risk;
mod brokers;
mod copies;
mod crash;
mod dead_letters;
mod direct;
#[path = "../../examples/ends/mod.rs"]
#[expect(dead_code, reason = "for other programs")]
mod ends;
mod history;
mod inputs;
mod job;
mod kills;
mod lanes;
mod late;
mod leaders;
#[path = "../../examples/load_topic.rs"]
#[expect(dead_code, reason = "the example's own entrance is not used here")]
mod load_topic;
mod mixed;
mod pending;
mod place;
mod progress;
mod refusals;
#[cfg(feature = "kafka-ssl")]
mod secrets;
mod slips;
#[path = "../support/mod.rs"]
mod support;
mod time_outs;
mod two_sinks;
mod zombies;
