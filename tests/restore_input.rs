//! Starting from positions in files that are no longer what they were: the job stops and says how
//! much is lost; it never goes on with other records, unless it was told that it may lose some.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

#[path = "support/lab.rs"]
mod lab;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use isochrone::connectors::OnDataLoss;
use isochrone::ids::JobName;
use isochrone::persistence::lineage::read_newest;
use isochrone::persistence::manifest::Part;
use isochrone::persistence::store::local::LocalStore;
use isochrone::prelude::*;
use isochrone::{Error, ErrorKind, Outcome};
use lab::{lines_in_order, pause, quiet};
use tempfile::TempDir;

const LINES: u64 = 100_000;

/// A log that a job follows.
struct Log {
    folder: TempDir,
}

impl Log {
    /// A long log, of which a job has read the beginning.
    fn read_partly() -> Log {
        let log = Log { folder: TempDir::new().unwrap() };
        let lines: String = (0..LINES).map(|n| format!("line {n}\n")).collect();
        fs::write(log.path(), lines).unwrap();
        let summary = log.run(1000).unwrap();
        assert_eq!(summary.outcome, Outcome::Stopped);
        assert!(summary.read >= 1000 && summary.read < LINES, "{}", summary.read);
        log
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("input.txt")
    }

    fn out(&self) -> PathBuf {
        self.folder.path().join("out")
    }

    /// Follows the log until so many lines were read, or more, but not all of a long log.
    fn run(&self, target: u64) -> Result<Summary> {
        self.run_with(OnDataLoss::Stop, target)
    }

    fn run_with(&self, on_data_loss: OnDataLoss, target: u64) -> Result<Summary> {
        let job = Job::new("log").checkpoint(Checkpoint::dir(self.folder.path().join("store")));
        let (handle, seen) = (job.handle(), Arc::new(AtomicU64::new(0)));
        let (count, over) = (seen.clone(), Arc::new(AtomicBool::new(false)));
        let (is_over, stopped) = (over.clone(), Arc::new(AtomicBool::new(false)));
        let is_stopped = stopped.clone();
        let watcher = std::thread::spawn(move || {
            while count.load(Ordering::SeqCst) < target && !is_over.load(Ordering::SeqCst) {
                pause();
            }
            handle.stop();
            stopped.store(true, Ordering::SeqCst);
        });
        let (path, out) = (self.path(), self.out());
        let end = job.run(quiet(1), move |flow| {
            let (seen, is_stopped) = (seen.clone(), is_stopped.clone());
            let files = Files::at(&path).follow(true).on_data_loss(on_data_loss);
            flow.source("log", files.text())
                .inspect(move |_| {
                    // It is stopped long before the end.
                    let seen = seen.fetch_add(1, Ordering::SeqCst);
                    while seen > target + LINES / 4 && !is_stopped.load(Ordering::SeqCst) {
                        pause();
                    }
                    if seen.is_multiple_of(100) {
                        pause();
                    }
                })
                .sink("lines", PartFiles::at(&out).text());
            Ok(())
        });
        over.store(true, Ordering::SeqCst);
        watcher.join().unwrap();
        end
    }

    fn position(&self) -> u64 {
        lines_in_order(&self.out()).iter().map(|line| line.len() as u64 + 1).sum()
    }

    fn stops(&self, parts: &[&str]) {
        let before = lines_in_order(&self.out());
        let error: Error = self.run(1).expect_err("the input is damaged");
        let text = error.report();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{text}");
        for part in parts {
            assert!(text.contains(part), "`{part}` is not in: {text}");
        }
        assert_eq!(lines_in_order(&self.out()), before, "nothing was written");
    }
}

impl Log {
    /// Goes on without what is lost and reads so many lines; they are what is written.
    fn continues(&self, lost: u64, expected: &[String]) {
        let before = lines_in_order(&self.out());
        let target = expected.len() as u64;
        let summary = self.run_with(OnDataLoss::ContinueFromEarliest, target).unwrap();
        assert_eq!(summary.read, target);
        assert_eq!(lines_in_order(&self.out())[before.len()..], *expected);
        assert_eq!(self.lost(), (lost, 1), "in the checkpoint");
        // It is in the report of the next run, and that goes on as any other.
        let summary = self.run(0).unwrap();
        let told = format!(", {lost} bytes lost before");
        let [position] = &summary.restore.positions[..] else { panic!("{summary:?}") };
        assert!(position.contains(&told), "{position}");
        assert_eq!(lines_in_order(&self.out()).len(), before.len() + expected.len());
        assert_eq!(self.lost(), (lost, 1));
    }

