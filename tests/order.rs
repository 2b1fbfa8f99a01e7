//! With one worker, output has one order: a job that was killed and started again leaves the same
//! bytes as one that nobody disturbed.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

#[path = "../examples/account_risk.rs"]
#[expect(dead_code, reason = "the example's own entrance is not used here")]
mod account_risk;
mod support;

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use support::child::{Job, assert_ends_well, play};
use support::oracle::parts;
use support::wait;
use tempfile::TempDir;

const TEST: &str = "killed_and_started_again_one_worker_leaves_the_same_bytes";
const PURCHASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/data/purchases.csv");
const KILLS: usize = 3;

/// Ends when the input does, or follows it.
fn start(folder: &Path, name: &str, input: &Path, follows: bool) -> Job {
    let at = |kind: &str| folder.join(format!("{kind}-{name}")).to_str().unwrap().to_owned();
    let pairs = [
        ("--input", input.to_str().unwrap().to_owned()),
        ("--output", at("output")),
        ("--store", at("store")),
        ("--checkpoint-every", "5ms".to_owned()),
    ];
    let mut flags: Vec<String> =
        pairs.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]).collect();
    flags.extend(follows.then(|| "--follow".to_owned()));
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
    assert_ends_well(&mut start(folder, "undisturbed", Path::new(PURCHASES), false));
    let undisturbed = bytes(folder, "undisturbed");
    assert_eq!(undisturbed.iter().filter(|byte| **byte == b'\n').count(), 69_659);

    // The input grows from run to run, so that each has something to do that it cannot end.
    let purchases = fs::read_to_string(PURCHASES).unwrap();
    let lines: Vec<&str> = purchases.split_inclusive('\n').collect();
    let input = folder.join("purchases.csv");
    let mut growing = File::create(&input).unwrap();
    let mut more = lines.chunks(lines.len().div_ceil(KILLS + 1));
    let mut grow = || growing.write_all(more.next().unwrap().concat().as_bytes()).unwrap();
    let shown = || bytes(folder, "killed").len();
    for _ in 0..KILLS {
        grow();
        let before = shown();
        let mut job = start(folder, "killed", &input, true);
        assert!(wait::soon(|| shown() > before), "nothing more is shown: {}", job.errors());
        assert!(job.kill(), "it ended before it was killed: {}", job.errors());
    }
    grow();
    assert_ends_well(&mut start(folder, "killed", &input, false));
    assert!(bytes(folder, "killed") == undisturbed, "other bytes, or in another order");
}
