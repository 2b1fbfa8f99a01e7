//! What a cluster says of a topic: its identity, its partitions, its offsets. Every call waits for an
//! answer, for a bounded time: none is made on a worker's thread.

use std::time::Duration;

use isochrone_engine::time::{Clock, SystemClock};
use isochrone_engine::{Error, Result};
use rdkafka::TopicPartitionList;
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::topic_partition_list::Offset;

use super::batch::{self, Described};
use super::client::Context;
use super::cluster::{Kafka, Own, check_topic};
use super::trouble::{code_of, explain, is_hopeless};

/// How long an answer is waited for. A job that cannot start says so within 30 seconds.
const PATIENCE: Duration = Duration::from_secs(20);
/// A topic that is not there may have been created a moment ago.
const MISSING: Duration = Duration::from_secs(3);
/// A request, after which is looked at what the client has met.
const SLICE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(100);

/// Which end of a partition is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// Behind the last record, committed or not: the high watermark.
    All,
    /// Before the first record of a transaction that is open: the last stable offset.
    Committed,
}

/// The offsets that a partition has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offsets {
    /// Of the first record that is still there.
    pub(super) low: i64,
    /// Behind the last one.
    pub(super) high: i64,
}

/// A connection for questions.
pub(super) struct Topics {
    consumer: BaseConsumer<Context>,
    context: Context,
    clock: SystemClock,
    patience: Duration,
    /// How long an absent topic is waited for.
    missing: Duration,
}

impl Topics {
    /// Connects in the background; whether that works shows at the first question.
    pub(super) fn connect(kafka: &Kafka, view: View) -> Result<Topics> {
        let isolation = match view {
            View::All => "read_uncommitted",
            View::Committed => "read_committed",
        };
        let (mut config, context) = kafka.client(&[
            ("allow.auto.create.topics", "false", Own::Fixed("a source creates no topics")),
            // Answers are asked for afresh; what has failed is tried again soon.
            ("reconnect.backoff.max.ms", "1000", Own::Default),
        ])?;
        // Meant for readers; here it says which end is meant.
        config.set("isolation.level", isolation);
        config.remove("group.id");
        let made = BaseConsumer::from_config_and_context(&config, context.clone());
        let consumer = made.map_err(|error| explain("make a client", &error, &context))?;
        Ok(Topics {
            consumer,
            context,
            clock: SystemClock::default(),
            missing: MISSING,
            patience: PATIENCE,
        })
    }

    /// The same, but a topic has to be missing for so long to be believed to be.
    #[must_use]
    pub(super) fn expecting(mut self, missing: Duration) -> Topics {
        self.missing = missing;
        self
    }

    /// The topic to read, which has to be there.
    pub(super) fn describe(&self, topic: &str) -> Result<Described> {
        self.look_at(topic, "read")
    }

    /// The topic to write to, which has to be there.
    pub(super) fn describe_target(&self, topic: &str) -> Result<Described> {
        self.look_at(topic, "write to")
    }

    fn look_at(&self, topic: &str, what_for: &str) -> Result<Described> {
        check_topic(topic)?;
        let doing = format!("{what_for} topic `{topic}`");
        self.ask(&doing, |timeout| batch::describe(self.consumer.client(), topic, timeout))
    }

    /// The topic, if it is there.
    pub(super) fn find(&self, topic: &str) -> Result<Option<Described>> {
        let doing = format!("read topic `{topic}`");
        self.ask(&doing, |timeout| match batch::describe(self.consumer.client(), topic, timeout) {
            Ok(found) => Ok(Some(found)),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(error),
        })
    }

    /// Why something else gets no answer, if that can be found out within so long.
    pub(super) fn trouble(mut self, doing: &str, within: Duration) -> Option<Error> {
        self.patience = within;
        self.ask(doing, |timeout| self.consumer.fetch_metadata(None, timeout).map(drop)).err()
    }

