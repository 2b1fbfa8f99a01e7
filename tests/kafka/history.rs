//! A store and a broker that do not tell the same story: taken up where it is certain what to do,
//! refused where output would be doubled or lost.

use std::fs;
use std::path::Path;
use std::process::Command;

use isochrone::ErrorKind;

use crate::place::{Place, verdict, was_killed};
use crate::support::kafka::Broker;
use crate::support::wait;

/// A job that has died at a step, in the midst of its input.
pub(crate) fn died_at(name: &str, step: &str) -> Place {
    let mut place = Place::new(name);
    dies_at(&mut place, step);
    place
}

fn dies_at(place: &mut Place, step: &str) {
    place.feed(300);
    let mut job = place.job().workers(2).crash(step).start();
    let end = place.feed_until_it_ends(&mut job);
    assert!(was_killed(end), "{step}: {end}: {}", job.errors());
}

pub(crate) fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-r").args([from, to]).status().unwrap().success());
}

/// The store as it was.
pub(crate) fn bring_back(place: &Place, copied: &Path) {
    fs::remove_dir_all(place.store()).unwrap();
    copy(copied, &place.store());
}

#[test]
fn a_checkpoint_is_restored_as_often_as_need_be() {
    let place = died_at("restored-twice", "manifest-written@3");
    let copied = place.folder.path().join("copied");
    copy(&place.store(), &copied);
    // The first time, its output is published; then as if that run had never been.
    for time in 0..2 {
        // The end of the input takes a checkpoint, also where nothing is left to read.
        let mut job = place.job().workers(1 + time).until_end().crash("kafka-kept").start();
        assert!(was_killed(job.end()), "{}", job.errors());
        place.check_so_far("restored");
        bring_back(&place, &copied);
    }
    place.job().workers(3).ends_well();
    place.check();
}

#[test]
fn a_checkpoint_older_than_the_output_is_refused_unless_duplicates_are_accepted() {
    let mut place = died_at("rolled-back", "kafka-committed@3");
    let copied = place.folder.path().join("copied");
    copy(&place.store(), &copied);
    place.job().workers(2).ends_well();
    let newest = place.folder.path().join("newest");
    copy(&place.store(), &newest);
    place.feed(300);
    place.job().workers(2).ends_well();
    place.check();

    bring_back(&place, &copied);
    let said = place.job().fails_with(2);
    for what in ["would go on from checkpoint", "has published up to epoch", "accept_duplicates"] {
        assert!(said.contains(what), "{said}");
    }
    place.check();

    // In few epochs, so that the marks stay behind those of the run before.
    let in_few = |place: &Place, flags: &[&str]| {
        let run = place.job().workers(2).flag("--checkpoint-every", "1h");
        flags.iter().fold(run, |run, flag| run.with(flag)).ends_well();
    };
    in_few(&place, &["--accept-duplicates"]);
    let found = verdict(&place.expected, &place.output.read());
    let clean = [found.lost, found.out_of_order, found.foreign, found.moved];
    assert!(clean == [0; 4] && found.doubled > 0, "{found:#?}");
    // That was for once: what comes now comes once.
    let before = found.doubled;
    let stays_so = |place: &Place| {
        let found = verdict(&place.expected, &place.output.read());
        let clean = [found.lost, found.out_of_order, found.foreign, found.moved];
        assert!(clean == [0; 4] && found.doubled == before, "{found:#?}");
    };
    place.feed(300);
    in_few(&place, &[]);
    stays_so(&place);
    // Nor may a checkpoint of before be gone on from now, however often it is tried.
    let accepted = place.folder.path().join("accepted");
    copy(&place.store(), &accepted);
    bring_back(&place, &newest);
    for _ in 0..2 {
        let said = place.job().fails_with(2);
        assert!(
            said.contains("not of the history") && said.contains("accept_duplicates"),
            "{said}"
        );
    }
    bring_back(&place, &accepted);
    place.feed(300);
    place.job().workers(2).ends_well();
    stays_so(&place);
}

