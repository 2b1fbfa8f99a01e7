//! Clients that read the committed records of a topic, as latency and kills see them and the bare
//! loop does.

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use super::super::kafka::Topic;
use super::PARTITIONS;

/// A reader of committed records, which reads nothing yet.
pub(crate) fn consumer(mut config: ClientConfig, group: &str) -> BaseConsumer {
    config
        .set("group.id", group)
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("isolation.level", "read_committed")
        .set("fetch.wait.max.ms", "100")
        .set("fetch.queue.backoff.ms", "20");
    config.create().expect("a consumer")
}

/// A place in each partition of a topic.
pub(crate) fn places(topic: &str, at: impl Fn(i32) -> Offset) -> TopicPartitionList {
    let mut places = TopicPartitionList::new();
    for partition in 0..PARTITIONS as i32 {
        places.add_partition_offset(topic, partition, at(partition)).expect("a place");
    }
    places
}

/// Reads from the beginning of all partitions.
pub(crate) fn reader(topic: &Topic) -> BaseConsumer {
    let consumer = consumer(topic.client.clone(), "isochrone-bench-reader");
    consumer.assign(&places(&topic.name, |_| Offset::Beginning)).expect("partitions");
    consumer
}

/// Up to where each partition is committed: its last stable offset.
pub(crate) fn committed(consumer: &BaseConsumer, topic: &str) -> Vec<i64> {
    let end = |partition| {
        let ends = consumer.fetch_watermarks(topic, partition, super::super::wait::SOON);
        ends.expect("the broker is there").1
    };
    (0..PARTITIONS as i32).map(end).collect()
}
