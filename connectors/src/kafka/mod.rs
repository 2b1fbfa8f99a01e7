//! Apache Kafka, and what speaks its protocol, as a place to read from and to write to.
//!
//! [`Kafka`] describes a cluster. librdkafka does the talking; it is known to this folder alone.

mod admin;
mod batch;
mod client;
mod cluster;
mod secret;
mod sink;
mod topics;
mod trouble;

pub use admin::Admin;
pub use cluster::Kafka;
pub use secret::Secret;
pub use sink::{Draft, KafkaEffect, KafkaOutput, KafkaSink};
