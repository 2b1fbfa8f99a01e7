//! What a consumer of committed records sees, read to the end by a client that is not ours.
//!
//! The end of a partition is asked for as a reader of all records, before anything is read. A
//! partition is read when the reader's place has reached that end, or the last stable offset if an
//! open transaction holds that back: then the partition is said to hang.

use std::collections::BTreeMap;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Headers, Message};
use rdkafka::{Offset, TopicPartitionList};

use super::super::wait;
use super::Topic;

/// A record as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub partition: i32,
    pub offset: i64,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub timestamp_ms: Option<i64>,
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

/// A partition whose committed records end before it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hanging {
    pub partition: i32,
    pub last_stable_offset: i64,
    pub high_watermark: i64,
}

/// All that there was to see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// Those of one partition in their order.
    pub records: Vec<Record>,
    pub hanging: Vec<Hanging>,
}

impl Content {
    /// Keys and values as text, by partition.
    pub fn texts(&self) -> BTreeMap<i32, Vec<(String, String)>> {
        let mut texts = BTreeMap::<_, Vec<_>>::new();
        for record in &self.records {
            texts.entry(record.partition).or_default().push((record.key_text(), record.text()));
        }
        texts
    }
}

impl Record {
    /// Its value as text; that of a tombstone is empty.
    pub fn text(&self) -> String {
        String::from_utf8(self.value.clone().unwrap_or_default()).unwrap()
    }

    pub fn key_text(&self) -> String {
        String::from_utf8(self.key.clone().unwrap_or_default()).unwrap()
    }

    fn of(message: &BorrowedMessage<'_>) -> Record {
        let headers = message.headers().into_iter().flat_map(|headers| headers.iter());
        let owned = |bytes: &[u8]| bytes.to_owned();
        Record {
            partition: message.partition(),
            offset: message.offset(),
            key: message.key().map(owned),
            value: message.payload().map(owned),
            timestamp_ms: message.timestamp().to_millis(),
            headers: headers.map(|h| (h.key.to_owned(), h.value.map(owned))).collect(),
        }
    }
}

/// Reads a topic to its end.
pub fn read_committed(topic: &Topic) -> Content {
    let mut records = Vec::new();
    let hanging = each_committed(topic, |message| records.push(Record::of(message)));
    Content { records, hanging }
}

/// Shows each record of a topic once, to its end; answers which partitions hang.
pub fn each_committed(topic: &Topic, mut see: impl FnMut(&BorrowedMessage<'_>)) -> Vec<Hanging> {
    let (mut ends, mut hanging) = (BTreeMap::new(), Vec::new());
    let mut from = TopicPartitionList::new();
    for partition in 0..topic.partitions() as i32 {
        // In this order: what becomes stable in between is no reason to say that it hangs.
        let (low, high_watermark) = topic.watermarks(partition);
        let last_stable_offset = topic.last_stable_offset(partition);
        if last_stable_offset < high_watermark {
            hanging.push(Hanging { partition, last_stable_offset, high_watermark });
        }
        let end = last_stable_offset.min(high_watermark);
        if low < end {
            ends.insert(partition, end);
            from.add_partition_offset(&topic.name, partition, Offset::Offset(low)).unwrap();
        }
    }
    let consumer = consumer(topic);
    consumer.assign(&from).unwrap();
    let mut seen = wait::Since::now();
    let mut trouble = None;
    while !ends.is_empty() {
        match consumer.poll(wait::LOOK_EVERY) {
            Some(Ok(message)) => {
                seen = wait::Since::now();
                // What has come since the end was asked for is for another time.
                let Some(end) = ends.get(&message.partition()).copied() else { continue };
                if message.offset() < end {
                    see(&message);
                }
                if message.offset() + 1 >= end {
                    ends.remove(&message.partition());
                }
            }
            // At the end, or behind what is no record: the marks of transactions, aborted records.
            Some(Err(KafkaError::PartitionEOF(_))) => {
                let places = consumer.position().unwrap();
                ends.retain(|partition, end| {
                    let place = places.find_partition(&topic.name, *partition);
                    let place = place.and_then(|place| place.offset().to_raw()).unwrap_or(0);
                    place < *end
                });
            }
            // A broker that dies or hands over; the client finds the next one.
            Some(Err(error)) => trouble = Some(error),
            None => assert!(
                seen.passed() < wait::SOON,
                "nothing more comes from {}, though these partitions go on to: {ends:?}; {trouble:?}",
                topic.name
            ),
        }
    }
    hanging
}

fn consumer(topic: &Topic) -> BaseConsumer {
    let mut config = topic.client.clone();
    config
        .set("group.id", "isochrone-tests-reader")
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("enable.partition.eof", "true")
        .set("auto.offset.reset", "error")
        .set("isolation.level", "read_committed")
        .set("fetch.wait.max.ms", "50")
        .set("fetch.queue.backoff.ms", "20");
    config.create().unwrap()
}
