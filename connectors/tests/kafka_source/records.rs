//! What records become: keys, headers, timestamps, tombstones, and what cannot be decoded.

use std::time::Duration;

use isochrone_connectors::format::Csv;
use isochrone_connectors::kafka::{
    KafkaHeader, KafkaRecord, KafkaRecordRef, KafkaTimestamp, TimestampKind, Tombstones,
};
use isochrone_engine::connector::{Malformed, Source, SourceExt};
use isochrone_engine::time::EventTime;

use crate::support::*;

/// The only partition of a topic, read to its end.
fn read<S>(source: S) -> (Vec<S::Item>, Vec<Malformed>)
where
    S: Source<Position = isochrone_connectors::kafka::KafkaPosition>,
{
    let split = discover(&source).remove(0);
    let batch = read_split(&source, &split);
    (batch.items, batch.malformed)
}

fn value(value: &str) -> Sent<'_> {
    Sent { value: Some(value), ..Sent::default() }
}

#[test]
fn a_record_has_key_value_headers_timestamp_and_place() {
    let topic = Topic::new("record", 1);
    topic.send_records(
        0,
        [
            Sent {
                key: Some("account"),
                value: Some("value"),
                headers: vec![
                    ("trace", Some("1")),
                    ("empty", Some("")),
                    ("none", None),
                    ("trace", Some("2")),
                ],
                timestamp_ms: Some(1_234_567),
            },
            Sent { key: Some(""), value: Some(""), timestamp_ms: Some(8), ..Sent::default() },
            Sent { key: Some("gone"), value: None, timestamp_ms: Some(9), ..Sent::default() },
            Sent { key: None, value: Some("x"), timestamp_ms: Some(7), ..Sent::default() },
        ],
    );
    let source = topic.source().until_end(true).records();
    let source = source.event_time(KafkaRecord::event_time, Duration::ZERO);
    let bytes = |text: &str| Some(text.as_bytes().to_vec());
    let header = |name: &str, value: Option<&str>| KafkaHeader {
        name: name.to_owned(),
        value: value.and_then(bytes),
    };
    let record = |offset, key, value, ms, headers| KafkaRecord {
        key,
        value,
        headers,
        timestamp: Some(KafkaTimestamp { ms, kind: TimestampKind::Create }),
        topic: topic.name.clone(),
        partition: 0,
        offset,
    };
    let headers = vec![
        header("trace", Some("1")),
        header("empty", Some("")),
        header("none", None),
        header("trace", Some("2")),
    ];
    let expected = [
        record(0, bytes("account"), bytes("value"), 1_234_567, headers),
        record(1, bytes(""), bytes(""), 8, vec![]),
        record(2, bytes("gone"), None, 9, vec![]),
        record(3, None, bytes("x"), 7, vec![]),
    ];
    assert_eq!(Source::event_time(&source, &expected[0]), Some(EventTime(1_234_567)));
    let (items, malformed) = read(source);
    assert_eq!(items, expected);
    assert_eq!(malformed, []);
}

#[test]
fn a_timestamp_says_whose_clock_it_is_of() {
    let topic = Topic::with("append", 1, &[("message.timestamp.type", "LogAppendTime")]);
    topic.send_records(0, [Sent { value: Some("x"), timestamp_ms: Some(5), ..Sent::default() }]);
    let (items, _) = read(topic.source().until_end(true).records());
    let timestamp = items[0].timestamp.unwrap();
    assert_eq!(timestamp.kind, TimestampKind::LogAppend);
    assert!(timestamp.ms > 1_600_000_000_000, "the broker's clock, not 5: {timestamp:?}");
}

#[test]
fn a_function_sees_all_of_a_record_and_may_pass_it_over() {
    let topic = Topic::new("function", 1);
    let record = |key, value, kind| Sent {
        key: Some(key),
        value,
        headers: vec![("kind", Some("old")), ("kind", Some(kind))],
        timestamp_ms: Some(70),
    };
    topic.send_records(
        0,
        [
            record("a", Some("1"), "open"),
            record("b", Some("2"), "ignored"),
            record("a", None, "close"),
            record("c", Some("3"), "?"),
        ],
    );
    let source = topic.source().until_end(true).decode_record(|record: &KafkaRecordRef<'_>| {
        let text = |bytes: Option<&[u8]>| bytes.map(|b| String::from_utf8_lossy(b).into_owned());
        match record.header("kind") {
            Some(b"ignored") => Ok(None),
            Some(b"?") => Err("of no kind".to_owned()),
            _ => Ok(Some((text(record.key()), text(record.value()), record.event_time()))),
        }
    });
    let (items, malformed) = read(source);
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(items, [(some("a"), some("1"), EventTime(70)), (some("a"), None, EventTime(70))]);
    let origin = [
        ("source.topic", topic.name.as_str()),
        ("source.partition", "0"),
        ("source.offset", "3"),
        ("source.key", "c"),
        ("kind", "old"),
        ("kind", "?"),
    ];
    let Malformed { place, reason, raw, origin: found } = &malformed[0];
    assert_eq!(malformed.len(), 1);
    assert_eq!(*place, format!("topic {}, partition 0, offset 3", topic.name));
    assert_eq!((reason.as_str(), raw.as_slice()), ("of no kind", b"3".as_slice()));
    let found: Vec<(&str, &[u8])> =
        found.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
    assert_eq!(found, origin.map(|(name, value)| (name, value.as_bytes())));
}

