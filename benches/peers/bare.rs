//! What one would write with rdkafka alone: one message a call in, one out, state in memory.
//!
//! At least once, and even that only for the input: what it knew of the accounts is gone when it
//! is killed. So it is no rival in what it promises, but says what the way through Kafka costs.

use std::collections::HashMap;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext};
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{ClientConfig, ClientContext, Message, Offset, TopicPartitionList};

use super::super::wait::{self, Since};
use super::PARTITIONS;
use super::contender::Place;
use super::purchases::{Assessment, Purchase};
use super::reader::{self, places};

/// Hears of failures only.
struct NoFailure;

impl ClientContext for NoFailure {}

impl ProducerContext for NoFailure {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if let Err((error, _)) = result {
            panic!("a record was not delivered: {error}");
        }
    }
}

/// Never returns.
pub(crate) fn run(place: &Place) {
    let consumer = consumer(place);
    let producer = producer(place);
    let mut spent = HashMap::<u32, (u64, i64)>::new();
    let mut next = [None::<i64>; PARTITIONS as usize];
    let mut committed = Since::now();
    let mut line = Vec::new();
    for turn in 1_u64.. {
        if let Some(message) = consumer.poll(Duration::from_millis(10)) {
            let message = message.expect("the broker is there");
            let value = message.payload().expect("a purchase");
            let purchase: Purchase = serde_json::from_slice(value).expect("a purchase in JSON");
            let Purchase { account, id, cents } = purchase;
            let (count, total) = spent.entry(account).or_default();
            *count += 1;
            *total += cents;
            let assessment = Assessment { account, id, count: *count, total: *total };
            line.clear();
            serde_json::to_writer(&mut line, &assessment).expect("plain numbers");
            send(&producer, &place.output, message.key().expect("an account"), &line);
            next[message.partition() as usize] = Some(message.offset() + 1);
            // Looking at the clock each time would be a part of what is measured.
            if turn % 64 != 0 {
                continue;
            }
        }
        if committed.passed() >= place.interval && next.iter().any(Option::is_some) {
            commit(&consumer, &producer, place, &mut next);
            committed = Since::now();
        }
    }
}

/// First the output, then the offsets.
fn commit(
    consumer: &BaseConsumer,
    producer: &BaseProducer<NoFailure>,
    place: &Place,
    next: &mut [Option<i64>],
) {
    // The crate's flush takes 100 ms when only failures are reported.
    while producer.in_flight_count() > 0 {
        producer.poll(Duration::ZERO);
        wait::pause(Duration::from_micros(200));
    }
    let mut offsets = TopicPartitionList::new();
    for (partition, next) in (0..).zip(next) {
        if let Some(offset) = next.take() {
            let offset = Offset::Offset(offset);
            offsets.add_partition_offset(&place.input, partition, offset).expect("an offset");
        }
    }
    consumer.commit(&offsets, CommitMode::Async).expect("the broker is there");
}

fn send(producer: &BaseProducer<NoFailure>, topic: &str, key: &[u8], value: &[u8]) {
    let mut record = BaseRecord::to(topic).key(key).payload(value);
    loop {
        match producer.send(record) {
            Ok(()) => return,
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) => {
                record = back;
                producer.poll(Duration::from_millis(1));
            }
            Err((error, _)) => panic!("a record cannot be sent: {error}"),
        }
    }
}

fn consumer(place: &Place) -> BaseConsumer {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", &place.broker);
    let consumer = reader::consumer(config, &format!("bare-{}", place.output));
    let mut from = places(&place.input, |_| Offset::Beginning);
    // A new broker has nobody yet who keeps the offsets of groups.
    let committed =
        wait::until(wait::SOON, || consumer.committed_offsets(from.clone(), wait::SOON).ok());
    for element in committed.expect("the broker is there").elements() {
        if let Offset::Offset(_) = element.offset() {
            let (topic, partition) = (element.topic(), element.partition());
            from.set_partition_offset(topic, partition, element.offset()).expect("a place");
        }
    }
    consumer.assign(&from).expect("partitions");
    consumer
}

fn producer(place: &Place) -> BaseProducer<NoFailure> {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", &place.broker)
        .set("enable.idempotence", "true")
        .set("partitioner", "murmur2_random")
        .set("linger.ms", "5")
        .set("delivery.report.only.error", "true")
        .set("queue.buffering.max.messages", "1000000")
        .set("queue.buffering.max.kbytes", "524288");
    config.create_with_context(NoFailure).expect("a producer")
}