    /// Bytes lost and how many times, as the newest checkpoint has it.
    fn lost(&self) -> (u64, u64) {
        let store = LocalStore::open(self.folder.path().join("store")).unwrap();
        let newest = read_newest(&store, &JobName::new("log").unwrap()).unwrap().top.unwrap();
        let mut operators = newest.manifest.unwrap().operators.into_iter();
        let found = operators.find_map(|operator| match operator.part {
            Part::Source { splits, .. } => {
                let [split] = &splits[..] else { panic!("{splits:?}") };
                let number = |name: &str| split.position[name].as_u64().unwrap();
                Some((number("lost"), number("losses")))
            }
            _ => None,
        });
        found.unwrap()
    }
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len()
}

#[test]
fn a_file_that_is_gone_stops_the_job_with_what_is_lost_and_goes_on_when_it_is_back() {
    let log = Log::read_partly();
    let (content, size) = (fs::read(log.path()).unwrap(), size(&log.path()));
    fs::remove_file(log.path()).unwrap();
    let at = format!("up to byte {} of {size}", log.position());
    let lost = format!("{} bytes", size - log.position());
    log.stops(&["input.txt", "deleted", &at, &lost, "put the file back"]);

    fs::write(log.path(), content).unwrap();
    let before = log.position();
    log.run(5000).unwrap();
    assert!(log.position() > before);
    let lines = lines_in_order(&log.out());
    assert!((0..).zip(&lines).all(|(n, line)| *line == format!("line {n}")), "in order, once");
}

#[test]
fn a_file_that_was_cut_stops_the_job_with_what_is_lost() {
    let log = Log::read_partly();
    let (content, position) = (fs::read(log.path()).unwrap(), log.position() as usize);
    fs::write(log.path(), &content[..position - 10]).unwrap();
    let was = format!("was {} bytes long and is {} now", content.len(), position - 10);
    let lost = format!("{} bytes", content.len() - position);
    log.stops(&["input.txt", &was, &lost]);
    // Cut behind what was read: that is gone all the same.
    fs::write(log.path(), &content[..position + 10]).unwrap();
    let lost = format!("{} bytes", content.len() - position - 10);
    log.stops(&["input.txt", "bytes long", &lost]);
}

#[test]
fn a_file_that_was_replaced_stops_the_job_with_what_is_lost() {
    let log = Log::read_partly();
    let content = fs::read(log.path()).unwrap();
    fs::write(log.path(), content.to_ascii_uppercase()).unwrap();
    let lost = format!("{} bytes", content.len() as u64 - log.position());
    log.stops(&["input.txt", "not the file that was read", "replaced", &lost]);
}

#[test]
fn a_copy_of_the_file_is_as_good() {
    let log = Log::read_partly();
    let copy = log.folder.path().join("copy");
    fs::copy(log.path(), &copy).unwrap();
    fs::rename(copy, log.path()).unwrap();
    let before = log.position();
    log.run(1).unwrap();
    assert!(log.position() > before);
}

fn numbered(word: &str, range: std::ops::Range<u64>) -> Vec<String> {
    range.map(|n| format!("{word} {n}")).collect()
}

#[test]
fn a_source_that_may_lose_reads_what_replaces_a_file_from_its_beginning() {
    let log = Log::read_partly();
    let lost = size(&log.path()) - log.position();
    let new = numbered("new", 0..300);
    fs::write(log.path(), new.join("\n") + "\n").unwrap();
    log.stops(&["input.txt", &format!("{lost} bytes"), "ContinueFromEarliest"]);
    log.continues(lost, &new);
}

#[test]
fn a_source_that_may_lose_reads_the_rest_of_a_file_that_was_cut() {
    let log = Log::read_partly();
    let read = lines_in_order(&log.out()).len() as u64;
    let rest = numbered("line", read..read + 50);
    let keep = log.position() as usize + rest.join("\n").len() + 1;
    let content = fs::read(log.path()).unwrap();
    fs::write(log.path(), &content[..keep]).unwrap();
    log.continues((content.len() - keep) as u64, &rest);
}

#[test]
fn a_source_that_may_lose_is_done_with_a_file_that_is_gone() {
    let log = Log::read_partly();
    let lost = size(&log.path()) - log.position();
    fs::remove_file(log.path()).unwrap();
    log.continues(lost, &[]);
}
