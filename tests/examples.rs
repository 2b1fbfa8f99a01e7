//! Each example does what its first lines say: run as a user runs it, as a process of its own.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

// Its own tests, by the suites for connectors, run here: Cargo builds an example either as a test or
// as a program.
#[path = "../examples/custom_source.rs"]
#[expect(dead_code, reason = "the example's own entrance is not used here")]
mod custom_source;
mod support;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde::Deserialize;
use support::example::{Example, lines_of, snapshot, totals};
use support::wait;

const PURCHASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/data/purchases.csv");

#[derive(Deserialize)]
struct Assessment {
    event_id: String,
    account: String,
    events: u64,
    cents: i64,
    level: String,
}

/// What the assessments add up to; panics if an event comes twice or an account's are out of order.
fn assessed(folder: &Path) -> BTreeMap<String, (u64, i64)> {
    let mut events = std::collections::BTreeSet::new();
    let mut totals: BTreeMap<String, (u64, i64)> = BTreeMap::new();
    for line in lines_of(folder, "jsonl") {
        let found: Assessment = serde_json::from_str(&line).unwrap();
        assert!(events.insert(found.event_id.clone()), "event {} comes twice", found.event_id);
        let total = totals.entry(found.account).or_default();
        assert_eq!(found.events, total.0 + 1, "out of order: {line}");
        *total = (found.events, found.cents);
        let level = match found.cents {
            50_000.. => "high",
            10_000.. => "watch",
            _ => "normal",
        };
        assert_eq!(found.level, level, "{line}");
    }
    totals
}

fn account_risk(folder: &Path, input: &str) -> Example {
    let output = folder.join("out");
    Example::new("account_risk").arg("--input", input).path("--output", &output).store(folder)
}

#[test]
fn account_risk_finds_the_totals_and_a_second_run_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let first = account_risk(folder.path(), PURCHASES).succeeds();
    assert!(first.contains("all input read: 69659 records read, 69659 written"), "{first}");
    assert_eq!(assessed(&folder.path().join("out")), totals());
    let first_line = lines_of(&folder.path().join("out"), "jsonl").remove(0);
    let fields = ["event_id", "account", "events", "cents", "level"];
    let places: Vec<_> = fields.map(|field| first_line.find(&format!("\"{field}\":"))).into();
    assert!(places.is_sorted() && places[0].is_some(), "order of fields: {first_line}");

    let before = snapshot(folder.path());
    let second = account_risk(folder.path(), PURCHASES).succeeds();
    assert!(second.contains("all input is done: nothing was read"), "{second}");
    assert_eq!(snapshot(folder.path()), before, "the second run changed a file");
}

#[test]
fn account_risk_gives_the_same_totals_on_several_workers() {
    let folder = tempfile::tempdir().unwrap();
    account_risk(folder.path(), PURCHASES).arg("--workers", "3").succeeds();
    assert_eq!(assessed(&folder.path().join("out")), totals());
}

/// As the README says: purchases trickle in, and the job is killed halfway.
#[test]
fn account_risk_goes_on_where_it_was_killed_while_its_input_grew() {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("growing.csv"), folder.path().join("out"));
    let purchases = fs::read_to_string(PURCHASES).unwrap();
    let (first, second) = purchases.split_at(purchases.len() / 2);
    fs::write(&input, first).unwrap();
    let run = || account_risk(folder.path(), input.to_str().unwrap()).flag("--follow");
    let written = || if output.exists() { lines_of(&output, "jsonl").len() } else { 0 };
    let mut killed = run().start();
    assert!(wait::soon(|| written() > 0), "no output");
    killed.kill().unwrap();
    killed.wait().unwrap();
    fs::write(&input, [first, second].concat()).unwrap();
    let mut stopped = run().arg("--workers", "2").start();
    let all = purchases.lines().count() - 1;
    let is_done = wait::soon(|| written() == all);
    Command::new("kill").arg(stopped.id().to_string()).status().unwrap();
    assert_eq!(stopped.wait().unwrap().code(), Some(0));
    assert!(is_done, "{} of {all}", written());
    assert_eq!(assessed(&output), totals());
}

