//! Two sinks of one job share its progress topic: what one has left open there must not hide from the
//! other what it has published.

use std::time::Duration;

use crate::place::{Place, verdict, was_killed};
use crate::support::kafka::Broker;
use crate::support::wait;

/// Much less than a transaction may be open: 60 seconds.
const SOON: Duration = Duration::from_secs(45);

/// Sinks publish one after the other: in these turns either one, and the other has something open.
#[test]
fn a_transaction_that_one_sink_left_open_does_not_hold_the_other_back() {
    for turn in 2..=5 {
        let mut place = Place::new(&format!("two-sinks-{turn}"));
        let (copies, url) = place.copies(Broker::shared());
        place.feed(300);
        for workers in [2, 1] {
            let run = place.job().workers(workers).flag("--copies", &url);
            let mut job = run.crash(&format!("kafka-marked@{turn}")).start();
            let end = place.feed_until_it_ends(&mut job);
            assert!(was_killed(end), "{end}: {}", job.errors());
            let hanging = place.progress().glance().hanging;
            assert!(!hanging.is_empty(), "a transaction is open");
        }
        let since = wait::Since::now();
        place.job().workers(3).flag("--copies", &url).ends_well();
        assert!(since.passed() < SOON, "turn {turn}: it took {:?}", since.passed());
        place.check();
        verdict(&place.expected, &copies.read()).assert_exact();
    }
}

/// Both have a transaction open, and one of them another name since.
#[test]
fn a_sink_that_was_renamed_holds_no_other_back_either() {
    for (name, turn) in [("two-renamed-a", 4), ("two-renamed-b", 5)] {
        let mut place = Place::new(name);
        let (copies, url) = place.copies(Broker::shared());
        place.feed(300);
        let run = place.job().workers(2).flag("--copies", &url);
        let mut job = run.crash(&format!("kafka-marked@{turn}")).start();
        assert!(was_killed(place.feed_until_it_ends(&mut job)), "{}", job.errors());
        let since = wait::Since::now();
        let run = place.job().workers(1).flag("--copies", &url).flag("--sink", "verdicts");
        run.flag("--renamed-from", "assessments").ends_well();
        assert!(since.passed() < SOON, "it took {:?}", since.passed());
        place.check();
        verdict(&place.expected, &copies.read()).assert_exact();
    }
}