    /// The offsets that a partition has now.
    pub(super) fn offsets(&self, topic: &str, partition: i32) -> Result<Offsets> {
        let doing = format!("find the offsets of topic `{topic}`, partition {partition},");
        let (low, high) =
            self.ask(&doing, |timeout| self.consumer.fetch_watermarks(topic, partition, timeout))?;
        Ok(Offsets { low, high })
    }

    /// For each of the first `partitions`, the offset of the first record of that time (milliseconds
    /// since 1970) or later, if there is one.
    pub(super) fn offsets_at(
        &self,
        topic: &str,
        partitions: i32,
        time_ms: i64,
    ) -> Result<Vec<Option<i64>>> {
        let doing = format!("find the offsets of topic `{topic}` at {time_ms} ms");
        let wrong = |error: KafkaError| explain(&doing, &error, &self.context);
        let mut asked = TopicPartitionList::new();
        for partition in 0..partitions {
            let time = Offset::Offset(time_ms);
            asked.add_partition_offset(topic, partition, time).map_err(wrong)?;
        }
        let found = self.ask(&doing, |timeout| {
            let found = self.consumer.offsets_for_times(asked.clone(), timeout)?;
            found.elements().iter().try_for_each(|element| element.error())?;
            Ok(found)
        })?;
        let offset_of = |partition| match found.find_partition(topic, partition)?.offset() {
            Offset::Offset(offset) => Some(offset),
            _ => None,
        };
        Ok((0..partitions).map(offset_of).collect())
    }

    /// Asks until there is an answer, or no hope of one.
    fn ask<T>(&self, doing: &str, ask: impl Fn(Duration) -> KafkaResult<T>) -> Result<T> {
        let started_ms = self.clock.monotonic_ms();
        loop {
            let error = match ask(SLICE) {
                Ok(answer) => {
                    self.context.forget();
                    return Ok(answer);
                }
                Err(error) => error,
            };
            let passed = Duration::from_millis(self.clock.monotonic_ms() - started_ms);
            self.listen();
            let wait = if is_missing(&error) { self.missing } else { self.patience };
            if passed >= wait || self.is_hopeless(&error) {
                return Err(explain(doing, &error, &self.context));
            }
        }
    }

    /// Takes in what the client has met, resting a little.
    fn listen(&self) {
        let mut rest = PAUSE;
        while self.consumer.poll(rest).is_some() {
            rest = Duration::ZERO;
        }
    }

    fn is_hopeless(&self, error: &KafkaError) -> bool {
        let told = code_of(error).is_some_and(|code| is_hopeless(code) && !is_missing(error));
        told || self.context.is_hopeless()
    }
}

pub(super) fn is_missing(error: &KafkaError) -> bool {
    use RDKafkaErrorCode::{
        UnknownPartition, UnknownTopic, UnknownTopicId, UnknownTopicOrPartition,
    };
    let missing = [UnknownPartition, UnknownTopic, UnknownTopicId, UnknownTopicOrPartition];
    code_of(error).is_some_and(|code| missing.contains(&code))
}

/// How a split is named: topic and partition, as people write them.
pub(super) fn split_id(topic: &str, partition: i32) -> String {
    format!("{topic}/{partition}")
}

/// The partition of a split of this topic.
pub(super) fn partition_of(split: &str, topic: &str) -> Result<i32> {
    let partition = split.rsplit_once('/').filter(|(of, _)| *of == topic);
    partition.and_then(|(_, partition)| partition.parse().ok()).ok_or_else(|| {
        Error::incompatible(format!(
            "split `{split}` of the checkpoint is no partition of topic `{topic}`; read the topic \
             that the checkpoint has read, or give the source another id"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_are_named_by_topic_and_partition() {
        assert_eq!(split_id("a-b.c", 12), "a-b.c/12");
        assert_eq!(partition_of("a-b.c/12", "a-b.c").unwrap(), 12);
        for split in ["a/12", "a-b.c/x", "a-b.c", "orders.csv[0..]"] {
            let error = partition_of(split, "a-b.c").unwrap_err().to_string();
            assert!(error.contains(split), "{error}");
        }
    }
}
