//! A sink that writes to a topic of Kafka, exactly once for whoever reads what is committed.
//!
//! No transaction of Kafka outlives the process that began it, so output that is to be there exactly
//! once must not depend on one. The epoch's output is made durable beside the checkpoint first, is
//! named in its manifest, and is published afterwards from there:
//!
//! ```text
//! writer      records -> pieces of the write-ahead             durable before the manifest
//! manifest    names them                                       the checkpoint exists
//! lane        one transaction: the records, then a mark of     visible, or not at all
//!             how far the lane has published
//! ```
//!
//! The mark lies in a topic of its own, the *progress topic*, and is written in the same transaction
//! as the records that it speaks of: so both are there, or neither. After any crash, and after any
//! error whose outcome is not known, the mark decides what is still to be published.
//!
//! A *lane* is one line of such transactions with one transactional id. Each process publishes what
//! its own workers wrote, in a lane of its own. Records of one key come from one worker during a run,
//! and a run publishes what is left from the one before, of all lanes, before it writes anything: so
//! their order stays the order in which they were written, at any number of workers and processes.
//!
//! What keeps that true:
//! 1. A run claims the job in the store before it touches Kafka.
//! 2. It fences *all* lanes that were ever in use, those of all sinks of the job, then reads the
//!    marks, and only then publishes.
//! 3. Whenever a producer opens, it is asked whether another run has claimed the job: opening has
//!    fenced whoever had the lane, and only the newest run may do that.
//! 4. The mark is read up to a record that the reader has committed itself: an open transaction of
//!    somebody else cannot hide a part of it.
//! 5. The mark is sent last, when all records of its transaction have been acknowledged.
//! 6. No answer and no error decides what became of a transaction: the mark does.
//! 7. A producer is used again only if nothing it has sent can arrive late (`producer`).
//! 8. The partition of a record is chosen once, by the writer, and kept with it.
//! 9. More lanes than before are claimed in the progress topic before they are used. The first job
//!    to claim a sink is its owner for good (`view`).
//!
//! A mark beyond the checkpoint, a missing one, and one of another job are refused (`decide`): then
//! the store and Kafka do not belong together, and going on would double or lose output in silence.
//! Where that was accepted for once, what goes on is another history with a name of its own, and the
//! checkpoints of before are told from it.
//!
//! Transactions on several partitions do not become visible at one moment: a reader may see one
//! partition's records a little before another's.

mod committer;
mod decide;
mod direct;
mod effect;
mod encode;
mod history;
mod lane;
mod partition;
mod producer;
mod progress;
mod publisher;
mod record;
mod recovery;
mod reports;
mod view;
mod writer;

use std::fmt;
use std::rc::Rc;

use isochrone_engine::connector::{Committer, Kept, Malformed, Sink, SinkContext, Writer};
use isochrone_engine::record::Record;
use isochrone_engine::{Error, ErrorKind, Result};
use serde::Serialize;

pub use effect::KafkaEffect;
pub use record::Draft;

use super::admin::Admin;
use super::cluster::Kafka;
use super::record::SOURCE_KEY;
use super::topics::{Topics, View};
use committer::KafkaCommitter;
use direct::{DirectWriter, NothingOwed};
use encode::{Encoder, Fill};
use progress::Progress;
use writer::PartWriter;

/// What a topic takes if it cannot be asked: Kafka's default of `max.message.bytes`.
const RECORD_MAX: usize = 1_048_588;

/// Where a sink on Kafka writes, and with which promise; a format makes a sink of it.
///
/// ```
/// use isochrone_connectors::kafka::Kafka;
/// use serde::{Deserialize, Serialize};
/// #[derive(Clone, Serialize, Deserialize)]
/// struct Assessment { account: String, cents: i64 }
///
/// let kafka = Kafka::at("127.0.0.1:9092")?;
/// let sink = kafka.sink("assessments").json().key(|a: &Assessment| &a.account);
/// # let _ = sink;
/// # Ok::<(), isochrone_engine::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct KafkaOutput {
    kafka: Kafka,
    topic: String,
    progress_topic: Option<String>,
    promise: Promise,
    accept_duplicates: bool,
}

/// How often a record is there for those who read what is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Promise {
    ExactlyOnce,
    AtLeastOnce,
}

