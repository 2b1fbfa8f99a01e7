//! Bad input and bad output folders through a whole job: each has its defined outcome, and what is
//! skipped or set apart is counted and published exactly once, also across a restart.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

#[path = "support/lab.rs"]
mod lab;

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use isochrone::connector::OnMalformed;
use isochrone::ids::JobName;
use isochrone::persistence::lineage::read_newest;
use isochrone::persistence::manifest::Part;
use isochrone::persistence::store::local::LocalStore;
use isochrone::prelude::*;
use isochrone::{Error, ErrorKind, Outcome};
use lab::{folder, lines_in_order, pause, quiet};
use tempfile::TempDir;

#[derive(Clone, Serialize, Deserialize)]
struct Purchase {
    event_id: String,
    account: String,
    cents: i64,
}

#[derive(Default, PartialEq, Serialize, Deserialize)]
struct Spent(i64);

impl State for Spent {
    const VERSION: u16 = 1;
}

/// Account-risk in small: purchases of a folder, dropped when seen before, summed by account.
struct Desk {
    folder: TempDir,
    /// While set, purchases of account `x` fail the job.
    broken: Arc<AtomicBool>,
    seen: Arc<AtomicU64>,
}

const HEADER: &str = "event_id,account,cents\n";

impl Desk {
    fn new() -> Desk {
        let folder = folder();
        fs::create_dir(folder.path().join("in")).unwrap();
        Desk { folder, broken: Arc::default(), seen: Arc::default() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn put(&self, name: &str, lines: &str) {
        fs::write(self.path("in").join(name), format!("{HEADER}{lines}")).unwrap();
    }

    fn job(&self) -> Job {
        Job::new("desk").checkpoint(Checkpoint::dir(self.path("store")).not_by_time())
    }

    fn files(&self) -> Files {
        Files::at(self.path("in"))
    }

    /// Fails or skips what is malformed.
    fn run(&self, policy: OnMalformed) -> Result<Summary> {
        let (files, out) = (self.files(), self.path("out"));
        self.job().run(quiet(1), move |flow| {
            let purchases = files.clone().csv::<Purchase>().on_malformed(policy);
            sums(flow.source("purchases", purchases)).sink("sums", PartFiles::at(&out).text());
            Ok(())
        })
    }

    /// Puts what is malformed into a folder of its own.
    fn run_with_dead_letters(&self) -> Result<Summary> {
        let (files, broken) = (self.files(), self.broken.clone());
        let (out, dead) = (self.path("out"), self.path("dead"));
        self.job().run(quiet(1), move |flow| {
            let source = files.clone().csv::<Purchase>();
            let (good, bad) = flow.source_with_dead_letters("purchases", source);
            let broken = broken.clone();
            let good = good.try_map(move |purchase| {
                match purchase.account == "x" && broken.load(Ordering::SeqCst) {
                    true => Err(Error::user("broken for once")),
                    false => Ok(purchase),
                }
            });
            sums(good).sink("sums", PartFiles::at(&out).text());
            let raw = |bad: isochrone::connector::Malformed| {
                String::from_utf8_lossy(&bad.raw).into_owned()
            };
            bad.map(raw).sink("dead", PartFiles::at(&dead).text());
            Ok(())
        })
    }

    /// Follows the folder until so many purchases were read.
    fn follow(&self, target: u64, meanwhile: impl FnOnce(&dyn Fn(u64))) -> Result<Summary> {
        self.seen.store(0, Ordering::SeqCst);
        let job = self.job();
        let (handle, seen) = (job.handle(), self.seen.clone());
        let (files, out, count) = (self.files(), self.path("out"), self.seen.clone());
        let running = std::thread::spawn(move || {
            job.run(quiet(1), move |flow| {
                let purchases = files.clone().follow(true).csv::<Purchase>();
                let count = count.clone();
                let counted = flow.source("purchases", purchases).inspect(move |_| {
                    count.fetch_add(1, Ordering::SeqCst);
                });
                sums(counted).sink("sums", PartFiles::at(&out).text());
                Ok(())
            })
        });
        let wait = |target: u64| {
            let tries = (0..200_000).find(|_| {
                pause();
                seen.load(Ordering::SeqCst) >= target
            });
            assert!(tries.is_some(), "{target} purchases never came");
        };
        meanwhile(&wait);
        wait(target);
        handle.stop();
        running.join().unwrap()
    }

    fn lines(&self, folder: &str) -> Vec<String> {
        let mut lines = lines_in_order(&self.path(folder));
        lines.sort();
        lines
    }

    fn skipped_in_all(&self) -> u64 {
        let store = LocalStore::open(self.path("store")).unwrap();
        let newest = read_newest(&store, &JobName::new("desk").unwrap()).unwrap().top.unwrap();
        let operators = newest.manifest.unwrap().operators.into_iter();
        let skipped = operators.filter_map(|operator| match operator.part {
            Part::Source { skipped, .. } => Some(skipped),
            _ => None,
        });
        skipped.sum()
    }
}

fn sums<'s>(purchases: Stream<'s, Purchase>) -> Stream<'s, String> {
    purchases
        .key_by(|purchase| purchase.event_id.clone())
        .dedup("seen", std::time::Duration::MAX)
        .key_by(|purchase| purchase.account.clone())
        .state::<Spent>("spent")
        .map(|spent, purchase| {
            spent.0 += purchase.cents;
            format!("{} {} {}", purchase.event_id, purchase.account, spent.0)
        })
}

