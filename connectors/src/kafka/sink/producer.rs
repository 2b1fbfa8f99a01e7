//! The producer of one lane: fenced when it opens, and used again only while nothing it sent can
//! arrive late.
//!
//! A broker that speaks librdkafka's version of the transaction protocol takes a request to end a
//! transaction that was sent twice, and arrives late, for the end of the *next* transaction of the
//! same producer (KAFKA-17754). Such a request exists only if the client repeated it. So a producer
//! is used for another transaction when statistics taken after the last one ended count exactly as
//! many such requests as there were transactions; otherwise a new one takes its place, and the broker
//! refuses what the old one may still have on its way.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use isochrone_engine::time::{Clock, SystemClock};
use isochrone_engine::{Error, Result};
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::OwnedHeaders;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};

use super::super::batch::{Entry, Outbox};
use super::super::client::Context;
use super::super::cluster::{Kafka, Own};
use super::super::trouble::explain;
use super::record::{Headers, MAGIC, Place};
use super::reports::Reports;

/// Statistics come so often, in milliseconds.
const STATISTICS_MS: &str = "10";
/// The first statistics after a transaction may have been taken before it ended; the second were
/// begun after the first were there.
const STATISTICS_NEEDED: u64 = 2;
/// The largest that librdkafka takes; what the topic takes is checked by the writer, and by brokers.
const RECORD_MAX: &str = "1000000000";
/// A call is cut into pieces of this length, so that what the client meets meanwhile is seen.
const SLICE: Duration = Duration::from_secs(2);
/// How often is looked what opening a producer waits for.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const LISTEN_FOR: Duration = Duration::from_millis(10);
const PAUSE: Duration = Duration::from_millis(20);
/// What librdkafka puts into a batch unless told otherwise.
const BATCH_BYTES: usize = 1_000_000;
/// Records handed over in one call.
const BATCH: usize = 4096;
/// What the client says and is taken in at a time.
const LISTEN_MAX: usize = 16;
const TURN: Duration = Duration::from_micros(500);

/// An open producer.
pub(super) struct Producer {
    outbox: Outbox<Reports>,
    /// Transactions that it has ended.
    ended: u64,
    /// Statistics when the last one had ended.
    statistics: u64,
}

/// Whether a producer may be used for another transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reuse {
    Proven,
    /// Statistics are still to come.
    NotYet,
    /// A request was repeated.
    Never,
}

impl Producer {
    /// Opens a producer. With a transactional id, when this returns, everything that an older one of
    /// the same id has sent is decided, committed or aborted, and it can send no more. Without one
    /// there are no transactions, and whatever is delivered counts.
    ///
    /// `batch_max`, in bytes: batches are no larger, where the client's own limit would be more than a
    /// topic takes.
    pub(super) fn open(
        kafka: &Kafka,
        id: Option<&str>,
        batch_max: Option<usize>,
        deadline: &Deadline,
    ) -> Result<Producer> {
        let exactly = "output is there exactly once only with it";
        let (mut config, context) = kafka.client(&[
            ("enable.idempotence", "true", Own::Fixed(exactly)),
            ("acks", "all", Own::Fixed(exactly)),
            ("delivery.report.only.error", "true", Own::Fixed("only failures matter")),
            ("statistics.interval.ms", STATISTICS_MS, Own::Fixed("the sink goes by statistics")),
            ("transaction.timeout.ms", "60000", Own::Default),
            ("message.max.bytes", RECORD_MAX, Own::Default),
            ("linger.ms", "1", Own::Default),
            ("queue.buffering.max.messages", "50000", Own::Default),
            ("queue.buffering.max.kbytes", "32768", Own::Default),
            ("allow.auto.create.topics", "false", Own::Fixed("a sink makes no topics")),
            ("reconnect.backoff.max.ms", "1000", Own::Default),
        ])?;
        let failed = |error: &KafkaError| explain("open a producer", error, &context);
        config.remove("transactional.id");
        if let Some(most) = batch_max {
            config.set("batch.size", most.min(BATCH_BYTES).to_string());
        }
        match id {
            Some(id) => config.set("transactional.id", id),
            // Nobody goes by them there.
            None => config.set("statistics.interval.ms", "0"),
        };
        loop {
            let reports = Reports::new(context.clone());
            let producer = BaseProducer::from_config_and_context(&config, reports);
            let producer = producer.map_err(|error| failed(&error))?;
            if id.is_none() || fence(&producer, &context, deadline).map_err(|e| failed(&e))? {
                context.forget();
                return Ok(Producer { outbox: Outbox::new(producer), ended: 0, statistics: 0 });
            }
            drop(producer);
            std::thread::park_timeout(PAUSE);
        }
    }

