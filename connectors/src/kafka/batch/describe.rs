//! A topic's identity, which the safe crate does not tell.

#![allow(unsafe_code, reason = "the bindings are the only way to `DescribeTopics`")]

use std::ffi::{CStr, CString, c_char};
use std::ptr::NonNull;
use std::time::Duration;

use rdkafka::bindings as native;
use rdkafka::client::{Client, ClientContext};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::types::RDKafkaErrorCode as Code;

use super::owned::Owned;

/// A topic as the cluster describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::kafka) struct Described {
    /// Other when the topic was deleted and created again. None from brokers before 2.8.
    pub(in crate::kafka) id: Option<String>,
    /// How many partitions it has: they are numbered from 0.
    pub(in crate::kafka) partitions: i32,
}

/// The id of all zeroes, which stands for none.
const NO_ID: &str = "AAAAAAAAAAAAAAAAAAAAAA";

/// Asks the cluster, for so long.
pub(in crate::kafka) fn describe<C: ClientContext>(
    client: &Client<C>,
    topic: &str,
    timeout: Duration,
) -> KafkaResult<Described> {
    let metadata = client.fetch_metadata(Some(topic), timeout)?;
    let found = metadata.topics().iter().find(|found| found.name() == topic);
    let error = found.map_or(Some(missing()), |found| {
        found.error().map(|code| KafkaError::MetadataFetch(code.into()))
    });
    if let Some(error) = error {
        return Err(error);
    }
    // Left to itself, librdkafka would wait for the controller, which not everybody can reach.
    let any = metadata.brokers().first().map(|broker| broker.id());
    let broker = Some(metadata.orig_broker_id()).filter(|id| *id >= 0).or(any);
    match describe_at(client, topic, broker, timeout) {
        Err(KafkaError::AdminOp(Code::UnsupportedFeature | Code::UnsupportedVersion)) => {
            let partitions = found.map_or(0, |found| found.partitions().len());
            Ok(Described { id: None, partitions: i32::try_from(partitions).unwrap_or(i32::MAX) })
        }
        described => described,
    }
}

/// Asks a broker.
fn describe_at<C: ClientContext>(
    client: &Client<C>,
    topic: &str,
    broker: Option<i32>,
    timeout: Duration,
) -> KafkaResult<Described> {
    let name = CString::new(topic)?;
    let timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX).max(1);
    let timed_out = || KafkaError::AdminOp(Code::OperationTimedOut);
    // SAFETY: `client` is alive for the whole call. Everything made here is destroyed by its owner
    // below, the event before the queue that it came from. `name` and `names` outlive the call that
    // copies them.
    unsafe {
        let queue = Owned::new(
            native::rd_kafka_queue_new(client.native_ptr()),
            native::rd_kafka_queue_destroy,
        );
        let options = Owned::new(
            native::rd_kafka_AdminOptions_new(
                client.native_ptr(),
                native::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS,
            ),
            native::rd_kafka_AdminOptions_destroy,
        );
        let mut names = [name.as_ptr()];
        let topics = Owned::new(
            native::rd_kafka_TopicCollection_of_topic_names(names.as_mut_ptr(), names.len()),
            native::rd_kafka_TopicCollection_destroy,
        );
        let (Some(queue), Some(options), Some(topics)) = (queue, options, topics) else {
            return Err(KafkaError::AdminOpCreation("librdkafka is out of memory".to_owned()));
        };
        let mut text = [0 as c_char; 256];
        let code = native::rd_kafka_AdminOptions_set_request_timeout(
            options.ptr(),
            timeout_ms,
            text.as_mut_ptr(),
            text.len(),
        );
        check(code.into())?;
        if let Some(broker) = broker {
            let code = native::rd_kafka_AdminOptions_set_broker(
                options.ptr(),
                broker,
                text.as_mut_ptr(),
                text.len(),
            );
            check(code.into())?;
        }
        native::rd_kafka_DescribeTopics(
            client.native_ptr(),
            topics.ptr(),
            options.ptr(),
            queue.ptr(),
        );
        // The request ends by itself; a little more, so that it is its own error that is seen.
        let event = native::rd_kafka_queue_poll(queue.ptr(), timeout_ms.saturating_add(500));
        let event = Owned::new(event, native::rd_kafka_event_destroy).ok_or_else(timed_out)?;
        check(native::rd_kafka_event_error(event.ptr()).into())?;
        of_event(&event)
    }
}

/// # Safety
///
/// The event is the answer to a request to describe one topic.
unsafe fn of_event(event: &Owned<native::rd_kafka_event_t>) -> KafkaResult<Described> {
    // SAFETY: everything reached from the event lives as long as it does; it is copied before that
    // ends. Pointers that may be null are checked, or go to a function that takes null.
    unsafe {
        let result = native::rd_kafka_event_DescribeTopics_result(event.ptr());
        if result.is_null() {
            return Err(KafkaError::AdminOp(Code::Fail));
        }
        let mut count = 0;
        let topics = native::rd_kafka_DescribeTopics_result_topics(result, &raw mut count);
        if topics.is_null() || count == 0 {
            return Err(missing());
        }
        let topic = *topics;
        let error = native::rd_kafka_TopicDescription_error(topic);
        check(native::rd_kafka_error_code(error).into())?;
        let id = native::rd_kafka_TopicDescription_topic_id(topic);
        let id = NonNull::new(id.cast_mut()).and_then(|id| {
            let text = native::rd_kafka_Uuid_base64str(id.as_ptr());
            (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
        });
        let mut partitions = 0;
        native::rd_kafka_TopicDescription_partitions(topic, &raw mut partitions);
        Ok(Described {
            id: id.filter(|id| id != NO_ID),
            partitions: i32::try_from(partitions).unwrap_or(i32::MAX),
        })
    }
}

fn missing() -> KafkaError {
    KafkaError::MetadataFetch(Code::UnknownTopicOrPartition)
}

fn check(code: Code) -> KafkaResult<()> {
    match code {
        Code::NoError => Ok(()),
        code => Err(KafkaError::AdminOp(code)),
    }
}
