//! Starting from a checkpoint of a job that has changed since: types, operators, names, settings;
//! and beside another run of itself.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

#[path = "support/lab.rs"]
mod lab;

use std::fs;
use std::sync::Arc;

use isochrone::prelude::*;
use isochrone::state::codec::decode;
use isochrone::state::no_upgrade;
use isochrone::{Error, ErrorKind, Outcome, ids::OperatorId};
use lab::*;

/// The sum with a count of events beside it. The upgrade adds 1000, so that a second one shows.
#[derive(Default, PartialEq, Serialize, Deserialize)]
struct Account {
    sum: u64,
    events: u64,
}

impl State for Account {
    const VERSION: u16 = 2;

    fn upgrade(from: u16, bytes: &[u8]) -> Result<Self> {
        match from {
            1 => decode::<Sum>(bytes).map(|old| Account { sum: old.0 + 1000, events: 0 }),
            other => Err(no_upgrade::<Self>(other)),
        }
    }
}

/// Of a later version, without an upgrade.
#[derive(Default, PartialEq, Serialize, Deserialize)]
struct Later(u64);

impl State for Later {
    const VERSION: u16 = 3;
}

/// Of an earlier version: the program is older than its checkpoint.
#[derive(Default, PartialEq, Serialize, Deserialize)]
struct Earlier(u64);

impl State for Earlier {
    const VERSION: u16 = 0;
}

/// Another shape under the same version.
#[derive(Default, PartialEq, Serialize, Deserialize)]
struct Reshaped(i64, u8);

impl State for Reshaped {
    const VERSION: u16 = 1;
}