    /// Takes in what the client has to say. To be called from time to time, since it is kept until
    /// then.
    pub(super) fn listen(&self) {
        // A call takes one thing that the client says.
        for _ in 0..LISTEN_MAX {
            self.outbox.producer().poll(Duration::ZERO);
        }
    }

    /// Takes in everything that the client has said by now. Nothing may be in flight: then only what
    /// it has to say is counted as such.
    fn listen_to_all(&self) {
        let producer = self.outbox.producer();
        while producer.in_flight_count() > 0 {
            producer.poll(Duration::ZERO);
        }
    }

    pub(super) fn reuse(&self) -> Reuse {
        let counted = self.outbox.producer().context().counted();
        if self.ended == 0 {
            return Reuse::Proven;
        }
        if counted.statistics < self.statistics + STATISTICS_NEEDED {
            return Reuse::NotYet;
        }
        if counted.ends == self.ended { Reuse::Proven } else { Reuse::Never }
    }

    pub(super) fn begin(&self) -> KafkaResult<()> {
        self.outbox.producer().begin_transaction()
    }

    /// Sends all records of a piece.
    pub(super) fn send_piece(
        &mut self,
        topic: &str,
        bytes: &Arc<Vec<u8>>,
        deadline: &Deadline,
    ) -> Result<(), Unsent> {
        if !bytes.starts_with(MAGIC) {
            return Err(Error::corrupt("this is no output of a Kafka sink").into());
        }
        let mut at = MAGIC.len();
        let mut batch = Vec::with_capacity(BATCH);
        while at < bytes.len() {
            let (place, next) = Place::read(bytes, at)?;
            at = next;
            let Place { partition, time_ms, key, value, headers } = place;
            if headers.is_empty() && time_ms.is_none() {
                batch.push(Entry { partition, key, value });
                if batch.len() == BATCH {
                    self.send_batch(topic, bytes, &mut batch, deadline)?;
                }
                continue;
            }
            // In the order of the piece.
            self.send_batch(topic, bytes, &mut batch, deadline)?;
            let slice = |range: Option<Range<usize>>| range.map(|range| &bytes[range]);
            let (key, value, headers) = (slice(key), slice(value), Headers(&bytes[headers]));
            let record = Single { topic, partition, key, value, time_ms, headers };
            self.send(&record, deadline)?;
        }
        self.send_batch(topic, bytes, &mut batch, deadline)?;
        Ok(())
    }

    fn send_batch(
        &mut self,
        topic: &str,
        bytes: &Arc<Vec<u8>>,
        batch: &mut Vec<Entry>,
        deadline: &Deadline,
    ) -> KafkaResult<()> {
        let mut entries = batch.as_slice();
        loop {
            let taken = self.outbox.enqueue(topic, bytes, entries)?;
            entries = &entries[taken..];
            if entries.is_empty() {
                batch.clear();
                return Ok(());
            }
            self.make_room(deadline)?;
        }
    }

    /// Sends one record, copied.
    pub(super) fn send(&self, record: &Single<'_>, deadline: &Deadline) -> KafkaResult<()> {
        let mut headers = OwnedHeaders::new();
        for (key, value) in record.headers {
            headers = headers.insert(rdkafka::message::Header { key, value });
        }
        let mut next = BaseRecord::<[u8], [u8]>::to(record.topic).partition(record.partition);
        (next.key, next.payload, next.timestamp) = (record.key, record.value, record.time_ms);
        next.headers = Some(headers);
        while let Err((error, back)) = self.outbox.producer().send(next) {
            if error.rdkafka_error_code() != Some(RDKafkaErrorCode::QueueFull) {
                return Err(error);
            }
            next = back;
            self.make_room(deadline)?;
        }
        Ok(())
    }

    /// Waits until everything sent has been acknowledged. Fails if anything has not.
    pub(super) fn flush(&mut self, deadline: &Deadline) -> KafkaResult<()> {
        while self.outbox.producer().in_flight_count() > 0 {
            self.make_room(deadline)?;
        }
        self.outbox.let_go();
        self.check()
    }

    /// Bytes of values that are held because some of them may be in flight.
    pub(super) fn held_bytes(&self) -> usize {
        self.outbox.held_bytes()
    }

