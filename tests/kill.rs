//! Real kills of a real job: `account_risk` on a million purchases, killed at seeded moments from its
//! first instruction to its last, and each time started again with another number of processes and
//! workers. Of several processes, the supervisor is killed, or first one of the others and, while all
//! start again, the supervisor too.
//!
//! `SEED=n` plays the same schedule again; the moments are those of the machine.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

#[path = "../examples/account_risk.rs"]
#[expect(dead_code, reason = "the example's own entrance is not used here")]
mod account_risk;
mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use isochrone::persistence::store::local::LocalStore;
use serde::Deserialize;
use support::child::{Job, assert_ends_well, play};
use support::oracle::{Verdict, judge, parts};
use support::purchases::Log;
use support::seed::Seeded;
use support::{stored, wait};
use tempfile::TempDir;

const TEST: &str = "a_hundred_kills_leave_the_output_and_state_of_an_undisturbed_run";
const JOB: &str = "account-risk";
/// The same number in each file, and a million at least.
const LINES: u64 = 12 * 83_334;
const FILES: u64 = 12;
const KILLS: u32 = 100;
/// Of these, so many at least of a job of one, of two and of three processes.
const KILLS_OF_EACH: u32 = 20;
/// Kills in one run, at most, before the one at its end.
const KILLS_PER_RUN: u32 = 12;
const CHECKPOINT_EVERY: &str = "50ms";
const DAY_MS: i64 = 24 * 60 * 60 * 1000;

#[test]
fn a_hundred_kills_leave_the_output_and_state_of_an_undisturbed_run() {
    play(account_risk::run);
    let mut seeded = Seeded::announced();
    let folder = TempDir::new().unwrap();
    let log = Log::generate(seeded.next(), &folder.path().join("input"), LINES, FILES);
    let mut tally = Tally::default();
    assert!(log.lines >= 1_000_000, "{} lines", log.lines);
    let remembered = Run::new(&log, folder.path(), 0).undisturbed(&log);
    for number in 1.. {
        let run = Run::new(&log, folder.path(), number);
        let found = run.disturbed(&mut seeded, &log, &mut tally);
        assert!(found == remembered, "other ids are remembered than without a kill");
        eprintln!("run {number}: {tally:?}");
        if tally.is_enough() {
            break;
        }
    }
    let Tally { at_start, in_between, at_manifest, at_part, at_end, of_children, .. } = tally;
    let moments = [at_start, in_between, at_manifest, at_part, at_end, of_children];
    assert!(moments.iter().all(|count| *count > 0), "{tally:?}");
}

/// When a job is killed.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// So long after its start.
    After(Duration),
    /// As soon as it has published so many manifests: about when it makes output visible.
    Manifests(usize),
    /// As soon as a new part is visible: in the middle of a commit.
    Part,
    /// As soon as its last manifest stands.
    Finished,
    /// Not at all.
    Never,
}

impl Moment {
    fn draw(seeded: &mut Seeded) -> Moment {
        match seeded.below(16) {
            0..=1 => Moment::After(Duration::from_millis(seeded.below(60))),
            2..=7 => Moment::After(Duration::from_millis(100 + seeded.below(400))),
            8..=11 => Moment::Manifests(1 + seeded.below(6) as usize),
            12..=14 => Moment::Part,
            _ => Moment::Finished,
        }
    }
}

/// How many processes, of how many workers each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    processes: u32,
    workers: u32,
}

impl Shape {
    /// Another number of workers in total than before.
    fn draw(seeded: &mut Seeded, before: Option<Shape>) -> Shape {
        loop {
            let processes = 1 + seeded.below(3) as u32;
            let workers = seeded.pick(if processes == 1 { &[1, 2, 3, 5] } else { &[1, 2] });
            let drawn = Shape { processes, workers };
            if before.is_none_or(|before| before.total() != drawn.total()) {
                return drawn;
            }
        }
    }

    fn total(self) -> u32 {
        self.processes * self.workers
    }
}

/// Kills so far, by moment.
#[derive(Debug, Default)]
struct Tally {
    kills: u32,
    at_start: u32,
    in_between: u32,
    at_manifest: u32,
    at_part: u32,
    at_end: u32,
    /// Kills of a process under a supervisor.
    of_children: u32,
    /// Of jobs of one, two and three processes.
    by_processes: [u32; 3],
}

impl Tally {
    fn is_enough(&self) -> bool {
        self.kills >= KILLS && self.by_processes.iter().all(|kills| *kills >= KILLS_OF_EACH)
    }

    fn count(&mut self, moment: Moment, shape: Shape) {
        self.kills += 1;
        self.by_processes[shape.processes as usize - 1] += 1;
        *match moment {
            Moment::After(span) if span < Duration::from_millis(60) => &mut self.at_start,
            Moment::After(_) => &mut self.in_between,
            Moment::Manifests(_) => &mut self.at_manifest,
            Moment::Part => &mut self.at_part,
            Moment::Finished => &mut self.at_end,
            Moment::Never => unreachable!("it ends by itself"),
        } += 1;
    }
}

