//! A run is cut off at its n-th call to the store, for every n, or gets a bad answer there, or is
//! overtaken there. Nothing that it was told is durable is ever lost or lacks data.

use std::sync::Arc;

use super::test_store::{Fault, MapStore};
use super::tests::{checkpoint, claim, job, newest_or_fresh, upload};
use super::*;
use crate::manifest::{Part, Segment};
use crate::restore::verify_data;
use crate::{ErrorKind, paths};

const RETAIN: Retain = Retain { last: 2, younger_than_ms: 0 };

/// What a run did before it ended.
#[derive(Default)]
struct Done {
    acknowledged: u64,
    /// Segments of the newest checkpoints, of which each names two.
    segments: Vec<Segment>,
}

/// Claims, then publishes and collects five times.
fn work(store: &Arc<MapStore>, done: &mut Done) -> Result<()> {
    let (mut run, restored) = claim(store)?;
    done.acknowledged = done.acknowledged.max(restored.map_or(0, |manifest| manifest.epoch.0));
    for _ in 0..5 {
        step(store, &mut run, done)?;
    }
    Ok(())
}

fn step(store: &Arc<MapStore>, run: &mut Lineage, done: &mut Done) -> Result<()> {
    let epoch = run.epoch().next();
    done.segments.push(upload(store, run.generation(), epoch.0)?);
    let named = done.segments.iter().rev().take(2).rev().cloned().collect();
    done.acknowledged = run.publish(checkpoint(epoch.0, named))?.epoch().0;
    run.collect(&RETAIN, 0).map(drop)
}

/// A new run finds all that was acknowledged, with its data.
fn check(store: &Arc<MapStore>, done: &Done, at: &str) {
    let (mut heir, restored) = claim(store).unwrap_or_else(|error| panic!("{at}: {error}"));
    let epoch = restored.as_ref().map_or(0, |manifest| manifest.epoch.0);
    assert!(epoch >= done.acknowledged, "{at}: {epoch} of {} restored", done.acknowledged);
    for found in read_all(&**store, &job()).unwrap() {
        let manifest = found.manifest.unwrap_or_else(|error| panic!("{at}: {error}"));
        verify_data(&**store, &manifest).unwrap_or_else(|error| panic!("{at}: {error}"));
    }
    heir.collect(&RETAIN, 0).unwrap();
    let mut needed = BTreeSet::new();
    for found in read_all(&**store, &job()).unwrap() {
        needed.extend(Retained::from(&found.manifest.unwrap()).names);
    }
    let there = store.list(&paths::data_objects(&job())).unwrap();
    assert!(there.iter().eq(&needed), "{at}: an heir leaves no data that nobody needs");
}

fn calls_of_work() -> usize {
    let store = Arc::new(MapStore::default());
    store.fail_at(usize::MAX, Fault::CrashBefore);
    work(&store, &mut Done::default()).unwrap();
    store.calls()
}

#[test]
fn a_crash_at_any_call_loses_nothing() {
    let calls = calls_of_work();
    assert!(calls > 50, "{calls}");
    for call in 0..calls {
        for fault in [Fault::CrashBefore, Fault::CrashAfter] {
            let store = Arc::new(MapStore::default());
            let mut done = Done::default();
            store.fail_at(call, fault);
            assert!(
                work(&store, &mut done).is_err() || call + 3 > calls,
                "{fault:?} at {call} was not noticed"
            );
            store.heal();
            check(&store, &done, &format!("{fault:?} at {call}"));
        }
    }
}

#[test]
fn a_second_crash_while_taking_over_loses_nothing() {
    let calls = calls_of_work();
    for first in (0..calls).step_by(3) {
        for second in 0..12 {
            let store = Arc::new(MapStore::default());
            let mut done = Done::default();
            store.fail_at(first, Fault::CrashAfter);
            let _cut_off = work(&store, &mut done);
            store.fail_at(second, Fault::CrashAfter);
            done.segments.clear();
            let _cut_off = work(&store, &mut done);
            store.heal();
            check(&store, &done, &format!("crashes at {first} and {second}"));
        }
    }
}

#[test]
fn one_bad_answer_at_any_call_stops_no_publish() {
    for call in 0..calls_of_work() {
        for fault in [Fault::NoAnswerBefore, Fault::NoAnswerAfter, Fault::AppliedToldExists] {
            let at = format!("{fault:?} at {call}");
            let store = Arc::new(MapStore::default());
            let mut done = Done::default();
            store.fail_at(call, fault);
            let (mut run, _) = claim(&store).or_else(|_| claim(&store)).unwrap();
            while done.acknowledged < 5 {
                let before = done.acknowledged;
                if let Err(error) = step(&store, &mut run, &mut done) {
                    assert_eq!(error.kind(), ErrorKind::Unavailable, "{at}: {error}");
                    let publish_failed = run.epoch().0 == before && run.resolve().is_ok();
                    assert!(!publish_failed, "{at}: a publish was left in doubt");
                }
            }
            check(&store, &done, &at);
        }
    }
}

/// The rival goes on with the segments that it restored, so that they must outlive the collection
/// that it interrupts.
fn overtake(store: &Arc<MapStore>, publishes: usize) -> (u64, u64) {
    let (mut rival, restored) = Lineage::claim(store.clone(), &job(), 0, newest_or_fresh).unwrap();
    let epoch = restored.as_ref().map_or(0, |manifest| manifest.epoch.0);
    let parts = restored.into_iter().flat_map(|manifest| manifest.operators);
    let segments = parts.flat_map(|operator| match operator.part {
        Part::State { segments, .. } => segments,
        other => panic!("{other:?} is no state"),
    });
    let mut done = Done { acknowledged: epoch, segments: segments.collect() };
    for _ in 0..publishes {
        step(store, &mut rival, &mut done).unwrap();
    }
    rival.collect(&Retain { last: 1, ..RETAIN }, 0).unwrap();
    (epoch, done.acknowledged)
}

#[test]
fn being_overtaken_at_any_call_loses_nothing() {
    let mut overtaken = 0;
    for (call, publishes) in (0..calls_of_work()).flat_map(|call| [(call, 0), (call, 1), (call, 4)])
    {
        let at = format!("overtaken at {call} by {publishes} checkpoints");
        let store = Arc::new(MapStore::default());
        let shared = store.clone();
        let (tell, told) = std::sync::mpsc::channel();
        store.before_call(call, move |_| tell.send(overtake(&shared, publishes)).unwrap());
        let mut done = Done::default();
        let ended = work(&store, &mut done);
        let (restored, acknowledged) = told.recv().unwrap();
        if let Err(error) = ended {
            assert_eq!(error.kind(), ErrorKind::Fenced, "{at}: {error}");
            assert!(restored >= done.acknowledged, "{at}: the rival restored too little");
            overtaken += 1;
        }
        done.acknowledged = done.acknowledged.max(acknowledged);
        check(&store, &done, &at);
    }
    assert!(overtaken > 100, "only {overtaken} were overtaken");
}
