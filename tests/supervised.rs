//! A supervised set of processes: one that hangs or is killed costs a restart of all, a request to
//! stop drains all, and none outlives its supervisor.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

#[path = "../examples/account_risk.rs"]
#[expect(dead_code, reason = "the example's own entrance is not used here")]
mod account_risk;
mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use isochrone::ErrorKind;
use isochrone::connectors::Callback;
use isochrone::connectors::generator::Generator;
use isochrone::prelude::{Checkpoint, Result, RunArgs, Summary};
use support::child::{Job, play};
use support::oracle::{Verdict, judge, parts};
use support::purchases::Log;
use support::wait;
use tempfile::TempDir;

const PROCESSES: usize = 3;
/// From a panic to the end of the last process.
const STOPPED_WITHIN: Duration = Duration::from_secs(1);

/// A job that follows its input, so that it runs until somebody ends it.
struct Set {
    folder: TempDir,
    log: Log,
    job: Job,
}

impl Set {
    fn start(test: &str) -> Set {
        Set::of(PROCESSES, test)
    }

    /// One process is not supervised.
    fn of(processes: usize, test: &str) -> Set {
        let folder = TempDir::new().unwrap();
        let log = Log::generate(11, &folder.path().join("input"), 40_000, 6);
        let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let mut flags: Vec<String> = [
            ("--input", at("input")),
            ("--output", at("output")),
            ("--store", at("store")),
            ("--processes", processes.to_string()),
            ("--workers", "2".to_owned()),
            ("--heartbeat-timeout", "1s".to_owned()),
            ("--checkpoint-every", "50ms".to_owned()),
        ]
        .into_iter()
        .flat_map(|(flag, value)| [flag.to_owned(), value])
        .collect();
        flags.push("--follow".to_owned());
        let job = Job::start(test, &flags, &folder.path().join("errors"));
        let set = Set { folder, log, job };
        assert!(wait::soon(|| !parts(&set.output()).is_empty()), "{}", set.job.errors());
        set
    }

    fn output(&self) -> PathBuf {
        self.folder.path().join("output")
    }

    fn children(&self) -> Vec<u32> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.job.id()));
        let of_task = |task: std::io::Result<std::fs::DirEntry>| {
            std::fs::read_to_string(task.ok()?.path().join("children")).ok()
        };
        let texts: Vec<String> = tasks.into_iter().flatten().filter_map(of_task).collect();
        texts
            .iter()
            .flat_map(|text| text.split_whitespace())
            .map(|id| id.parse().unwrap())
            .collect()
    }

    /// Waits until none of `before` is left and a new set has taken their place.
    fn await_restart(&self, before: &[u32]) {
        let restarted = || {
            let now = self.children();
            now.len() == PROCESSES && now.iter().all(|id| !before.contains(id))
        };
        assert!(wait::soon(restarted), "{}", self.job.errors());
    }

    fn await_all_output(&self) {
        let exact = || judge(&self.log, &self.output()) == Verdict::default();
        assert!(wait::soon(exact), "{:?} {}", judge(&self.log, &self.output()), self.job.errors());
    }

    fn drain(&mut self) {
        self.job.signal("TERM");
        assert!(self.job.end().success(), "{}", self.job.errors());
    }
}

fn signal(name: &str, id: u32) {
    let status = Command::new("kill").args(["-s", name, &id.to_string()]).status().unwrap();
    assert!(status.success(), "no signal {name} to process {id}");
}

fn is_alive(id: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    state.is_some_and(|state| state != 'Z')
}

#[test]
fn a_process_that_hangs_is_noticed_and_all_start_again() {
    play(account_risk::run);
    let mut set = Set::start("a_process_that_hangs_is_noticed_and_all_start_again");
    let children = set.children();
    assert_eq!(children.len(), PROCESSES, "{children:?}");
    signal("STOP", children[1]);
    set.await_restart(&children);
    set.await_all_output();
    set.drain();
    assert_eq!(judge(&set.log, &set.output()), Verdict::default());
}

#[test]
fn each_process_that_is_killed_costs_one_restart_of_all() {
    play(account_risk::run);
    let mut set = Set::start("each_process_that_is_killed_costs_one_restart_of_all");
    for victim in 0..PROCESSES {
        let children = set.children();
        signal("KILL", children[victim]);
        set.await_restart(&children);
    }
    set.await_all_output();
    let errors = set.job.errors();
    assert!(errors.contains("was ended by signal 9"), "{errors}");
    assert!(!errors.contains("panicked"), "threads of connections are not heard: {errors}");
    set.drain();
    assert_eq!(judge(&set.log, &set.output()), Verdict::default());
}

