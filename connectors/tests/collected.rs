//! The collecting sink keeps the contract that real sinks keep, and shows what was handed to it.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

use isochrone_connectors::{Collected, check_sink};
use isochrone_engine::ErrorKind;
use isochrone_engine::connector::{Sink, SinkContext};
use isochrone_engine::ids::{Epoch, Worker};

fn context(generation: u64) -> SinkContext {
    SinkContext::alone("job", "out", generation, 3).unwrap()
}

#[test]
fn keeps_the_contract_of_a_sink() {
    let collected = Collected::<String>::default();
    check_sink(|| collected.clone(), || collected.items(), |n| format!("item {n}"));
}

#[test]
fn logs_every_commit_and_tells_a_repeated_from_a_contradicting_one() {
    let collected = Collected::<u64>::default();
    let mut committer = collected.committer(&context(1)).unwrap();
    let effect = |generation| {
        let mut writer = collected.writer(&context(generation)).unwrap();
        writer.write(&mut vec![generation], Epoch(1)).unwrap();
        writer.prepare(Epoch(1)).unwrap()().unwrap().unwrap()
    };
    committer.commit(&[effect(1)]).unwrap();
    committer.commit(&[effect(1)]).unwrap();
    let commits = collected.commits();
    assert_eq!(commits.iter().map(|c| c.repeated).collect::<Vec<_>>(), [false, true]);
    assert!(commits.iter().all(|c| (c.epoch, c.worker, c.items) == (Epoch(1), Worker(3), 1)));

    let error = committer.commit(&[effect(2)]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal);
    assert_eq!(collected.items(), [1]);
}
