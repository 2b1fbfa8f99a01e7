//! Memory is bounded: by what is in flight, and by what is remembered per key. Measured from
//! outside, as resident memory of real processes.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod support;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use isochrone::connectors::Callback;
use isochrone::connectors::generator::{Generator, mix};
use isochrone::prelude::*;
use isochrone::time::SystemClock;
use support::child::{Job, play};
use support::wait;
use tempfile::TempDir;

const RECORDS: u64 = 1_000_000;
const STALLED_BYTES_MAX: u64 = 64 << 20;
const KEYS: u64 = 1_000_000;
const KEY_BYTES_MAX: u64 = 100;
const CHECKPOINT_BYTES_MAX: u64 = 40_000_000;

/// Resident memory of a process, now or at its highest.
fn resident(id: u32, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    let kilobytes = line.split_whitespace().nth(1).unwrap();
    kilobytes.parse::<u64>().unwrap() << 10
}

/// Waits until the memory of a job stays as it is for a second, and says how much it is.
fn quiet(job: &Job) -> u64 {
    let mut seen = (0, 0);
    let settled = wait::until(wait::SOON, || {
        wait::pause(Duration::from_millis(50));
        let now = resident(job.id(), "VmRSS:");
        let same = now.abs_diff(seen.0) < 256 << 10;
        seen = if same { (seen.0, seen.1 + 1) } else { (now, 0) };
        (seen.1 >= 20).then_some(now)
    });
    settled.expect("a job that does nothing comes to rest")
}

fn start(test: &str, folder: &Path, how: &[&str]) -> Job {
    let mut flags = vec![folder.to_str().unwrap().to_owned()];
    flags.extend(how.iter().map(|flag| (*flag).to_owned()));
    Job::start(test, &flags, &folder.join("errors"))
}

/// Starts a job, waits for its mark and then for rest; says its memory at rest and at its highest.
fn measure(test: &str, how: &[&str]) -> (u64, u64) {
    let folder = TempDir::new().unwrap();
    let mut job = start(test, folder.path(), how);
    let mark = folder.path().join("mark");
    assert!(wait::soon(|| mark.exists() || job.ended().is_some()), "{}", job.errors());
    assert!(job.ended().is_none(), "{}", job.errors());
    (quiet(&job), resident(job.id(), "VmHWM:"))
}

// A sink that stands still.

const STALLED: &str = "a_sink_that_stands_still_holds_the_source_back";

#[test]
fn a_sink_that_stands_still_holds_the_source_back() {
    play(|flags| {
        let flag = |at: usize| flags[at].to_str().unwrap();
        stalled_job(Path::new(flag(1)), flag(2).parse().unwrap(), flag(3), flag(4))
    });
    for workers in ["1", "2"] {
        for shape in ["plain", "keyed"] {
            let (idle, _) = measure(STALLED, &[workers, shape, "idle"]);
            let (_, highest) = measure(STALLED, &[workers, shape, "stalled"]);
            let above = highest.saturating_sub(idle);
            println!("{workers} workers, {shape}: {above} bytes above {idle}");
            assert!(above < STALLED_BYTES_MAX, "{workers} workers, {shape}: {above} bytes");
        }
    }
}

/// A record of about a hundred bytes.
fn record(number: u64) -> (u64, String) {
    (number, format!("{:>80}", mix(number)))
}

/// The idle job reads a record a second. Marks when the sink has got its first record.
fn stalled_job(folder: &Path, workers: u32, shape: &str, load: &str) -> Result<()> {
    let (keyed, stalled) = (shape == "keyed", load == "stalled");
    let mark = folder.join("mark");
    let args = RunArgs { workers, quiet: true, ..RunArgs::default() };
    let checkpoint = Checkpoint::dir(folder.join("state")).not_by_time();
    let job = isochrone::Job::new("stalled").checkpoint(checkpoint);
    let end = job.run(args, move |flow| {
        let clock = Arc::new(SystemClock::default());
        let records = Generator::counting(RECORDS, record).splits(2);
        let records = if stalled { records } else { records.per_second(2, clock) };
        let mut stream = flow.source("records", records);
        if keyed {
            stream = stream.key_by(|(number, _)| number % 1_000).state::<u64>("count").map(
                |count, record| {
                    *count += 1;
                    record
                },
            );
        }
        let mark = mark.clone();
        let sink = Callback::new(move |_: &(u64, String)| fs::write(&mark, "").unwrap());
        stream.sink("out", sink.ready(move || !stalled));
        Ok(())
    });
    end.map(drop)
}

// Keys.

const KEYED: &str = "a_million_keys_take_little_memory_and_a_small_checkpoint";

#[test]
fn a_million_keys_take_little_memory_and_a_small_checkpoint() {
    play(|flags| {
        let flag = |at: usize| flags[at].to_str().unwrap();
        keyed_job(Path::new(flag(1)), flag(2).parse().unwrap(), flag(3).parse().unwrap())
    });
    for workers in ["1", "2"] {
        let (empty, _) = measure(KEYED, &[workers, "0"]);
        let folder = TempDir::new().unwrap();
        let mut job = start(KEYED, folder.path(), &[workers, &KEYS.to_string()]);
        let mark = folder.path().join("mark");
        assert!(wait::soon(|| mark.exists() || job.ended().is_some()), "{}", job.errors());
        let full = quiet(&job);
        let each = full.saturating_sub(empty) / KEYS;
        let checkpoint = bytes_of(&folder.path().join("state/keys/d"));
        println!("{workers} workers: {each} bytes a key, checkpoint of {checkpoint} bytes");
        assert!(each < KEY_BYTES_MAX, "{workers} workers: {each} bytes a key");
        assert!(checkpoint > KEYS && checkpoint < CHECKPOINT_BYTES_MAX, "{checkpoint} bytes");
    }
}

fn bytes_of(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let bytes = |entry: fs::DirEntry| match entry.metadata().unwrap() {
        data if data.is_dir() => bytes_of(&entry.path()),
        data => data.len(),
    };
    entries.map(bytes).sum()
}

/// Takes in all keys, takes one checkpoint, marks, and goes on doing nothing.
fn keyed_job(folder: &Path, workers: u32, keys: u64) -> Result<()> {
    let counted = Arc::new(AtomicU64::new(0));
    let checkpoint = Checkpoint::dir(folder.join("state")).not_by_time();
    let job = isochrone::Job::new("keys").checkpoint(checkpoint);
    let (handle, seen, mark) = (job.handle(), counted.clone(), folder.join("mark"));
    thread::spawn(move || {
        assert!(wait::soon(|| seen.load(Ordering::SeqCst) == keys));
        handle.checkpoint(None).unwrap();
        fs::write(mark, "").unwrap();
    });
    let args = RunArgs { workers, quiet: true, ..RunArgs::default() };
    let end = job.run(args, move |flow| {
        let clock = Arc::new(SystemClock::default());
        // Keeps the job going.
        let ticks = Generator::counting(u64::MAX, |number| number).per_second(1, clock);
        flow.source("ticks", ticks).sink("ticked", Callback::new(|_: &u64| ()));
        let counted = counted.clone();
        flow.source("keys", Generator::counting(keys, mix).splits(2))
            .key_by(|key| *key)
            .state::<(u64, i64)>("totals")
            .map(|total, key| {
                *total = (total.0 + 1, (key >> 8) as i64);
                key
            })
            .sink(
                "out",
                Callback::new(move |_: &u64| {
                    counted.fetch_add(1, Ordering::SeqCst);
                }),
            );
        Ok(())
    });
    end.map(drop)
}