#[test]
fn a_checkpoint_that_is_asked_for_is_told_once_when_it_exists() {
    play(account_risk::run);
    for processes in [1, PROCESSES] {
        let test = "a_checkpoint_that_is_asked_for_is_told_once_when_it_exists";
        let mut set = Set::of(processes, test);
        set.job.signal("USR1");
        let told = |set: &Set| {
            let errors = set.job.errors();
            let lines = errors.lines().filter_map(|line| line.strip_prefix("checkpoint "));
            let epochs =
                lines.filter_map(|line| line.strip_suffix(" exists, as asked for by SIGUSR1"));
            epochs.map(|epoch| epoch.parse::<u64>().unwrap()).collect::<Vec<_>>()
        };
        assert!(wait::soon(|| !told(&set).is_empty()), "{}", set.job.errors());
        set.drain();
        assert_eq!(told(&set).len(), 1, "{}", set.job.errors());
    }
}

#[test]
fn no_process_outlives_its_supervisor() {
    play(account_risk::run);
    let mut set = Set::start("no_process_outlives_its_supervisor");
    let children = set.children();
    assert_eq!(children.len(), PROCESSES, "{children:?}");
    assert!(set.job.kill());
    assert!(wait::soon(|| !children.iter().any(|id| is_alive(*id))), "{}", set.job.errors());
}

#[test]
fn a_panic_in_one_process_stops_all_and_is_told_with_operator_and_key() {
    let test = "a_panic_in_one_process_stops_all_and_is_told_with_operator_and_key";
    play(|flags| panicking_job(Path::new(&flags[1]), flags[2].to_str().unwrap().parse().unwrap()));
    let panics = |processes: u32| {
        let folder = TempDir::new().unwrap();
        let flags = [folder.path().to_str().unwrap().to_owned(), processes.to_string()];
        let mut job = Job::start(test, &flags, &folder.path().join("errors"));
        let children = wait::until(wait::SOON, || {
            let children = job.children();
            (children.len() == processes as usize || job.ended().is_some()).then_some(children)
        });
        let code = job.end().code();
        assert!(!children.unwrap().iter().any(|id| is_alive(*id)), "{}", job.errors());
        let stopped =
            modified_now(folder.path()).duration_since(modified(&panicked(folder.path())));
        assert_eq!(code, Some(i32::from(ErrorKind::User.exit_code())), "{}", job.errors());
        for part in ["operator `sums` at key 17", "seventeen is one too many"] {
            assert!(job.errors().contains(part), "{}", job.errors());
        }
        let told = job.errors().matches("operator `sums` at key 17").count();
        assert_eq!(told, 1, "each process knows it, and one tells it: {}", job.errors());
        let stopped = stopped.unwrap();
        eprintln!("{processes} processes stopped within {stopped:?}");
        stopped
    };
    for processes in [2, 3] {
        wait::best_within(STOPPED_WITHIN, || (panics(processes), ()));
    }
}

/// Written just before the panic.
fn panicked(folder: &Path) -> PathBuf {
    folder.join("panicked")
}

fn modified(path: &Path) -> SystemTime {
    std::fs::metadata(path).unwrap().modified().unwrap()
}

/// By the clock that gives files their times.
fn modified_now(folder: &Path) -> SystemTime {
    let now = folder.join("now");
    std::fs::write(&now, "").unwrap();
    modified(&now)
}

/// Some processes of which the one that owns key 17 panics; without an end otherwise.
fn panicking_job(folder: &Path, processes: u32) -> Result<Summary> {
    let args = RunArgs { processes: Some(processes), workers: 2, ..RunArgs::default() };
    let job = isochrone::Job::new("panicking").checkpoint(Checkpoint::dir(folder.join("store")));
    let panicked = panicked(folder);
    job.run(args, move |flow| {
        let panicked = panicked.clone();
        flow.source("numbers", Generator::counting(u64::MAX, |number| number % 32).splits(4))
            .key_by(|number| *number)
            .state::<u64>("sums")
            .map(move |sum, number| {
                *sum += 1;
                if number == 17 && *sum >= 1_000 {
                    std::fs::write(&panicked, "").unwrap();
                    panic!("seventeen is one too many");
                }
                *sum
            })
            .sink("out", Callback::new(|_: &u64| ()));
        Ok(())
    })
}
