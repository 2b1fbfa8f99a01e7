//! Records of one partition in batches, out of librdkafka's own queue and memory.
//!
//! librdkafka's threads fetch ahead into a queue per partition, up to the bounds of its settings;
//! taking from it never waits. The safe crate hands over one record a call, at twice the cost.

#![allow(unsafe_code, reason = "the bindings are the only way to take records in batches")]

use std::ffi::{CStr, CString, c_void};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;

use rdkafka::bindings as native;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::types::RDKafkaErrorCode;

use super::owned::Owned;
use crate::kafka::client::Context;

/// The queue of one partition, which holds what was fetched of it.
pub(in crate::kafka) struct PartitionQueue {
    queue: Owned<native::rd_kafka_queue_t>,
    /// Room for the records of one batch; filled and emptied within one call.
    slots: Vec<*mut native::rd_kafka_message_t>,
    consumer: Arc<BaseConsumer<Context>>,
    topic: CString,
    partition: i32,
}

/// What comes out of a queue.
pub(in crate::kafka) enum Taken<'a> {
    Record(Message<'a>),
    /// All was read that there is, transactions that are still open apart; the next offset.
    End(i64),
    Failed {
        code: RDKafkaErrorCode,
        offset: i64,
        reason: String,
    },
}

/// A record that librdkafka holds.
#[derive(Clone, Copy)]
pub(in crate::kafka) struct Message<'a> {
    message: NonNull<native::rd_kafka_message_t>,
    alive: PhantomData<&'a ()>,
}

/// The name and the value of a header.
pub(in crate::kafka) type HeaderRef<'a> = (&'a [u8], Option<&'a [u8]>);

impl PartitionQueue {
    /// Begins to fetch a partition at an offset, into a queue of its own. The leader's epoch of the
    /// record before, where it is known, lets the broker tell whether its log was cut back since.
    pub(in crate::kafka) fn assign(
        consumer: &Arc<BaseConsumer<Context>>,
        topic: &str,
        partition: i32,
        next: i64,
        leader_epoch: Option<i32>,
    ) -> KafkaResult<PartitionQueue> {
        let topic = CString::new(topic)?;
        let client = consumer.client().native_ptr();
        // SAFETY: the client lives as long as `consumer`, which the queue keeps. The queue is owned
        // by `Owned`. It is taken out of the consumer's own before anything is fetched into it.
        let queue = unsafe {
            let queue = native::rd_kafka_queue_get_partition(client, topic.as_ptr(), partition);
            let queue = Owned::new(queue, native::rd_kafka_queue_destroy).ok_or_else(|| {
                KafkaError::Subscription("there is no queue for the partition".to_owned())
            })?;
            native::rd_kafka_queue_forward(queue.ptr(), ptr::null_mut());
            queue
        };
        let queue = PartitionQueue {
            queue,
            slots: Vec::new(),
            consumer: Arc::clone(consumer),
            topic,
            partition,
        };
        queue.change(native::rd_kafka_incremental_assign, next, leader_epoch)?;
        Ok(queue)
    }

    /// Takes up to `max` of what has been fetched; does not wait. Answers how much there was.
    pub(in crate::kafka) fn take(&mut self, max: usize, mut each: impl FnMut(Taken<'_>)) -> usize {
        if self.slots.len() < max {
            self.slots.resize(max, ptr::null_mut());
        }
        // SAFETY: the queue is alive, and there is room for `max` pointers.
        let count = unsafe {
            native::rd_kafka_consume_batch_queue(self.queue.ptr(), 0, self.slots.as_mut_ptr(), max)
        };
        // Negative would be an error, which this call does not have for a queue.
        let count = usize::try_from(count).unwrap_or(0).min(max);
        for message in Left(self.slots[..count].iter()) {
            each(message.taken());
        }
        count
    }

    /// The oldest offset that is kept, and the one behind the last, as the last answer to a fetch
    /// said; nothing is asked.
    pub(in crate::kafka) fn kept(&self) -> Option<(i64, i64)> {
        let client = self.consumer.client().native_ptr();
        let (mut low, mut high) = (-1, -1);
        // SAFETY: client and name are alive; the numbers are written to, only.
        let found = unsafe {
            native::rd_kafka_get_watermark_offsets(
                client,
                self.topic.as_ptr(),
                self.partition,
                &raw mut low,
                &raw mut high,
            )
        };
        let is_known = found == native::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR;
        (is_known && low >= 0 && high >= 0).then_some((low, high))
    }

    /// Adds the partition to what the client fetches, or takes it out.
    fn change(
        &self,
        change: unsafe extern "C" fn(
            *mut native::rd_kafka_t,
            *const native::rd_kafka_topic_partition_list_t,
        ) -> *mut native::rd_kafka_error_t,
        next: i64,
        leader_epoch: Option<i32>,
    ) -> KafkaResult<()> {
        // SAFETY: the client is alive; list and error are owned and destroyed here. The element
        // belongs to the list and is used while that lives.
        unsafe {
            let list = Owned::new(
                native::rd_kafka_topic_partition_list_new(1),
                native::rd_kafka_topic_partition_list_destroy,
            );
            let Some(list) = list else { return Err(KafkaError::Canceled) };
            let element = native::rd_kafka_topic_partition_list_add(
                list.ptr(),
                self.topic.as_ptr(),
                self.partition,
            );
            (*element).offset = next;
            if let Some(epoch) = leader_epoch {
                native::rd_kafka_topic_partition_set_leader_epoch(element, epoch);
            }
            let error = change(self.consumer.client().native_ptr(), list.ptr());
            match Owned::new(error, native::rd_kafka_error_destroy) {
                None => Ok(()),
                Some(error) => {
                    let text = CStr::from_ptr(native::rd_kafka_error_string(error.ptr()));
                    Err(KafkaError::Subscription(text.to_string_lossy().into_owned()))
                }
            }
        }
    }
}

impl Drop for PartitionQueue {
    fn drop(&mut self) {
        if let Err(error) = self.change(native::rd_kafka_incremental_unassign, 0, None) {
            tracing::debug!(%error, "a partition that is no longer read could not be given back");
        }
    }
}

/// Messages of a batch that have not been destroyed yet: each is when the next is taken, and all are
/// if a decoder panics.
struct Left<'a>(slice::Iter<'a, *mut native::rd_kafka_message_t>);

