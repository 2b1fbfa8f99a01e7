//! The examples as they are, by flags: purchases go through files and topics in all combinations,
//! with kills in between, and what comes out is the same.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tempfile::TempDir;

use crate::job::{CHILD, LOADER, WATCHER};
use crate::place::was_killed;
use crate::support::child::{Job, assert_ends_well};
use crate::support::example::{lines_of, totals};
use crate::support::kafka::{Broker, Topic};
use crate::support::oracle::{Verdict, judge};
use crate::support::purchases::Log;
use crate::support::seed::Seeded;

const LINES: u64 = 40_000;
const FILES: u64 = 4;

struct Bench {
    folder: TempDir,
    log: Log,
}

impl Bench {
    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs an example from one end to the other; dies at the crash point first, if there is one.
    fn run(&self, name: &str, ends: [&str; 2], more: &[&str], crash: Option<&str>) {
        let store = self.at(&format!("store-{name}"));
        let store = store.to_str().unwrap();
        let flags = ["--quiet", "--checkpoint-every", "20ms", "--store", store];
        let flags = flags.into_iter().chain(["--input", ends[0], "--output", ends[1]]);
        let flags: Vec<String> = flags.chain(more.iter().copied()).map(str::to_owned).collect();
        let start =
            |around: &[String]| Job::start_within(around, CHILD, &flags, &self.at("errors"));
        if let Some(point) = crash {
            let variable = isochrone::testing::crash::VARIABLE;
            let mut job = start(&["env".to_owned(), format!("{variable}={point}")]);
            let end = job.end();
            assert!(was_killed(end), "{name}: {end}: {}", job.errors());
        }
        assert_ends_well(&mut start(&[]));
    }
}

#[derive(Deserialize)]
struct Line {
    account: String,
}

/// What was said of each account, in its order.
fn by_account(lines: impl IntoIterator<Item = String>) -> BTreeMap<String, Vec<String>> {
    let mut found = BTreeMap::<_, Vec<_>>::new();
    for line in lines {
        let Line { account } = serde_json::from_str(&line).unwrap();
        found.entry(account).or_default().push(line);
    }
    found
}

fn in_files(folder: &Path) -> BTreeMap<String, Vec<String>> {
    by_account(lines_of(folder, "jsonl"))
}

#[test]
fn files_and_topics_in_all_combinations_give_the_output_of_files_alone() {
    let broker = Broker::start();
    let folder = TempDir::new().unwrap();
    let seed = Seeded::announced().next();
    let log = Log::generate(seed, &folder.path().join("input"), LINES, FILES);
    let bench = Bench { folder, log };
    let topic = |name: &str| format!("kafka://{}/{name}", broker.address());
    let [input, files, from_topic] =
        ["input", "files", "from-topic"].map(|name| bench.at(name).to_str().unwrap().to_owned());
    let output = Topic::create(&broker, "assessments", 4);

    bench.run("files", [&input, &files], &[], None);
    assert_eq!(judge(&bench.log, Path::new(&files)), Verdict::default());
    let expected = in_files(Path::new(&files));

    bench.run(
        "load",
        [&input, &topic("purchases")],
        &["--create-topic", "6"],
        Some("kafka-marked"),
    );
    let until_end = ["--until-end"];
    let died = Some("manifest-written");
    bench.run("from-topic", [&topic("purchases"), &from_topic], &until_end, died);
    assert_eq!(judge(&bench.log, Path::new(&from_topic)), Verdict::default());
    assert_eq!(in_files(Path::new(&from_topic)), expected);

    bench.run("to-topic", [&input, &topic("assessments")], &[], Some("kafka-flushed"));
    assert!(by_account(output.read().records.iter().map(|record| record.text())) == expected);
}

/// The flags of the command in the README that runs an example on Kafka.
fn in_readme(example: &str) -> Vec<String> {
    let readme = include_str!("../../README.md").replace("\\\n", " ");
    let command = format!("cargo run --release --features kafka --example {example} -- ");
    let mut found = readme.lines().filter_map(|line| line.strip_prefix(&command));
    let (Some(flags), None) = (found.next(), found.next()) else {
        panic!("the README shows not one command that runs `{example}` on Kafka");
    };
    flags.split_whitespace().map(str::to_owned).collect()
}

#[derive(Deserialize)]
struct Assessed {
    event_id: String,
    account: String,
    events: u64,
    cents: i64,
}

/// As they stand there, but for the address of the broker and the folder of the stores.
#[test]
fn the_commands_of_the_readme_find_the_totals_from_topic_to_topic() {
    let broker = Broker::start();
    let folder = TempDir::new().unwrap();
    let in_folder = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    for (example, child) in [("load_topic", LOADER), ("account_risk", WATCHER)] {
        let mut flags = in_readme(example);
        for flag in &mut flags {
            *flag = flag.replace("127.0.0.1:9092", broker.address());
        }
        let store = 1 + flags.iter().position(|flag| flag == "--store").unwrap();
        flags[store] = in_folder(&flags[store]);
        let mut job = Job::start(child, &flags, &folder.path().join("errors"));
        assert_ends_well(&mut job);
    }
    let output = Topic { name: "assessments".to_owned(), client: broker.client() };
    assert_eq!(output.partitions(), 6);
    let mut events = BTreeSet::new();
    let mut found: BTreeMap<String, (u64, i64)> = BTreeMap::new();
    for record in output.read().records {
        let line: Assessed = serde_json::from_str(&record.text()).unwrap();
        assert_eq!(record.key_text(), line.account);
        assert!(events.insert(line.event_id), "an event comes twice: {}", record.text());
        let total = found.entry(line.account).or_default();
        assert_eq!(line.events, total.0 + 1, "out of order: {}", record.text());
        *total = (line.events, line.cents);
    }
    assert_eq!(found, totals());
}
