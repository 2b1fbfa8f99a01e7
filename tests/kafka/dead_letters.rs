//! Messages that are no purchases, from topic to topic: each is found in a topic of dead letters, once,
//! as it was, with where it was found and why, wherever the job dies.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use tempfile::TempDir;

use crate::job::WATCHER;
use crate::place::was_killed;
use crate::support::child::{Job, assert_ends_well};
use crate::support::kafka::{Broker, Record, Row, Topic, row};
use crate::support::wait;

const ACCOUNTS: u64 = 7;
/// Written at a time.
const PURCHASES: u64 = 50;

type Bytes = Option<Vec<u8>>;
/// A dead letter: key, value, and headers.
type Letter = (Bytes, Bytes, Vec<(String, Bytes)>);

/// What is no purchase, and what is to be said of it.
fn malformed(number: u64) -> [(Row, &'static str); 5] {
    let day = json!({
        "event_id": format!("never-{number}"), "account": "a1", "at": "1997-02-30", "units": 1, "cents": 5,
    });
    let no_text = [&[0xff, 0x00][..], &number.to_be_bytes()[..]].concat();
    let by = |row: Row| row.header("by", Some(b"the till")).header("by", Some(b"the desk"));
    let without_key = Row { key: None, ..row("", format!("nobody's {number}")) };
    let tombstone = Row { value: None, ..row(format!("gone-{number}"), "") };
    [
        (by(row(format!("day-{number}"), day.to_string())), "`1997-02-30` is not a day"),
        (row(&no_text, &no_text), "expected value"),
        (row(format!("empty-{number}"), ""), "a value without anything in it"),
        (by(without_key), "expected ident"),
        (tombstone, "a tombstone: it has no value"),
    ]
}

/// What has to become of a record that was found malformed.
fn letter(topic: &str, found: &Record, reason: &[u8]) -> Letter {
    let (partition, offset) = (found.partition, found.offset);
    let place = format!("topic {topic}, partition {partition}, offset {offset}");
    let mut headers = vec![
        ("place".to_owned(), Some(place.into_bytes())),
        ("reason".to_owned(), Some(reason.to_vec())),
        ("source.topic".to_owned(), Some(topic.as_bytes().to_vec())),
        ("source.partition".to_owned(), Some(partition.to_string().into_bytes())),
        ("source.offset".to_owned(), Some(offset.to_string().into_bytes())),
    ];
    // A letter has a value: that there was none is what its headers say.
    if found.value.is_none() {
        headers.push(("source.tombstone".to_owned(), Some(b"true".to_vec())));
    }
    headers.extend(found.headers.iter().cloned());
    let value = found.value.clone().or(Some(Vec::new()));
    (found.key.clone(), value, headers)
}

fn header<'r>(record: &'r Record, name: &str) -> &'r [u8] {
    let mut found = record.headers.iter().filter(|(known, _)| known == name);
    let (Some((_, Some(value))), None) = (found.next(), found.next()) else {
        panic!("not one `{name}`: {record:?}")
    };
    value
}

struct Bench {
    folder: TempDir,
    input: Topic,
    output: Topic,
    letters: Topic,
    address: String,
    event_ids: BTreeSet<String>,
    /// Reasons of what is no purchase, by key and value.
    reasons: BTreeMap<(Bytes, Bytes), &'static str>,
}

impl Bench {
    fn new() -> Bench {
        let broker = Broker::shared();
        let topic =
            |name, partitions| Topic::create(broker, &format!("letters-{name}"), partitions);
        Bench {
            folder: TempDir::new().unwrap(),
            input: topic("in", 3),
            output: topic("out", 2),
            letters: topic("dead", 2),
            address: broker.address().to_owned(),
            event_ids: BTreeSet::new(),
            reasons: BTreeMap::new(),
        }
    }

