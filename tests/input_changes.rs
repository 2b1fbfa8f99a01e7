//! Files that change while a job reads them, other than by growing: each way has its outcome, and
//! never is anything published but what stood in the file when the job began.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

#[path = "support/lab.rs"]
mod lab;

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use isochrone::prelude::*;
use isochrone::{ErrorKind, Outcome};
use lab::{lines_in_order, pause, quiet};
use tempfile::TempDir;

/// Several times what is read ahead.
const LINES: u64 = 150_000;

fn lines(range: std::ops::Range<u64>) -> String {
    range.map(|n| format!("line {n:09}\n")).collect()
}

struct Log(TempDir);

impl Log {
    fn new() -> Log {
        let log = Log(TempDir::new().unwrap());
        fs::write(log.path(), lines(0..LINES)).unwrap();
        log
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("input.txt")
    }

    fn out(&self) -> PathBuf {
        self.0.path().join("out")
    }

    /// Runs the job, and does something to its input when a part of it was read and is visible.
    fn run(&self, follow: bool, meanwhile: impl FnOnce(&Path)) -> Result<Summary> {
        let args = RunArgs { checkpoint_every: Some(Duration::from_millis(20)), ..quiet(1) };
        let job = Job::new("log").checkpoint(Checkpoint::dir(self.0.path().join("store")));
        let (path, out) = (self.path(), self.out());
        let seen = Arc::new(AtomicU64::new(0));
        let (count, changed) = (seen.clone(), Arc::new(AtomicBool::new(false)));
        let go_on = changed.clone();
        let running = std::thread::spawn(move || {
            job.run(args, move |flow| {
                let (count, go_on) = (count.clone(), go_on.clone());
                flow.source("log", Files::at(&path).follow(follow).text())
                    .inspect(move |_| {
                        // Slow enough to be in the middle until the file was changed, and slower the
                        // longer that takes: a checkpoint has to come through in the meantime.
                        let seen = count.fetch_add(1, Ordering::SeqCst);
                        let few = if seen < LINES / 8 { 20 } else { 1 };
                        if seen.is_multiple_of(few) && !go_on.load(Ordering::SeqCst) {
                            pause();
                        }
                    })
                    .sink("lines", PartFiles::at(&out).text());
                Ok(())
            })
        });
        let is_begun =
            || seen.load(Ordering::SeqCst) > 1_000 && !lines_in_order(&self.out()).is_empty();
        let begun = (0..60_000).any(|_| {
            pause();
            is_begun()
        });
        assert!(begun, "the job never begins");
        assert!(seen.load(Ordering::SeqCst) < LINES / 2, "the job is at its end too early");
        meanwhile(&self.path());
        changed.store(true, Ordering::SeqCst);
        running.join().unwrap()
    }

    /// The job stops and says why; what is visible is the beginning of what there was.
    fn stops(follow: bool, meanwhile: impl FnOnce(&Path), parts: &[&str]) {
        let log = Log::new();
        let error = log.run(follow, meanwhile).expect_err("the input is not what it was");
        let text = error.report();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{text}");
        for part in parts {
            assert!(text.contains(part), "`{part}` is not in: {text}");
        }
        log.shows_a_beginning();
    }

    fn shows_a_beginning(&self) -> u64 {
        let shown = lines_in_order(&self.out());
        let expected = lines(0..shown.len() as u64);
        assert!(shown.iter().map(String::as_str).eq(expected.lines()), "{} lines", shown.len());
        shown.len() as u64
    }
}

#[test]
fn a_file_that_shrinks_while_a_job_reads_it_stops_the_job() {
    let shrink = |path: &Path| {
        OpenOptions::new().write(true).open(path).unwrap().set_len(1_500_000).unwrap();
    };
    for follow in [false, true] {
        Log::stops(follow, shrink, &["input.txt` was 2250000 bytes long and is 1500000 now"]);
    }
}

#[test]
fn a_file_that_is_overwritten_in_place_while_a_job_reads_it_stops_the_job() {
    for longer in ["", "and more\n"] {
        let overwrite = |path: &Path| {
            let other = lines(0..LINES).replace("line", "LINE") + longer;
            // Not cut first: at no time is it shorter.
            let mut file = OpenOptions::new().write(true).open(path).unwrap();
            file.write_all(other.as_bytes()).unwrap();
        };
        for follow in [false, true] {
            Log::stops(follow, overwrite, &["input.txt` is not the file", "overwritten"]);
        }
    }
}

#[test]
fn a_file_that_is_replaced_while_a_job_reads_it_is_read_to_its_end_and_stops_the_job() {
    let replace = |path: &Path| {
        let new = path.with_extension("new");
        fs::write(&new, lines(0..LINES).replace("line", "LINE")).unwrap();
        fs::rename(new, path).unwrap();
    };
    for follow in [false, true] {
        Log::stops(follow, replace, &["input.txt` is not the file", "replaced by another"]);
    }
}

#[test]
fn a_file_that_is_deleted_while_a_job_reads_it_is_read_to_its_end() {
    let log = Log::new();
    let summary = log.run(false, |path| fs::remove_file(path).unwrap()).unwrap();
    assert_eq!((summary.outcome, summary.read), (Outcome::InputEnded, LINES));
    assert_eq!(log.shows_a_beginning(), LINES);
}

#[test]
fn a_file_that_grows_while_a_job_reads_it_is_read_to_its_new_end() {
    let log = Log::new();
    let grow = |path: &Path| {
        let mut file = OpenOptions::new().append(true).open(path).unwrap();
        file.write_all(lines(LINES..LINES + 7).as_bytes()).unwrap();
    };
    let summary = log.run(false, grow).unwrap();
    assert_eq!((summary.outcome, summary.read), (Outcome::InputEnded, LINES + 7));
    assert_eq!(log.shows_a_beginning(), LINES + 7);
}