/// One of them.
struct Held(NonNull<native::rd_kafka_message_t>);

impl Iterator for Left<'_> {
    type Item = Held;

    fn next(&mut self) -> Option<Held> {
        self.0.next().and_then(|message| NonNull::new(*message)).map(Held)
    }
}

impl Drop for Left<'_> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: the batch call gave the message to us; `Left` passes each one on once.
        unsafe { native::rd_kafka_message_destroy(self.0.as_ptr()) }
    }
}

impl Held {
    #[inline]
    fn taken(&self) -> Taken<'_> {
        let message = Message { message: self.0, alive: PhantomData };
        // SAFETY: the message is alive while `self` is.
        let (err, offset) = unsafe { (self.0.as_ref().err, self.0.as_ref().offset) };
        match err {
            native::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR => Taken::Record(message),
            native::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR__PARTITION_EOF => Taken::End(offset),
            code => Taken::Failed { code: code.into(), offset, reason: message.reason() },
        }
    }
}

impl<'a> Message<'a> {
    #[inline]
    pub(in crate::kafka) fn offset(self) -> i64 {
        self.native().offset
    }

    #[inline]
    pub(in crate::kafka) fn partition(self) -> i32 {
        self.native().partition
    }

    /// The value; null is not the same as empty.
    #[inline]
    pub(in crate::kafka) fn value(self) -> Option<&'a [u8]> {
        let message = self.native();
        // SAFETY: payload and length belong together and live as long as the message.
        unsafe { bytes(message.payload, message.len) }
    }

    #[inline]
    pub(in crate::kafka) fn key(self) -> Option<&'a [u8]> {
        let message = self.native();
        // SAFETY: as for the value.
        unsafe { bytes(message.key, message.key_len) }
    }

    /// Milliseconds since 1970 and whether the broker set them, if the record has a timestamp.
    pub(in crate::kafka) fn timestamp(self) -> Option<(i64, bool)> {
        use native::rd_kafka_timestamp_type_t as Kind;
        let mut kind = Kind::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
        // SAFETY: the message is alive; `kind` is written to, only.
        let ms =
            unsafe { native::rd_kafka_message_timestamp(self.message.as_ptr(), &raw mut kind) };
        match kind {
            Kind::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE => None,
            kind => Some((ms, matches!(kind, Kind::RD_KAFKA_TIMESTAMP_LOG_APPEND_TIME))),
        }
    }

    /// The epoch of the partition's leader when the record was written.
    pub(in crate::kafka) fn leader_epoch(self) -> Option<i32> {
        // SAFETY: the message is alive.
        let epoch = unsafe { native::rd_kafka_message_leader_epoch(self.message.as_ptr()) };
        (epoch >= 0).then_some(epoch)
    }

    /// The headers in their order; a name may occur more than once.
    pub(in crate::kafka) fn headers(self) -> Vec<HeaderRef<'a>> {
        let mut headers = ptr::null_mut();
        let mut found = Vec::new();
        // SAFETY: the message is alive, and its headers with names and values live as long. The
        // pointers are read only if the calls succeed.
        unsafe {
            use native::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR as OK;
            if native::rd_kafka_message_headers(self.message.as_ptr(), &raw mut headers) != OK {
                return found;
            }
            let (mut name, mut value, mut len) = (ptr::null(), ptr::null(), 0);
            while native::rd_kafka_header_get_all(
                headers,
                found.len(),
                &raw mut name,
                &raw mut value,
                &raw mut len,
            ) == OK
            {
                found.push((CStr::from_ptr(name).to_bytes(), bytes(value.cast_mut(), len)));
            }
        }
        found
    }

    fn reason(self) -> String {
        // SAFETY: the message is alive; the text is copied.
        unsafe {
            let text = native::rd_kafka_message_errstr(self.message.as_ptr());
            match text.is_null() {
                true => String::new(),
                false => CStr::from_ptr(text).to_string_lossy().into_owned(),
            }
        }
    }

    #[inline]
    fn native(self) -> &'a native::rd_kafka_message_t {
        // SAFETY: a `Message` is made by `Held::taken` only and cannot outlive that message.
        unsafe { self.message.as_ref() }
    }
}

/// # Safety
///
/// If not null, `start` has `len` bytes that live for `'a`.
#[inline]
unsafe fn bytes<'a>(start: *mut c_void, len: usize) -> Option<&'a [u8]> {
    // SAFETY: promised by the caller.
    NonNull::new(start).map(|start| unsafe { slice::from_raw_parts(start.as_ptr().cast(), len) })
}
