//! Part files: each part becomes visible once, whatever happens between writing and publishing.
//!
//! A crash is simulated by dropping everything a run holds and opening the next generation.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use isochrone_connectors::check_sink;
use isochrone_connectors::files::{PartFiles, PartSink, PreparedPart};
use isochrone_engine::connector::{Committer, Recovery, Sink, SinkContext, Writer};
use isochrone_engine::ids::{Epoch, OperatorId};
use isochrone_engine::{Error, ErrorKind};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

#[path = "part_files/full_disk.rs"]
mod full_disk;
#[path = "part_files/lost_or_taken.rs"]
mod lost_or_taken;

type PartWriter<T> = Box<dyn Writer<T, PreparedPart>>;
type PartCommitter = Box<dyn Committer<PreparedPart>>;

fn context(generation: u64, worker: u32) -> SinkContext {
    SinkContext::alone("job", "out", generation, worker).unwrap()
}

fn text(folder: &Path) -> PartSink<String> {
    PartFiles::at(folder).text()
}

fn recovered<T: 'static>(
    sink: &PartSink<T>,
    generation: u64,
    pending: Vec<PreparedPart>,
) -> PartCommitter {
    let mut committer = sink.committer(&context(generation, 0)).unwrap();
    // Far behind all epochs of these tests: none of them goes on from an older checkpoint.
    let from = (generation > 1).then_some(Epoch(1_000));
    committer
        .recover(Recovery { pending, from, renamed_from: None, is_new: false, history: None })
        .unwrap();
    committer
}

fn write(writer: &mut PartWriter<String>, epoch: u64, lines: &[&str]) {
    let mut batch = lines.iter().map(|line| line.to_string()).collect();
    writer.write(&mut batch, Epoch(epoch)).unwrap();
}

fn prepare<T: 'static>(writer: &mut PartWriter<T>, epoch: u64) -> PreparedPart {
    writer.prepare(Epoch(epoch)).unwrap()().unwrap().unwrap()
}

/// Everything in the folder, hidden files too, but those that say whose it is and what was published.
fn all(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name != ".isochrone-owner" && !name.ends_with(".done"));
    names.sort();
    names
}

/// What a reader with a glob sees: name and content.
fn seen(folder: &Path, pattern: &str) -> BTreeMap<String, String> {
    let pattern = folder.join(pattern);
    let paths = glob::glob(pattern.to_str().unwrap()).unwrap().map(Result::unwrap);
    let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
    paths.map(|path| (name(&path), fs::read_to_string(&path).unwrap())).collect()
}

fn lines(folder: &Path, pattern: &str) -> Vec<String> {
    seen(folder, pattern).values().flat_map(|text| text.lines()).map(str::to_owned).collect()
}

fn refusal(sink: &PartSink<String>, fresh: bool) -> Error {
    let from = (!fresh).then_some(Epoch(1_000));
    let recovery =
        Recovery { pending: Vec::new(), from, renamed_from: None, is_new: false, history: None };
    sink.committer(&context(2, 0)).unwrap().recover(recovery).unwrap_err()
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Row {
    name: String,
    count: u64,
    share: Option<f64>,
}

fn row(n: u64) -> Row {
    Row { name: format!("a \"{n}\",\n"), count: n, share: (n.is_multiple_of(2)).then_some(0.5) }
}

#[test]
fn json_keeps_the_contract_of_a_sink() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("not/yet/there");
    let read = || {
        let lines = lines(&path, "*.jsonl");
        lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Row>>()
    };
    check_sink(|| PartFiles::at(&path).json::<Row>(), read, row);
}

#[test]
fn text_keeps_the_contract_of_a_sink() {
    let folder = TempDir::new().unwrap();
    let read = || lines(folder.path(), "*.txt");
    check_sink(|| text(folder.path()), read, |n| format!("line {n}"));
}

#[test]
fn csv_keeps_the_contract_of_a_sink() {
    let folder = TempDir::new().unwrap();
    let read = || seen(folder.path(), "*.csv").values().flat_map(|part| parse_csv(part)).collect();
    check_sink(|| PartFiles::at(folder.path()).csv::<Row>(), read, row);
}

