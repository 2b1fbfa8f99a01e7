//! Every interleaving of small jobs, run on the real machines.
//!
//! A world holds sources, two-input state instances, sinks and the channels between them, one
//! coordinator, and what is durable. Each test visits every state that can be reached by reading,
//! delivering, triggering, freezing, uploading, publishing and committing in any order, with faults
//! at every point, and checks in each:
//! - a checkpoint's state, output and in-flight logs hold exactly the records before its positions;
//! - a manifest is asked for only when all parts are durable, output is visible only after it;
//! - per key, records are applied once and in order, also after a restore at another worker count;
//! - the job never hangs and ends with everything visible once.
//!
//! Two kinds of move are not tried at every point, since nothing can tell when they were made: an
//! upload where no checkpoint can be abandoned, and, in the larger worlds, what a sink takes.
//!
//! Then mistakes are built in, one by one, and must be found.

mod explore;
mod job;
mod run;
mod world;
mod write;

use isochrone_engine::protocol::participant::Mode;

use explore::explore;
use job::{Alignment, Bug, Setup, Splits};
use world::World;

const ALIGNED: Alignment = Alignment::Always(Mode::Aligned);
const UNALIGNED: Alignment = Alignment::Always(Mode::Unaligned);

const SHORT: Splits = &[&[0], &[0]];
const SINGLE: Splits = &[&[0]];
const KEYS: Splits = &[&[0], &[1]];
const ONE_SPLIT_LONGER: Splits = &[&[0, 1], &[0]];
/// A record from each worker to the first, on the same input.
const ACROSS: Splits = &[&[0], &[], &[0]];

/// Two workers, each with a source and an instance of two inputs; key 0 is on the first worker.
fn two_workers(alignment: Alignment) -> Setup {
    Setup {
        workers: 2,
        restarts: &[],
        splits: &[&[0], &[0], &[0]],
        alignment,
        credits: 2,
        prompt_sinks: true,
        requests: 1,
        abandons: 0,
        crashes: 0,
        rivals: 0,
        hangs: 0,
        bug: None,
    }
}

/// One worker, with nothing left out.
fn one_worker(alignment: Alignment) -> Setup {
    Setup {
        workers: 1,
        splits: ONE_SPLIT_LONGER,
        prompt_sinks: false,
        requests: 2,
        ..two_workers(alignment)
    }
}

#[expect(clippy::print_stdout, reason = "the number of states is what the test is worth")]
fn holds(name: &str, setup: Setup) {
    let explored = explore(World::new(setup));
    println!("{name}: {} states, {} ends", explored.states, explored.ends);
    if let Some(violation) = explored.violation {
        panic!("{name}: {} after {:?}", violation.message, violation.path);
    }
    assert!(explored.ends > 0);
}

#[expect(clippy::print_stdout, reason = "shows how each mistake is found")]
fn found(bug: Bug, setup: Setup, expected: &str) {
    let explored = explore(World::new(Setup { bug: Some(bug), ..setup }));
    let violation = explored.violation.unwrap_or_else(|| panic!("{bug:?} is not found"));
    println!("{bug:?} found in state {}: {}", explored.states, violation.message);
    assert!(violation.message.contains(expected), "{bug:?}: {}", violation.message);
}

#[test]
fn aligned_checkpoints_are_consistent() {
    holds("aligned, two workers", two_workers(ALIGNED));
    holds(
        "aligned, three checkpoints",
        Setup { requests: 2, splits: ACROSS, ..two_workers(ALIGNED) },
    );
    holds("aligned, one worker", one_worker(ALIGNED));
}

#[test]
fn unaligned_checkpoints_are_consistent() {
    holds("unaligned, two workers", Setup { splits: ACROSS, ..two_workers(UNALIGNED) });
    holds("unaligned, one worker", Setup { requests: 1, ..one_worker(UNALIGNED) });
}

