//! Without transactions: what a sink that may repeat itself still promises.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::place::{PARTITIONS_OUT, Place, Run, verdict, was_killed};
use crate::support::kafka::{Broker, Topic};
use crate::support::wait;

/// Dies three times, at other steps than the sink's, which has none.
fn dies_and_ends(place: &mut Place, promise: &str) {
    place.feed(300);
    for (point, workers) in [("manifest-due", 2), ("manifest-written", 3), ("manifest-due@4", 1)] {
        let run = place.job().workers(workers).flag("--promise", promise);
        let mut job = run.crash(point).start();
        let end = place.feed_until_it_ends(&mut job);
        assert!(was_killed(end), "{point}: {end}: {}", job.errors());
    }
    place.job().workers(2).flag("--promise", promise).ends_well();
}

#[test]
fn at_least_once_nothing_is_lost() {
    let mut place = Place::new("at-least");
    dies_and_ends(&mut place, "at-least");
    let found = verdict(&place.expected, &place.output.read());
    assert_eq!([found.lost, found.foreign, found.moved], [0; 3], "{found:#?}");
    assert!(found.doubled > 0, "the kills have done nothing: {found:#?}");
}

/// A reader that takes each key once sees each purchase once.
#[test]
fn equal_events_carry_the_same_idempotency_key_however_often_they_are_written() {
    let mut place = Place::new("idempotent");
    dies_and_ends(&mut place, "idempotent");
    let content = place.output.read();
    let found = verdict(&place.expected, &content);
    assert_eq!([found.lost, found.foreign, found.moved], [0; 3], "{found:#?}");
    assert!(found.doubled > 0, "the kills have done nothing: {found:#?}");
    let mut by_key = BTreeMap::<Vec<u8>, Vec<u8>>::new();
    for record in &content.records {
        let [(name, Some(key))] = &record.headers[..] else { panic!("{record:?}") };
        assert_eq!(name, "idempotency-key");
        let value = record.value.clone().unwrap();
        let before = by_key.insert(key.clone(), value.clone());
        assert!(before.is_none_or(|before| before == value), "{record:?}");
    }
    assert_eq!(by_key.len(), place.expected.len());
}

/// What an exactly-once sink has still to publish is not forgotten when the promise is lowered.
#[test]
fn a_promise_is_not_lowered_while_output_is_pending() {
    let mut place = Place::new("lowered");
    place.feed(300);
    let mut job = place.job().workers(2).crash("manifest-written@2").start();
    assert!(was_killed(place.feed_until_it_ends(&mut job)), "{}", job.errors());
    let said = place.job().flag("--promise", "at-least").fails_with(2);
    assert!(said.contains("has still to publish") && said.contains("commit_pending"), "{said}");
    place.job().ends_well();
    place.check();
    place.feed(300);
    place.job().flag("--promise", "at-least").ends_well();
    place.check();
}

fn at_least_to<'p>(url: &str, place: &'p Place) -> Run<'p> {
    place.job().flag("--promise", "at-least").flag("--output", url)
}

/// What no broker has acknowledged is not taken for written. Input and output have brokers of their
/// own: that of the output stops, and dies with what it had not acknowledged. So does the job, or it
/// goes on.
#[test]
fn what_no_broker_has_acknowledged_comes_again_also_when_the_job_dies() {
    let broker = Broker::start();
    for (name, dies) in [("unacknowledged-job", true), ("unacknowledged", false)] {
        let mut place = Place::new(name);
        place.output = Topic::create(&broker, &place.output.name, PARTITIONS_OUT);
        let url = format!("kafka://{}/{}", broker.address(), place.output.name);
        let mut job = at_least_to(&url, &place).workers(2).start();
        place.feed(300);
        place.await_all(&job);
        broker.signal("STOP");
        // Sixty times as long as from one checkpoint to the next.
        let mut makes_none = || {
            let held = place.manifests();
            for _ in 0..30 {
                place.feed(30);
                wait::pause(Duration::from_millis(100));
            }
            place.manifests() == held
        };
        // What was acknowledged before may still become a checkpoint.
        assert!(wait::soon(&mut makes_none), "{name}: checkpoints go on: {}", job.errors());
        assert!(makes_none(), "{name}: checkpoints come again: {}", job.errors());
        broker.kill9();
        if dies {
            assert!(job.ended().is_none() && job.kill(), "{name}: {}", job.errors());
        }
        broker.restart();
        if !dies {
            place.feed(300);
            place.await_all(&job);
            assert!(job.ended().is_none() && job.kill(), "{name}: {}", job.errors());
        }
        at_least_to(&url, &place).workers(3).ends_well();
        let found = verdict(&place.expected, &place.output.read());
        assert_eq!([found.lost, found.foreign, found.moved], [0; 3], "{name}: {found:#?}");
    }
}