    /// More purchases, and among them what is none.
    fn feed(&mut self) {
        let mut rows = Vec::new();
        for _ in 0..PURCHASES {
            let number = self.event_ids.len() as u64;
            let (event_id, account) = (format!("e{number}"), format!("a{}", number % ACCOUNTS));
            let purchase = json!({
                "event_id": event_id, "account": account, "at": "1997-01-31", "units": 1, "cents": 100,
            });
            rows.push(row(&account, purchase.to_string()));
            self.event_ids.insert(event_id);
            if number % 10 == 3 {
                for (row, reason) in malformed(number) {
                    self.reasons.insert((row.key.clone(), row.value.clone()), reason);
                    rows.push(row);
                }
            }
        }
        self.input.write(rows);
    }

    fn run(&self, crash: Option<&str>) -> Job {
        let url = |topic: &Topic| format!("kafka://{}/{}", self.address, topic.name);
        let store = self.folder.path().join("store").to_str().unwrap().to_owned();
        let flags: Vec<String> = [
            ["--input", &url(&self.input)],
            ["--output", &url(&self.output)],
            ["--on-malformed", &format!("dead-letters={}", url(&self.letters))],
            ["--progress-topic", "letters.progress"],
            ["--checkpoint-every", "20ms"],
            ["--workers", "2"],
            ["--store", &store],
        ]
        .concat()
        .into_iter()
        .chain(["--quiet"])
        .chain(crash.is_none().then_some("--until-end"))
        .map(str::to_owned)
        .collect();
        let crash = crash.map(|point| format!("{}={point}", isochrone::testing::crash::VARIABLE));
        let around: Vec<String> =
            crash.into_iter().flat_map(|crash| ["env".to_owned(), crash]).collect();
        Job::start_within(&around, WATCHER, &flags, &self.folder.path().join("errors"))
    }

    /// All that has to come out has, once.
    fn check(&self) {
        let sorted = |mut letters: Vec<Letter>| {
            letters.sort();
            letters
        };
        let found = self.letters.read().records;
        let letters = found.iter().map(|it| (it.key.clone(), it.value.clone(), it.headers.clone()));
        // Its reason stands in a letter alone; whether it is the right one is asked below.
        let reasons: BTreeMap<&[u8], &[u8]> = found
            .iter()
            .map(|record| (header(record, "place"), header(record, "reason")))
            .collect();
        let input = self.input.read().records;
        let mut expected = Vec::new();
        for record in &input {
            let Some(reason) = self.reasons.get(&(record.key.clone(), record.value.clone())) else {
                continue;
            };
            let (partition, offset) = (record.partition, record.offset);
            let place = format!("topic letters-in, partition {partition}, offset {offset}");
            let said = reasons.get(place.as_bytes()).copied();
            let said = said.unwrap_or_else(|| panic!("no letter says {place}: {record:?}"));
            let text = String::from_utf8_lossy(said);
            assert!(text.contains(reason), "{place}: `{text}` instead of `{reason}`");
            expected.push(letter("letters-in", record, said));
        }
        assert_eq!(expected.len(), self.reasons.len());
        assert_eq!(sorted(letters.collect()), sorted(expected));

        #[derive(Deserialize)]
        struct Assessment {
            event_id: String,
            account: String,
            events: u64,
        }
        let (mut event_ids, mut events) = (Vec::new(), BTreeMap::<String, u64>::new());
        for record in self.output.read().records {
            let found: Assessment = serde_json::from_str(&record.text()).unwrap();
            let counted = events.entry(found.account).or_default();
            *counted += 1;
            assert_eq!(found.events, *counted, "{}", record.text());
            event_ids.push(found.event_id);
        }
        event_ids.sort();
        assert!(event_ids.iter().eq(&self.event_ids), "{} events came out", event_ids.len());
    }
}

#[test]
fn what_is_no_purchase_is_a_dead_letter_once_wherever_the_job_dies() {
    let mut bench = Bench::new();
    let steps = [
        "manifest-written@2",
        "kafka-sent@3",
        "kafka-marked",
        "kafka-marked@2",
        "kafka-committed@3",
    ];
    for step in steps {
        let mut job = bench.run(Some(step));
        let end = wait::until(wait::SOON, || {
            bench.feed();
            wait::pause(Duration::from_millis(40));
            job.ended()
        });
        assert!(end.is_some_and(was_killed), "{step}: {end:?}: {}", job.errors());
    }
    bench.feed();
    assert_ends_well(&mut bench.run(None));
    bench.check();
}
