//! One file of quoted CSV, line breaks in quotes, cut into many byte ranges: all workers read it, and
//! a run that failed in the middle or was stopped there is gone on with by any other number of them.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

#[path = "support/lab.rs"]
mod lab;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::Duration;

use isochrone::prelude::*;
use isochrone::{ErrorKind, Outcome};
use lab::{files, folder, lines_in_order, pause, quiet};
use tempfile::TempDir;

const ROWS: u64 = 80_000;
/// Some hundred ranges.
const SPLIT_BYTES: u64 = 16 * 1024;

#[derive(Clone, Serialize, Deserialize)]
struct Row {
    number: u64,
    text: String,
}

/// How often a number was seen.
#[derive(Default, PartialEq, Serialize, Deserialize)]
struct Times(u64);

impl State for Times {
    const VERSION: u16 = 1;
}

/// Text with what makes quoting necessary.
fn text(number: u64) -> String {
    match number % 4 {
        0 => format!("two\nlines of {number}"),
        1 => format!("a \"quote, and\r\n,{number}\"\n"),
        2 => format!("{number},{number}"),
        _ => format!("plain {number}"),
    }
}

/// One line of output.
fn line(number: u64, text: &str, times: u64) -> String {
    format!("{number:06} {times} {text:?}")
}

/// How a run ends.
#[derive(Clone, Copy, PartialEq)]
enum End {
    Failed,
    Stopped,
    OfInput,
}

struct Place(TempDir);

impl Place {
    fn new() -> Place {
        let place = Place(folder());
        let mut csv = "number,text\n".to_owned();
        for number in 0..ROWS {
            writeln!(csv, "{number},\"{}\"", text(number).replace('"', "\"\"")).unwrap();
        }
        fs::write(place.at("rows.csv"), csv).unwrap();
        place
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs until about so many rows were read, or to the end of input.
    fn run(&self, workers: u32, end: End, rows: u64) -> Result<Summary> {
        let args = RunArgs { checkpoint_every: Some(Duration::from_millis(20)), ..quiet(workers) };
        let job = Job::new("ranges").checkpoint(Checkpoint::dir(self.at("store")));
        let (input, out, handle) = (self.at("rows.csv"), self.at("out"), job.handle());
        let before = visible(&out);
        let seen = Arc::new(AtomicU64::new(0));
        let readers = Arc::new(Mutex::new(BTreeSet::new()));
        let known = readers.clone();
        let outcome = job.run(args, move |flow| {
            let (seen, readers, handle) = (seen.clone(), known.clone(), handle.clone());
            let is_asked = Arc::new(AtomicBool::new(false));
            let (input, out, shown) = (&input, &out, out.clone());
            flow.source("rows", Files::at(input).split_bytes(SPLIT_BYTES).csv::<Row>())
                .try_map(move |row| {
                    readers.lock().unwrap().insert(id_text(std::thread::current().id()));
                    let count = seen.fetch_add(1, Ordering::SeqCst);
                    if end == End::OfInput || count < rows {
                        return Ok(row);
                    }
                    // Slow, so that something of this run is visible in the middle; slower once it
                    // is to stop, so that it does not come to the end before.
                    let is_asked_before = is_asked.load(Ordering::SeqCst);
                    if !count.is_multiple_of(if is_asked_before { 2 } else { 10 }) {
                        return Ok(row);
                    }
                    pause();
                    if is_asked_before {
                        return Ok(row);
                    }
                    if visible(&shown) > before {
                        match end {
                            End::Failed => return Err(Error::user("failed for once")),
                            _ => handle.stop(),
                        }
                        is_asked.store(true, Ordering::SeqCst);
                    }
                    Ok(row)
                })
                .key_by(|row: &Row| row.number)
                .state::<Times>("times")
                .map(|times, row| {
                    times.0 += 1;
                    line(row.number, &row.text, times.0)
                })
                .sink("lines", PartFiles::at(out).text());
            Ok(())
        });
        let readers = readers.lock().unwrap().len();
        // Few ranges may be left to the last one.
        let least = if end == End::OfInput { 2 } else { workers as usize };
        assert!(readers >= least, "{readers} of {workers} workers have read");
        outcome
    }
}

/// How many parts are visible.
fn visible(out: &Path) -> usize {
    let is_part =
        |path: &PathBuf| path.file_name().unwrap().as_encoded_bytes().starts_with(b"part-");
    files(out).iter().filter(|path| is_part(path)).count()
}

fn id_text(id: ThreadId) -> String {
    format!("{id:?}")
}

#[test]
fn ranges_of_one_file_are_read_by_all_workers_once_across_a_failure_and_a_stop() {
    let place = Place::new();
    let error = place.run(3, End::Failed, ROWS / 4).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::User, "{}", error.report());
    let after_failure = lines_in_order(&place.at("out")).len() as u64;
    assert!((1..ROWS / 2).contains(&after_failure), "{after_failure}");

    let summary = place.run(2, End::Stopped, ROWS / 4).unwrap();
    assert_eq!(summary.outcome, Outcome::Stopped);
    let after_stop = lines_in_order(&place.at("out")).len() as u64;
    assert!((after_failure + 1..ROWS).contains(&after_stop), "{after_stop}");

    let summary = place.run(4, End::OfInput, 0).unwrap();
    assert_eq!(summary.outcome, Outcome::InputEnded);
    assert_eq!(summary.read, ROWS - after_stop, "what was visible is not read again");
    let mut lines = lines_in_order(&place.at("out"));
    lines.sort();
    let expected: Vec<String> = (0..ROWS).map(|number| line(number, &text(number), 1)).collect();
    assert!(lines == expected, "{} lines, not {ROWS} once each", lines.len());
}