/// A tombstone looked like an empty value, a header without a value like an empty one, and a value that
/// was cut like a whole one.
#[test]
fn a_dead_letter_tells_what_was_missing_and_what_was_cut() {
    let topic = Topic::with("letters", 1, &[("max.message.bytes", "3000000")]);
    let bytes_max = 1 << 20;
    let (whole, long) = ("x".repeat(bytes_max), "y".repeat(bytes_max + 1));
    let headers = vec![("a", Some("")), ("b", None), ("b", Some("1")), ("c", None)];
    topic.send_records(
        0,
        [
            Sent { key: Some("k"), headers, ..Sent::default() },
            value(""),
            value(&whole),
            value(&long),
        ],
    );
    let (_, malformed) = read(topic.source().until_end(true).json::<u32>());
    let origins = |number: usize| -> Vec<(&str, &str)> {
        let origin = malformed[number].origin[3..].iter();
        origin.map(|(name, value)| (name.as_str(), str::from_utf8(value).unwrap())).collect()
    };
    let tombstone = [
        ("source.key", "k"),
        ("source.tombstone", "true"),
        ("source.null-header", "1"),
        ("source.null-header", "3"),
        ("a", ""),
        ("b", ""),
        ("b", "1"),
        ("c", ""),
    ];
    assert_eq!((malformed[0].raw.as_slice(), origins(0)), (&b""[..], tombstone.to_vec()));
    assert_eq!((malformed[1].raw.as_slice(), origins(1)), (&b""[..], vec![]));
    assert_eq!((malformed[2].raw.len(), origins(2)), (bytes_max, vec![]));
    assert_eq!(
        (malformed[3].raw.len(), origins(3)),
        (bytes_max, vec![("source.bytes", "1048577")])
    );
    assert_eq!(malformed.len(), 4);
}

#[test]
fn a_tombstone_is_malformed_to_a_format_or_is_skipped() {
    let topic = Topic::new("tombstone", 1);
    topic.send_records(0, [value("1"), Sent { key: Some("k"), ..Sent::default() }, value("3")]);
    let (items, malformed) = read(topic.source().until_end(true).json::<u32>());
    assert_eq!(items, [1, 3]);
    assert_eq!(malformed.len(), 1);
    assert_eq!(malformed[0].place, format!("topic {}, partition 0, offset 1", topic.name));
    assert!(malformed[0].reason.starts_with("a tombstone: it has no value"), "{malformed:?}");
    assert_eq!(malformed[0].raw, b"");
    let skipping = topic.source().until_end(true).tombstones(Tombstones::Skip).json::<u32>();
    assert_eq!(read(skipping), (vec![1, 3], vec![]));
}

#[test]
fn what_does_not_decode_is_malformed_with_its_place_and_its_bytes() {
    let topic = Topic::new("poison", 1);
    let long = format!("{{\"{}", "x".repeat(5000));
    let sent = ["1", "one", "2", &long, "3", "", "  "];
    topic.send_records(0, sent.map(value));
    let (items, malformed) = read(topic.source().until_end(true).json::<u32>());
    assert_eq!(items, [1, 2, 3]);
    let places: Vec<&str> = malformed.iter().map(|piece| piece.place.as_str()).collect();
    let place = |offset| format!("topic {}, partition 0, offset {offset}", topic.name);
    assert_eq!(places, [place(1), place(3), place(5), place(6)]);
    assert_eq!(malformed[2].reason, "a value without anything in it");
    assert_eq!(malformed[0].raw, b"one");
    assert_eq!(malformed[0].reason, "expected value at column 1");
    assert_eq!(malformed[1].raw, long.as_bytes(), "whole, so that it can be written again");
}

#[test]
fn a_format_with_a_header_is_refused() {
    let topic = Topic::new("csv", 1);
    let source = topic.source().format(Csv::<(String, u32)>::default());
    let error = source.open(discover(&source).remove(0)).err().unwrap();
    assert!(error.to_string().contains("a record of Kafka has nothing above it"), "{error}");
}
