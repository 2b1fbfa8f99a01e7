//! Stories of runs that follow, overtake and outlive one another.

use std::sync::Arc;

use super::test_store::{Fault, MapStore};
use super::*;
use crate::ErrorKind;
use crate::ids::{OperatorId, StateVersion, Worker};
use crate::manifest::{Manifest, Operator, Part, Pending, Segment, Step};
use crate::paths::{self, DataKind, DataName, Object};
use crate::segment::{self, Identity, Rows};

pub(super) fn job() -> JobName {
    JobName::new("risk").unwrap()
}

pub(super) fn operator() -> OperatorId {
    OperatorId::new("count").unwrap()
}

fn fresh() -> Base {
    Base::Fresh { key_groups: 128, key_hash: "example".to_owned() }
}

/// Starts from the newest manifest, whatever it is.
pub(super) fn newest_or_fresh(newest: &Newest) -> Result<Base> {
    match &newest.top {
        None => Ok(fresh()),
        Some(top) => match &top.manifest {
            Ok(manifest) => Ok(Base::From(Box::new(manifest.clone()))),
            Err(error) => Err(Error::corrupt(error.to_string())),
        },
    }
}

pub(super) fn claim(store: &Arc<MapStore>) -> Result<(Lineage, Option<Manifest>)> {
    Lineage::claim(store.clone(), &job(), 1_000, newest_or_fresh)
}

/// Writes a data object of this run.
pub(super) fn upload(store: &MapStore, generation: Generation, epoch: u64) -> Result<Segment> {
    let identity = Identity {
        job: job(),
        generation,
        epoch: Epoch(epoch),
        operator: operator(),
        worker: Worker(0),
    };
    let name =
        DataName::fresh(Epoch(epoch), &operator(), Worker(0), generation, DataKind::Segment)?;
    let bytes = segment::encode(Rows::new(), &identity);
    let name = paths::data(&job(), &name);
    store.put(&name, &bytes)?;
    Ok(segment::reference(name, &bytes, &identity))
}

pub(super) fn checkpoint(epoch: u64, segments: Vec<Segment>) -> Checkpoint {
    let part = Part::State {
        version: StateVersion(1),
        shape: "shape".to_owned(),
        codec: "codec".to_owned(),
        segments,
    };
    Checkpoint {
        epoch: Epoch(epoch),
        taken_at_ms: 1_000 * epoch,
        duration_ms: 5,
        bytes: 100,
        finished: false,
        workers: 1,
        savepoint: None,
        operators: vec![Operator { id: operator(), part }],
        in_flight: vec![],
    }
}

/// Uploads one segment and publishes a checkpoint of it alone.
pub(super) fn publish(store: &MapStore, lineage: &mut Lineage, epoch: u64) -> Result<Published> {
    let segment = upload(store, lineage.generation(), epoch)?;
    lineage.publish(checkpoint(epoch, vec![segment]))
}

fn data(store: &MapStore) -> Vec<u64> {
    let names = store.list(&paths::data_objects(&job())).unwrap();
    let epoch = |name: &String| match paths::parse(name) {
        Some((_, Object::Data(data))) => data.epoch.0,
        other => panic!("{other:?} among data"),
    };
    names.iter().map(epoch).collect()
}

#[test]
fn a_run_goes_on_where_the_last_one_published() {
    let store = Arc::new(MapStore::default());
    let (mut first, nothing) = claim(&store).unwrap();
    assert_eq!((first.generation(), first.sequence(), nothing), (Generation(1), Sequence(1), None));
    let published = publish(&store, &mut first, 1).unwrap();
    assert_eq!((published.sequence(), published.epoch()), (Sequence(2), Epoch(1)));

    let (second, restored) = claim(&store).unwrap();
    assert_eq!((second.generation(), second.sequence()), (Generation(2), Sequence(3)));
    assert_eq!(restored.unwrap().epoch, Epoch(1));
    let all = read_all(&*store, &job()).unwrap();
    let steps: Vec<_> = all.iter().map(|found| found.manifest.as_ref().unwrap().step).collect();
    assert_eq!(steps, [Step::Claim, Step::Checkpoint, Step::Claim]);
    let chain =
        all.windows(2).all(|pair| pair[0].manifest.as_ref().unwrap().predecessor == pair[1].digest);
    assert!(chain, "each names the digest of the one before");
}