/// What a run that accepts duplicates has told the topic is enough, wherever it dies.
#[test]
fn a_run_that_accepts_duplicates_may_die_at_any_step() {
    let steps = ["kafka-turned", "kafka-kept", "manifest-written", "kafka-marked"];
    for (number, step) in steps.iter().enumerate() {
        let mut place = died_at(&format!("turned-{number}"), "kafka-committed@3");
        let copied = place.folder.path().join("copied");
        copy(&place.store(), &copied);
        place.feed(300);
        place.job().workers(2).ends_well();
        bring_back(&place, &copied);
        let mut job = place.job().workers(2).with("--accept-duplicates").crash(step).start();
        let end = place.feed_until_it_ends(&mut job);
        assert!(was_killed(end), "{step}: {end}: {}", job.errors());
        place.job().workers(1).ends_well();
        let found = verdict(&place.expected, &place.output.read());
        let clean = [found.lost, found.out_of_order, found.foreign, found.moved];
        assert!(clean == [0; 4] && found.doubled > 0, "{step}: {found:#?}");
        let before = found.doubled;
        place.feed(300);
        place.job().workers(3).ends_well();
        let found = verdict(&place.expected, &place.output.read());
        assert_eq!((found.lost, found.doubled), (0, before), "{step}: {found:#?}");
    }
}

/// A checkpoint that does not know a sink cannot tell what it published before.
#[test]
fn a_sink_that_comes_back_says_what_to_do_and_doubles_nothing_then() {
    let ways: [(&str, &[&str]); 2] = [
        ("back-accepted", &["--accept-duplicates"]),
        ("back-renamed", &["--copies-sink", "copies-again"]),
    ];
    for (name, way) in ways {
        let mut place = Place::new(name);
        let (copies, url) = place.copies(Broker::shared());
        place.feed(300);
        place.job().workers(2).flag("--copies", &url).ends_well();
        place.feed(300);
        place.job().workers(2).ends_well();
        let without = 300..600;
        place.feed(300);
        let said = place.job().flag("--copies", &url).fails_with(2);
        for what in ["does not know sink `copies`", "new id", "accept_duplicates"] {
            assert!(said.contains(what), "{said}");
        }
        let back = |flags: &[&str]| {
            let run = place.job().workers(2).flag("--copies", &url);
            flags.iter().fold(run, |run, flag| run.with(flag)).ends_well();
        };
        back(way);
        // The next start needs nothing any more but the id.
        let stays: &[&str] = if way[0] == "--accept-duplicates" { &[] } else { way };
        back(stays);
        place.check();
        let mut expected = place.expected.clone();
        expected.drain(without);
        verdict(&expected, &copies.read()).assert_exact();
    }
}

/// What is published after a checkpoint belongs to the next one.
#[test]
fn the_checkpoint_just_before_the_newest_is_older_than_the_output_too() {
    let mut place = died_at("one-back", "manifest-written@3");
    let copied = place.folder.path().join("copied");
    copy(&place.store(), &copied);
    // The first commit is of what was pending there, the second of one checkpoint more.
    dies_at(&mut place, "kafka-committed@2");
    let newest = place.folder.path().join("newest");
    copy(&place.store(), &newest);
    bring_back(&place, &copied);
    let said = place.job().fails_with(2);
    assert!(said.contains("has published up to epoch"), "{said}");
    bring_back(&place, &newest);
    place.job().workers(2).ends_well();
    place.check();
}

#[test]
fn a_job_without_its_store_is_a_stranger_to_its_output() {
    let place = died_at("store-deleted", "kafka-committed@2");
    let copied = place.folder.path().join("copied");
    copy(&place.store(), &copied);
    fs::remove_dir_all(place.store()).unwrap();
    let said = place.job().fails_with(2);
    assert!(said.contains("belongs to another job of the same name"), "{said}");
    assert!(said.contains("with another store"), "{said}");
    bring_back(&place, &copied);
    place.job().workers(3).ends_well();
    place.check();
}

