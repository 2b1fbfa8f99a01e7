//! Topics of a test: created, changed, cut and deleted.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use rdkafka::admin::{
    AdminClient, AdminOptions, AlterConfig, NewPartitions, NewTopic, ResourceSpecifier,
    TopicReplication,
};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaResult;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use super::super::wait;
use super::{Broker, Content, Row, read_committed, write};

/// A topic on a broker.
#[derive(Clone, Debug)]
pub struct Topic {
    pub name: String,
    pub client: ClientConfig,
}

impl Topic {
    pub fn create(broker: &Broker, name: &str, partitions: u32) -> Topic {
        Topic::create_with(broker, name, partitions, &[])
    }

    /// With properties, such as `("cleanup.policy", "compact")`.
    pub fn create_with(
        broker: &Broker,
        name: &str,
        partitions: u32,
        settings: &[(&str, &str)],
    ) -> Topic {
        let topic = Topic { name: name.to_owned(), client: broker.client() };
        // As many replicas as the brokers have as their default.
        let new = NewTopic::new(name, partitions as i32, TopicReplication::Fixed(-1));
        let new = settings.iter().fold(new, |new, (key, value)| new.set(key, value));
        let made = block_on(topic.admin().create_topics(&[new], &options())).unwrap();
        assert!(made[0].is_ok(), "topic {name}: {made:?}");
        // The answer comes before every broker knows it.
        let known = wait::soon(|| topic.partitions() == partitions);
        assert!(known, "topic {name} has {} partitions, not {partitions}", topic.partitions());
        topic
    }

    pub fn delete(&self) {
        let deleted = block_on(self.admin().delete_topics(&[&self.name], &options())).unwrap();
        assert!(deleted[0].is_ok(), "{deleted:?}");
        assert!(wait::soon(|| self.partitions() == 0), "topic {} does not go away", self.name);
    }

    /// Adds partitions, up to so many.
    pub fn grow_to(&self, partitions: u32) {
        let new = NewPartitions::new(&self.name, partitions as usize);
        let made = block_on(self.admin().create_partitions(&[new], &options())).unwrap();
        assert!(made[0].is_ok(), "{made:?}");
        assert!(wait::soon(|| self.partitions() == partitions), "the partitions do not come");
    }

    /// Deletes what is before an offset of a partition.
    pub fn delete_records(&self, partition: i32, before: i64) {
        let mut cut = TopicPartitionList::new();
        cut.add_partition_offset(&self.name, partition, Offset::Offset(before)).unwrap();
        let done = block_on(self.admin().delete_records(&cut, &options())).unwrap();
        let done = done.find_partition(&self.name, partition).expect("it was asked for");
        assert_eq!(done.offset(), Offset::Offset(before), "{:?}", done.error());
    }

    /// Changes a property; those that are not named get their default back.
    pub fn set(&self, settings: &[(&str, &str)]) {
        let change = AlterConfig::new(ResourceSpecifier::Topic(&self.name));
        let change = settings.iter().fold(change, |change, (key, value)| change.set(key, value));
        let done = block_on(self.admin().alter_configs(&[change], &options())).unwrap();
        assert!(done[0].is_ok(), "{done:?}");
        // The answer comes before every broker goes by it.
        let holds =
            || settings.iter().all(|(key, value)| self.setting(key).as_deref() == Some(*value));
        assert!(wait::soon(holds), "topic {} does not become {settings:?}", self.name);
    }

    fn setting(&self, key: &str) -> Option<String> {
        let of = [ResourceSpecifier::Topic(&self.name)];
        let found = block_on(self.admin().describe_configs(&of, &options())).unwrap();
        let found = found.into_iter().next().expect("it was asked for").ok()?;
        found.get(key).and_then(|entry| entry.value.clone())
    }

    /// How many partitions it has; 0 when it is not there.
    pub fn partitions(&self) -> u32 {
        let client: BaseConsumer = self.client.create().unwrap();
        let metadata = patiently(|| client.fetch_metadata(Some(&self.name), ASK_FOR));
        metadata.topics().first().map_or(0, |topic| topic.partitions().len() as u32)
    }

    /// The broker that leads a partition.
    pub fn leader(&self, partition: i32) -> u32 {
        let client: BaseConsumer = self.client.create().unwrap();
        let leader = wait::until(wait::SOON, || {
            let metadata = patiently(|| client.fetch_metadata(Some(&self.name), ASK_FOR));
            let found = metadata.topics().first()?.partitions();
            let found = found.iter().find(|found| found.id() == partition)?;
            // For a moment there may be none.
            u32::try_from(found.leader()).ok()
        });
        leader.unwrap_or_else(|| panic!("nobody leads partition {partition} of {}", self.name))
    }

    /// First offset and the one after the last, transactions that are open included.
    pub fn watermarks(&self, partition: i32) -> (i64, i64) {
        self.watermarks_as("read_uncommitted", partition)
    }

    /// The offset from which on a reader of committed records has to wait.
    pub fn last_stable_offset(&self, partition: i32) -> i64 {
        self.watermarks_as("read_committed", partition).1
    }

    fn watermarks_as(&self, isolation: &str, partition: i32) -> (i64, i64) {
        let client = self.client.clone().set("isolation.level", isolation).create();
        let client: BaseConsumer = client.unwrap();
        patiently(|| client.fetch_watermarks(&self.name, partition, ASK_FOR))
    }

    /// Writes rows outside of any transaction and waits until all are there.
    pub fn write(&self, rows: impl IntoIterator<Item = Row>) {
        write(self, rows);
    }

    /// What a reader of committed records sees once no transaction holds it back any more: the answer
    /// to a commit may come before its marks are in all partitions.
    pub fn read(&self) -> Content {
        let mut last = Content::default();
        let stable = wait::until(STABLE_WITHIN, || {
            last = self.glance();
            last.hanging.is_empty().then_some(())
        });
        assert!(stable.is_some(), "topic {} hangs: {:?}", self.name, last.hanging);
        last
    }

    /// What a reader of committed records sees now, and where an open transaction holds it back.
    pub fn glance(&self) -> Content {
        read_committed(self)
    }

    /// The same once so many records are there, or more.
    pub fn read_when(&self, records: usize) -> Content {
        let mut last = Content::default();
        let came = wait::soon(|| {
            last = self.glance();
            last.records.len() >= records
        });
        let (found, hanging) = (last.records.len(), &last.hanging);
        assert!(came, "{} has {found} records, not {records}; hanging: {hanging:?}", self.name);
        last
    }

    fn admin(&self) -> AdminClient<DefaultClientContext> {
        self.client.create().unwrap()
    }
}

/// Much less than the time-out of a transaction, which would hide that one was left open.
const STABLE_WITHIN: Duration = Duration::from_secs(30);

/// How long one question may take.
const ASK_FOR: Duration = Duration::from_secs(10);

/// Asks again while brokers die or hand over.
fn patiently<T>(mut ask: impl FnMut() -> KafkaResult<T>) -> T {
    let mut last = None;
    let answer = wait::until(wait::SOON, || ask().map_err(|error| last = Some(error)).ok());
    answer.unwrap_or_else(|| panic!("Kafka does not answer: {last:?}"))
}

fn options() -> AdminOptions {
    AdminOptions::new().request_timeout(Some(wait::SOON)).operation_timeout(Some(wait::SOON))
}

/// Waits for a future that another thread completes.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}