/// A slip in a pattern, or an input that is yet to come: only its user knows.
#[test]
fn account_risk_says_that_it_has_found_no_input() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("in");
    fs::create_dir(&input).unwrap();
    let said = account_risk(folder.path(), input.to_str().unwrap()).succeeds();
    assert!(said.contains("source `purchases` has found no input\n"), "{said}");
    let pattern = input.join("*.csv");
    let follows = account_risk(folder.path(), pattern.to_str().unwrap()).flag("--follow");
    let said = folder.path().join("said");
    let mut waiting = follows.start_saying_to(&said);
    let is_said = wait::soon(|| {
        fs::read_to_string(&said).unwrap().contains("has found no input yet; it looks on")
    });
    waiting.kill().unwrap();
    waiting.wait().unwrap();
    assert!(is_said, "{}", fs::read_to_string(&said).unwrap());
}

const HEADER: &str = "event_id,account,at,units,cents\n";

#[test]
fn account_risk_reads_csv_and_json_lines_from_one_directory() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("in");
    fs::create_dir(&input).unwrap();
    fs::write(input.join("a.csv"), format!("{HEADER}e1,x,1997-01-01,1,100\n")).unwrap();
    let json = r#"{"event_id":"e2","account":"x","at":"1997-01-02","units":1,"cents":9900}"#;
    fs::write(input.join("b.jsonl"), json).unwrap();
    account_risk(folder.path(), input.to_str().unwrap()).succeeds();
    let expected = BTreeMap::from([("x".to_owned(), (2, 10_000))]);
    assert_eq!(assessed(&folder.path().join("out")), expected);
}

#[test]
fn account_risk_drops_an_event_seen_before_and_takes_it_again_after_its_time() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("in.csv");
    let rows = "e1,x,1997-01-01,1,100\ne1,x,1997-01-02,1,100\ne2,x,1997-04-01,1,5\n\
                e1,x,1997-04-01,1,100\n";
    fs::write(&input, format!("{HEADER}{rows}")).unwrap();
    account_risk(folder.path(), input.to_str().unwrap()).arg("--remember-days", "30").succeeds();
    let lines = lines_of(&folder.path().join("out"), "jsonl");
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[2].contains(r#""event_id":"e1""#) && lines[2].contains(r#""cents":205"#));
}

#[test]
fn account_risk_does_with_malformed_input_as_told() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("in.csv");
    let rows = "e1,x,1997-01-01,1,100\ne2,x,1997-02-30,1,1\ne3,x,1997-01-03,1,7\n";
    fs::write(&input, format!("{HEADER}{rows}")).unwrap();
    let run = |name: &str| account_risk(&folder.path().join(name), input.to_str().unwrap());
    let total = |name: &str| assessed(&folder.path().join(name).join("out"));
    let expected = BTreeMap::from([("x".to_owned(), (2, 107))]);

    let error = run("fail").fails_with(2);
    assert!(error.contains("error: ") && error.contains("line 3"), "{error}");
    assert!(error.contains("`1997-02-30` is not a day"), "{error}");
    assert!(error.contains("it reads `e2,x,1997-02-30,1,1`;"), "{error}");
    let flags = "(by flags: `--on-malformed skip` or `--on-malformed dead-letters=DIR|URL`)";
    assert!(error.contains(flags), "{error}");

    let skipped = run("skip").arg("--on-malformed", "skip").succeeds();
    assert!(skipped.contains("1 malformed piece skipped"), "{skipped}");
    assert_eq!(total("skip"), expected);

    let letters = folder.path().join("letters");
    let dead_letters = format!("dead-letters={}", letters.display());
    let told = run("dead").arg("--on-malformed", &dead_letters).succeeds();
    let written = "2 records and 1 malformed piece read, 3 written (1 to `dead-letters`, 2 to \
                   `assessments`) in";
    assert!(told.contains(written), "{told}");
    assert_eq!(total("dead"), expected);
    let letters = lines_of(&letters, "jsonl");
    assert_eq!(letters.len(), 1, "{letters:?}");
    assert!(letters[0].contains("e2,x,1997-02-30,1,1") && letters[0].contains("line 3"));
}

