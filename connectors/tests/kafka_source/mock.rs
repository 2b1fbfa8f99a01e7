//! What a broker may do that cannot be asked of a real one: librdkafka's own mock of a cluster errs on
//! demand. It has no transactions, and is used for nothing else.

use std::time::Duration;

use isochrone_connectors::kafka::Kafka;
use isochrone_engine::connector::Poll;
use isochrone_engine::time::{Clock, SystemClock};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use rdkafka::{ClientConfig, client::ClientContext};

use crate::support::*;

type Cluster = MockCluster<'static, DefaultProducerContext>;

fn cluster_with(topic: &str, records: usize) -> (Cluster, Kafka) {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic(topic, 1, 1).unwrap();
    send(&cluster, topic, 0..records);
    let kafka = Kafka::at(&cluster.bootstrap_servers()).unwrap();
    (cluster, kafka)
}

fn send<C: ClientContext>(
    cluster: &MockCluster<'_, C>,
    topic: &str,
    numbers: std::ops::Range<usize>,
) {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", cluster.bootstrap_servers());
    let producer: BaseProducer = config.create().unwrap();
    for number in numbers {
        let value = number.to_string();
        let record = BaseRecord::<str, str>::to(topic).partition(0).payload(&value);
        producer.send(record).map_err(|(error, _)| error).unwrap();
    }
    producer.flush(Duration::from_secs(60)).unwrap();
}

#[test]
fn a_broker_that_goes_and_comes_back_is_waited_for() {
    let (cluster, kafka) = cluster_with("t", 5);
    let source = kafka.source("t").text();
    let mut reading = Reading::open(&source, &discover(&source)[0]);
    reading.until_count(5).unwrap();
    cluster.broker_down(1).unwrap();
    reading.for_ms(3_000);
    assert_eq!(reading.batch.items.len(), 5);
    cluster.broker_up(1).unwrap();
    send(&cluster, "t", 5..8);
    assert_eq!(reading.until_count(8).unwrap(), Poll::Ready);
    assert_eq!(reading.batch.items, numbers(0..8));
}

#[test]
fn no_worker_waits_for_long_for_a_broker_that_is_gone_at_the_end() {
    let (cluster, kafka) = cluster_with("t", 5);
    let source = kafka.source("t").text();
    let mut reading = Reading::open(&source, &discover(&source)[0]);
    reading.until_count(5).unwrap();
    cluster.broker_down(1).unwrap();
    reading.for_ms(500);
    let clock = SystemClock::default();
    drop(reading);
    drop(source);
    assert!(clock.monotonic_ms() < 10_000, "{} ms", clock.monotonic_ms());
}

#[test]
fn a_right_that_is_taken_away_stops_the_job() {
    let (cluster, kafka) = cluster_with("t", 5);
    let source = kafka.source("t").text();
    let split = discover(&source).remove(0);
    let errors = vec![RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED; 3];
    cluster.request_errors(RDKafkaApiKey::Fetch, &errors);
    let error = Reading::open(&source, &split).error();
    assert!(
        error.starts_with("topic t, partition 0: the user of this job has no right"),
        "{error}"
    );
}

#[test]
fn an_error_that_comes_again_and_again_at_one_offset_stops_the_job_and_names_it() {
    let (cluster, kafka) = cluster_with("t", 5);
    let source = kafka.set("fetch.error.backoff.ms", "20").source("t").text();
    let mut reading = Reading::open(&source, &discover(&source)[0]);
    reading.until_offset(5).unwrap();
    let errors = vec![RDKafkaRespErr::RD_KAFKA_RESP_ERR_POLICY_VIOLATION; 200];
    cluster.request_errors(RDKafkaApiKey::Fetch, &errors);
    let error = reading.error();
    assert!(
        error.starts_with("topic t, partition 0, offset 5: reading fails again and"),
        "{error}"
    );
}

#[test]
fn an_error_that_passes_is_nothing() {
    let (cluster, kafka) = cluster_with("t", 5);
    let source = kafka.set("fetch.error.backoff.ms", "20").source("t").text();
    let split = discover(&source).remove(0);
    let errors = vec![RDKafkaRespErr::RD_KAFKA_RESP_ERR_POLICY_VIOLATION; 10];
    cluster.request_errors(RDKafkaApiKey::Fetch, &errors);
    let mut reading = Reading::open(&source, &split);
    reading.until_count(5).unwrap();
    assert_eq!(reading.batch.items, numbers(0..5));
}

#[test]
fn what_was_damaged_on_its_way_is_not_passed_over() {
    let (cluster, kafka) = cluster_with("t", 5);
    let source = kafka.source("t").text();
    let split = discover(&source).remove(0);
    let errors = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_INVALID_MSG];
    cluster.request_errors(RDKafkaApiKey::Fetch, &errors);
    let mut reading = Reading::open(&source, &split);
    let error = reading.error();
    assert!(error.contains("what the broker sent cannot be decoded"), "{error}");
    assert_eq!(reading.position().next, 0);
}