fn assert_says(error: &Error, kind: ErrorKind, parts: &[&str]) {
    let text = error.report();
    assert_eq!(error.kind(), kind, "{text}");
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}

#[test]
fn malformed_input_stops_the_job_naming_file_line_and_place_and_a_mended_file_goes_on() {
    let desk = Desk::new();
    desk.put("a.csv", "1,a,10\n2,a,ten\n3,a,30\n");
    let error = desk.run(OnMalformed::Fail).unwrap_err();
    assert_says(&error, ErrorKind::Invalid, &["a.csv", "line 3", "byte 30", "cents"]);
    assert!(desk.lines("out").is_empty(), "no partial output");
    desk.put("a.csv", "1,a,10\n2,a,20\n3,a,30\n");
    desk.run(OnMalformed::Fail).unwrap();
    assert_eq!(desk.lines("out"), ["1 a 10", "2 a 30", "3 a 60"]);
}

#[test]
fn skipped_input_is_counted_also_across_a_restart() {
    let desk = Desk::new();
    desk.put("a.csv", "1,a,10\nbad\n2,a,ten\n3,a,30\n");
    assert_eq!(desk.run(OnMalformed::Skip).unwrap().skipped, 2);
    assert_eq!(desk.skipped_in_all(), 2);
    desk.put("b.csv", "4,a,1\n,,\n");
    let summary = desk.run(OnMalformed::Skip).unwrap();
    assert_eq!((summary.read, summary.skipped, desk.skipped_in_all()), (1, 1, 3));
    assert!(summary.to_string().contains("1 malformed piece skipped"), "{summary}");
    assert_eq!(desk.run(OnMalformed::Skip).unwrap().outcome, Outcome::NothingToDo);
    assert_eq!(desk.lines("out"), ["1 a 10", "3 a 40", "4 a 41"]);
}

#[test]
fn dead_letters_are_published_once_also_when_the_job_fails_and_starts_again() {
    let desk = Desk::new();
    desk.put("a.csv", "1,a,10\nbad a\n2,a,20\n");
    desk.run_with_dead_letters().unwrap();
    assert_eq!(desk.lines("dead"), ["bad a"]);

    desk.put("b.csv", "3,a,30\nbad b\n4,x,40\n5,a,ten\n");
    desk.broken.store(true, Ordering::SeqCst);
    for _ in 0..2 {
        let error = desk.run_with_dead_letters().unwrap_err();
        assert_says(&error, ErrorKind::User, &["broken for once"]);
    }
    assert_eq!(desk.lines("dead"), ["bad a"]);
    desk.broken.store(false, Ordering::SeqCst);
    desk.run_with_dead_letters().unwrap();
    assert_eq!(desk.lines("dead"), ["5,a,ten", "bad a", "bad b"]);
    assert_eq!(desk.lines("out"), ["1 a 10", "2 a 30", "3 a 60", "4 x 40"]);
    assert_eq!(desk.run_with_dead_letters().unwrap().outcome, Outcome::NothingToDo);
}

#[test]
fn wholly_empty_input_is_done_at_once_and_what_comes_later_is_read() {
    for content in ["", "\n\n", "\u{feff}", HEADER, &HEADER[..HEADER.len() - 1]] {
        let desk = Desk::new();
        fs::write(desk.path("in").join("a.csv"), content).unwrap();
        let summary = desk.run(OnMalformed::Fail).unwrap();
        assert_eq!((summary.outcome, summary.read), (Outcome::InputEnded, 0), "{content:?}");
        assert!(desk.lines("out").is_empty());
        assert_eq!(desk.run(OnMalformed::Fail).unwrap().outcome, Outcome::NothingToDo);
        desk.put("b.csv", "1,a,10\n");
        desk.run(OnMalformed::Fail).unwrap();
        assert_eq!(desk.lines("out"), ["1 a 10"], "{content:?}");
    }
}

#[test]
fn a_folder_without_any_file_is_done_at_once() {
    let desk = Desk::new();
    let summary = desk.run(OnMalformed::Fail).unwrap();
    assert_eq!((summary.outcome, summary.read), (Outcome::InputEnded, 0));
    assert!(desk.lines("out").is_empty());
}

