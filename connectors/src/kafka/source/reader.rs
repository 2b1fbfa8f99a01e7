//! Reads one partition.

use std::rc::Rc;
use std::time::Duration;

use isochrone_engine::connector::{Batch, Malformed, Poll, Reader};
use isochrone_engine::{Error, ErrorKind, Result};
use rdkafka::error::RDKafkaErrorCode as Code;

use super::background::Inquiry;
use super::consumer::Shared;
use super::decode::DecodeRecord;
use super::loss::{self, Found, Standing};
use super::position::KafkaPosition;
use super::retention::Retention;
use crate::OnDataLoss;
use crate::kafka::batch::{Message, PartitionQueue, Taken};
use crate::kafka::record::{
    KafkaRecordRef, SOURCE_BYTES, SOURCE_KEY, SOURCE_NULL_HEADER, SOURCE_TOMBSTONE,
};

/// Longest piece of malformed input handed on, in bytes: all of what a broker takes unless told to
/// take more.
const RAW_BYTES_MAX: usize = 1 << 20;
/// How long to rest when there is nothing, growing.
const REST_US: std::ops::RangeInclusive<u64> = 500..=8_000;
/// The same error at the same offset so many times is not going to pass.
const REPEATS_MAX: u32 = 20;
/// So many times may the client say that an offset is not there which is.
const DISPUTES_MAX: u32 = 3;
/// How long a partition that is not there is waited for at least, and how often is asked for it.
const MISSING_MS: u64 = 10_000;
const ASK_AGAIN_MS: u64 = 1_000;

/// The reader of one partition.
pub(super) struct KafkaReader<D> {
    // IMPORTANT: given up before `shared`, which cannot be closed while it is there.
    step: Step,
    shared: Rc<Shared>,
    partition: i32,
    position: KafkaPosition,
    decoder: D,
    /// Of what is known of the topic.
    version: u64,
    rest_us: u64,
    repeats: Repeats,
    disputes: u32,
    /// Since when the partition is not there.
    missing_since_ms: Option<u64>,
    retention: Retention,
}

/// What is being done.
enum Step {
    /// Waiting until it is known which topic this is.
    Identifying,
    /// Waiting to hear what the partition has.
    Asking(Inquiry<Found>),
    /// Waiting for a partition that is not there, until it is time to ask again.
    Missing {
        again_ms: u64,
    },
    Reading(PartitionQueue),
    Finished,
}

/// An error that came again without any progress in between.
#[derive(Default)]
struct Repeats {
    last: Option<(Code, i64)>,
    count: u32,
}

impl<D: DecodeRecord> KafkaReader<D> {
    pub(super) fn new(
        shared: Rc<Shared>,
        partition: i32,
        mut position: KafkaPosition,
        decoder: D,
    ) -> Self {
        // An end that was reached, or is not asked for now, is none: there is more to read.
        if !shared.settings.until_end || position.is_at_end() {
            position.end = None;
        }
        KafkaReader {
            shared,
            partition,
            position,
            decoder,
            step: Step::Identifying,
            version: 0,
            rest_us: *REST_US.start(),
            repeats: Repeats::default(),
            disputes: 0,
            missing_since_ms: None,
            retention: Retention::default(),
        }
    }

    /// The next step, once what is waited for is there.
    fn advance(&mut self, now_ms: u64) -> Result<Option<Step>> {
        match &self.step {
            Step::Identifying => self.identify(),
            Step::Asking(inquiry) => match inquiry.answer() {
                None => Ok(None),
                Some(Ok(found)) => self.settle(&found, now_ms).map(Some),
                // The broker may be away for a while.
                Some(Err(error)) if error.kind() == ErrorKind::Unavailable => {
                    tracing::warn!(%error, "asking again");
                    self.ask().map(Some)
                }
                Some(Err(error)) => Err(error),
            },
            Step::Missing { again_ms } if now_ms >= *again_ms => self.ask().map(Some),
            Step::Reading(_) if self.version != self.shared.identity.version() => self.identify(),
            Step::Missing { .. } | Step::Reading(_) | Step::Finished => Ok(None),
        }
    }

    /// Looks at what is known of the topic: begins, or goes on, or asks for more.
    fn identify(&mut self) -> Result<Option<Step>> {
        let version = self.shared.identity.version();
        let Some(topic) = self.shared.identity.topic()? else { return Ok(None) };
        self.version = version;
        let fits =
            !loss::is_other_topic(&self.position, &topic) && self.partition < topic.partitions;
        let has_end = self.position.end.is_some() || !self.shared.settings.until_end;
        match self.step {
            Step::Reading(_) if fits => Ok(None),
            _ if fits && has_end => {
                // Positions written before the identity was known learn it here.
                self.position.topic_id = self.position.topic_id.take().or(topic.id);
                self.read().map(Some)
            }
            _ => self.ask().map(Some),
        }
    }

