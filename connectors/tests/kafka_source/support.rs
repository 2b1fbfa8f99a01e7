//! A real broker, topics on it, and readers driven by hand.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use isochrone_connectors::kafka::{Admin, Kafka, KafkaPosition, KafkaTopic};
use isochrone_engine::Result;
use isochrone_engine::connector::{Batch, Poll, Reader, Source, Split};
use isochrone_engine::time::{Clock, SystemClock};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::OwnedHeaders;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};

/// Where the broker is that the tests use.
const BROKER: &str = "ISOCHRONE_TEST_KAFKA";
/// No healthy run comes near, on a slow machine either.
const PATIENCE: Duration = Duration::from_secs(90);

pub(crate) fn address() -> String {
    std::env::var(BROKER).unwrap_or_else(|_| {
        panic!(
            "this test needs a Kafka broker: start one and give its address, as in \
             {BROKER}=127.0.0.1:9092"
        )
    })
}

pub(crate) fn cluster() -> Kafka {
    Kafka::at(&address()).unwrap()
}

pub(crate) fn admin() -> Admin {
    Admin::connect(&cluster()).unwrap()
}

/// Set in a process that runs one test alone.
const ALONE: &str = "ISOCHRONE_TEST_ALONE";

/// Whether this process is for the test alone; if not, one is started that is, and must end well.
pub(crate) fn is_alone(test: &str) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(ALONE, "yes");
    let end = again.stdin(Stdio::null()).status().unwrap();
    assert!(end.success(), "{test}, alone in a process: {end}");
    false
}

/// A topic of this test alone.
pub(crate) struct Topic {
    pub(crate) name: String,
}

impl Topic {
    pub(crate) fn new(label: &str, partitions: i32) -> Topic {
        Topic::with(label, partitions, &[])
    }

    #[expect(clippy::disallowed_methods, reason = "a name that no earlier run has used")]
    pub(crate) fn with(label: &str, partitions: i32, settings: &[(&str, &str)]) -> Topic {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros();
        let name = format!("{label}-{now}-{number}");
        // Some tests write records of 1970, which retention would take away.
        let settings = [settings, &[("retention.ms", "-1")]].concat();
        admin().create(&name, partitions, &settings).unwrap();
        Topic { name }
    }

    pub(crate) fn source(&self) -> KafkaTopic {
        cluster().source(&self.name)
    }

    /// Sends values to a partition and waits until they are there.
    pub(crate) fn send(&self, partition: i32, values: &[&str]) {
        let records = values.iter().map(|value| Sent { value: Some(value), ..Sent::default() });
        self.send_records(partition, records);
    }

    pub(crate) fn send_records<'a>(
        &self,
        partition: i32,
        records: impl IntoIterator<Item = Sent<'a>>,
    ) {
        let producer: BaseProducer = config().create().unwrap();
        for record in records {
            record.give(&producer, &self.name, partition);
        }
        producer.flush(PATIENCE).unwrap();
    }

    /// Sends values in a transaction.
    pub(crate) fn transaction(&self, partition: i32, values: &[&str], end: End) {
        let transaction = Transaction::begin(&self.name);
        transaction.send(self, partition, values);
        transaction.end(end);
    }

    pub(crate) fn delete_records(&self, partition: i32, below: i64) {
        admin().delete_records(&self.name, partition, below).unwrap();
    }

    /// Adds partitions, up to so many, and waits until the broker knows them: until then a record for
    /// one of them is refused.
    pub(crate) fn grow(&self, partitions: usize) {
        admin().grow(&self.name, partitions).unwrap();
        eventually("the partitions are there", || {
            discover(&self.source().text()).len() == partitions
        });
    }

    pub(crate) fn recreate(&self, partitions: i32) {
        admin().delete(&self.name).unwrap();
        eventually("the topic is deleted", || admin().create(&self.name, partitions, &[]).is_ok());
    }
}

/// What becomes of a transaction.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Commit,
    Abort,
}

/// A transaction that is open.
pub(crate) struct Transaction {
    producer: BaseProducer,
    /// Where it has written: topics and partitions.
    places: RefCell<BTreeSet<(String, i32)>>,
}

impl Transaction {
    pub(crate) fn begin(id: &str) -> Transaction {
        let mut config = config();
        config.set("transactional.id", format!("of-{id}"));
        let producer: BaseProducer = config.create().unwrap();
        producer.init_transactions(PATIENCE).unwrap();
        producer.begin_transaction().unwrap();
        Transaction { producer, places: RefCell::default() }
    }

    pub(crate) fn send(&self, topic: &Topic, partition: i32, values: &[&str]) {
        for value in values {
            Sent { value: Some(value), ..Sent::default() }.give(
                &self.producer,
                &topic.name,
                partition,
            );
        }
        self.producer.flush(PATIENCE).unwrap();
        self.places.borrow_mut().insert((topic.name.clone(), partition));
    }

    pub(crate) fn abort_and_begin(&self) {
        self.producer.abort_transaction(PATIENCE).unwrap();
        self.producer.begin_transaction().unwrap();
    }

    /// Ends it, and waits for its marks: the broker answers before they are in all partitions.
    pub(crate) fn end(self, end: End) {
        let ends = self.places.take().into_iter().map(|place| (end_of(&place), place));
        let ends: Vec<_> = ends.collect();
        match end {
            End::Commit => self.producer.commit_transaction(PATIENCE).unwrap(),
            End::Abort => self.producer.abort_transaction(PATIENCE).unwrap(),
        }
        for (before, place) in ends {
            eventually("the mark is there", || end_of(&place) > before);
        }
    }
}