#[test]
fn a_crash_at_any_step_loses_and_doubles_nothing() {
    // The last step the first run gets to; the second then finishes epoch 1 and writes epoch 2.
    for steps in 0..6 {
        let folder = TempDir::new().unwrap();
        let sink = text(folder.path());
        let mut pending = Vec::new();
        {
            let mut committer = recovered(&sink, 1, Vec::new());
            let mut writer = sink.writer(&context(1, 0)).unwrap();
            write(&mut writer, 1, &["a", "b"]);
            if steps >= 1 {
                pending = vec![prepare(&mut writer, 1)];
            }
            if steps >= 2 {
                committer.commit(&pending).unwrap();
            }
            if steps >= 3 {
                // As if the crash came after the link and before the open name was removed.
                let part = &pending[0];
                let from = folder.path().join(&part.finished);
                fs::hard_link(from, folder.path().join(&part.open)).unwrap();
            }
            if steps >= 4 {
                write(&mut writer, 2, &["of the dead run"]);
            }
            if steps >= 5 {
                prepare(&mut writer, 2);
            }
        }
        let visible = if steps >= 2 { vec!["a", "b"] } else { vec![] };
        assert_eq!(lines(folder.path(), "*.txt"), visible, "crashed after step {steps}");

        let mut committer = recovered(&sink, 2, pending.clone());
        let mut writer = sink.writer(&context(2, 0)).unwrap();
        if pending.is_empty() {
            write(&mut writer, 1, &["a", "b"]);
            committer.commit(&[prepare(&mut writer, 1)]).unwrap();
        }
        write(&mut writer, 2, &["c"]);
        committer.commit(&[prepare(&mut writer, 2)]).unwrap();
        assert_eq!(lines(folder.path(), "*.txt"), ["a", "b", "c"], "crashed after step {steps}");
        let parts = ["part-0000000001-0000.txt", "part-0000000002-0000.txt"];
        assert_eq!(all(folder.path()), parts, "crashed after step {steps}");
    }
}

#[test]
fn a_long_epoch_is_on_disk_before_it_ends_and_no_pattern_matches_it() {
    let folder = TempDir::new().unwrap();
    let sink = text(folder.path());
    let mut committer = recovered(&sink, 1, Vec::new());
    let mut writer = sink.writer(&context(1, 0)).unwrap();
    let long = "x".repeat(1000);
    for _ in 0..1000 {
        write(&mut writer, 1, &[&long]);
        assert!(seen(folder.path(), "*.txt").is_empty());
    }
    let open = all(folder.path());
    assert_eq!(open.len(), 1);
    assert!(fs::metadata(folder.path().join(&open[0])).unwrap().len() > 700_000);
    let part = prepare(&mut writer, 1);
    assert!(seen(folder.path(), "*.txt").is_empty());
    committer.commit(&[part]).unwrap();
    assert_eq!(lines(folder.path(), "*.txt"), vec![long; 1000]);
}

#[test]
fn two_writers_that_claim_the_same_part_are_told_so() {
    let folder = TempDir::new().unwrap();
    let sink = text(folder.path());
    recovered(&sink, 1, Vec::new());
    let mut writer = sink.writer(&context(1, 0)).unwrap();
    let mut double = sink.writer(&context(1, 0)).unwrap();
    write(&mut writer, 1, &["a"]);
    write(&mut double, 1, &["b"]);
    prepare(&mut writer, 1);
    let error = double.prepare(Epoch(1)).unwrap()().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("same generation"), "{error}");
}

#[test]
fn foreign_files_stay_untouched() {
    let folder = TempDir::new().unwrap();
    let foreign = [
        "notes.txt",
        ".hidden",
        ".part-0000000001-0000.txt.other-job.out.1.open",
        ".part-0000000001-0000.txt.job.other-sink.1.open",
        ".part-0000000001-0000.txt.job.out.9.open",
    ];
    for name in foreign {
        fs::write(folder.path().join(name), name).unwrap();
    }
    let mine = folder.path().join(".part-0000000001-0000.txt.job.out.1.open");
    fs::write(&mine, "left by an earlier run").unwrap();
    recovered(&text(folder.path()), 2, Vec::new());
    for name in foreign {
        assert_eq!(fs::read_to_string(folder.path().join(name)).unwrap(), name);
    }
    assert_eq!(all(folder.path()).len(), foreign.len());
}