impl Kafka {
    /// A sink that writes to this topic, which has to exist: exactly once, unless it is told
    /// otherwise.
    pub fn sink(&self, topic: &str) -> KafkaOutput {
        KafkaOutput {
            kafka: self.clone(),
            topic: topic.to_owned(),
            progress_topic: None,
            promise: Promise::ExactlyOnce,
            accept_duplicates: false,
        }
    }
}

impl KafkaOutput {
    /// Names the topic that says how far output has been published. Without this, the name of the
    /// job and `.progress`. It is made if it is missing: one partition, compacted.
    #[must_use]
    pub fn progress_topic(mut self, topic: &str) -> Self {
        self.progress_topic = Some(topic.to_owned());
        self
    }

    /// Writes without transactions: records are visible at once, and after a restart those since the
    /// last checkpoint are there again.
    #[must_use]
    pub fn at_least_once(mut self) -> Self {
        self.promise = Promise::AtLeastOnce;
        self
    }

    /// Goes on from a checkpoint that is older than what was published. What was published after it
    /// will be there twice. Without this, such a start is refused.
    ///
    /// Meant for one start: as long as it stands there, no mistake with the store is refused. A sink
    /// that was taken out of its job and comes back under its old id needs it too, since the
    /// checkpoint does not know what it has published; nothing is doubled then.
    #[must_use]
    pub fn accept_duplicates(mut self) -> Self {
        self.accept_duplicates = true;
        self
    }

    /// Writes each item as JSON.
    pub fn json<T: Record + Serialize>(self) -> KafkaSink<T> {
        self.record(|item: &T, draft| {
            draft.value_with(|value| serde_json::to_writer(value, item)).map_err(|e| e.to_string())
        })
    }

    /// Writes each item as text.
    pub fn text<T: Record + fmt::Display>(self) -> KafkaSink<T> {
        self.record(|item: &T, draft| {
            draft.value(item.to_string());
            Ok(())
        })
    }

    /// Writes pieces of input that are no records, as they were found, with where and why in the
    /// headers `place` and `reason`. What was a record of Kafka keeps its key and headers, and has
    /// `source.topic`, `source.partition` and `source.offset` beside them.
    pub fn dead_letters(self) -> KafkaSink<Malformed> {
        self.record(|piece: &Malformed, draft| {
            draft
                .value(&piece.raw)
                .header("place", Some(piece.place.as_bytes()))
                .header("reason", Some(piece.reason.as_bytes()));
            for (name, value) in &piece.origin {
                if name == SOURCE_KEY {
                    draft.key(value);
                } else {
                    draft.header(name, Some(value));
                }
            }
            Ok(())
        })
    }

    /// Writes each item as the closure describes its record. An error ends the job with its text.
    ///
    /// ```
    /// use isochrone_connectors::kafka::Kafka;
    /// let sink = Kafka::at("127.0.0.1:9092")?.sink("limits").record(|(id, limit), draft| {
    ///     let (id, limit): (&String, &Option<u32>) = (id, limit);
    ///     draft.key(id).header("source", Some(b"desk"));
    ///     // An account without a limit is deleted from a compacted topic.
    ///     limit.iter().for_each(|limit| drop(draft.value(limit.to_string())));
    ///     Ok(())
    /// });
    /// # let _: isochrone_connectors::kafka::KafkaSink<(String, Option<u32>)> = sink;
    /// # Ok::<(), isochrone_engine::Error>(())
    /// ```
    pub fn record<T: Record>(
        self,
        describe: impl Fn(&T, &mut Draft) -> Result<(), String> + 'static,
    ) -> KafkaSink<T> {
        KafkaSink { output: self, fill: vec![Rc::new(describe)] }
    }
}

/// A sink that writes to a topic of Kafka; made by [`KafkaOutput`].
pub struct KafkaSink<T> {
    output: KafkaOutput,
    fill: Vec<Fill<T>>,
}

