//! Every interleaving of small jobs, run on the real machines.
//!
//! A world holds sources, two-input state instances, sinks and the channels between them, one
//! coordinator, and what is durable. Each test visits every state that can be reached by reading,
//! delivering, triggering, freezing, uploading, publishing and committing in any order, with faults
//! at every point. Checked in every state (`check.rs`):
//! - a checkpoint's state, output and in-flight logs hold exactly the records before its positions,
//!   and its watermarks are those of its positions;
//! - every record read is in one place only, before the state or in it; so is the effect of every
//!   record in the state: nothing is lost or doubled in between either;
//! - what a manifest names of a run was acknowledged as durable before; a checkpoint that counts as
//!   published has its manifest, also if nothing happened in its epoch;
//! - what is visible is in the newest manifest, and what that one calls written is visible or pending;
//! - edges hold no more than their credits, what waits is bounded, and one cut is under way;
//! - one run at most may publish next.
//!
//! And at each move: per key, records are applied once and in order, also after a restore at another
//! worker count; output is committed only with proof of its manifest, and none becomes visible by two
//! effects. The job never hangs and ends with everything visible once.
//!
//! What is covered, in about two minutes on two cores: two workers with records on both inputs and three
//! checkpoints (two asked for and the last) without a fault, with one crash at every point and a restart
//! on one or two workers; with two checkpoints also on three. Two rival runs of two workers with the
//! last checkpoint only; of one worker with three; with a crash besides, with two. One worker with
//! nothing left out. What is in the worlds besides is at the tests. More records, checkpoints and
//! faults together are the business of the simulation at the root.
//!
//! Not in this model: watermarks behind the sources (they travel as records do; timers and late records
//! are tests of their own), collection and lost answers of the store (`lineage/explore.rs` of the
//! persistence crate has those).
//!
//! Two kinds of move are not tried at every point, since nothing can tell when they were made: an
//! upload where no checkpoint can be abandoned, and, in the larger worlds, what a sink takes.
//!
//! Then mistakes are built in, one by one, and must be found.

mod check;
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
/// A record from each worker to the first, each on an input of its own.
const BOTH: Splits = &[&[0], &[], &[], &[0]];

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
    // On two inputs of one worker and one of the other, all to the first.
    holds("aligned, three checkpoints", Setup { requests: 2, ..two_workers(ALIGNED) });
    let three = |splits| Setup { requests: 2, splits, ..two_workers(ALIGNED) };
    holds("aligned, three checkpoints, each worker an input", three(BOTH));
    holds("aligned, three checkpoints, to both workers", three(KEYS));
    holds("aligned, one worker", one_worker(ALIGNED));
}

#[test]
fn unaligned_checkpoints_are_consistent() {
    holds("unaligned, two workers", Setup { splits: ACROSS, ..two_workers(UNALIGNED) });
    holds("unaligned, one worker", Setup { requests: 1, ..one_worker(UNALIGNED) });
    let three = Setup { splits: SHORT, ..one_worker(UNALIGNED) };
    holds("unaligned, one worker, three checkpoints", three);
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
    let more = Setup { restarts: &[2, 3], splits: ACROSS, ..two_workers(ALIGNED) };
    holds("crash, two workers, then two or three", crash(more));
}

#[test]
fn a_crash_among_three_checkpoints_loses_and_doubles_nothing() {
    for restarts in [&[1], &[2]] {
        let setup = Setup { restarts, splits: BOTH, requests: 2, ..two_workers(ALIGNED) };
        let name = format!("crash, three checkpoints, two workers, then {restarts:?}");
        holds(&name, Setup { crashes: 1, ..setup });
    }
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
    let two = Setup { requests: 0, splits: BOTH, ..two_workers(ALIGNED) };
    holds("rivals of two workers", Setup { rivals: 1, ..two });
    let one = || Setup { rivals: 1, prompt_sinks: true, splits: SHORT, ..one_worker(ALIGNED) };
    holds("rivals of one worker, three checkpoints", one());
    let crash = Setup { requests: 1, crashes: 1, restarts: &[1], ..one() };
    holds("rivals of one worker, and a crash", crash);
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
    found(Bug::LogNotRestored, crash(), "instead of");
    found(Bug::WatermarkNotRestored, crash(), "the watermark of split");
    found(Bug::NoCredits, Setup { credits: 1, ..one_worker(ALIGNED) }, "credits of an edge");
    found(Bug::AbandonedForgotten, abandon(), "of checkpoint");
    let rivals = Setup { rivals: 1, requests: 1, splits: &[&[0]], ..one_worker(ALIGNED) };
    found(Bug::PublishUnfenced, Setup { prompt_sinks: true, ..rivals }, "doubles output");
}