#[test]
fn a_foreign_file_under_a_final_name_is_never_overwritten() {
    let folder = TempDir::new().unwrap();
    let sink = text(folder.path());
    let mut committer = recovered(&sink, 1, Vec::new());
    let mut writer = sink.writer(&context(1, 0)).unwrap();
    write(&mut writer, 1, &["mine"]);
    let part = prepare(&mut writer, 1);
    let path = folder.path().join(&part.finished);
    for foreign in ["theirs, longer", "same\n"] {
        fs::write(&path, foreign).unwrap();
        let error = committer.commit(std::slice::from_ref(&part)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), foreign);
    }
    fs::remove_file(&path).unwrap();
    committer.commit(&[part]).unwrap();
    assert_eq!(lines(folder.path(), "*.txt"), ["mine"]);
}

#[test]
fn parts_that_will_be_written_again_are_set_aside_never_deleted() {
    let folder = TempDir::new().unwrap();
    let sink = text(folder.path());
    let mut committer = recovered(&sink, 1, Vec::new());
    let mut writer = sink.writer(&context(1, 0)).unwrap();
    let parts: Vec<PreparedPart> = (1..4)
        .map(|epoch| {
            write(&mut writer, epoch, &[&epoch.to_string()]);
            prepare(&mut writer, epoch)
        })
        .collect();
    committer.commit(&parts).unwrap();
    let back = |pending| Recovery {
        pending,
        from: Some(Epoch(2)),
        renamed_from: None,
        is_new: false,
        history: None,
    };
    let mut committer = sink.committer(&context(2, 0)).unwrap();
    assert_eq!(committer.recover(back(vec![parts[0].clone()])).unwrap().len(), 2);
    assert_eq!(lines(folder.path(), "*.txt"), ["1"]);
    let aside = folder.path().join("part-0000000003-0000.txt.superseded-2");
    assert_eq!(fs::read_to_string(aside).unwrap(), "3\n");

    // A checkpoint that names what was set aside is not taken for one whose output was read.
    let mut committer = sink.committer(&context(3, 0)).unwrap();
    let error = committer.recover(back(vec![parts[2].clone()])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
}

#[test]
fn a_folder_has_one_sink() {
    let folder = TempDir::new().unwrap();
    let sink = text(folder.path());
    recovered(&sink, 1, Vec::new());
    recovered(&sink, 2, Vec::new());
    let other = SinkContext { operator: OperatorId::new("other").unwrap(), ..context(1, 0) };
    let start = |renamed_from| {
        let recovery = Recovery {
            pending: Vec::new(),
            from: Some(Epoch(9)),
            renamed_from,
            is_new: false,
            history: None,
        };
        sink.committer(&other).unwrap().recover(recovery)
    };
    let error = start(None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("belongs to sink `out` of job `job`"), "{error}");
    start(Some(OperatorId::new("out").unwrap())).unwrap();
    start(None).unwrap();
    let error = refusal(&sink, false);
    assert!(error.to_string().contains("belongs to sink `other` of job `job`"), "{error}");
}

#[test]
fn a_fresh_job_refuses_parts_of_another_history() {
    let folder = TempDir::new().unwrap();
    let sink = text(folder.path());
    let mut committer = recovered(&sink, 1, Vec::new());
    let mut writer = sink.writer(&context(1, 0)).unwrap();
    for epoch in 1..4 {
        write(&mut writer, epoch, &["line"]);
        committer.commit(&[prepare(&mut writer, epoch)]).unwrap();
    }
    let error = refusal(&sink, true);
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let folder = folder.path().display();
    assert_eq!(
        error.to_string(),
        format!(
            "folder {folder} holds 3 part files that this job's history does not explain \
             (first: part-0000000001-0000.txt); choose an empty folder, or the store that wrote \
             them"
        )
    );
}

#[test]
fn a_folder_that_takes_no_files_is_refused_at_start() {
    // Rights do not stop root, so these folders are impossible for everybody.
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    for impossible in [file.join("out"), file, PathBuf::from("/proc/out"), PathBuf::from("/proc")] {
        let error = refusal(&text(&impossible), false);
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains(impossible.to_str().unwrap()), "{error}");
        assert!(error.to_string().contains("choose another folder"), "{error}");
    }
}

