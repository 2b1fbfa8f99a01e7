//! Records handed to a producer in batches, without copying their values.

#![allow(unsafe_code, reason = "the safe crate takes one record a call, and copies it")]

use std::collections::HashMap;
use std::ffi::CString;
use std::ops::Range;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use rdkafka::bindings as native;
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::producer::{BaseProducer, Producer, ProducerContext};
use rdkafka::types::RDKafkaErrorCode;

/// A record as places in a buffer: no headers, and the time is that of the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::kafka) struct Entry {
    /// Where it goes.
    pub(in crate::kafka) partition: i32,
    /// `None`: no key. An empty range: an empty key.
    pub(in crate::kafka) key: Option<Range<usize>>,
    /// `None`: no value, a tombstone.
    pub(in crate::kafka) value: Option<Range<usize>>,
}

/// A producer, and the buffers that it reads values from.
///
/// Fields are dropped in this order: topics before the client that they are of, buffers after it.
pub(in crate::kafka) struct Outbox<C: ProducerContext<DeliveryOpaque = ()> + 'static> {
    topics: HashMap<String, Topic>,
    producer: BaseProducer<C>,
    /// IMPORTANT: values of records that are in flight lie in here.
    held: Vec<Arc<Vec<u8>>>,
    /// Kept for its memory.
    batch: Vec<native::rd_kafka_message_t>,
}

impl<C: ProducerContext<DeliveryOpaque = ()>> Outbox<C> {
    pub(in crate::kafka) fn new(producer: BaseProducer<C>) -> Outbox<C> {
        Outbox { topics: HashMap::new(), producer, held: Vec::new(), batch: Vec::new() }
    }

    pub(in crate::kafka) fn producer(&self) -> &BaseProducer<C> {
        &self.producer
    }

    /// Hands over records whose keys and values lie in `bytes`, in order, and answers how many the
    /// queue took; the rest may be offered again once it has room.
    ///
    /// Fails if a record cannot be taken for another reason, or lies outside of `bytes`; those after
    /// it may have been taken then, so the transaction has to be given up.
    pub(in crate::kafka) fn enqueue(
        &mut self,
        topic: &str,
        bytes: &Arc<Vec<u8>>,
        entries: &[Entry],
    ) -> KafkaResult<usize> {
        let outside = || KafkaError::MessageProduction(RDKafkaErrorCode::InvalidArgument);
        let topic = self.topic(topic)?;
        let at = |range: &Option<Range<usize>>| match range {
            None => Some((ptr::null(), 0)),
            Some(range) => bytes.get(range.clone()).map(|slice| (slice.as_ptr(), slice.len())),
        };
        self.batch.clear();
        for Entry { partition, key, value } in entries {
            let (key, key_len) = at(key).ok_or_else(outside)?;
            let (payload, len) = at(value).ok_or_else(outside)?;
            // SAFETY: a message is plain data, of which all zeroes are a value: null pointers,
            // lengths of 0 and `NO_ERROR`.
            let empty: native::rd_kafka_message_t = unsafe { std::mem::zeroed() };
            self.batch.push(native::rd_kafka_message_t {
                partition: *partition,
                payload: payload.cast_mut().cast(),
                len,
                key: key.cast_mut().cast(),
                key_len,
                ..empty
            });
        }
        // From here on the queue may point into the buffer.
        if !self.held.last().is_some_and(|last| Arc::ptr_eq(last, bytes)) {
            self.held.push(bytes.clone());
        }
        let count = i32::try_from(self.batch.len()).map_err(|_| outside())?;
        let flags = native::RD_KAFKA_MSG_F_PARTITION;
        // SAFETY: `topic` is of this producer, which is alive. The array has `count` messages. Keys
        // are copied by the call; values are read from `bytes`, which `held` keeps, unchanged behind
        // its `Arc`, until nothing is in flight any more (`let_go`) or the client has been destroyed
        // (order of the fields). Without `F_FREE` the library never frees them.
        unsafe {
            native::rd_kafka_produce_batch(
                topic,
                UNASSIGNED,
                flags,
                self.batch.as_mut_ptr(),
                count,
            );
        }
        let refused = self.batch.iter().position(|message| code(message) != NO_ERROR);
        let Some(taken) = refused else { return Ok(entries.len()) };
        match code(&self.batch[taken]) {
            RDKafkaErrorCode::QueueFull => Ok(taken),
            code => Err(KafkaError::MessageProduction(code)),
        }
    }

    /// Bytes of the buffers that are held.
    pub(in crate::kafka) fn held_bytes(&self) -> usize {
        self.held.iter().map(|bytes| bytes.len()).sum()
    }

    /// Lets go of the buffers, if nothing is in flight any more.
    pub(in crate::kafka) fn let_go(&mut self) {
        if self.producer.in_flight_count() == 0 {
            self.held.clear();
        }
    }

    fn topic(&mut self, name: &str) -> KafkaResult<*mut native::rd_kafka_topic_t> {
        if let Some(topic) = self.topics.get(name) {
            return Ok(topic.0);
        }
        let text = CString::new(name)?;
        let client = self.producer.client().native_ptr();
        // SAFETY: the client is alive and outlives the topic, which is destroyed before it; the name
        // is copied; no settings are given.
        let topic = unsafe { native::rd_kafka_topic_new(client, text.as_ptr(), ptr::null_mut()) };
        if topic.is_null() {
            return Err(KafkaError::MessageProduction(RDKafkaErrorCode::UnknownTopic));
        }
        let topic = self.topics.entry(name.to_owned()).or_insert(Topic(topic)).0;
        // IMPORTANT: a batch for a topic whose partitions the client does not know yet goes to a
        // partition of its own making, which no transaction can hold.
        let known = self.producer.client().fetch_metadata(Some(name), METADATA_TIMEOUT);
        let error = known.and_then(|found| {
            let topic = found.topics().first();
            let error = topic.and_then(rdkafka::metadata::MetadataTopic::error);
            error.map_or(Ok(()), |code| Err(KafkaError::MetadataFetch(code.into())))
        });
        if let Err(error) = error {
            self.topics.remove(name);
            return Err(error);
        }
        Ok(topic)
    }
}

// SAFETY: the handles of topics may be used from any thread, as librdkafka's may be altogether; what
// the scratch batch points to is of the last call and is never followed again.
unsafe impl<C: ProducerContext<DeliveryOpaque = ()>> Send for Outbox<C> {}

/// No partition for all: each record names its own.
const UNASSIGNED: i32 = -1;
/// How long the partitions of a topic are waited for.
const METADATA_TIMEOUT: Duration = Duration::from_secs(5);
const NO_ERROR: RDKafkaErrorCode = RDKafkaErrorCode::NoError;

fn code(message: &native::rd_kafka_message_t) -> RDKafkaErrorCode {
    message.err.into()
}

/// A topic of a producer.
struct Topic(*mut native::rd_kafka_topic_t);

impl Drop for Topic {
    fn drop(&mut self) {
        // SAFETY: made by `rd_kafka_topic_new`, destroyed once, before its client.
        unsafe { native::rd_kafka_topic_destroy(self.0) }
    }
}
