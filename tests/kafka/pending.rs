//! Output between its manifest and its transaction, settled by an operator without a run.

use crate::job::Settle;
use crate::place::{Place, verdict, was_killed};

/// A job that died when its output was durable but not published.
fn owing(name: &str) -> Place {
    let mut place = Place::new(name);
    place.feed(300);
    let mut job = place.job().workers(2).crash("manifest-written@3").start();
    assert!(was_killed(place.feed_until_it_ends(&mut job)), "{}", job.errors());
    place
}

fn published(place: &Place) -> u64 {
    verdict(&place.expected, &place.output.read()).records
}

#[test]
fn pending_output_is_listed_and_published_without_a_run() {
    let place = owing("pending-commit");
    let before = published(&place);
    let listed = place.job().settle(Settle::List);
    assert!(!listed.is_empty());
    for line in &listed {
        let what = ["`assessments`, epoch", " records (", "for topic pending-commit-out, lane 0"];
        assert!(what.iter().all(|what| line.contains(what)), "{line}");
    }
    assert_eq!(published(&place), before, "to list changes nothing");
    assert_eq!(place.job().settle(Settle::Commit), listed);
    assert!(published(&place) > before);
    place.check_so_far("settled");
    assert!(place.job().settle(Settle::List).is_empty());
    place.job().workers(3).ends_well();
    place.check();
}

#[test]
fn output_that_an_operator_gives_up_is_lost_and_nothing_else_is() {
    let mut place = owing("pending-abort");
    let owed = place.job().settle(Settle::Abort);
    let records = |line: &String| -> u64 {
        let words: Vec<&str> = line.split(' ').collect();
        let at = words.iter().position(|word| *word == "records").unwrap();
        words[at - 1].parse().unwrap()
    };
    let given_up: u64 = owed.iter().map(records).sum();
    assert!(given_up > 0, "{owed:?}");
    assert!(place.job().settle(Settle::List).is_empty());
    place.feed(300);
    place.job().workers(3).ends_well();
    let found = verdict(&place.expected, &place.output.read());
    let others = [found.doubled, found.out_of_order, found.foreign, found.moved];
    assert_eq!((found.lost, others), (given_up, [0; 4]), "{found:#?}");
}
