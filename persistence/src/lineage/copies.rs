//! Stories of stores that went back to an older copy of themselves, under a run.

use std::sync::Arc;

use super::test_store::MapStore;
use super::tests::{claim, job, publish};
use super::*;
use crate::{ErrorKind, paths};

fn fence(store: &Arc<MapStore>, run: &Lineage) -> Fence {
    Fence::new(store.clone(), job(), run.hold().clone())
}

/// All objects, copied to another store.
fn copied(store: &MapStore) -> Arc<MapStore> {
    let copy = Arc::new(MapStore::default());
    for (name, bytes) in store.objects() {
        copy.put(&name, &bytes).unwrap();
    }
    copy
}

/// Objects are as they were in the copy.
fn bring_back(store: &MapStore, copy: &MapStore) {
    for name in store.objects().keys() {
        store.delete(name).unwrap();
    }
    for (name, bytes) in copy.objects() {
        store.put(&name, &bytes).unwrap();
    }
}

fn manifests(store: &MapStore) -> Vec<String> {
    let is_manifest = |name: &String| name.starts_with(&paths::manifests(&job()));
    store.objects().into_keys().filter(is_manifest).collect()
}

/// Its number may then be given to another run, and the numbers of its manifests.
#[test]
fn a_run_whose_store_went_back_writes_nothing_and_is_overtaken_by_whoever_goes_on_there() {
    for empty in [false, true] {
        let store = Arc::new(MapStore::default());
        let (mut first, _) = claim(&store).unwrap();
        publish(&store, &mut first, 1).unwrap();
        let copy = if empty { Arc::default() } else { copied(&store) };
        let (mut run, _) = claim(&store).unwrap();
        publish(&store, &mut run, 2).unwrap();
        let fence = fence(&store, &run);
        fence.check().unwrap();
        bring_back(&store, &copy);
        for error in [fence.check().unwrap_err(), publish(&store, &mut run, 3).unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            assert!(error.to_string().contains("manifest 4 of this run is gone"), "{error}");
        }
        let error = run.give_up(0).unwrap_err();
        assert!(error.to_string().contains("is gone"), "{error}");
        assert_eq!(manifests(&store), manifests(&copy));
        // Another run goes on, to where this one was and beyond.
        let (mut other, _) = claim(&store).unwrap();
        assert!(other.generation() <= run.generation());
        let mut epoch = 10;
        while other.sequence() < run.sequence() {
            assert_eq!(run.resolve().unwrap_err().kind(), ErrorKind::Unavailable);
            publish(&store, &mut other, epoch).unwrap();
            epoch += 1;
        }
        // Now a manifest of the same number stands there, and later ones.
        let before = store.objects();
        for _ in 0..2 {
            let error = run.resolve().or_else(|_| run.give_up(0).map(Option::unwrap)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
            run.leave_hint();
            let retain = Retain { last: 1, younger_than_ms: 0 };
            run.collect(&retain, 0).unwrap_err();
            let error = fence.check().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Fenced);
            assert!(error.to_string().contains("replaced by an older copy"), "{error}");
        }
        assert_eq!(store.objects(), before);
        publish(&store, &mut other, epoch).unwrap();
        assert_eq!(fence.check().unwrap_err().kind(), ErrorKind::Fenced);
    }
}

/// Before its first checkpoint a run is known by its claim.
#[test]
fn two_runs_of_one_number_on_copies_of_a_store_are_two() {
    let store = Arc::new(MapStore::default());
    let copy = copied(&store);
    let (run, _) = claim(&store).unwrap();
    let (other, _) = claim(&copy).unwrap();
    assert_eq!((run.generation(), run.sequence()), (other.generation(), other.sequence()));
    let fence = fence(&store, &run);
    fence.check().unwrap();
    bring_back(&store, &copy);
    assert_eq!(fence.check().unwrap_err().kind(), ErrorKind::Fenced);
}
