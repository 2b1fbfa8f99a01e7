//! The progress topic: one compacted partition in which every transaction says how far it goes.
//!
//! Reading it proves what it says: the reader writes a record of its own, commits it, and reads what
//! is committed until it meets that record. Everything committed before is then seen, whatever
//! transactions of others hide the end meanwhile.

use std::time::Duration;

use isochrone_engine::time::{Clock, SystemClock};
use isochrone_engine::{Error, ErrorKind, Result};
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use serde::{Deserialize, Serialize};

use super::super::admin::Admin;
use super::super::client::Context;
use super::super::cluster::{Kafka, Own};
use super::super::topics::{Topics, View as End};
use super::super::trouble::{code_of, explain, is_hopeless};
use super::history::Home;
use super::view::{Claim, Marker, Turn, View};

/// How long the end of the topic is waited for: longer than a transaction of somebody else may hide
/// it.
const PATIENCE: Duration = Duration::from_secs(90);
const CONNECT_WITHIN: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(50);

/// A record of the progress topic; its key says of which sink and lane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Entry {
    /// This job publishes for the sink.
    Claim(Claim),
    /// A lane has published so far.
    Published(Marker),
    /// From here on the lanes' marks speak of another history.
    Turn(Turn),
    /// Written to be met when reading.
    Read {
        /// Random, fresh for each.
        nonce: String,
    },
}

/// What a reading takes for there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// What is committed.
    Committed,
    /// What is open or aborted too: more than there is, and never less.
    Everything,
}

/// Where the progress of one sink is written.
#[derive(Clone, Debug)]
pub(super) struct Progress {
    pub(super) kafka: Kafka,
    pub(super) topic: String,
    pub(super) sink: String,
}

impl Progress {
    /// Makes the topic if it is missing, and checks that it is one that keeps what it is told.
    /// Answers which it is.
    pub(super) fn prepare(&self) -> Result<Home> {
        let topics = Topics::connect(&self.kafka, End::All)?;
        let admin = Admin::connect(&self.kafka)?;
        let found = match topics.find(&self.topic)? {
            Some(found) => found,
            None => {
                self.create(&admin)?;
                topics.describe(&self.topic)?
            }
        };
        let refuse = |what: &str| {
            Err(Error::invalid(format!(
                "topic `{}` cannot keep the progress of {}: {what}; name another one \
                 (`progress_topic`), or delete it if it is in nobody's use",
                self.topic, self.sink
            )))
        };
        if found.partitions != 1 {
            return refuse(&format!("it has {} partitions instead of 1", found.partitions));
        }
        match admin.setting(&self.topic, "cleanup.policy") {
            Ok(Some(policy)) if policy != "compact" => {
                refuse(&format!("its `cleanup.policy` is `{policy}` instead of `compact`"))
            }
            // Who may not look at settings still may publish.
            Err(error) if error.kind() == ErrorKind::Unavailable => Err(error),
            _ => Ok(Home { topic: self.topic.clone(), id: found.id }),
        }
    }

    fn create(&self, admin: &Admin) -> Result<()> {
        let settings = [
            ("cleanup.policy", "compact"),
            ("segment.bytes", "1048576"),
            ("segment.ms", "600000"),
            ("retention.ms", "-1"),
        ];
        // Another process may have been faster.
        admin.create_if_missing(&self.topic, 1, &settings).map(drop)
    }

    /// The sink, as messages name it.
    pub(super) fn owner(&self) -> String {
        format!("sink `{}`", self.sink)
    }

    /// The key and value of an entry.
    pub(super) fn encode(&self, lane: u32, entry: &Entry) -> (String, Vec<u8>) {
        let kind = match entry {
            // Compaction keeps the last one of each job.
            Entry::Claim(claim) => &format!("claim-{}", claim.origin),
            Entry::Published(_) => "published",
            Entry::Turn(_) => "turn",
            Entry::Read { .. } => "read",
        };
        let value = serde_json::to_vec(entry).expect("entries are plain data");
        (format!("{}/{kind}/{lane}", self.sink), value)
    }