    /// Ends the transaction. After an error it is not known whether it was committed.
    pub(super) fn commit(&mut self, deadline: &Deadline) -> KafkaResult<()> {
        loop {
            // A call that takes longer goes on where it was. Without a bound it would wait for a
            // coordinator for ever.
            match self.outbox.producer().commit_transaction(SLICE) {
                Ok(()) => break,
                Err(error) if is_retriable(&error) && !deadline.has_passed() => self.listen(),
                Err(error) => return Err(error),
            }
        }
        // IMPORTANT: statistics that wait to be taken in are of before now, and prove nothing.
        self.listen_to_all();
        self.ended += 1;
        self.statistics = self.outbox.producer().context().counted().statistics;
        self.outbox.let_go();
        Ok(())
    }

    /// What an error of this producer means.
    pub(super) fn explain(&self, doing: &str, error: &KafkaError) -> isochrone_engine::Error {
        explain(doing, error, self.outbox.producer().context().context())
    }

    fn make_room(&self, deadline: &Deadline) -> KafkaResult<()> {
        // The crate's own waiting burns the processor for the last millisecond.
        self.listen();
        std::thread::park_timeout(TURN);
        self.check()?;
        if deadline.has_passed() {
            return Err(KafkaError::MessageProduction(RDKafkaErrorCode::MessageTimedOut));
        }
        Ok(())
    }

    fn check(&self) -> KafkaResult<()> {
        match self.outbox.producer().context().failure() {
            None => Ok(()),
            // The client gave the records up because their transaction has failed. It tells why when
            // it is asked to commit, which it does not do any more.
            Some(RDKafkaErrorCode::PurgeQueue | RDKafkaErrorCode::PurgeInflight) => {
                self.outbox.producer().commit_transaction(SLICE)?;
                Err(KafkaError::MessageProduction(RDKafkaErrorCode::PurgeQueue))
            }
            Some(code) => Err(KafkaError::MessageProduction(code)),
        }
    }
}

/// Takes the transactional id from whoever has it. `false` if the broker still aborts what the one
/// before left open: it does so in a moment, and this client would look again after half a second only.
fn fence(
    producer: &BaseProducer<Reports>,
    context: &Context,
    deadline: &Deadline,
) -> KafkaResult<bool> {
    // Without a connection, too, it would look again after half a second. What fails is told below.
    let _ = producer.client().fetch_metadata(None, SLICE);
    loop {
        let Err(error) = producer.init_transactions(LOOK_EVERY) else { return Ok(true) };
        // For some time: what matters may stand behind much that does not.
        producer.poll(LISTEN_FOR);
        let hopeless = context.is_hopeless();
        if !is_retriable(&error) || hopeless || deadline.has_passed() {
            return Err(error);
        }
        if error.rdkafka_error_code() == Some(RDKafkaErrorCode::ConcurrentTransactions) {
            return Ok(false);
        }
    }
}

/// Why a piece could not be sent.
pub(super) enum Unsent {
    /// It is not what it should be.
    Piece(Error),
    /// The client did not take it.
    Client(KafkaError),
}

impl From<Error> for Unsent {
    fn from(error: Error) -> Unsent {
        Unsent::Piece(error)
    }
}

impl From<KafkaError> for Unsent {
    fn from(error: KafkaError) -> Unsent {
        Unsent::Client(error)
    }
}

/// One record, with everything that a record may have.
pub(super) struct Single<'a> {
    pub(super) topic: &'a str,
    pub(super) partition: i32,
    pub(super) key: Option<&'a [u8]>,
    pub(super) value: Option<&'a [u8]>,
    pub(super) time_ms: Option<i64>,
    pub(super) headers: Headers<'a>,
}

/// When to stop trying.
pub(super) struct Deadline {
    clock: SystemClock,
    at_ms: u64,
    patience: Duration,
}

impl Deadline {
    pub(super) fn after(patience: Duration) -> Deadline {
        let mut deadline = Deadline { clock: SystemClock::default(), at_ms: 0, patience };
        deadline.extend();
        deadline
    }

    /// Something has been achieved: it starts again.
    pub(super) fn extend(&mut self) {
        let patience_ms = u64::try_from(self.patience.as_millis()).unwrap_or(u64::MAX);
        self.at_ms = self.clock.monotonic_ms().saturating_add(patience_ms);
    }

    pub(super) fn has_passed(&self) -> bool {
        self.clock.monotonic_ms() >= self.at_ms
    }
}

fn is_retriable(error: &KafkaError) -> bool {
    matches!(error, KafkaError::Transaction(error) if error.is_retriable())
}
