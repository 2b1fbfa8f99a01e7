//! With one worker, output has one order: a job that was killed and started again leaves the same
//! bytes as one that nobody disturbed.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

#[path = "../examples/account_risk.rs"]
#[expect(dead_code, reason = "the example's own entrance is not used here")]
mod account_risk;
mod support;

use std::fs;
use std::path::Path;

use support::child::{Job, assert_ends_well, play};
use support::oracle::parts;
use support::wait;
use tempfile::TempDir;

const TEST: &str = "killed_and_started_again_one_worker_leaves_the_same_bytes";
const PURCHASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/data/purchases.csv");
const KILLS: u32 = 3;

fn start(folder: &Path, name: &str) -> Job {
    let at = |kind: &str| folder.join(format!("{kind}-{name}")).to_str().unwrap().to_owned();
    let pairs = [
        ("--input", PURCHASES.to_owned()),
        ("--output", at("output")),
        ("--store", at("store")),
        ("--checkpoint-every", "5ms".to_owned()),
    ];
    let flags: Vec<String> =
        pairs.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]).collect();
    Job::start(TEST, &flags, Path::new(&at("errors")))
}

/// The bytes of all visible parts, in their order.
fn bytes(folder: &Path, name: &str) -> Vec<u8> {
    let parts = parts(&folder.join(format!("output-{name}")));
    parts.into_iter().flat_map(|part| fs::read(part).unwrap()).collect()
}

#[test]
fn killed_and_started_again_one_worker_leaves_the_same_bytes() {
    play(account_risk::run);
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    assert_ends_well(&mut start(folder, "undisturbed"));
    let undisturbed = bytes(folder, "undisturbed");
    assert_eq!(undisturbed.iter().filter(|byte| **byte == b'\n').count(), 69_659);

    let shown = || bytes(folder, "killed").len();
    for _ in 0..KILLS {
        let before = shown();
        let mut job = start(folder, "killed");
        assert!(wait::soon(|| shown() > before), "nothing more is shown: {}", job.errors());
        assert!(job.kill(), "it ended before it was killed: {}", job.errors());
        assert!(shown() < undisturbed.len(), "it was killed at its end");
    }
    assert_ends_well(&mut start(folder, "killed"));
    assert!(bytes(folder, "killed") == undisturbed, "other bytes, or in another order");
}
