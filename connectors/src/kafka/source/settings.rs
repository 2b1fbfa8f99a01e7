//! What a source of a topic is told.

use std::rc::Rc;
use std::time::Duration;

use isochrone_engine::record::Record;

use super::KafkaSource;
use super::decode::{ByRecord, Decode, Records, Values};
use crate::OnDataLoss;
use crate::format::{Format, Json, Text};
use crate::kafka::cluster::Kafka;
use crate::kafka::record::KafkaRecordRef;

/// A topic to read; made by [`Kafka::source`].
///
/// ```
/// use isochrone_connectors::kafka::{Kafka, OnDataLoss, Start};
/// #[derive(Clone, serde::Serialize, serde::Deserialize)]
/// struct Purchase { account: String, cents: i64 }
///
/// let purchases = Kafka::at("127.0.0.1:9092")?
///     .source("purchases")
///     .start(Start::Latest)
///     .on_data_loss(OnDataLoss::ContinueFromEarliest)
///     .json::<Purchase>();
/// # let _ = purchases;
/// # Ok::<(), isochrone_engine::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct KafkaTopic {
    settings: Settings,
    tombstones: Tombstones,
}

/// What a source was told, whatever the format.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) kafka: Kafka,
    pub(super) topic: String,
    pub(super) start: Start,
    pub(super) until_end: bool,
    pub(super) on_data_loss: OnDataLoss,
    pub(super) look_every: Duration,
    pub(super) lag_group: Option<String>,
}

/// Where a job begins to read that has no checkpoint yet. It is made into offsets once, which are in
/// the first checkpoint. Partitions that are added later are read from offset 0; what was deleted of
/// them by then is lost, as [`OnDataLoss`] has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// With the oldest records there are.
    #[default]
    Earliest,
    /// With those that become visible from now on.
    Latest,
    /// With the first of this time or later, in milliseconds since 1970 UTC, by the records' own
    /// timestamps.
    TimestampMs(i64),
}

/// What records without a value are where only values are decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tombstones {
    /// Malformed.
    #[default]
    Malformed,
    /// Passed over.
    Skip,
}

/// How often is looked whether the topic is still the same and has new partitions.
const LOOK_EVERY: Duration = Duration::from_secs(5);

impl Kafka {
    /// A topic to read from.
    pub fn source(&self, topic: impl Into<String>) -> KafkaTopic {
        KafkaTopic {
            settings: Settings {
                kafka: self.clone(),
                topic: topic.into(),
                start: Start::default(),
                until_end: false,
                on_data_loss: OnDataLoss::default(),
                look_every: LOOK_EVERY,
                lag_group: None,
            },
            tombstones: Tombstones::default(),
        }
    }
}

impl KafkaTopic {
    /// Where to begin without a checkpoint; at the oldest record unless told.
    pub fn start(mut self, start: Start) -> Self {
        self.settings.start = start;
        self
    }

    /// Whether to read only up to the ends that the partitions have when reading starts, and then be
    /// done. Records of transactions that are open at that time belong to it: the source waits until
    /// they are committed or aborted. A job that is restored goes on to the same ends.
    pub fn until_end(mut self, until_end: bool) -> Self {
        self.settings.until_end = until_end;
        self
    }

    /// What to do about records that are gone before they were read, by the topic's retention or
    /// because the topic was deleted and created again; to stop unless told. Their number is in the
    /// position of the partition. A log that was cut back at its end, as by an election of a leader
    /// that lacked records, stops the job all the same.
    pub fn on_data_loss(mut self, on_data_loss: OnDataLoss) -> Self {
        self.settings.on_data_loss = on_data_loss;
        self
    }

    /// What records without a value are to [`KafkaTopic::json`], [`KafkaTopic::text`] and
    /// [`KafkaTopic::format`]; malformed unless told.
    pub fn tombstones(mut self, tombstones: Tombstones) -> Self {
        self.tombstones = tombstones;
        self
    }

    /// How often to look for new partitions, and whether the topic is still the same; every 5
    /// seconds unless told.
    pub fn look_every(mut self, every: Duration) -> Self {
        self.settings.look_every = every.max(Duration::from_millis(10));
        self
    }

    /// A consumer group whose offsets follow the checkpoints, so that what watches the lag of groups
    /// sees this job: the next offset of each partition, told when the checkpoint exists, whose output may
    /// not be seen yet. Nothing is ever read back from it, nobody joins it, and nobody else may use it.
    pub fn lag_group(mut self, group: impl Into<String>) -> Self {
        self.settings.lag_group = Some(group.into());
        self
    }

    #[cfg(test)]
    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Values that are JSON.
    pub fn json<T: Record>(self) -> KafkaSource<Values<Json<T>>> {
        self.format(Json::default())
    }

    /// Values that are text in UTF-8.
    pub fn text(self) -> KafkaSource<Values<Text>> {
        self.format(Text)
    }

    /// Values in another format.
    pub fn format<F: Format>(self, format: F) -> KafkaSource<Values<F>> {
        let values = Values { format, tombstones: self.tombstones };
        self.decode(values)
    }

    /// Records as they are: key, value or none, headers, timestamp, place.
    pub fn records(self) -> KafkaSource<Records> {
        self.decode(Records)
    }

    /// What a function makes of each record: an item, nothing (`None`), or the reason why it is
    /// malformed.
    ///
    /// ```
    /// use isochrone_connectors::kafka::{Kafka, KafkaRecordRef};
    /// // Accounts that were closed: tombstones, by their key.
    /// let closed = Kafka::at("127.0.0.1:9092")?.source("accounts").decode_record(
    ///     |record: &KafkaRecordRef<'_>| match (record.key(), record.value()) {
    ///         (Some(key), None) => Ok(Some(String::from_utf8_lossy(key).into_owned())),
    ///         (None, _) => Err("a record without a key".to_owned()),
    ///         _ => Ok(None),
    ///     },
    /// );
    /// # let _ = closed;
    /// # Ok::<(), isochrone_engine::Error>(())
    /// ```
    pub fn decode_record<T, F>(self, decode: F) -> KafkaSource<ByRecord<F>>
    where
        T: Record,
        F: Fn(&KafkaRecordRef<'_>) -> Result<Option<T>, String> + 'static,
    {
        self.decode(ByRecord(Rc::new(decode)))
    }

    /// Another way to decode.
    pub fn decode<D: Decode>(self, decode: D) -> KafkaSource<D> {
        KafkaSource::new(self.settings, decode)
    }
}