/// The job with a state of another type.
fn with_state<S: State>(
    lab: &Lab<Event>,
    sum: fn(&mut S, u64) -> u64,
) -> impl Fn(&Flow<'_>) -> Result<()> + Send + Sync + 'static {
    let (source, out) = (lab.source(), lab.out());
    move |flow| {
        flow.source("events", source())
            .key_by(|event| event.0)
            .state::<S>("sums")
            .map(move |state, event| format!("{} {}", event.0, sum(state, event.1)))
            .sink("lines", PartFiles::at(&out).text());
        Ok(())
    }
}

fn assert_refused(end: Result<isochrone::Summary>, kind: ErrorKind, parts: &[&str]) {
    let error: Error = end.expect_err("a refusal");
    let text = error.report();
    assert_eq!(error.kind(), kind, "{text}");
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}

/// Account 9 is seen before the upgrade and long after it: its row must have been upgraded too.
#[test]
fn state_of_an_older_version_is_upgraded_once() {
    let one = |account| vec![(account, 1), (7, 1)];
    let mut lab = Lab::new(vec![one(9), one(8), one(8), one(9)]);
    let build = totals(&lab);
    lab.phase(&quiet(1), build).unwrap();
    let build = totals(&lab);
    lab.phase(&quiet(1), build).unwrap();
    let account = |account: &mut Account, amount| {
        account.events += 1;
        account.sum += amount;
        account.sum
    };
    let build = with_state(&lab, account);
    let upgraded = lab.phase(&quiet(2), build).unwrap();
    let says = |lines: &[String], what| lines.iter().any(|line| line.contains(what));
    assert!(says(&upgraded.restore.operators, "`sums`: upgraded from version 1"));
    let kept = lab.finish(&quiet(3), with_state(&lab, account)).unwrap();
    assert!(says(&kept.restore.operators, "`sums`: kept"));
    let expected = ["7 1", "7 1003", "7 1004", "7 2", "8 1", "8 1002", "9 1", "9 1002"];
    assert_eq!(lab.lines(), expected);
}

#[test]
fn state_of_another_version_or_shape_is_refused_naming_the_operator_and_both() {
    let lab = Lab::with_history();
    let later = lab.finish(&quiet(1), with_state::<Later>(&lab, |s, n| s.0 + n));
    let says = ["`sums`", "version 1 in the checkpoint and 3", "write `upgrade`"];
    assert_refused(later, ErrorKind::Incompatible, &says);
    let earlier = lab.finish(&quiet(1), with_state::<Earlier>(&lab, |s, n| s.0 + n));
    let says = ["`sums`", "version 1 in the checkpoint and 0", "newer program"];
    assert_refused(earlier, ErrorKind::Incompatible, &says);
    let reshaped = lab.finish(&quiet(1), with_state::<Reshaped>(&lab, |s, n| s.1 as u64 + n));
    let says = ["`sums`", "shape", "both called version 1", "set its `VERSION` to 2"];
    assert_refused(reshaped, ErrorKind::Incompatible, &says);
    // Not even the older checkpoints are looked at: nothing is damaged.
    let reshaped = lab.finish(&previous(), with_state::<Reshaped>(&lab, |s, n| s.1 as u64 + n));
    assert_refused(reshaped, ErrorKind::Incompatible, &["`sums`", "shape"]);
    lab.finishes_rightly(&quiet(1));
}

/// The job with the sums left out.
fn without_state(lab: &Lab<Event>) -> impl Fn(&Flow<'_>) -> Result<()> + Send + Sync + 'static {
    let (source, out) = (lab.source(), lab.out());
    move |flow| {
        let lines = flow.source("events", source()).map(|(account, _)| format!("{account}"));
        lines.sink("lines", PartFiles::at(&out).text());
        Ok(())
    }
}

#[test]
fn an_operator_that_is_gone_stops_the_job_until_it_is_dropped() {
    let lab = Lab::with_history();
    let says = ["state of operator `sums`", "no longer has", "renamed_from", "--drop sums"];
    let gone = lab.finish(&quiet(1), without_state(&lab));
    assert_refused(gone, ErrorKind::Incompatible, &says);
    let drop = RunArgs { drop: vec![OperatorId::new("sums").unwrap()], ..quiet(1) };
    let wrong = lab.finish(&drop, totals(&lab));
    assert_refused(wrong, ErrorKind::Invalid, &["`--drop sums`", "the job has"]);

    let summary = lab.finish(&drop, without_state(&lab)).unwrap();
    assert_eq!(summary.read, 40);
    assert!(summary.restore.operators.contains(&"`sums`: dropped".to_owned()));
    // What was dropped does not come back by itself: the operator starts empty.
    let again = lab.finish(&quiet(1), totals(&lab)).unwrap();
    assert_eq!(again.read, 0);
}

/// Else the next run would be refused what this one was allowed.
#[test]
fn a_drop_is_done_also_when_there_is_no_input_left() {
    let lab = Lab::with_history();
    lab.finish(&quiet(1), totals(&lab)).unwrap();
    let drop = RunArgs { drop: vec![OperatorId::new("sums").unwrap()], ..quiet(1) };
    let dropped = lab.finish(&drop, without_state(&lab)).unwrap();
    assert_eq!((dropped.outcome, dropped.read), (Outcome::InputEnded, 0));
    assert!(dropped.restore.operators.contains(&"`sums`: dropped".to_owned()));
    let again = lab.finish(&quiet(1), without_state(&lab)).unwrap();
    assert_eq!(again.outcome, Outcome::NothingToDo);
}

#[test]
fn a_drop_of_an_operator_that_the_checkpoint_does_not_have_is_refused_naming_those_it_has() {
    let lab = Lab::with_history();
    let drop = |id| RunArgs { drop: vec![OperatorId::new(id).unwrap()], ..quiet(1) };
    let wrong = lab.finish(&drop("smus"), totals(&lab));
    let says = ["`--drop smus`", "`events`", "`sums`", "`lines`"];
    assert_refused(wrong, ErrorKind::Invalid, &says);
    lab.finish(&drop("sums"), without_state(&lab)).unwrap();
    let again = lab.finish(&drop("sums"), without_state(&lab));
    assert_refused(again, ErrorKind::Invalid, &["`--drop sums`", "if it was dropped before"]);
    let fresh = Lab::new(phases());
    let end = fresh.finish(&drop("sums"), totals(&fresh));
    assert_refused(end, ErrorKind::Invalid, &["`--drop sums`", "no operators"]);
}

#[test]
fn a_source_that_is_gone_stops_the_job_too() {
    let lab = Lab::with_history();
    let (source, out) = (lab.source(), lab.out());
    let end = lab.finish(&quiet(1), move |flow| {
        flow.source("purchases", source())
            .key_by(|event| event.0)
            .state::<Sum>("sums")
            .map(|sum, event| format!("{} {}", event.0, sum.0))
            .sink("lines", PartFiles::at(&out).text());
        Ok(())
    });
    assert_refused(end, ErrorKind::Incompatible, &["source of operator `events`", "--drop events"]);
}

#[test]
fn renamed_source_state_and_sink_go_on_with_what_they_had() {
    let mut lab = Lab::new({
        let mut phases = phases();
        let last = phases.pop().unwrap();
        let (third, fourth) = last.split_at(20);
        phases.extend([third.to_vec(), fourth.to_vec()]);
        phases
    });
    for _ in 0..2 {
        let build = totals(&lab);
        lab.phase(&quiet(1), build).unwrap();
    }
    let renamed = |lab: &Lab<Event>| {
        let (source, out) = (lab.source(), lab.out());
        move |flow: &Flow<'_>| {
            flow.source(Id::new("purchases").renamed_from("events"), source())
                .key_by(|event| event.0)
                .state::<Sum>("totals")
                .renamed_from("sums")
                .map(|sum, event| {
                    sum.0 += event.1;
                    format!("{} {}", event.0, sum.0)
                })
                .sink(Id::new("out").renamed_from("lines"), PartFiles::at(&out).text());
            Ok(())
        }
    };
    let build = renamed(&lab);
    let summary = lab.phase(&quiet(2), build).unwrap();
    assert!(summary.restore.operators.contains(&"`totals`: taken over from `sums`".to_owned()));
    // The old names stay in the program; the new ones are in the checkpoint by now.
    let summary = lab.finish(&quiet(1), renamed(&lab)).unwrap();
    assert!(summary.restore.operators.contains(&"`totals`: kept".to_owned()));
    assert_eq!(lab.lines(), lab.expected());
}

#[test]
fn an_operator_without_state_in_the_checkpoint_starts_empty_and_is_reported() {
    let lab = Lab::with_history();
    let (source, out) = (lab.source(), lab.out());
    let summary = lab
        .finish(&quiet(1), move |flow| {
            flow.source("events", source())
                .key_by(|event| event.0)
                .state::<Sum>("sums")
                .map(|sum, event| {
                    sum.0 += event.1;
                    (event.0, sum.0)
                })
                .key_by(|(account, _)| *account)
                .count("counts")
                .map(|(account, count)| format!("count {account} {count}"))
                .sink("lines", PartFiles::at(&out).text());
            Ok(())
        })
        .unwrap();
    let says = "`counts`: not in the checkpoint, starts empty".to_owned();
    assert!(summary.restore.operators.contains(&says), "{:?}", summary.restore.operators);
    // Events (n * n % 7) of the third phase alone.
    let lines = lab.lines();
    let has = |line: &str| lines.iter().any(|found| found == line);
    assert!(has("count 0 1") && has("count 0 6") && !has("count 0 7"), "{lines:?}");
}

#[test]
fn another_number_of_key_groups_is_refused() {
    let lab = Lab::with_history();
    let end = lab.job().key_groups(64).run(quiet(1), totals(&lab));
    assert_refused(end, ErrorKind::Incompatible, &["128 key groups", "64", "set it back to 128"]);
}

#[test]
fn a_store_under_another_jobs_name_is_refused() {
    let lab = Lab::with_history();
    fs::rename(lab.store().join(JOB), lab.store().join("other")).unwrap();
    let job = Job::new("other").checkpoint(Checkpoint::dir(lab.store()));
    let end = job.run(quiet(1), totals(&lab));
    assert_refused(end, ErrorKind::Invalid, &["job `shop`", "name the job as it was"]);
}

#[test]
fn another_job_in_the_same_store_is_its_own_but_may_not_write_into_the_same_folder() {
    let lab = Lab::with_history();
    let job = || Job::new("other").checkpoint(Checkpoint::dir(lab.store()));
    let refused = job().run(quiet(1), totals(&lab));
    assert_refused(refused, ErrorKind::Invalid, &["belongs to sink `lines` of job `shop`"]);
}

/// The old run goes on as if nothing had happened until it wants to publish.
#[test]
fn a_run_that_was_taken_over_is_fenced_and_publishes_nothing() {
    let lab = Arc::new(Lab::new(phases()));
    let (old, zombie) = (lab.job(), lab.clone());
    let read = zombie.read();
    let zombie = std::thread::spawn(move || old.run(quiet(1), totals(&zombie)));
    while read() < 40 {
        pause();
    }
    lab.run_until(40, lab.job(), &quiet(1), totals(&lab)).unwrap();
    // This opens the gates for the old run too.
    lab.finishes_rightly(&quiet(1));
    assert_refused(zombie.join().unwrap(), ErrorKind::Fenced, &["job `shop`", "newer run"]);
    assert_eq!(lab.lines(), lab.expected());
}