#[test]
fn a_line_of_100_mib_is_one_malformed_piece() {
    let desk = Desk::new();
    let mut text = b"1,a,10\n2,a,".to_vec();
    text.resize(text.len() + 100 * 1024 * 1024, b'7');
    text.extend_from_slice(b"\n3,a,30\n");
    fs::write(desk.path("in").join("a.csv"), [HEADER.as_bytes(), &text].concat()).unwrap();
    let error = desk.run(OnMalformed::Fail).unwrap_err();
    assert_says(&error, ErrorKind::Invalid, &["a.csv", "line 3", "1048576 bytes"]);
    let summary = desk.run(OnMalformed::Skip).unwrap();
    assert_eq!((summary.read, summary.skipped), (2, 1));
    assert_eq!(desk.lines("out"), ["1 a 10", "3 a 40"]);
}

#[test]
fn a_followed_folder_gives_lines_that_are_added_and_files_that_appear() {
    let desk = Desk::new();
    desk.put("a.csv", "1,a,10\n");
    let add = |text: &str| {
        let path = desk.path("in").join("a.csv");
        let mut file = OpenOptions::new().append(true).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    };
    let summary = desk.follow(4, |wait| {
        wait(1);
        // Half a line is not a line.
        add("2,a,2");
        desk.put("b.csv", "3,b,30\n");
        wait(2);
        add("0\n4,a,40\n");
    });
    assert_eq!(summary.unwrap().outcome, Outcome::Stopped);
    assert_eq!(desk.lines("out"), ["1 a 10", "2 a 30", "3 b 30", "4 a 70"]);
    // What came while it was stopped is read at the next start, beside known events.
    add("5,a,50\n1,a,10\n");
    desk.put("c.csv", "6,c,60\n");
    desk.follow(3, |_| {}).unwrap();
    let lines = ["1 a 10", "2 a 30", "3 b 30", "4 a 70", "5 a 120", "6 c 60"];
    assert_eq!(desk.lines("out"), lines);
}

#[test]
fn an_output_folder_that_cannot_be_written_stops_the_job_before_it_reads() {
    let desk = Desk::new();
    desk.put("a.csv", "1,a,10\n");
    fs::write(desk.path("out"), "a file").unwrap();
    let error = desk.run(OnMalformed::Fail).unwrap_err();
    let out = desk.path("out");
    assert_says(&error, ErrorKind::Invalid, &[out.to_str().unwrap(), "choose another folder"]);
    fs::remove_file(out).unwrap();
    desk.run(OnMalformed::Fail).unwrap();
    assert_eq!(desk.lines("out"), ["1 a 10"]);
}

#[test]
fn foreign_files_stay_untouched_but_foreign_parts_are_refused() {
    let desk = Desk::new();
    desk.put("a.csv", "1,a,10\n");
    fs::create_dir(desk.path("out")).unwrap();
    let foreign = |name: &str| fs::write(desk.path("out").join(name), name).unwrap();
    foreign("notes.md");
    foreign("part-0000000000-0000.txt");
    let error = desk.run(OnMalformed::Fail).unwrap_err();
    assert_says(&error, ErrorKind::Invalid, &["part-0000000000-0000.txt", "does not explain"]);
    fs::remove_file(desk.path("out").join("part-0000000000-0000.txt")).unwrap();
    desk.run(OnMalformed::Fail).unwrap();
    assert_eq!(fs::read_to_string(desk.path("out").join("notes.md")).unwrap(), "notes.md");
}

#[test]
fn two_sinks_or_two_jobs_in_one_folder_are_refused_at_the_start() {
    let desk = Desk::new();
    desk.put("a.csv", "1,a,10\n");
    let run = |job: Job, ids: &'static [&'static str], out: &Path| {
        let (files, out) = (desk.files(), out.to_owned());
        job.run(quiet(1), move |flow| {
            let purchases = flow.source("purchases", files.clone().csv::<Purchase>());
            for id in ids {
                let ids = purchases.map(|purchase| purchase.event_id);
                ids.sink(*id, PartFiles::at(&out).text());
            }
            Ok(())
        })
    };
    let out = desk.path("out");
    let error = run(desk.job(), &["one", "two"], &out).unwrap_err();
    assert_says(&error, ErrorKind::Invalid, &["belongs to sink `one` of job `desk`", "its own"]);
    run(desk.job(), &["one"], &out).unwrap();
    let other = Job::new("other").checkpoint(Checkpoint::dir(desk.path("store")));
    let error = run(other, &["one"], &out).unwrap_err();
    assert_says(&error, ErrorKind::Invalid, &["belongs to sink `one` of job `desk`"]);
    assert_eq!(desk.lines("out"), ["1"]);
}