/// What a sink has been told of the job outlives a run that ends before its first checkpoint.
#[test]
fn a_job_keeps_its_origin_from_its_very_first_claim() {
    let store = Arc::new(MapStore::default());
    let afresh = || Lineage::claim(store.clone(), &job(), 1_000, |_| Ok(fresh())).unwrap();
    let (first, nothing) = afresh();
    let (mut second, still_nothing) = afresh();
    assert_eq!((nothing, still_nothing), (None, None));
    assert_eq!(second.origin(), first.origin());
    publish(&store, &mut second, 1).unwrap();
    let (third, _) = claim(&store).unwrap();
    assert_eq!(third.origin(), first.origin());
    let (other, _) = claim(&Arc::new(MapStore::default())).unwrap();
    assert_ne!(other.origin(), first.origin());
}

#[test]
fn an_overtaken_run_publishes_nothing() {
    let store = Arc::new(MapStore::default());
    let (mut zombie, _) = claim(&store).unwrap();
    publish(&store, &mut zombie, 1).unwrap();
    let (mut heir, _) = claim(&store).unwrap();
    assert_eq!(publish(&store, &mut zombie, 2).unwrap_err().kind(), ErrorKind::Fenced);
    publish(&store, &mut heir, 2).unwrap();
    let again = publish(&store, &mut zombie, 3).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::Fenced);
    assert!(again.to_string().contains("generation 1"), "{again}");
    let retain = Retain { last: 1, younger_than_ms: 0 };
    assert_eq!(zombie.collect(&retain, 0).unwrap_err().kind(), ErrorKind::Fenced);
}

/// The name that it would write to is free again, for its heir has collected what stood there.
#[test]
fn an_overtaken_run_is_fenced_by_the_boundary() {
    let store = Arc::new(MapStore::default());
    let (mut zombie, _) = claim(&store).unwrap();
    let (mut heir, _) = claim(&store).unwrap();
    publish(&store, &mut heir, 1).unwrap();
    publish(&store, &mut heir, 2).unwrap();
    heir.collect(&Retain { last: 1, younger_than_ms: 0 }, 0).unwrap();
    assert!(!store.objects().contains_key(&paths::manifest(&job(), Sequence(2))));
    let error = publish(&store, &mut zombie, 9).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced);
    assert!(error.to_string().contains("collected"), "{error}");
    assert!(!store.objects().contains_key(&paths::manifest(&job(), Sequence(2))), "taken back");
    assert_eq!(claim(&store).unwrap().1.unwrap().epoch, Epoch(2));
}

/// Savepoints are kept below the boundary: one that an overtaken run created there looked like one.
#[test]
fn a_savepoint_of_an_overtaken_run_is_taken_back_or_at_least_never_listed() {
    let savepoint = |epoch| Checkpoint {
        savepoint: Some("before-release".to_owned()),
        ..checkpoint(epoch, vec![])
    };
    let (mut listed, mut left_behind) = (BTreeSet::new(), 0);
    // The zombie is cut off after so many of its calls, or not at all.
    for calls in 0..8 {
        let store = Arc::new(MapStore::default());
        let (mut zombie, _) = claim(&store).unwrap();
        let (mut heir, _) = claim(&store).unwrap();
        heir.publish(savepoint(1)).unwrap();
        for epoch in 2..4 {
            publish(&store, &mut heir, epoch).unwrap();
        }
        let last_one = Retain { last: 1, younger_than_ms: 0 };
        heir.collect(&last_one, 0).unwrap();
        store.fail_at(calls, Fault::CrashBefore);
        zombie.publish(savepoint(9)).unwrap_err();
        store.heal();
        left_behind +=
            usize::from(store.objects().contains_key(&paths::manifest(&job(), Sequence(2))));
        let all = read_all(&*store, &job()).unwrap();
        listed.extend(all.iter().map(|f| f.manifest.as_ref().unwrap().epoch.0));

        // The next collection removes what stayed behind, and only that.
        let (mut next, _) = claim(&store).unwrap();
        next.collect(&last_one, 0).unwrap();
        let names = store.list(&paths::manifests(&job())).unwrap();
        let kept = [3, 5, 6].map(|sequence| paths::manifest(&job(), Sequence(sequence)));
        assert_eq!(names, kept, "cut off at call {calls}");
    }
    assert_eq!(listed, BTreeSet::from([1, 3]));
    assert!((1..7).contains(&left_behind), "{left_behind}");
}