    fn ask(&self) -> Result<Step> {
        Ok(Step::Asking(self.shared.inquire(self.partition)?))
    }

    fn read(&self) -> Result<Step> {
        if self.position.is_at_end() {
            return Ok(Step::Finished);
        }
        let KafkaPosition { next, leader_epoch, .. } = self.position;
        Ok(Step::Reading(self.shared.assign(self.partition, next, leader_epoch)?))
    }

    /// Decides, knowing what the partition has.
    fn settle(&mut self, found: &Found, now_ms: u64) -> Result<Step> {
        let standing = loss::standing(&self.position, found);
        let policy = self.shared.settings.on_data_loss;
        let stopped =
            |reader: &Self| Err(loss::stopped(&reader.place(), &reader.position, standing));
        match (standing, policy) {
            (Standing::Fits, _) if self.disputes > DISPUTES_MAX => return stopped(self),
            (Standing::Fits, _) => {}
            (Standing::Missing, _) => match (self.wait(now_ms), policy) {
                (Some(step), _) => return Ok(step),
                (None, OnDataLoss::Stop) => return stopped(self),
                (None, OnDataLoss::ContinueFromEarliest) => return Ok(Step::Finished),
            },
            (Standing::CutBack { .. }, _) | (_, OnDataLoss::Stop) => return stopped(self),
            (Standing::Expired { lost, low }, OnDataLoss::ContinueFromEarliest) => {
                self.give_up(low, lost, standing);
            }
            (Standing::Recreated { low }, OnDataLoss::ContinueFromEarliest) => {
                self.give_up(low, 0, standing);
                self.become_other(found);
            }
            // If it comes back, it is of the topic that there is now, and read from its beginning.
            (Standing::Gone, OnDataLoss::ContinueFromEarliest) => {
                if self.missing_since_ms.is_none() {
                    self.give_up(0, 0, standing);
                    self.become_other(found);
                }
                return Ok(self.wait(now_ms).unwrap_or(Step::Finished));
            }
        }
        self.missing_since_ms = None;
        if self.shared.settings.until_end && self.position.end.is_none() {
            self.position.end = found.offsets.map(|offsets| offsets.high);
        }
        self.read()
    }

    /// Waits for a partition that is not there, if it was not waited for long enough.
    fn wait(&mut self, now_ms: u64) -> Option<Step> {
        // IMPORTANT: whoever looks for partitions has looked in the meantime, and tells when one of
        // them comes back of which the reader has ended.
        let patience_ms = MISSING_MS.max(self.shared.look_every_ms.saturating_mul(3));
        let since_ms = *self.missing_since_ms.get_or_insert(now_ms);
        let waits = now_ms < since_ms.saturating_add(patience_ms);
        waits.then_some(Step::Missing { again_ms: now_ms + ASK_AGAIN_MS })
    }

    fn become_other(&mut self, found: &Found) {
        self.position.topic_id.clone_from(&found.topic.id);
        self.position.leader_epoch = None;
        self.position.end = None;
    }

    /// Goes on without what is lost.
    fn give_up(&mut self, next: i64, lost: u64, standing: Standing) {
        let why = loss::stopped(&self.place(), &self.position, standing);
        tracing::warn!(lost, next, "{why}; the source continues");
        self.position.next = next;
        self.position.lost += lost;
        self.position.losses += 1;
    }

    /// Takes what was fetched.
    fn take(&mut self, batch: &mut Batch<D::Item>, max: usize) -> Result<usize> {
        let KafkaReader { step, decoder, position, shared, .. } = self;
        let Step::Reading(queue) = step else { return Ok(0) };
        let topic = shared.settings.topic.as_str();
        let mut failed = None;
        let mut progressed = false;
        let count = queue.take(max, |taken| match taken {
            Taken::Record(message) => {
                let offset = message.offset();
                if offset < position.next {
                    return;
                }
                if position.end.is_some_and(|end| offset >= end) {
                    position.pass(offset);
                    return;
                }
                let record = KafkaRecordRef { message, topic };
                match decoder.decode(&record) {
                    Ok(Some(item)) => batch.items.push(item),
                    Ok(None) => {}
                    Err(reason) => batch.malformed.push(malformed(topic, message, reason)),
                }
                position.next = offset + 1;
                position.leader_epoch = message.leader_epoch();
                progressed = true;
            }
            // Offsets without records lie in between: of transactions, or compacted away.
            Taken::End(next) => {
                position.pass(next);
                progressed = true;
            }
            Taken::Failed { code, offset, reason } => failed = Some((code, offset, reason)),
        });
        if progressed {
            self.repeats = Repeats::default();
            self.disputes = 0;
        }
        if let Some((code, offset, reason)) = failed {
            self.fail(code, offset, &reason)?;
        }
        Ok(count)
    }

