//! A record of Kafka with all that belongs to it.

use std::borrow::Cow;

use isochrone_engine::time::EventTime;
use serde::{Deserialize, Serialize};

use super::batch::Message;

/// What the key of a malformed record is called in `Malformed::origin`.
pub(super) const SOURCE_KEY: &str = "source.key";
/// Of a value that was cut: how many bytes it has.
pub(super) const SOURCE_BYTES: &str = "source.bytes";
/// `true` if there was no value, which is not the same as an empty one.
pub(super) const SOURCE_TOMBSTONE: &str = "source.tombstone";
/// Which header has no value, counted from 0; once for each.
pub(super) const SOURCE_NULL_HEADER: &str = "source.null-header";

/// A record with its key, headers, timestamp and place.
///
/// A record without a value is a *tombstone*: it says that its key is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KafkaRecord {
    /// The key, if there is one; it may be empty.
    pub key: Option<Vec<u8>>,
    /// The value; none in a tombstone, which is not the same as an empty one.
    pub value: Option<Vec<u8>>,
    /// In their order; a name may occur more than once.
    pub headers: Vec<KafkaHeader>,
    /// When, and by whose clock. None in records older than Kafka 0.10.
    pub timestamp: Option<KafkaTimestamp>,
    /// The topic.
    pub topic: String,
    /// The partition, counted from 0.
    pub partition: i32,
    /// The offset within the partition.
    pub offset: i64,
}

/// A header of a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KafkaHeader {
    /// Its name.
    pub name: String,
    /// Its value, which may be missing.
    pub value: Option<Vec<u8>>,
}

/// When a record was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KafkaTimestamp {
    /// Milliseconds since 1970-01-01 UTC. A producer may set what it likes.
    pub ms: i64,
    /// Whose clock it is.
    pub kind: TimestampKind,
}

/// Whose clock a timestamp is of: a setting of the topic, `message.timestamp.type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TimestampKind {
    /// The producer's, or what it chose to say.
    Create,
    /// The broker's, when it appended the record.
    LogAppend,
}

impl KafkaRecord {
    /// The timestamp as event time; [`EventTime::MIN`] if there is none.
    ///
    /// ```
    /// use std::time::Duration;
    /// use isochrone_connectors::kafka::{Kafka, KafkaRecord};
    /// use isochrone_engine::connector::SourceExt;
    /// let source = Kafka::at("127.0.0.1:9092")?
    ///     .source("purchases")
    ///     .records()
    ///     .event_time(KafkaRecord::event_time, Duration::from_secs(5));
    /// # let _ = source;
    /// # Ok::<(), isochrone_engine::Error>(())
    /// ```
    pub fn event_time(&self) -> EventTime {
        event_time(self.timestamp)
    }
}

/// A record that is being decoded: a look at the client's memory, without a copy.
#[derive(Clone, Copy)]
pub struct KafkaRecordRef<'a> {
    pub(super) message: Message<'a>,
    pub(super) topic: &'a str,
}

impl<'a> KafkaRecordRef<'a> {
    /// The key, if there is one; it may be empty.
    #[inline]
    pub fn key(&self) -> Option<&'a [u8]> {
        self.message.key()
    }

    /// The value; none in a tombstone, which is not the same as an empty one.
    #[inline]
    pub fn value(&self) -> Option<&'a [u8]> {
        self.message.value()
    }

    /// The headers in their order; a name may occur more than once.
    pub fn headers(&self) -> Vec<(Cow<'a, str>, Option<&'a [u8]>)> {
        let headers = self.message.headers().into_iter();
        headers.map(|(name, value)| (String::from_utf8_lossy(name), value)).collect()
    }

    /// The value of the last header of this name, if there is one that has a value.
    pub fn header(&self, name: &str) -> Option<&'a [u8]> {
        let headers = self.message.headers();
        let last = headers.iter().rev().find(|(found, _)| *found == name.as_bytes());
        last.and_then(|(_, value)| *value)
    }

    /// When, and by whose clock.
    pub fn timestamp(&self) -> Option<KafkaTimestamp> {
        self.message.timestamp().map(|(ms, by_broker)| KafkaTimestamp {
            ms,
            kind: if by_broker { TimestampKind::LogAppend } else { TimestampKind::Create },
        })
    }

    /// The timestamp as event time; [`EventTime::MIN`] if there is none.
    pub fn event_time(&self) -> EventTime {
        event_time(self.timestamp())
    }

    /// The topic.
    pub fn topic(&self) -> &'a str {
        self.topic
    }

    /// The partition, counted from 0.
    pub fn partition(&self) -> i32 {
        self.message.partition()
    }

    /// The offset within the partition.
    pub fn offset(&self) -> i64 {
        self.message.offset()
    }

    /// A copy that can be kept.
    pub fn to_record(&self) -> KafkaRecord {
        let header = |(name, value): (Cow<'_, str>, Option<&[u8]>)| KafkaHeader {
            name: name.into_owned(),
            value: value.map(<[u8]>::to_vec),
        };
        KafkaRecord {
            key: self.key().map(<[u8]>::to_vec),
            value: self.value().map(<[u8]>::to_vec),
            headers: self.headers().into_iter().map(header).collect(),
            timestamp: self.timestamp(),
            topic: self.topic.to_owned(),
            partition: self.partition(),
            offset: self.offset(),
        }
    }
}

impl std::fmt::Debug for KafkaRecordRef<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.to_record().fmt(f)
    }
}

fn event_time(timestamp: Option<KafkaTimestamp>) -> EventTime {
    timestamp.map_or(EventTime::MIN, |timestamp| EventTime(timestamp.ms))
}
