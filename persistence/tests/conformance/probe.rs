//! The probe at start refuses stores that do not keep their word, and harms nothing.

use std::sync::Arc;

use crate::doubles::{Break, BrokenStore};
use isochrone_persistence::store::faulty::{Effect, FaultyStore, Operation, Plan};
use isochrone_persistence::store::local::LocalStore;
use isochrone_persistence::store::memory::MemoryStore;
use isochrone_persistence::store::probe::probe;
use isochrone_persistence::{ErrorKind, Store};

#[test]
fn good_stores_pass_and_keep_what_they_had() {
    let folder = tempfile::tempdir().unwrap();
    let stores: [Arc<dyn Store>; 2] =
        [Arc::new(MemoryStore::new()), Arc::new(LocalStore::open(folder.path()).unwrap())];
    for store in stores {
        store.put("orders/m/1", b"kept").unwrap();
        probe(&*store, "orders/").unwrap();
        probe(&*store, "").unwrap();
        assert_eq!(store.list("").unwrap(), ["orders/m/1"], "{}", store.describe());
    }
}

#[test]
fn stores_that_break_their_word_are_refused_by_name() {
    let table = [
        (Break::IgnoresTheCondition, "has other bytes|was created twice"),
        (Break::SaysYesWithoutWriting, "was created twice: the store ignores the condition"),
        (Break::OverwritesAndSaysExists, "has other bytes after a second attempt"),
        (Break::LooksThenWrites, "writers at once"),
        (Break::ListsNothing, "is missing from the list"),
        (Break::ReadsNothing, "cannot be read right after"),
        (Break::KeepsWhatIsDeleted, "can still be read after it was deleted"),
    ];
    for (how, expected) in table {
        let store = BrokenStore::new(how);
        let error = probe(&store, "orders/").unwrap_err();
        let message = error.to_string();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{how:?}: {message}");
        assert!(expected.split('|').any(|part| message.contains(part)), "{how:?}: {message}");
        assert!(message.contains(&store.describe()), "{how:?}: {message}");
        assert!(message.contains("orders/probe-"), "{how:?}: {message}");
    }
}

#[test]
fn a_client_that_repeats_its_own_write_is_not_refused() {
    // Write 1 is the first create; the rivals of the race are writes 3 to 6.
    for n in [1, 3, 4, 5, 6] {
        let store = FaultyStore::new(MemoryStore::new(), Plan::at_write(n, Effect::Exists));
        probe(&store, "").unwrap();
    }
}

#[test]
fn a_fault_at_any_operation_is_passed_on_and_what_can_be_removed_is() {
    let count = {
        let store = FaultyStore::new(MemoryStore::new(), Plan::none());
        probe(&store, "").unwrap();
        assert_eq!(store.count(Operation::Delete), 2);
        store.operations()
    };
    for n in 1..=count {
        for effect in [Effect::FailBefore, Effect::FailAfter] {
            let store = FaultyStore::new(MemoryStore::new(), Plan::at_operation(n, effect));
            let error = probe(&store, "").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "operation {n}, {effect:?}: {error}");
            let left = store.inner().list("").unwrap();
            let failed = &store.calls()[n as usize - 1];
            let not_deleted = failed.operation == Operation::Delete && effect == Effect::FailBefore;
            let expected = if not_deleted { vec![failed.name.clone()] } else { vec![] };
            assert_eq!(left, expected, "operation {n}, {effect:?}");
        }
    }
}