impl<T: 'static> KafkaSink<T> {
    /// Gives each record a key, by which its partition is chosen as Kafka's own clients do.
    #[must_use]
    pub fn key<K: AsRef<[u8]> + ?Sized>(self, key: impl Fn(&T) -> &K + 'static) -> Self {
        self.also(move |item, draft| {
            draft.key(key(item));
            Ok(())
        })
    }

    /// Gives each record a key that is made for it.
    #[must_use]
    pub fn key_of<K: AsRef<[u8]>>(self, key: impl Fn(&T) -> K + 'static) -> Self {
        self.also(move |item, draft| {
            draft.key(key(item));
            Ok(())
        })
    }

    /// At least once, but so that a reader can tell: each record carries the identity of the business
    /// event that it comes from in the header `idempotency-key`, the same each time it is written.
    #[must_use]
    pub fn idempotent<K: AsRef<[u8]>>(mut self, identity: impl Fn(&T) -> K + 'static) -> Self {
        self.output.promise = Promise::AtLeastOnce;
        self.also(move |item, draft| {
            draft.header("idempotency-key", Some(identity(item).as_ref()));
            Ok(())
        })
    }

    fn also(mut self, fill: impl Fn(&T, &mut Draft) -> Result<(), String> + 'static) -> Self {
        self.fill.push(Rc::new(fill));
        self
    }

    fn encoder(&self, context: &SinkContext) -> Result<Encoder<T>> {
        let KafkaOutput { kafka, topic, .. } = &self.output;
        // Each takes a connection of its own.
        let (described, record_max) = std::thread::scope(|scope| {
            let record_max = scope.spawn(|| record_max(kafka, topic));
            let topics = Topics::connect(kafka, View::All);
            let described = topics.and_then(|topics| topics.describe_target(topic));
            (described, record_max.join())
        });
        let sink = format!("sink `{}`", context.operator);
        let partitions = described.map_err(|error| error.within(&sink))?.partitions;
        let panicked = |_| Error::internal("a thread that asks Kafka panicked");
        Ok(Encoder {
            fill: self.fill.clone(),
            sink,
            topic: topic.clone(),
            partitions,
            record_max: record_max.map_err(panicked)??,
            draft: Draft::default(),
            next: context.worker.0.cast_signed().rem_euclid(partitions),
        })
    }
}

/// The largest record that a topic takes.
fn record_max(kafka: &Kafka, topic: &str) -> Result<usize> {
    match Admin::connect(kafka)?.setting(topic, "max.message.bytes") {
        Ok(found) => Ok(found.and_then(|text| text.parse().ok()).unwrap_or(RECORD_MAX)),
        Err(error) if error.kind() == ErrorKind::Unavailable => Err(error),
        // Who may not look at settings still may write.
        Err(_) => Ok(RECORD_MAX),
    }
}

impl<T: Record> Sink for KafkaSink<T> {
    type Item = T;
    type Effect = KafkaEffect;

    fn writer(&self, context: &SinkContext) -> Result<Box<dyn Writer<T, KafkaEffect>>> {
        let encoder = self.encoder(context)?;
        let KafkaOutput { kafka, promise, .. } = &self.output;
        Ok(match promise {
            Promise::ExactlyOnce => Box::new(PartWriter::new(encoder, context)?),
            Promise::AtLeastOnce => Box::new(DirectWriter::new(encoder, kafka)?),
        })
    }

    fn committer(&self, context: &SinkContext) -> Result<Box<dyn Committer<KafkaEffect>>> {
        let KafkaOutput { kafka, topic, progress_topic, promise, accept_duplicates } = &self.output;
        if *promise == Promise::AtLeastOnce {
            return Ok(Box::new(NothingOwed));
        }
        let progress = Progress {
            kafka: kafka.clone(),
            topic: progress_topic.clone().unwrap_or_else(|| format!("{}.progress", context.job)),
            sink: context.operator.to_string(),
        };
        if progress.topic == *topic {
            return Err(Error::invalid(format!(
                "topic `{topic}` cannot be both what sink `{}` writes and its progress topic; name \
                 another one (`progress_topic`)",
                context.operator
            )));
        }
        let committer = KafkaCommitter::new(progress, context, *accept_duplicates)?;
        Ok(Box::new(committer))
    }

    fn kept(effect: &KafkaEffect) -> Vec<Kept> {
        effect.chunks.iter().map(|chunk| chunk.kept.clone()).collect()
    }

    fn target(&self) -> Option<String> {
        Some(format!("topic `{}`", self.output.topic))
    }

    fn describe(effect: &KafkaEffect) -> String {
        effect.to_string()
    }
}

impl<T> Clone for KafkaSink<T> {
    fn clone(&self) -> Self {
        KafkaSink { output: self.output.clone(), fill: self.fill.clone() }
    }
}

impl<T> fmt::Debug for KafkaSink<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaSink").field("output", &self.output).finish_non_exhaustive()
    }
}