    /// What the client says instead of a record.
    fn fail(&mut self, code: Code, offset: i64, reason: &str) -> Result<()> {
        let place = self.place();
        match code {
            Code::AutoOffsetReset | Code::OffsetOutOfRange => {
                self.disputes += 1;
                self.step = self.ask()?;
            }
            // What became of the topic?
            Code::UnknownTopicOrPartition
            | Code::UnknownTopic
            | Code::UnknownPartition
            | Code::UnknownTopicId => self.step = self.ask()?,
            Code::LogTruncation => {
                let standing = Standing::CutBack { missing: self.position.next.abs_diff(offset) };
                return Err(loss::stopped(&place, &self.position, standing));
            }
            // IMPORTANT: librdkafka would go on behind them.
            Code::BadMessage
            | Code::InvalidMessage
            | Code::BadCompression
            | Code::NotImplemented
            | Code::MessageSizeTooLarge
            | Code::UnsupportedCompressionType
            | Code::Underflow => {
                return Err(Error::corrupt(format!(
                    "{place}, offset {offset}: what the broker sent cannot be decoded ({reason}); \
                     if it comes again, look at the broker's log, or at how its producer compresses"
                )));
            }
            Code::TopicAuthorizationFailed => {
                return Err(Error::invalid(format!(
                    "{place}: the user of this job has no right to read it; grant `Read` on the \
                     topic (kafka-acls), or use another user"
                )));
            }
            code => {
                let again = self.repeats.last == Some((code, offset));
                self.repeats.count = if again { self.repeats.count + 1 } else { 1 };
                self.repeats.last = Some((code, offset));
                tracing::debug!(place, offset, %code, reason, "the client could not fetch");
                if self.repeats.count > REPEATS_MAX {
                    return Err(Error::unavailable(format!(
                        "{place}, offset {offset}: reading fails again and again: {reason} ({code})"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Says when retention comes near.
    fn look_at_retention(&mut self) {
        let Step::Reading(queue) = &self.step else { return };
        let Some(kept) = queue.kept() else { return };
        if let Some(warning) = self.retention.look(self.position.next, kept) {
            tracing::warn!("{}: {warning}", self.place());
        }
    }

    fn rest(&mut self) -> Poll {
        let retry_after = Duration::from_micros(self.rest_us);
        self.rest_us = (self.rest_us * 2).min(*REST_US.end());
        Poll::Idle { retry_after }
    }

    fn place(&self) -> String {
        format!("topic {}, partition {}", self.shared.settings.topic, self.partition)
    }
}

impl<D: DecodeRecord> Reader<D::Item, KafkaPosition> for KafkaReader<D> {
    fn poll(&mut self, batch: &mut Batch<D::Item>, max: usize) -> Result<Poll> {
        let now_ms = self.shared.listen()?;
        if self.retention.is_due(now_ms, self.shared.look_every_ms) {
            self.look_at_retention();
        }
        if let Some(step) = self.advance(now_ms)? {
            self.step = step;
        }
        let count = self.take(batch, max.max(1))?;
        if self.position.is_at_end() && matches!(self.step, Step::Reading(_)) {
            self.step = Step::Finished;
        }
        if matches!(self.step, Step::Finished) {
            return Ok(Poll::Finished);
        }
        if count == 0 {
            return Ok(self.rest());
        }
        self.shared.works();
        self.rest_us = *REST_US.start();
        Ok(Poll::Ready)
    }

    fn position(&self) -> KafkaPosition {
        self.position.clone()
    }
}

#[cold]
fn malformed(topic: &str, message: Message<'_>, reason: String) -> Malformed {
    let (partition, offset) = (message.partition(), message.offset());
    let value = message.value().unwrap_or_default();
    let mut origin = vec![
        ("source.topic".to_owned(), topic.as_bytes().to_vec()),
        ("source.partition".to_owned(), partition.to_string().into_bytes()),
        ("source.offset".to_owned(), offset.to_string().into_bytes()),
    ];
    origin.extend(message.key().map(|key| (SOURCE_KEY.to_owned(), key.to_vec())));
    // What `raw` and the headers alone would not tell.
    match message.value() {
        None => origin.push((SOURCE_TOMBSTONE.to_owned(), b"true".to_vec())),
        Some(value) if value.len() > RAW_BYTES_MAX => {
            origin.push((SOURCE_BYTES.to_owned(), value.len().to_string().into_bytes()));
        }
        Some(_) => {}
    }
    let headers = message.headers();
    for (number, _) in headers.iter().enumerate().filter(|(_, (_, value))| value.is_none()) {
        origin.push((SOURCE_NULL_HEADER.to_owned(), number.to_string().into_bytes()));
    }
    for (name, value) in headers {
        let name = String::from_utf8_lossy(name).into_owned();
        origin.push((name, value.unwrap_or_default().to_vec()));
    }
    Malformed {
        place: format!("topic {topic}, partition {partition}, offset {offset}"),
        reason,
        raw: value[..value.len().min(RAW_BYTES_MAX)].to_vec(),
        origin,
    }
}