#[test]
fn a_lost_answer_is_settled_by_reading_back() {
    for fault in [Fault::NoAnswerBefore, Fault::NoAnswerAfter, Fault::AppliedToldExists] {
        let store = Arc::new(MapStore::default());
        let (mut run, _) = claim(&store).unwrap();
        let segment = upload(&store, run.generation(), 1).unwrap();
        // After the look at the manifest that the run wrote last.
        store.fail_at(1, fault);
        run.publish(checkpoint(1, vec![segment])).unwrap_or_else(|e| panic!("{fault:?}: {e}"));
        assert_eq!(claim(&store).unwrap().1.unwrap().epoch, Epoch(1));
    }
}

#[test]
fn an_unsettled_publish_is_settled_later_or_blocks_the_next() {
    let store = Arc::new(MapStore::default());
    let (mut run, _) = claim(&store).unwrap();
    let segment = upload(&store, run.generation(), 1).unwrap();
    store.fail_at(1, Fault::CrashAfter);
    let unknown = run.publish(checkpoint(1, vec![segment.clone()])).unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::Unavailable);
    assert!(unknown.to_string().contains("may or may not exist"), "{unknown}");
    let next = run.publish(checkpoint(2, vec![segment])).unwrap_err();
    assert_eq!(next.kind(), ErrorKind::Internal);
    assert_eq!(run.resolve().unwrap_err().kind(), ErrorKind::Unavailable);
    store.heal();
    assert_eq!(run.resolve().unwrap().epoch(), Epoch(1));
    publish(&store, &mut run, 2).unwrap();
}

/// Whatever became of the write, giving it up leaves no doubt, or an error.
#[test]
fn a_publish_that_is_given_up_never_comes_to_exist_or_does_already() {
    let mut ends = BTreeSet::new();
    for fault in [Fault::CrashBefore, Fault::CrashAfter] {
        let store = Arc::new(MapStore::default());
        let (mut run, _) = claim(&store).unwrap();
        publish(&store, &mut run, 1).unwrap();
        let segment = upload(&store, run.generation(), 2).unwrap();
        // After the look at the manifest that the run wrote last.
        store.fail_at(1, fault);
        run.publish(checkpoint(2, vec![segment])).unwrap_err();
        let late = store.objects().get(&paths::manifest(&job(), Sequence(3))).cloned();
        store.heal();
        let end = run.give_up(5_000).unwrap();
        ends.insert(end.map(|published| published.epoch().0));
        assert_eq!(end_of(&store), if late.is_some() { 2 } else { 1 }, "{fault:?}");

        // Its run goes on, and so does the next.
        publish(&store, &mut run, 3).unwrap();
        run.collect(&Retain { last: 1, younger_than_ms: 0 }, 0).unwrap();
        assert_eq!(end_of(&store), 3);
        assert_eq!(claim(&store).unwrap().1.unwrap().epoch, Epoch(3));
    }
    assert_eq!(ends, BTreeSet::from([None, Some(2)]));
}

/// What a reader that comes fresh would restore.
fn end_of(store: &MapStore) -> u64 {
    let job = job();
    let newest = read_newest(store, &job).unwrap();
    let mut all = crate::restore::candidates(store, &job, &newest, true);
    all.next().unwrap().unwrap().manifest.unwrap().epoch.0
}

