//! The one folder that speaks to librdkafka's bindings directly, for what the safe crate lacks:
//! records in batches, and the identity of topics.
//!
//! Everything `unsafe` of this package is in here, each block with the reason why it holds. Nothing
//! unsafe leaves: the types given out own what they point to.

mod consume;
mod describe;
mod owned;
mod produce;

pub(super) use consume::{Message, PartitionQueue, Taken};
pub(super) use describe::{Described, describe};
pub(super) use produce::{Entry, Outbox};