#[test]
fn a_part_is_finished_where_it_was_prepared_even_if_the_job_now_writes_elsewhere() {
    let folder = TempDir::new().unwrap();
    let elsewhere = TempDir::new().unwrap();
    let sink = text(folder.path());
    recovered(&sink, 1, Vec::new());
    let mut writer = sink.writer(&context(1, 0)).unwrap();
    write(&mut writer, 1, &["line"]);
    let part = prepare(&mut writer, 1);
    assert!(Path::new(&part.folder).is_absolute());
    recovered(&text(elsewhere.path()), 2, vec![part]);
    assert_eq!(lines(folder.path(), "*.txt"), ["line"]);
}

#[test]
fn csv_begins_each_part_with_a_header_and_quotes_what_needs_it() {
    let folder = TempDir::new().unwrap();
    let sink = PartFiles::at(folder.path()).csv::<Row>();
    let mut committer = recovered(&sink, 1, Vec::new());
    let mut writer = sink.writer(&context(1, 0)).unwrap();
    let awkward = ["plain", "", "a,b", "say \"hi\"", "two\nlines", "cr\r\nlf", " spaced ", "ä;\t"];
    let rows: Vec<Row> = awkward
        .iter()
        .map(|name| Row { name: name.to_string(), count: u64::MAX, share: Some(-0.25) })
        .chain([Row { name: "none".into(), count: 0, share: None }])
        .collect();
    for epoch in 1..3 {
        writer.write(&mut rows.clone(), Epoch(epoch)).unwrap();
        committer.commit(&[prepare(&mut writer, epoch)]).unwrap();
    }
    for part in seen(folder.path(), "*.csv").values() {
        assert!(part.starts_with("name,count,share\nplain,18446744073709551615,-0.25\n"));
        assert_eq!(parse_csv(part), rows);
    }
    assert_eq!(seen(folder.path(), "*.csv").len(), 2);
}

/// Rows by an independent parser.
fn parse_csv(text: &str) -> Vec<Row> {
    let mut reader = csv_core::Reader::new();
    let (mut input, mut row, mut rows) = (text.as_bytes(), Vec::new(), Vec::new());
    let mut buffer = [0; 1024];
    loop {
        let (result, read, written) = reader.read_field(input, &mut buffer);
        input = &input[read..];
        match result {
            csv_core::ReadFieldResult::Field { record_end } => {
                row.push(String::from_utf8(buffer[..written].to_vec()).unwrap());
                if record_end {
                    rows.push(std::mem::take(&mut row));
                }
            }
            csv_core::ReadFieldResult::End => break,
            other => assert_eq!(other, csv_core::ReadFieldResult::InputEmpty),
        }
    }
    assert_eq!(rows.remove(0), ["name", "count", "share"]);
    let parse = |row: Vec<String>| Row {
        name: row[0].clone(),
        count: row[1].parse().unwrap(),
        share: (!row[2].is_empty()).then(|| row[2].parse().unwrap()),
    };
    rows.into_iter().map(parse).collect()
}

#[test]
fn a_record_that_csv_cannot_hold_is_refused_with_its_type() {
    #[derive(Clone, Serialize)]
    struct Nested {
        inner: Row,
    }
    let folder = TempDir::new().unwrap();
    let sink = PartFiles::at(folder.path()).csv::<Nested>();
    recovered(&sink, 1, Vec::new());
    let mut writer = sink.writer(&context(1, 0)).unwrap();
    let error = writer.write(&mut vec![Nested { inner: row(1) }], Epoch(1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.report().contains("Nested"), "{error:?}");
    assert!(error.report().contains("a struct does not fit in one field"), "{error:?}");

    let sink = PartFiles::at(folder.path()).csv::<(u64, u64)>();
    let mut writer = sink.writer(&context(1, 0)).unwrap();
    let error = writer.write(&mut vec![(1, 2)], Epoch(1)).unwrap_err();
    assert!(error.report().contains("a tuple does not fit as a record"), "{error:?}");
}