#[test]
fn account_risk_refuses_slips_of_the_pen() {
    let folder = tempfile::tempdir().unwrap();
    let run = || account_risk(folder.path(), PURCHASES);
    for (flag, value, says) in [
        ("--on-malformed", "skpi", "give fail, skip or dead-letters=DIR"),
        ("--on-malformed", "dead-letters=", "give fail, skip or dead-letters=DIR"),
        ("--remember-days", "-1", "-1 is not in 1..=36500"),
        ("--remember-days", "0", "0 is not in 1..=36500"),
    ] {
        let error = run().arg(flag, value).fails_with(2);
        assert!(error.contains(says) && error.contains(flag), "{error}");
    }
    // Flags that are for the other kind of input, or output.
    for (input, flag, says) in [
        (PURCHASES, "--until-end", "`--until-end` is for topics"),
        ("kafka://127.0.0.1:1/t", "--follow", "`--follow` is for files"),
        (PURCHASES, "--create-topic=1", "`--create-topic` is for topics"),
    ] {
        let error = account_risk(folder.path(), input).flag(flag).fails_with(2);
        assert!(error.contains(says) && error.contains("leave it out"), "{error}");
    }
    let topic = "kafka://127.0.0.1:1/t";
    for (output, dead_letters, says) in [
        (topic, topic, "`--output` and `--on-malformed dead-letters=` name the same place"),
        ("./out", "out/", "`--output` and `--on-malformed dead-letters=` name the same place"),
        ("kafka://127.0.0.1:1/in", topic, "the job reads what it writes"),
        (topic, "kafka://127.0.0.1:2,127.0.0.1:1/in", "the job reads what it writes"),
    ] {
        let run = Example::new("account_risk").arg("--input", "kafka://127.0.0.1:1/in");
        let run = run.arg("--output", output).store(folder.path());
        let letters = format!("dead-letters={dead_letters}");
        let error = run.arg("--on-malformed", &letters).fails_with(2);
        assert!(error.contains(says), "{error}");
    }
    for slip in [
        "kafka//host/topic",
        "kafka//host:1/topic",
        "kafka/host:1/topic",
        "kafka:/host/topic",
        "Kafka://host:1/topic",
        "kafak://host:1/topic",
        "host:1/topic",
    ] {
        let error = account_risk(folder.path(), slip).fails_with(2);
        assert!(
            error.contains("nor kafka://host:port/topic") && error.contains("--input"),
            "{error}"
        );
        assert!(error.contains(&format!("write ./{slip}")), "{error}");
    }
    for output in [folder.path().join("in"), folder.path().join("in/out")] {
        fs::create_dir_all(folder.path().join("in")).unwrap();
        let input = folder.path().join("in");
        let run = Example::new("account_risk").path("--input", &input).path("--output", &output);
        let error = run.store(folder.path()).fails_with(2);
        assert!(error.contains("the job reads what it writes"), "{error}");
        let letters = format!("dead-letters={}", output.display());
        let run = Example::new("account_risk").path("--input", &input).store(folder.path());
        let run = run.path("--output", &folder.path().join("out"));
        let error = run.arg("--on-malformed", &letters).fails_with(2);
        assert!(error.contains("the job reads what it writes"), "{error}");
    }
    let names: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(names.len(), 1, "nothing but the input was made: {names:?}");
}