    /// Reads up to the entry with this nonce, which has been committed. It is not part of the answer.
    pub(super) fn read_to(&self, nonce: &str, seen: Seen) -> Result<View> {
        let (isolation, why) = match seen {
            Seen::Committed => ("read_committed", "what is aborted did not happen"),
            Seen::Everything => ("read_uncommitted", "what is open is asked for as well"),
        };
        let (config, context) = self.kafka.client(&[
            ("group.id", "isochrone-progress", Own::Default),
            ("enable.auto.commit", "false", Own::Fixed("progress is not kept in groups")),
            ("auto.offset.reset", "error", Own::Fixed("nothing may be skipped")),
            ("isolation.level", isolation, Own::Fixed(why)),
            ("allow.auto.create.topics", "false", Own::Fixed("a reader makes no topics")),
            ("fetch.wait.max.ms", "20", Own::Default),
        ])?;
        let doing = format!("read progress topic `{}`", self.topic);
        let failed = |error: &_| explain(&doing, error, &context);
        let consumer: BaseConsumer<Context> =
            BaseConsumer::from_config_and_context(&config, context.clone())
                .map_err(|error| failed(&error))?;
        // A client that has no connection yet looks for the beginning again after half a second. What
        // fails here is told below.
        let _ = consumer.fetch_metadata(Some(&self.topic), CONNECT_WITHIN);
        let mut from = TopicPartitionList::new();
        from.add_partition_offset(&self.topic, 0, Offset::Beginning)
            .and_then(|()| consumer.assign(&from))
            .map_err(|error| failed(&error))?;
        let clock = SystemClock::default();
        let (started_ms, patience_ms) = (clock.monotonic_ms(), PATIENCE.as_millis());
        let mut view = View::default();
        loop {
            match consumer.poll(POLL) {
                Some(Ok(message)) => {
                    context.forget();
                    let is_last = self.take(&message, nonce, &mut view)?;
                    if is_last {
                        return Ok(view);
                    }
                }
                Some(Err(error)) if code_of(&error).is_some_and(is_hopeless) => {
                    return Err(failed(&error));
                }
                // The client tries again by itself; a producer of the same settings has been let in.
                Some(Err(error)) => tracing::debug!(%error, "reading the progress topic"),
                None => {}
            }
            let is_late = u128::from(clock.monotonic_ms() - started_ms) > patience_ms;
            if context.is_hopeless() || is_late && context.cause().is_some() {
                // It was let in before, and is not any more.
                return Err(failed(&KafkaError::Global(RDKafkaErrorCode::OperationTimedOut)));
            }
            if is_late {
                return Err(Error::unavailable(format!(
                    "the end of progress topic `{}` was not reached in {} s: a transaction of \
                     somebody else may be open on it; try again",
                    self.topic,
                    PATIENCE.as_secs()
                )));
            }
        }
    }

    /// Takes a record in; answers whether it is the last one.
    fn take(&self, message: &impl Message, nonce: &str, view: &mut View) -> Result<bool> {
        let key = message.key().and_then(|key| std::str::from_utf8(key).ok()).unwrap_or_default();
        let Some((_, lane)) = key.strip_prefix(&self.sink).and_then(split_key) else {
            return Ok(false);
        };
        let entry = message.payload().map(serde_json::from_slice::<Entry>).transpose();
        let entry = entry.map_err(|error| {
            Error::corrupt(format!(
                "progress topic `{}`, offset {}: not a record of this library, or of a newer one",
                self.topic,
                message.offset()
            ))
            .with_source(error)
        })?;
        match entry {
            Some(Entry::Claim(claim)) if claim.nonce == nonce => return Ok(true),
            Some(Entry::Read { nonce: found }) if found == nonce => return Ok(true),
            Some(Entry::Claim(claim)) => view.claims.push(claim),
            Some(Entry::Published(marker)) => drop(view.markers.insert(lane, marker)),
            Some(Entry::Turn(turn)) => view.turn = Some(turn),
            Some(Entry::Read { .. }) | None => {}
        }
        Ok(false)
    }
}

/// Kind and lane of a key behind the name of its sink.
fn split_key(rest: &str) -> Option<(&str, u32)> {
    let (kind, lane) = rest.strip_prefix('/')?.split_once('/')?;
    Some((kind, lane.parse().ok()?))
}
