//! What changes a cluster: topics made, grown, deleted, their records deleted, their settings read.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use isochrone_engine::{ErrorKind, Result};
use rdkafka::TopicPartitionList;
use rdkafka::admin::{
    AdminClient, AdminOptions, NewPartitions, NewTopic, ResourceSpecifier, TopicReplication,
};
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::topic_partition_list::Offset;

use super::client::Context;
use super::cluster::{Kafka, check_topic};
use super::topics::{Topics, View};
use super::trouble::explain;

const PATIENCE: Duration = Duration::from_secs(15);
/// How long is asked why there was none.
const WHY: Duration = Duration::from_secs(8);

/// Makes, changes and deletes topics; waits for each answer, 25 seconds at most.
///
/// ```no_run
/// use isochrone_connectors::kafka::{Admin, Kafka};
/// let admin = Admin::connect(&Kafka::at("127.0.0.1:9092")?)?;
/// admin.create("purchases", 6, &[("cleanup.policy", "delete")])?;
/// # Ok::<(), isochrone_engine::Error>(())
/// ```
pub struct Admin {
    kafka: Kafka,
    client: AdminClient<Context>,
    context: Context,
}

impl Admin {
    /// Connects in the background; whether that works shows at the first call.
    pub fn connect(kafka: &Kafka) -> Result<Admin> {
        let (config, context) = kafka.client(&[])?;
        let made = AdminClient::from_config_and_context(&config, context.clone());
        let client = made.map_err(|error| explain("make a client", &error, &context))?;
        Ok(Admin { kafka: kafka.clone(), client, context })
    }

    /// Creates a topic with these settings of it; with as many replicas as the broker's default.
    pub fn create(&self, topic: &str, partitions: i32, settings: &[(&str, &str)]) -> Result<()> {
        check_topic(topic)?;
        let made = self.make(topic, partitions, settings);
        self.told(&format!("create topic `{topic}`"), made)
    }

    fn make(&self, topic: &str, partitions: i32, settings: &[(&str, &str)]) -> KafkaResult<()> {
        let mut wanted = NewTopic::new(topic, partitions, TopicReplication::Fixed(-1));
        for (key, value) in settings {
            wanted = wanted.set(key, value);
        }
        one(wait(self.client.create_topics([&wanted], &options())))
    }

    /// Creates a topic, unless there is one of that name: then it stays as it is. Answers whether it
    /// did.
    pub fn create_if_missing(
        &self,
        topic: &str,
        partitions: i32,
        settings: &[(&str, &str)],
    ) -> Result<bool> {
        check_topic(topic)?;
        match self.make(topic, partitions, settings) {
            Err(KafkaError::AdminOp(RDKafkaErrorCode::TopicAlreadyExists)) => Ok(false),
            made => self.told(&format!("create topic `{topic}`"), made.map(|()| true)),
        }
    }

    /// Deletes a topic with all its records.
    pub fn delete(&self, topic: &str) -> Result<()> {
        let gone = wait(self.client.delete_topics(&[topic], &options()));
        self.told(&format!("delete topic `{topic}`"), one(gone))
    }

    /// Gives a topic more partitions: so many in all.
    pub fn grow(&self, topic: &str, partitions: usize) -> Result<()> {
        let wanted = NewPartitions::new(topic, partitions);
        let made = wait(self.client.create_partitions([&wanted], &options()));
        self.told(&format!("add partitions to topic `{topic}`"), one(made))
    }

    /// Deletes the records of a partition below an offset.
    pub fn delete_records(&self, topic: &str, partition: i32, below: i64) -> Result<()> {
        let mut offsets = TopicPartitionList::new();
        let deleted = offsets
            .add_partition_offset(topic, partition, Offset::Offset(below))
            .and_then(|()| wait(self.client.delete_records(&offsets, &options())))
            .and_then(|done| done.elements().iter().try_for_each(|element| element.error()));
        self.told(&format!("delete records of topic `{topic}`"), deleted)
    }

    /// A setting of a topic, such as `cleanup.policy`.
    pub fn setting(&self, topic: &str, key: &str) -> Result<Option<String>> {
        let of = [ResourceSpecifier::Topic(topic)];
        let found = wait(self.client.describe_configs(&of, &options())).and_then(|found| {
            let found = found.into_iter().next().ok_or(KafkaError::Canceled)?;
            let found = found.map_err(KafkaError::AdminOp)?;
            Ok(found.get(key).and_then(|entry| entry.value.clone()))
        });
        self.told(&format!("read setting `{key}` of topic `{topic}`"), found)
    }

    fn told<T>(&self, doing: &str, answer: KafkaResult<T>) -> Result<T> {
        answer.map_err(|error| {
            let explained = explain(doing, &error, &self.context);
            if explained.kind() != ErrorKind::Unavailable {
                return explained;
            }
            // What this client meets it does not tell; one for questions does.
            let asking = Topics::connect(&self.kafka, View::All).ok();
            asking.and_then(|topics| topics.trouble(doing, WHY)).unwrap_or(explained)
        })
    }
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin").field("addresses", &self.context.addresses()).finish()
    }
}

fn options() -> AdminOptions {
    AdminOptions::new().request_timeout(Some(PATIENCE)).operation_timeout(Some(PATIENCE))
}

/// The answer about the only topic that was named.
fn one(
    answer: KafkaResult<Vec<Result<String, (String, rdkafka::error::RDKafkaErrorCode)>>>,
) -> KafkaResult<()> {
    match answer?.into_iter().next() {
        Some(Ok(_)) => Ok(()),
        Some(Err((_, code))) => Err(KafkaError::AdminOp(code)),
        None => Err(KafkaError::Canceled),
    }
}

/// Waits for an answer on this thread.
fn wait<T>(answer: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = std::task::Context::from_waker(&waker);
    let mut answer = pin!(answer);
    loop {
        match answer.as_mut().poll(&mut context) {
            Poll::Ready(answer) => return answer,
            Poll::Pending => thread::park(),
        }
    }
}
