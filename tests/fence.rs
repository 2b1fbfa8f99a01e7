//! Two runs of one job: whoever has been overtaken publishes nothing more and says so.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

#[path = "../examples/account_risk.rs"]
#[expect(dead_code, reason = "the example's own entrance is not used here")]
mod account_risk;
mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use isochrone::ErrorKind;
use isochrone::ids::JobName;
use isochrone::persistence::lineage::read_all;
use isochrone::persistence::store::local::LocalStore;
use support::child::{Job, assert_ends_well, play};
use support::oracle::{Verdict, judge, parts};
use support::purchases::Log;
use support::seed::Seeded;
use support::wait;
use tempfile::TempDir;

const JOB: &str = "account-risk";
const LINES: u64 = 600_000;
const FILES: u64 = 6;

struct Place {
    folder: TempDir,
    log: Log,
}

impl Place {
    fn new() -> Place {
        let folder = TempDir::new().unwrap();
        let seed = Seeded::announced().next();
        let log = Log::generate(seed, &folder.path().join("input"), LINES, FILES);
        Place { folder, log }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start(&self, test: &str, name: &str, workers: u32) -> Job {
        let path = |name: &str| self.at(name).to_str().unwrap().to_owned();
        let pairs = [
            ("--input", path("input")),
            ("--output", path("output")),
            ("--store", path("store")),
            ("--workers", workers.to_string()),
            ("--checkpoint-every", "30ms".to_owned()),
        ];
        let flags: Vec<String> =
            pairs.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]).collect();
        Job::start(test, &flags, &self.at(&format!("errors-{name}")))
    }

    /// All that is visible, and the manifests that count: of those that were collected, a zombie may
    /// create one anew before it learns that nobody looks at it.
    fn public(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let store = LocalStore::open(self.at("store")).unwrap();
        let history = read_all(&store, &JobName::new(JOB).unwrap()).unwrap();
        let manifests = history.into_iter().map(|found| self.at("store").join(found.name));
        let files = parts(&self.at("output")).into_iter().chain(manifests);
        files.map(|path| (path.clone(), fs::read(&path).unwrap())).collect()
    }
}

#[test]
fn a_job_that_wakes_up_behind_its_successor_publishes_nothing_and_exits_as_fenced() {
    play(|flags| account_risk::run(flags).map(drop));
    let place = Place::new();
    let test = "a_job_that_wakes_up_behind_its_successor_publishes_nothing_and_exits_as_fenced";
    let mut zombie = place.start(test, "zombie", 2);
    let published = || parts(&place.at("output")).len() >= 2;
    assert!(wait::soon(|| published() || zombie.ended().is_some()), "{}", zombie.errors());
    zombie.signal("STOP");
    assert!(zombie.ended().is_none(), "it ended too early: {}", zombie.errors());

    assert_ends_well(&mut place.start(test, "successor", 3));
    assert_eq!(judge(&place.log, &place.at("output")), Verdict::default());
    let before = place.public();

    zombie.signal("CONT");
    let end = zombie.end();
    let fenced = i32::from(ErrorKind::Fenced.exit_code());
    assert_eq!(end.code(), Some(fenced), "{}", zombie.errors());
    // Told by whoever finds it out first, the publisher or the committer.
    let told = zombie.errors().contains("has taken over from generation");
    assert!(told, "{}", zombie.errors());
    let after = place.public();
    let differ = |path: &&PathBuf| before.get(*path) != after.get(*path);
    let changed: Vec<_> = before.keys().chain(after.keys()).filter(differ).collect();
    assert!(changed.is_empty(), "the zombie changed {changed:?}: {}", zombie.errors());
}

#[test]
fn of_two_jobs_started_at_once_on_one_store_the_output_is_that_of_one() {
    play(|flags| account_risk::run(flags).map(drop));
    let place = Place::new();
    let test = "of_two_jobs_started_at_once_on_one_store_the_output_is_that_of_one";
    let mut jobs = [place.start(test, "one", 1), place.start(test, "other", 2)];
    let ends = jobs.each_mut().map(|job| job.end().code());
    let errors = || jobs.each_ref().map(|job| job.errors());
    let fenced = Some(i32::from(ErrorKind::Fenced.exit_code()));
    let orderly = |end: &Option<i32>| *end == Some(0) || *end == fenced;
    assert!(ends.iter().all(orderly), "{ends:?}: {:?}", errors());
    assert!(ends.contains(&Some(0)), "nobody finished: {ends:?}: {:?}", errors());
    // With checkpoints every 30 ms, neither ends before the other has claimed the job.
    assert!(ends.contains(&fenced), "nobody was shut out: {ends:?}: {:?}", errors());
    assert_eq!(judge(&place.log, &place.at("output")), Verdict::default());
}