#[test]
fn account_risk_says_in_its_help_what_signals_and_exit_codes_mean() {
    let output = Example::new("account_risk").arg("--help", "").output();
    let help = String::from_utf8(output.stdout).unwrap();
    for part in ["SIGTERM, SIGINT", "SIGUSR1", "Exit codes:", "70  a fault", "[default: 1s, unless"]
    {
        assert!(help.contains(part), "{part}: {help}");
    }
}

#[test]
fn account_risk_refuses_a_store_where_none_can_be_and_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("out");
    let run = || Example::new("account_risk").arg("--input", PURCHASES).path("--output", &output);
    let error = run().arg("--store", "/proc/state").fails_with(2);
    assert!(error.contains("the file system of /proc takes no folders"), "{error}");
    let error = run().arg("--store", "/proc").fails_with(2);
    assert!(error.contains("/proc") && error.contains("lacks"), "{error}");
}

/// Root may read and write everything, so that this is tried as somebody else.
#[test]
fn account_risk_names_what_it_has_no_right_to() {
    let folder = tempfile::tempdir().unwrap();
    let open = |name: &str, mode| {
        let path = folder.path().join(name);
        fs::create_dir_all(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    };
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let (closed, public) = (open("closed", 0o555), open("public", 0o777));
    let secret = folder.path().join("secret.csv");
    fs::copy(PURCHASES, &secret).unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o000)).unwrap();
    let readable = folder.path().join("readable.csv");
    fs::copy(PURCHASES, &readable).unwrap();
    let run = |input: &Path, output: &Path, store: &Path| {
        let example = Example::without_rights("account_risk", folder.path());
        let example = example.path("--input", input).path("--output", output);
        let output = example.path("--store", store).output();
        let said = String::from_utf8(output.stderr).unwrap();
        // Somebody has to change rights or settings; waiting does not help.
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("ermission"), "{said}");
        said
    };
    let (out, state) = (public.join("out"), public.join("state"));
    assert!(run(&secret, &out, &state).contains("secret.csv"));
    assert!(run(&readable, &closed.join("out"), &state).contains("closed"));
    assert!(run(&readable, &out, &closed.join("state")).contains("closed"));
}

#[test]
fn account_risk_names_an_input_that_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let error = account_risk(folder.path(), "no/such/purchases.csv").fails_with(2);
    assert!(error.contains("source `purchases`: "), "{error}");
    assert!(error.contains("no/such/purchases.csv"), "{error}");
    assert_eq!(snapshot(folder.path()), BTreeMap::new(), "it leaves something behind");
    assert!(!folder.path().join("out").exists());
}

#[cfg(feature = "kafka")]
#[test]
fn account_risk_refuses_a_topic_without_a_name_and_a_secret_among_its_settings() {
    let folder = tempfile::tempdir().unwrap();
    for url in ["kafka://host", "kafka://host:1", "kafka://host:1/"] {
        let error = account_risk(folder.path(), url).fails_with(2);
        assert!(error.contains("names no topic; write `kafka://host:port/topic`"), "{error}");
    }
    let run = account_risk(folder.path(), "kafka://127.0.0.1:1/t").flag("--until-end");
    let error = run.arg("--kafka-set", "sasl.password=hunter2").fails_with(2);
    assert!(error.contains("setting `sasl.password` of Kafka is a secret"), "{error}");
    assert!(error.contains("`--kafka-secret KEY=env:NAME`"), "{error}");
    assert!(!error.contains("hunter2"), "{error}");
    assert_eq!(snapshot(folder.path()), BTreeMap::new(), "it leaves something behind");
}

#[derive(Deserialize)]
struct Count {
    word: String,
    count: u64,
}