#[test]
fn a_checkpoint_may_become_unaligned_while_it_waits() {
    let impatient = Alignment::UntilTimeout;
    holds("impatient, two workers", Setup { splits: SINGLE, ..two_workers(impatient) });
    holds("impatient, one worker", Setup { requests: 1, ..one_worker(impatient) });
}

#[test]
fn an_abandoned_checkpoint_leaves_nothing_wrong() {
    for (alignment, requests) in [(ALIGNED, 2), (UNALIGNED, 1)] {
        let world = Setup { abandons: 1, requests, splits: SHORT, ..one_worker(alignment) };
        holds(&format!("abandoned, one worker, {alignment:?}"), world);
    }
    let last = Setup { abandons: 1, requests: 0, splits: ACROSS, ..two_workers(ALIGNED) };
    holds("abandoned last, two workers", last);
}

#[test]
fn a_crash_at_any_point_loses_and_doubles_nothing() {
    let crash = |setup| Setup { crashes: 1, requests: 1, ..setup };
    for alignment in [ALIGNED, UNALIGNED] {
        let name = |what: &str| format!("crash, {what}, {alignment:?}");
        let same = Setup { restarts: &[1], ..one_worker(alignment) };
        holds(&name("one worker"), crash(same));
        let more = Setup { restarts: &[2], splits: KEYS, ..one_worker(alignment) };
        holds(&name("one worker, then two"), crash(Setup { prompt_sinks: true, ..more }));
    }
    let fewer = Setup { restarts: &[1], splits: ACROSS, ..two_workers(ALIGNED) };
    holds("crash, two workers, then one", crash(fewer));
    let same = Setup { restarts: &[2, 3], splits: ACROSS, ..two_workers(ALIGNED) };
    holds("crash, two workers, then two or three", crash(same));
}

#[test]
fn a_target_that_never_answers_ends_the_run_and_the_next_one_makes_all_output_visible() {
    for alignment in [ALIGNED, UNALIGNED] {
        let one = Setup { hangs: 1, requests: 1, ..one_worker(alignment) };
        holds(&format!("hang, one worker, {alignment:?}"), one);
    }
    let two = Setup { hangs: 1, splits: ACROSS, ..two_workers(ALIGNED) };
    holds("hang, two workers", two);
}

#[test]
fn of_two_rival_runs_only_the_newer_publishes() {
    let rivals = Setup { rivals: 1, requests: 1, splits: &[&[0]], ..one_worker(ALIGNED) };
    holds("rivals", Setup { prompt_sinks: true, ..rivals });
}

#[test]
fn built_in_mistakes_are_found() {
    let aligned = || two_workers(ALIGNED);
    let unaligned = || Setup { requests: 1, ..one_worker(UNALIGNED) };
    let crash = || Setup { crashes: 1, restarts: &[1], ..unaligned() };
    let abandon = || Setup { abandons: 1, ..one_worker(ALIGNED) };
    found(Bug::AckBeforeFreeze, aligned(), "state of checkpoint");
    found(Bug::FirstFrontierOfTwo, aligned(), "after the cut");
    found(Bug::NoStash, aligned(), "after the cut");
    found(Bug::OldCapability, aligned(), "after the cut");
    found(Bug::OneAckMissing, aligned(), "is not durable");
    found(Bug::CommitBeforePublish, aligned(), "before its manifest");
    found(Bug::AckBeforeLogComplete, unaligned(), "of checkpoint");
    found(Bug::FinalUnaligned, unaligned(), "finished with");
    found(Bug::LogNotRestored, crash(), "of checkpoint");
    found(Bug::AbandonedForgotten, abandon(), "of checkpoint");
    let rivals = Setup { rivals: 1, requests: 1, splits: &[&[0]], ..one_worker(ALIGNED) };
    found(Bug::PublishUnfenced, Setup { prompt_sinks: true, ..rivals }, "doubles output");
}