#[test]
fn a_publish_that_cannot_be_given_up_stays_in_doubt() {
    let store = Arc::new(MapStore::default());
    let (mut run, _) = claim(&store).unwrap();
    publish(&store, &mut run, 1).unwrap();
    let segment = upload(&store, run.generation(), 2).unwrap();
    store.fail_at(1, Fault::CrashAfter);
    run.publish(checkpoint(2, vec![segment])).unwrap_err();
    let unknown = run.give_up(5_000).unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::Unavailable);
    assert!(unknown.to_string().contains("checkpoint 2 may or may not exist"), "{unknown}");
    store.heal();
    assert_eq!(end_of(&store), 2);
}

#[test]
fn epochs_only_rise() {
    let store = Arc::new(MapStore::default());
    let (mut run, _) = claim(&store).unwrap();
    publish(&store, &mut run, 5).unwrap();
    assert_eq!(publish(&store, &mut run, 5).unwrap_err().kind(), ErrorKind::Internal);
}

#[test]
fn a_checkpoint_that_cannot_be_read_back_is_not_written() {
    let store = Arc::new(MapStore::default());
    let (mut run, _) = claim(&store).unwrap();
    let nested = (0..500).fold(serde_json::json!(1), |inner, _| serde_json::json!([inner]));
    let effect = Pending { worker: Worker(0), epoch: Epoch(1), effect: nested, kept: Vec::new() };
    let part = Part::Sink { pending: vec![effect], history: None, target: None };
    let operators = vec![Operator { id: operator(), part }];
    let deep = Checkpoint { operators, ..checkpoint(1, vec![]) };
    assert_eq!(run.publish(deep).unwrap_err().kind(), ErrorKind::Invalid);
    publish(&store, &mut run, 1).unwrap();
}

