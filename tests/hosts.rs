//! Processes started one by one with a file of hosts, here all on the loopback interface: they run a
//! job to its end, and one that is not of the same job and settings is refused by what differs.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod support;

use std::ffi::OsString;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use isochrone::ErrorKind;
use isochrone::connectors::generator::Generator;
use isochrone::prelude::*;
use support::child::{Job as Process, play};
use support::wait;
use tempfile::TempDir;

const TEST: &str = "hosts_run_a_job_to_its_end_and_refuse_one_of_another_job_or_settings";
const KEYS: u64 = 100;
const RECORDS: u64 = 20_000;

/// In what a process differs from the others.
const NO_DIFFERENCE: &str = "none";

/// The job that all play: numbers counted by key, each count written down.
fn counting(flags: &[OsString]) -> Result<Summary> {
    let flags: Vec<&str> = flags.iter().map(|flag| flag.to_str().unwrap()).collect();
    let [_, folder, process, difference] = flags[..] else { panic!("{flags:?}") };
    let folder = PathBuf::from(folder);
    let every = if difference == "checkpoint" { 70 } else { 50 };
    let args = RunArgs {
        workers: if difference == "workers" { 1 } else { 2 },
        process: Some(process.parse().unwrap()),
        hosts: Some(hosts_file(&folder, difference)),
        checkpoint_every: Some(Duration::from_millis(every)),
        quiet: true,
        signals: true,
        ..RunArgs::default()
    };
    let name = if difference == "job" { "other" } else { "counting" };
    let mut job = Job::new(name).checkpoint(Checkpoint::dir(folder.join("store")));
    if difference == "key groups" {
        job = job.key_groups(64);
    }
    let difference = difference.to_owned();
    job.run(args, move |flow| {
        let id = if difference == "operator" { "other" } else { "counts" };
        let numbers = flow.source("numbers", Generator::counting(RECORDS, |n| n).splits(4));
        let keyed = numbers.key_by(|n| n % KEYS);
        let lines = if difference == "state" {
            keyed.state::<u32>(id).map(|count, n| (n % KEYS, u64::from(bump(count))))
        } else {
            keyed.state::<u64>(id).map(|count, n| {
                *count += 1;
                (n % KEYS, *count)
            })
        };
        lines
            .map(|(key, count)| format!("{key} {count}"))
            .sink("lines", PartFiles::at(folder.join("out")).text());
        Ok(())
    })
}

fn bump(count: &mut u32) -> u32 {
    *count += 1;
    *count
}

fn start(folder: &Path, process: u32, difference: &str) -> Process {
    let flags = [folder.to_str().unwrap(), &process.to_string(), difference].map(str::to_owned);
    Process::start(TEST, &flags, &folder.join(format!("errors-{process}-{difference}")))
}

#[test]
fn hosts_run_a_job_to_its_end_and_refuse_one_of_another_job_or_settings() {
    play(|flags| counting(&flags));
    let folder = TempDir::new().unwrap();
    let [hub, _] = choose_hosts(folder.path());

    let mut first = start(folder.path(), 0, NO_DIFFERENCE);
    let fingerprint = "the fingerprint of job and settings differs: process 0 has ";
    let others = [
        ("checkpoint", fingerprint),
        ("key groups", fingerprint),
        ("operator", fingerprint),
        ("state", fingerprint),
        ("workers", "`--workers` differs: process 0 has 2, process 1 has 1"),
        ("job", "the job differs: process 0 has `counting`, process 1 has `other`"),
    ]
    // Together, since process 0 waits for a minute; each has an address of its own to listen at.
    .map(|(difference, says)| {
        write_hosts(folder.path(), difference, &[hub.clone(), support::free_address().to_string()]);
        (difference, says, start(folder.path(), 1, difference))
    });
    for (difference, says, mut other) in others {
        let code = other.end().code();
        let errors = other.errors();
        assert_eq!(code, Some(ErrorKind::Invalid.exit_code().into()), "{difference}: {errors}");
        assert!(errors.contains(says), "{difference}: {errors}");
        assert!(first.ended().is_none(), "{difference}: {}", first.errors());
    }
    let mut second = start(folder.path(), 1, NO_DIFFERENCE);
    let ended = wait::soon(|| first.ended().is_some() && second.ended().is_some());
    assert!(ended, "{} {}", first.errors(), second.errors());
    for process in [&mut first, &mut second] {
        assert!(process.end().success(), "{}", process.errors());
    }
    assert_eq!(lines(&folder.path().join("out")), expected());
}

/// The others may come in a minute or never, and nothing is under way.
#[test]
fn one_that_waits_for_the_others_leaves_at_once_when_it_is_asked_to() {
    for process in [0, 1] {
        let folder = TempDir::new().unwrap();
        let hosts = choose_hosts(folder.path());
        let mut waiting = start(folder.path(), process, NO_DIFFERENCE);
        let own = &hosts[process as usize];
        assert!(wait::soon(|| TcpStream::connect(own).is_ok()), "{}", waiting.errors());
        waiting.signal("TERM");
        let end = wait::until(Duration::from_secs(30), || waiting.ended());
        assert!(end.is_some_and(|end| end.success()), "{process}: {end:?} {}", waiting.errors());
        assert!(!folder.path().join("out").exists());
    }
}

fn hosts_file(folder: &Path, difference: &str) -> PathBuf {
    folder.join(format!("hosts-{difference}"))
}

fn write_hosts(folder: &Path, difference: &str, hosts: &[String; 2]) {
    std::fs::write(hosts_file(folder, difference), hosts.join("\n")).unwrap();
}

/// Writes down two addresses.
fn choose_hosts(folder: &Path) -> [String; 2] {
    let hosts = [(); 2].map(|()| support::free_address().to_string());
    write_hosts(folder, NO_DIFFERENCE, &hosts);
    hosts
}

/// Each count of each key, once.
fn expected() -> Vec<String> {
    let counts = |key: u64| (1..=RECORDS / KEYS).map(move |count| format!("{key} {count}"));
    let mut lines: Vec<String> = (0..KEYS).flat_map(counts).collect();
    lines.sort();
    lines
}

fn lines(folder: &Path) -> Vec<String> {
    let mut lines = support::example::lines_of(folder, "txt");
    lines.sort();
    lines
}