#[test]
fn word_count_agrees_with_a_naive_count() {
    let folder = tempfile::tempdir().unwrap();
    let text = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/word_count.rs");
    let mut naive: BTreeMap<String, u64> = BTreeMap::new();
    let lower = fs::read_to_string(text).unwrap().to_lowercase();
    for word in lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
        *naive.entry(word.to_owned()).or_default() += 1;
    }
    let count = |lines: Vec<String>| {
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        for line in lines {
            let Count { word, count } = serde_json::from_str(&line).unwrap();
            let seen = counts.entry(word).or_default();
            assert_eq!(count, *seen + 1, "{line}");
            *seen = count;
        }
        counts
    };

    let words = folder.path().join("words");
    let run = || Example::new("word_count").arg("--input", text).arg("--workers", "2");
    run().path("--output", &words).store(folder.path()).succeeds();
    assert_eq!(count(lines_of(&words, "jsonl")), naive);

    let printed = run().output();
    assert!(printed.status.success());
    let printed = String::from_utf8(printed.stdout).unwrap();
    assert_eq!(count(printed.lines().map(str::to_owned).collect()), naive);
}

#[derive(Deserialize)]
struct Book {
    pages: Vec<Page>,
}

#[derive(Deserialize)]
struct Page {
    epoch: u64,
    entries: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    meter: u32,
    number: u64,
    total: u64,
}

#[test]
fn custom_source_enters_each_reading_once_also_when_more_come() {
    let folder = tempfile::tempdir().unwrap();
    let book = folder.path().join("book.json");
    let run = |readings: &str, workers: &str| {
        Example::new("custom_source")
            .path("--book", &book)
            .arg("--readings", readings)
            .arg("--workers", workers)
            .arg("--checkpoint-records", "100")
            .store(folder.path())
            .succeeds()
    };
    let check = |readings: u64| {
        let Book { mut pages } = serde_json::from_slice(&fs::read(&book).unwrap()).unwrap();
        pages.sort_by_key(|page| page.epoch);
        let entries: Vec<Entry> = pages.into_iter().flat_map(|page| page.entries).collect();
        assert_eq!(entries.len() as u64, 4 * readings);
        let mut next: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for Entry { meter, number, total } in entries {
            let (expected, sum) = next.entry(meter).or_default();
            assert_eq!(number, *expected, "meter {meter}");
            *sum += 1 + number * 7 % 13;
            assert_eq!(total, *sum, "meter {meter}, reading {number}");
            *expected += 1;
        }
    };
    run("1000", "1");
    check(1000);
    run("3000", "2");
    check(3000);
    let before = snapshot(folder.path());
    run("3000", "1");
    assert_eq!(snapshot(folder.path()), before);
}

#[test]
fn upgrade_goes_on_with_the_older_version_s_state_and_not_the_other_way_round() {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("in"), folder.path().join("out"));
    fs::create_dir(&input).unwrap();
    let pay = |file: &str, rows: &str| {
        fs::write(input.join(file), format!("account,cents\n{rows}")).unwrap();
    };
    let run = |version: &str| {
        Example::new("upgrade")
            .arg("--version", version)
            .path("--input", &input)
            .path("--output", &output)
            .store(folder.path())
    };
    pay("1.csv", "x,500\nx,-100\n");
    run("1").succeeds();
    let last = r#"["x",{"payments":2,"cents":400}]"#;
    assert_eq!(lines_of(&output, "jsonl").last().unwrap(), last);

    pay("2.csv", "x,-50\n");
    let report = run("2").succeeds();
    assert!(report.contains("`balance`: upgraded from version 1"), "{report}");
    let last = r#"["x",{"payments":3,"paid":400,"paid_back":50}]"#;
    assert_eq!(lines_of(&output, "jsonl").last().unwrap(), last);

    pay("3.csv", "x,1\n");
    let before = snapshot(folder.path());
    let refused = run("1").fails_with(3);
    assert!(refused.contains("balance") && refused.contains("version"), "{refused}");
    assert_eq!(snapshot(folder.path()), before, "a refused run changed a file");
    run("2").succeeds();
    let last = r#"["x",{"payments":4,"paid":401,"paid_back":50}]"#;
    assert_eq!(lines_of(&output, "jsonl").last().unwrap(), last);
}
