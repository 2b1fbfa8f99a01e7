//! Filling topics as others do: plain, or in transactions that end well, badly or not at all.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rdkafka::ClientContext;
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext};
use rdkafka::types::RDKafkaErrorCode;

use super::super::wait;
use super::{Broker, Topic};

/// A record to write. Without a partition, its key decides as with Java's producer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    pub key: Option<Vec<u8>>,
    /// Without one it is a tombstone.
    pub value: Option<Vec<u8>>,
    pub partition: Option<i32>,
    pub timestamp_ms: Option<i64>,
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

/// A record with key and value.
pub fn row(key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Row {
    let (key, value) = (Some(key.as_ref().to_owned()), Some(value.as_ref().to_owned()));
    Row { key, value, ..Row::default() }
}

impl Row {
    /// To this partition.
    pub fn to(mut self, partition: i32) -> Row {
        self.partition = Some(partition);
        self
    }

    pub fn at_ms(mut self, timestamp_ms: i64) -> Row {
        self.timestamp_ms = Some(timestamp_ms);
        self
    }

    pub fn header(mut self, name: &str, value: Option<&[u8]>) -> Row {
        self.headers.push((name.to_owned(), value.map(<[u8]>::to_owned)));
        self
    }
}

/// Counts what the broker acknowledged, and remembers what it did not.
#[derive(Default)]
struct Reports {
    delivered: AtomicU64,
    failed: Mutex<Vec<String>>,
}

impl ClientContext for Reports {}

impl ProducerContext for Reports {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        match result {
            Ok(_) => _ = self.delivered.fetch_add(1, Ordering::Relaxed),
            Err((error, _)) => self.failed.lock().unwrap().push(error.to_string()),
        }
    }
}

/// Writes rows outside of any transaction, in their order, and waits until all are there.
pub fn write(topic: &Topic, rows: impl IntoIterator<Item = Row>) {
    let mut config = topic.client.clone();
    config.set("enable.idempotence", "true").set("linger.ms", "5");
    let config = config.set("partitioner", "murmur2_random");
    let producer: BaseProducer<Reports> = config.create_with_context(Reports::default()).unwrap();
    let mut sent = 0;
    for row in rows {
        send(&producer, &topic.name, &row).unwrap();
        sent += 1;
    }
    settle(&producer, sent).unwrap();
}

/// An open transaction. Dropped, it stays open until its time-out, as after a crash.
pub struct Transaction {
    producer: BaseProducer<Reports>,
    sent: u64,
}

impl Transaction {
    pub fn begin(broker: &Broker, id: &str) -> Transaction {
        Transaction::try_begin(broker, id, wait::SOON).unwrap()
    }

    /// With a time-out of its own, after which the broker aborts it; or why it cannot begin.
    pub fn try_begin(broker: &Broker, id: &str, time_out: Duration) -> KafkaResult<Transaction> {
        let mut config = broker.client();
        config.set("transactional.id", id).set("partitioner", "murmur2_random");
        config.set("transaction.timeout.ms", time_out.as_millis().to_string());
        let producer: BaseProducer<Reports> = config.create_with_context(Reports::default())?;
        producer.init_transactions(wait::SOON)?;
        producer.begin_transaction()?;
        Ok(Transaction { producer, sent: 0 })
    }

    /// Writes rows and waits until they are in the topic, not yet committed.
    pub fn write(&mut self, topic: &Topic, rows: impl IntoIterator<Item = Row>) {
        self.try_write(topic, rows).unwrap();
    }

    /// The same, or what the broker says against it.
    pub fn try_write(
        &mut self,
        topic: &Topic,
        rows: impl IntoIterator<Item = Row>,
    ) -> Result<(), String> {
        for row in rows {
            send(&self.producer, &topic.name, &row).map_err(|error| error.to_string())?;
            self.sent += 1;
        }
        settle(&self.producer, self.sent)
    }

    pub fn commit(self) {
        self.try_commit().unwrap();
    }

    pub fn try_commit(self) -> KafkaResult<()> {
        self.producer.commit_transaction(wait::SOON)
    }

    /// Commits, and begins the next one with the same producer.
    pub fn commit_and_begin(&self) {
        self.producer.commit_transaction(wait::SOON).unwrap();
        self.producer.begin_transaction().unwrap();
    }

    pub fn abort(self) {
        self.try_abort().unwrap();
    }

    pub fn try_abort(self) -> KafkaResult<()> {
        self.producer.abort_transaction(wait::SOON)
    }
}

fn send(producer: &BaseProducer<Reports>, topic: &str, row: &Row) -> KafkaResult<()> {
    let mut record = BaseRecord::<[u8], [u8]>::to(topic);
    record.key = row.key.as_deref();
    record.payload = row.value.as_deref();
    record.partition = row.partition;
    record.timestamp = row.timestamp_ms;
    if !row.headers.is_empty() {
        let headers = row.headers.iter().fold(OwnedHeaders::new(), |headers, (key, value)| {
            headers.insert(Header { key, value: value.as_deref() })
        });
        record.headers = Some(headers);
    }
    loop {
        match producer.send(record) {
            Ok(()) => return Ok(()),
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) => {
                record = back;
                producer.poll(Duration::from_millis(1));
            }
            Err((error, _)) => return Err(error),
        }
    }
}

/// Waits until each record sent has its report; `Err` with what failed.
fn settle(producer: &BaseProducer<Reports>, sent: u64) -> Result<(), String> {
    let reports = producer.context();
    wait::soon(|| {
        producer.poll(Duration::from_millis(1));
        producer.in_flight_count() == 0
    });
    let failed = reports.failed.lock().unwrap();
    let delivered = reports.delivered.load(Ordering::Relaxed);
    if delivered == sent && failed.is_empty() {
        return Ok(());
    }
    Err(format!("{delivered} of {sent} records were acknowledged; {:?}", failed.first()))
}