#[test]
fn of_two_jobs_of_one_name_with_two_stores_the_second_is_refused() {
    let mut place = Place::new("two-stores");
    let other = place.folder.path().join("other-store");
    let other = other.to_str().unwrap();
    place.feed(300);
    let first = place.job().workers(2).start();
    place.await_all(&first);
    let said = place.job().flag("--store", other).fails_with(2);
    assert!(said.contains("belongs to another job of the same name"), "{said}");
    // The first one has not even noticed.
    place.feed(300);
    place.await_all(&first);
    drop(first);
    place.job().ends_well();
    place.check();
}

#[test]
fn of_two_jobs_of_one_name_that_start_at_once_with_two_stores_one_goes_on() {
    for time in 0..3 {
        let mut place = Place::new(&format!("two-at-once-{time}"));
        place.feed(300);
        let other = place.folder.path().join("other-store");
        let mut jobs = [
            place.job().until_end().start(),
            place.job().until_end().flag("--store", other.to_str().unwrap()).start(),
        ];
        let ends = jobs.each_mut().map(|job| job.end().code());
        let said = jobs.each_ref().map(|job| job.errors());
        let refused = Some(i32::from(ErrorKind::Invalid.exit_code()));
        let count = |what: Option<i32>| ends.iter().filter(|end| **end == what).count();
        assert_eq!((count(Some(0)), count(refused)), (1, 1), "{ends:?}: {said:?}");
        place.check();
    }
}

/// Both have looked and seen nobody. The second to claim is refused, and the first goes on, with all
/// lanes that it claims; also if both die right then, when nothing has been published.
#[test]
fn of_two_jobs_that_have_seen_nobody_the_first_to_claim_wins_for_good() {
    for (number, dies) in ["", ",kafka-claimed"].iter().enumerate() {
        let point = format!("kafka-claiming=stop{dies}");
        let mut place = Place::new(&format!("two-claims-{number}"));
        place.feed(300);
        let other = place.folder.path().join("other-store");
        let second = || place.job().until_end().flag("--store", other.to_str().unwrap());
        let mut winner = place.job().until_end().crash(&point).start();
        let mut loser = second().crash(&point).start();
        for job in [&winner, &loser] {
            assert!(wait::soon(|| job.is_stopped()), "{}", job.errors());
        }
        winner.signal("CONT");
        let end = winner.end();
        assert!(end.success() || !dies.is_empty() && was_killed(end), "{}", winner.errors());
        loser.signal("CONT");
        let end = loser.end();
        if dies.is_empty() {
            assert_eq!(end.code(), Some(2), "{end}: {}", loser.errors());
            assert!(loser.errors().contains("belongs to another job of the same name"));
        } else {
            assert!(was_killed(end), "{end}: {}", loser.errors());
        }
        let said = place.job().flag("--store", other.to_str().unwrap()).fails_with(2);
        assert!(said.contains("belongs to another job of the same name"), "{said}");
        place.feed(300);
        place.job().processes(3).ends_well();
        place.feed(300);
        place.job().ends_well();
        place.check();
    }
}

#[test]
fn a_sink_that_was_renamed_publishes_what_it_owed_under_its_old_name() {
    for (number, step) in ["manifest-written@2", "kafka-committed@2"].iter().enumerate() {
        let mut place = died_at(&format!("renamed-{number}"), step);
        let renamed = |place: &Place, crash: Option<&str>| {
            let run = place.job().workers(3).flag("--sink", "verdicts");
            let run = run.flag("--renamed-from", "assessments");
            match crash {
                None => run.ends_well(),
                Some(point) => {
                    let mut job = run.crash(point).start();
                    assert!(was_killed(job.end()), "{}", job.errors());
                }
            }
        };
        let said = place.job().flag("--sink", "verdicts").fails_with(3);
        assert!(said.contains("assessments"), "{said}");
        renamed(&place, Some("kafka-kept"));
        place.check_so_far(step);
        place.feed(300);
        renamed(&place, None);
        place.check();
    }
}