/// A record to send.
#[derive(Default)]
pub(crate) struct Sent<'a> {
    pub(crate) key: Option<&'a str>,
    pub(crate) value: Option<&'a str>,
    pub(crate) headers: Vec<(&'a str, Option<&'a str>)>,
    pub(crate) timestamp_ms: Option<i64>,
}

impl Sent<'_> {
    fn give(&self, producer: &BaseProducer, topic: &str, partition: i32) {
        let mut record = BaseRecord::<str, str>::to(topic).partition(partition);
        record.key = self.key;
        record.payload = self.value;
        record.timestamp = self.timestamp_ms;
        let headers = self.headers.iter().fold(OwnedHeaders::new(), |headers, (key, value)| {
            headers.insert(rdkafka::message::Header { key, value: *value })
        });
        record.headers = (!self.headers.is_empty()).then_some(headers);
        producer.send(record).map_err(|(error, _)| error).unwrap();
    }
}

/// Behind the last record of a partition, or the last mark.
fn end_of((topic, partition): &(String, i32)) -> i64 {
    let client: BaseConsumer = config().create().unwrap();
    client.fetch_watermarks(topic, *partition, PATIENCE).unwrap().1
}

fn config() -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", address()).set("linger.ms", "0");
    config.set("message.max.bytes", "3000000");
    config
}

pub(crate) type KafkaSplit = Split<KafkaPosition>;

/// The splits that a source finds at first.
pub(crate) fn discover<S: Source<Position = KafkaPosition>>(source: &S) -> Vec<KafkaSplit> {
    source.discover(&[]).unwrap().new
}

/// A split being read.
pub(crate) struct Reading<T> {
    reader: Box<dyn Reader<T, KafkaPosition>>,
    pub(crate) batch: Batch<T>,
}

impl<T: 'static> Reading<T> {
    pub(crate) fn open<S>(source: &S, split: &KafkaSplit) -> Reading<T>
    where
        S: Source<Item = T, Position = KafkaPosition>,
    {
        Reading { reader: source.open(split.clone()).unwrap(), batch: Batch::default() }
    }

    /// Polls until there are so many records, or more.
    pub(crate) fn until_count(&mut self, count: usize) -> Result<Poll> {
        self.until(&format!("{count} records"), |batch, _| batch.items.len() >= count)
    }

    /// Polls until the next offset is this one, or a higher one.
    pub(crate) fn until_offset(&mut self, next: i64) -> Result<Poll> {
        self.until(&format!("offset {next}"), |_, position| position.next >= next)
    }

    /// Polls until the split is finished.
    pub(crate) fn until_finished(&mut self) -> Result<()> {
        let poll = self.until("the end", |_, _| false)?;
        assert_eq!(poll, Poll::Finished);
        Ok(())
    }

    /// Polls for so long, whatever comes.
    pub(crate) fn for_ms(&mut self, ms: u64) {
        let clock = SystemClock::default();
        self.until("time", |_, _| clock.monotonic_ms() >= ms).unwrap();
    }

    /// Polls until an error comes.
    pub(crate) fn error(&mut self) -> String {
        self.until("an error", |_, _| false).unwrap_err().to_string()
    }

    /// Polls until that holds, or the split is finished.
    pub(crate) fn until(
        &mut self,
        what: &str,
        holds: impl Fn(&Batch<T>, &KafkaPosition) -> bool,
    ) -> Result<Poll> {
        let clock = SystemClock::default();
        loop {
            let poll = self.reader.poll(&mut self.batch, 100)?;
            if poll == Poll::Finished || holds(&self.batch, &self.position()) {
                return Ok(poll);
            }
            if let Poll::Idle { retry_after } = poll {
                std::thread::park_timeout(retry_after);
            }
            let (at, read) = (self.position(), self.batch.items.len());
            let passed = Duration::from_millis(clock.monotonic_ms());
            assert!(passed < PATIENCE, "no {what} after {passed:?}; {read} records, {at:?}");
        }
    }

    pub(crate) fn position(&self) -> KafkaPosition {
        self.reader.position()
    }
}

/// Reads a split to its end.
pub(crate) fn read_split<S>(source: &S, split: &KafkaSplit) -> Batch<S::Item>
where
    S: Source<Position = KafkaPosition>,
{
    let mut reading = Reading::open(source, split);
    reading.until_finished().unwrap();
    reading.batch
}

/// What is warned of on this thread while something is done, which may ask how often so far.
pub(crate) fn warnings(work: impl FnOnce(&dyn Fn() -> usize)) -> Vec<String> {
    let heard = Heard::default();
    let so_far = || heard.0.lock().unwrap().len();
    tracing::subscriber::with_default(heard.clone(), || work(&so_far));
    std::mem::take(&mut *heard.0.lock().unwrap())
}

#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Heard {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }

    fn event(&self, event: &tracing::Event<'_>) {
        let mut text = String::new();
        event.record(&mut |field: &tracing::field::Field, value: &dyn std::fmt::Debug| {
            text += &format!("{field}={value:?} ");
        });
        self.0.lock().unwrap().push(text);
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

pub(crate) fn eventually(what: &str, holds: impl FnMut() -> bool) {
    assert!(within_patience(holds), "{what}: not in {PATIENCE:?}");
}

/// Waits until that holds, if it does in time.
pub(crate) fn within_patience(mut holds: impl FnMut() -> bool) -> bool {
    let clock = SystemClock::default();
    while !holds() {
        if u128::from(clock.monotonic_ms()) >= PATIENCE.as_millis() {
            return false;
        }
        std::thread::park_timeout(Duration::from_millis(50));
    }
    true
}

pub(crate) fn numbers(range: std::ops::Range<i64>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

pub(crate) fn strs(strings: &[String]) -> Vec<&str> {
    strings.iter().map(String::as_str).collect()
}
