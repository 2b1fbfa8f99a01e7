//! Apache Kafka, and what speaks its protocol, as a place to read from and to write to.
//!
//! [`Kafka`] describes a cluster. librdkafka does the talking; it is known to this folder alone.

mod admin;
mod batch;
mod client;
mod cluster;
mod record;
mod secret;
mod sink;
mod source;
mod topics;
mod trouble;

pub use crate::OnDataLoss;
pub use admin::Admin;
pub use cluster::Kafka;
pub use record::{KafkaHeader, KafkaRecord, KafkaRecordRef, KafkaTimestamp, TimestampKind};
pub use secret::Secret;
pub use sink::{Draft, KafkaEffect, KafkaOutput, KafkaSink};
pub use source::{
    ByRecord, Decode, DecodeRecord, KafkaPosition, KafkaSource, KafkaTopic, Records, Start,
    Tombstones, Values, ValuesDecoder,
};
