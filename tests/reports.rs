//! What a run says of itself: what it restored, with and without keyed state, and each checkpoint.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod support;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use isochrone::Outcome;
use isochrone::connectors::Callback;
use isochrone::prelude::*;
use support::child::{Job as Child, assert_ends_well, play};
use tempfile::TempDir;

/// Runs a test of this binary as a job twice, each time with one more file to read; answers with what
/// the second run wrote to standard error.
fn second_run_of(test: &str, processes: u32) -> String {
    let folder = TempDir::new().unwrap();
    let input = folder.path().join("input");
    std::fs::create_dir(&input).unwrap();
    let mut errors = String::new();
    for file in 0..2 {
        let lines: String = (0..20_000).map(|number| format!("{}\n", number % 100)).collect();
        std::fs::write(input.join(format!("{file}.txt")), lines).unwrap();
        let flags = [folder.path().to_str().unwrap().to_owned(), processes.to_string()];
        let mut job = Child::start(test, &flags, &folder.path().join("errors"));
        assert_ends_well(&mut job);
        errors = job.errors();
    }
    errors
}

/// The job, its input, and how it is run.
fn settings(flags: &[OsString]) -> (Job, PathBuf, RunArgs) {
    let folder = Path::new(&flags[1]);
    let checkpoint = Checkpoint::dir(folder.join("store")).not_by_time().every_records(1_000);
    let job = Job::new("told").checkpoint(checkpoint);
    let processes: u32 = flags[2].to_str().unwrap().parse().unwrap();
    let processes = (processes > 1).then_some(processes);
    (job, folder.join("input"), RunArgs { workers: 2, processes, ..RunArgs::default() })
}

fn times(text: &str, part: &str) -> usize {
    text.matches(part).count()
}

#[test]
fn a_job_without_keyed_state_says_once_what_it_restored() {
    play(|flags| {
        let (job, input, args) = settings(&flags);
        job.run(args, move |flow| {
            let lines = flow.source("lines", Files::at(&input).text());
            lines.sink("out", Callback::new(|_: &String| ()));
            Ok(())
        })
    });
    let errors = second_run_of("a_job_without_keyed_state_says_once_what_it_restored", 1);
    assert_eq!(times(&errors, "restored checkpoint "), 1, "{errors}");
    assert_eq!(times(&errors, "`lines` "), 1, "{errors}");
}

#[test]
fn a_job_with_keyed_state_says_once_what_it_restored_on_each_worker() {
    play(|flags| keyed(settings(&flags)));
    let test = "a_job_with_keyed_state_says_once_what_it_restored_on_each_worker";
    let errors = second_run_of(test, 1);
    assert_eq!(times(&errors, "restored checkpoint "), 1, "{errors}");
    for worker in 0..2 {
        assert_eq!(times(&errors, &format!("`counts` on worker {worker}: ")), 1, "{errors}");
    }
}

#[test]
fn each_checkpoint_is_told_with_duration_alignment_and_bytes() {
    play(|flags| {
        let log = tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false);
        log.with_max_level(tracing_subscriber::filter::LevelFilter::DEBUG).init();
        keyed(settings(&flags))
    });
    for processes in [1, 2] {
        let test = "each_checkpoint_is_told_with_duration_alignment_and_bytes";
        let errors = second_run_of(test, processes);
        let told = errors.lines().filter(|line| line.contains(" checkpoint epoch="));
        let told: Vec<&str> = told.collect();
        assert!(!told.is_empty(), "{errors}");
        for line in &told {
            for field in ["duration_ms=", "alignment_us=", "state_bytes=", "in_flight_bytes=0"] {
                assert!(line.contains(field), "{line}");
            }
        }
        // One of them at least was behind what was still on its way when it was triggered.
        let aligned = |line: &&str| !line.contains("alignment_us=0 ");
        assert!(told.iter().any(aligned), "{processes} processes: {told:?}");
    }
}

/// A slip in a flag, or meant so: all else of the job goes on as if nothing had changed.
#[test]
fn output_that_goes_elsewhere_than_before_is_told() {
    let folder = TempDir::new().unwrap();
    let input = folder.path().join("input");
    std::fs::create_dir(&input).unwrap();
    let add = |file: &str| std::fs::write(input.join(file), "x\n").unwrap();
    let run = |out: &str| {
        let job = Job::new("moves").checkpoint(Checkpoint::dir(folder.path().join("store")));
        let (input, out) = (input.clone(), folder.path().join(out));
        let args = RunArgs { quiet: true, ..RunArgs::default() };
        let summary = job.run(args, move |flow| {
            flow.source("lines", Files::at(&input).text()).sink("out", PartFiles::at(&out).text());
            Ok(())
        });
        let summary = summary.unwrap();
        (summary.outcome, summary.restore.remarks)
    };
    let place = |out: &str| format!("folder `{}`", folder.path().join(out).display());
    let (a, b) = (place("a"), place("b"));
    let moved = vec![format!("`out`: what earlier runs wrote is in {a}; this run writes to {b}")];
    add("1");
    assert_eq!(run("a"), (Outcome::InputEnded, Vec::new()));
    assert_eq!(run("a"), (Outcome::NothingToDo, Vec::new()));
    assert_eq!(run("b"), (Outcome::NothingToDo, moved.clone()));
    add("2");
    assert_eq!(run("b"), (Outcome::InputEnded, moved));
    add("3");
    assert_eq!(run("b"), (Outcome::InputEnded, Vec::new()));
}

fn keyed((job, input, args): (Job, PathBuf, RunArgs)) -> Result<Summary> {
    let summary = job.run(args, move |flow| {
        flow.source("lines", Files::at(&input).text())
            .key_by(String::clone)
            .state::<u64>("counts")
            .map(|count, _| {
                *count += 1;
                *count
            })
            .sink("out", Callback::new(|_: &u64| ()));
        Ok(())
    })?;
    let stats = &summary.checkpoints;
    // Process 0 counts for all.
    assert!(stats.published == 0 || stats.pause_us_max > 0, "{stats:?}");
    Ok(summary)
}
