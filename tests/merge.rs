//! Many small checkpoints leave few segments, and those hold the state.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use isochrone::connectors::Callback;
use isochrone::connectors::generator::Generator;
use isochrone::persistence::manifest::Part;
use isochrone::persistence::store::local::LocalStore;
use isochrone::prelude::*;
use isochrone::time::SystemClock;
use support::stored;
use tempfile::TempDir;

const JOB: &str = "merging";
const KEYS: u64 = 1_000;
const NUMBERS: u64 = 40_000;
/// What each worker wrote is merged from eight segments on, while more are being written.
const SEGMENTS_OF_A_WORKER_MAX: usize = 2 * 8;

#[test]
fn many_checkpoints_leave_few_segments_that_hold_the_state() {
    for workers in [1, 2] {
        let folder = TempDir::new().unwrap();
        let published = count(folder.path(), workers).checkpoints.published;
        let store = LocalStore::open(folder.path()).unwrap();
        let manifest = stored::newest(&store, JOB).unwrap();
        let counted: BTreeMap<u64, u64> = stored::state(&store, &manifest, "counts");
        assert_eq!(counted, (0..KEYS).map(|key| (key, NUMBERS / KEYS)).collect());
        let segments = manifest.operators.iter().find_map(|operator| match &operator.part {
            Part::State { segments, .. } => Some(segments.len()),
            _ => None,
        });
        let most = workers as usize * SEGMENTS_OF_A_WORKER_MAX;
        assert!(published as usize > most, "only {published} checkpoints: nothing is shown");
        assert!(segments.unwrap() <= most, "{segments:?} segments of {published} checkpoints");
    }
}

/// Counts numbers by their remainder, with a checkpoint every few.
fn count(store: &Path, workers: u32) -> Summary {
    let checkpoint = Checkpoint::dir(store).not_by_time().every_records(50);
    let args = RunArgs { workers, quiet: true, ..RunArgs::default() };
    let job = Job::new(JOB).checkpoint(checkpoint);
    job.run(args, move |flow| {
        let clock = Arc::new(SystemClock::default());
        let source = Generator::counting(NUMBERS, |number| number).per_second(20_000, clock);
        flow.source("numbers", source)
            .key_by(|number| number % KEYS)
            .count("counts")
            .sink("out", Callback::new(|_: &(u64, u64)| ()));
        Ok(())
    })
    .unwrap()
}