/// One job from its first start to its end.
struct Run {
    input: PathBuf,
    output: PathBuf,
    store: PathBuf,
    errors: PathBuf,
}

impl Run {
    fn new(log: &Log, folder: &Path, number: u32) -> Run {
        let at = |name: &str| folder.join(format!("{name}-{number}"));
        Run {
            input: log.folder.clone(),
            output: at("output"),
            store: at("store"),
            errors: at("errors"),
        }
    }

    fn start(&self, shape: Shape) -> Job {
        let path = |path: &Path| path.to_str().unwrap().to_owned();
        let pairs = [
            ("--input", path(&self.input)),
            ("--output", path(&self.output)),
            ("--store", path(&self.store)),
            ("--workers", shape.workers.to_string()),
            ("--processes", shape.processes.to_string()),
            ("--checkpoint-every", CHECKPOINT_EVERY.to_owned()),
        ];
        let flags: Vec<String> =
            pairs.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]).collect();
        Job::start(TEST, &flags, &self.errors)
    }

    fn undisturbed(self, log: &Log) -> BTreeMap<String, i64> {
        let mut job = self.start(Shape { processes: 1, workers: 2 });
        let started = wait::Since::now();
        assert_ends_well(&mut job);
        eprintln!("undisturbed: {:?}", started.passed());
        self.check(log)
    }

    fn disturbed(self, seeded: &mut Seeded, log: &Log, tally: &mut Tally) -> BTreeMap<String, i64> {
        let mut shape = None;
        for kills in 0.. {
            let next = Shape::draw(seeded, shape);
            shape = Some(next);
            let moment = match kills {
                ..KILLS_PER_RUN => Moment::draw(seeded),
                KILLS_PER_RUN => Moment::Finished,
                _ => Moment::Never,
            };
            let mut job = self.start(next);
            if next.processes > 1 && kills < KILLS_PER_RUN && seeded.one_in(2) {
                self.wait_for(Moment::draw(seeded), &mut job);
                tally.of_children += u32::from(job.kill_a_child(seeded));
            }
            self.wait_for(moment, &mut job);
            if !job.kill() {
                assert_ends_well(&mut job);
                break;
            }
            tally.count(moment, next);
        }
        self.check(log)
    }

    /// Waits for the moment, or for the job's end if that comes first.
    fn wait_for(&self, moment: Moment, job: &mut Job) {
        let started = wait::Since::now();
        let manifests = stored::manifests(&self.store, JOB).last().cloned();
        let part = parts(&self.output).pop();
        let came = wait::soon(|| {
            job.ended().is_some()
                || match moment {
                    Moment::After(span) => started.passed() >= span,
                    Moment::Manifests(count) => {
                        let now = stored::manifests(&self.store, JOB);
                        now.iter().filter(|name| Some(*name) > manifests.as_ref()).count() >= count
                    }
                    Moment::Part => parts(&self.output).pop() > part,
                    Moment::Finished => self.is_finished(),
                    Moment::Never => false,
                }
        });
        assert!(came, "{moment:?} never comes; the job says: {}", job.errors());
    }

    /// Reads the file only: opening the store would sweep what its writer has under way.
    fn is_finished(&self) -> bool {
        let Some(newest) = stored::manifests(&self.store, JOB).pop() else { return false };
        let path = self.store.join(JOB).join("m").join(newest);
        // It may have been collected in between.
        std::fs::read_to_string(path).is_ok_and(|text| text.contains("\"finished\": true"))
    }

    /// Answers with the ids that must still be remembered, and their first days.
    fn check(&self, log: &Log) -> BTreeMap<String, i64> {
        let verdict = judge(log, &self.output);
        assert_eq!(verdict, Verdict::default(), "in {}", self.output.display());
        let store = LocalStore::open(&self.store).unwrap();
        let manifest = stored::newest(&store, JOB).unwrap();
        assert!(manifest.finished);
        let spent = stored::state::<String, Spent>(&store, &manifest, "spent");
        let spent = spent.into_iter().map(|(key, spent)| (key, (spent.events, spent.cents)));
        assert!(spent.eq(log.totals()), "the state differs from that of an undisturbed run");
        // What is much older than the thirty days for which an id is remembered is forgotten; in
        // between it depends on when the job ended.
        let mut seen = stored::state::<String, i64>(&store, &manifest, "seen");
        let last = *seen.values().max().unwrap();
        let old = last - 60 * DAY_MS;
        assert!(seen.values().all(|first| *first > old), "{} ids are remembered", seen.len());
        seen.retain(|_, first| *first > last - 30 * DAY_MS);
        assert!(seen.len() > 100_000, "{} ids are remembered", seen.len());
        seen
    }
}

#[derive(Deserialize)]
struct Spent {
    events: u64,
    cents: i64,
}