#[test]
fn nobody_starts_fresh_beside_a_checkpoint() {
    let store = Arc::new(MapStore::default());
    let (mut run, _) = claim(&store).unwrap();
    let again = Lineage::claim(store.clone(), &job(), 0, |_| Ok(fresh()));
    assert_eq!(again.unwrap().0.generation(), Generation(2), "there is no checkpoint yet");
    let (mut heir, _) = claim(&store).unwrap();
    assert_eq!(publish(&store, &mut run, 1).unwrap_err().kind(), ErrorKind::Fenced);
    publish(&store, &mut heir, 1).unwrap();
    let error = Lineage::claim(store, &job(), 0, |_| Ok(fresh())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[test]
fn an_older_checkpoint_is_claimed_behind_a_fence() {
    let store = Arc::new(MapStore::default());
    let (mut run, _) = claim(&store).unwrap();
    publish(&store, &mut run, 1).unwrap();
    publish(&store, &mut run, 2).unwrap();
    let newest = paths::manifest(&job(), Sequence(3));
    store.put(&newest, b"ruined").unwrap();
    assert_eq!(claim(&store).unwrap_err().kind(), ErrorKind::Corrupt);

    let older = read_all(&*store, &job()).unwrap().remove(1).manifest.unwrap();
    let from_older = |_: &Newest| Ok(Base::From(Box::new(older.clone())));
    let (mut heir, restored) = Lineage::claim(store.clone(), &job(), 0, from_older).unwrap();
    assert_eq!(restored.unwrap().epoch, Epoch(1));
    assert_eq!(heir.sequence(), Sequence(5), "after the fence at 4");
    assert!(heir.generation() > run.generation());
    let error = publish(&store, &mut run, 3).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced);
    assert_eq!(publish(&store, &mut heir, 2).unwrap().sequence(), Sequence(6));

    let retain = Retain { last: 9, younger_than_ms: 0 };
    let before = data(&store);
    let collected = heir.collect(&retain, 0).unwrap();
    assert_eq!(collected.unreadable, [newest]);
    assert_eq!(data(&store), before, "the ruined manifest may need any of it");
    let early = drop_manifest(&*store, &job(), Sequence(3)).unwrap_err();
    assert_eq!(early.kind(), ErrorKind::Invalid);
    let retain = Retain { last: 1, younger_than_ms: 0 };
    assert_eq!(heir.collect(&retain, 0).unwrap().unreadable.len(), 1);
    drop_manifest(&*store, &job(), Sequence(3)).unwrap();
    assert_eq!(heir.collect(&retain, 0).unwrap().unreadable.len(), 0);
    assert_eq!(data(&store), [2]);
}

#[test]
fn a_newest_manifest_that_is_gone_is_damage() {
    let store = Arc::new(MapStore::default());
    let (mut run, _) = claim(&store).unwrap();
    publish(&store, &mut run, 1).unwrap();
    run.leave_hint();
    let gone = paths::manifest(&job(), run.sequence());
    store.delete(&gone).unwrap();
    let error = claim(&store).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains(&gone), "{error}");

    let store = Arc::new(MapStore::default());
    store.put(&paths::boundary(&job(), Sequence(7)), b"").unwrap();
    assert_eq!(claim(&store).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn collection_keeps_savepoints_and_what_they_need() {
    let store = Arc::new(MapStore::default());
    let (mut run, _) = claim(&store).unwrap();
    publish(&store, &mut run, 1).unwrap();
    let segment = upload(&store, run.generation(), 2).unwrap();
    let savepoint = Some("before-release".to_owned());
    run.publish(Checkpoint { savepoint, ..checkpoint(2, vec![segment]) }).unwrap();
    for epoch in 3..=6 {
        publish(&store, &mut run, epoch).unwrap();
    }
    let in_progress = upload(&store, run.generation(), 7).unwrap();
    let collected = run.collect(&Retain { last: 2, younger_than_ms: 0 }, 0).unwrap();
    assert_eq!((collected.manifests, collected.data_objects), (4, 3));
    assert_eq!(data(&store), [2, 5, 6, 7]);
    let epochs: Vec<_> = read_all(&*store, &job()).unwrap();
    let epochs: Vec<_> = epochs.iter().map(|f| f.manifest.as_ref().unwrap().epoch.0).collect();
    assert_eq!(epochs, [6, 5, 2]);

    run.discard([in_progress.name]);
    run.collect(&Retain { last: 2, younger_than_ms: 0 }, 0).unwrap();
    assert_eq!(data(&store), [2, 5, 6]);

    for not_droppable in [5, 6, 99] {
        let refused = drop_manifest(&*store, &job(), Sequence(not_droppable)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
    }
    drop_manifest(&*store, &job(), Sequence(3)).unwrap();
    run.collect(&Retain { last: 2, younger_than_ms: 0 }, 0).unwrap();
    assert_eq!(data(&store), [5, 6]);
}

#[test]
fn young_checkpoints_are_kept_beyond_the_last() {
    let at = |number: u64, step| Retained {
        sequence: Sequence(number),
        step,
        epoch: Epoch(number),
        taken_at_ms: 1_000 * number,
        savepoint: number == 2,
        names: BTreeSet::new(),
    };
    let mut all: Vec<_> = (1..=9).map(|number| at(number, Step::Checkpoint)).collect();
    let last_two = Retain { last: 2, younger_than_ms: 0 };
    assert_eq!(plan(&all, &last_two, 9_500), Some(Sequence(7)));
    assert_eq!(
        plan(&all, &Retain { younger_than_ms: 4_000, ..last_two }, 9_500),
        Some(Sequence(5))
    );
    assert_eq!(plan(&all, &Retain { last: 99, ..last_two }, 9_500), None);
    assert_eq!(plan(&all, &Retain { last: 0, ..last_two }, 9_500), Some(Sequence(8)), "the newest");
    all.extend((10..20).map(|number| at(number, Step::Claim)));
    assert_eq!(plan(&all, &last_two, 20_000), Some(Sequence(7)), "claims do not count");
    assert_eq!(plan(&[], &last_two, 0), None);
    assert_eq!(plan(&all[1..2], &last_two, 0), None, "a savepoint alone");
}
