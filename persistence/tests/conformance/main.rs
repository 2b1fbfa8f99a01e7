//! Every store of this crate passes the same suite, and the suite fails for stores that do not
//! deserve to pass.

mod doubles;
mod probe;
mod twin;

use std::panic::catch_unwind;
use std::sync::{Arc, Barrier};

use doubles::{Break, BrokenStore};
use isochrone_persistence::store::faulty::{Effect, FaultyStore, Plan};
use isochrone_persistence::store::local::LocalStore;
use isochrone_persistence::store::memory::MemoryStore;
use isochrone_persistence::{Created, SharedStore, Store, conformance};

#[test]
fn memory_store_keeps_the_contract() {
    conformance::check(|| Arc::new(MemoryStore::new()));
}

#[test]
fn local_store_keeps_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    conformance::check(|| Arc::new(LocalStore::open(folder.path().join("state")).unwrap()));
}

#[test]
fn faulty_store_without_faults_keeps_the_contract() {
    conformance::check(|| Arc::new(FaultyStore::new(MemoryStore::new(), Plan::none())));
}

#[test]
fn a_shared_store_that_is_wrapped_keeps_the_contract() {
    let shared: SharedStore = Arc::new(MemoryStore::new());
    conformance::check(|| Arc::new(FaultyStore::new(shared.clone(), Plan::none())));
}

#[test]
fn the_suite_finds_each_planted_breach_with_the_check_made_for_it() {
    let table = [
        (Break::IgnoresTheCondition, "keeps empty and large objects"),
        (Break::SaysYesWithoutWriting, "keeps empty and large objects"),
        (Break::OverwritesAndSaysExists, "leaves what exists unchanged"),
        (Break::LooksThenWrites, "creates once in a race"),
        (Break::ListsNothing, "deletes, and deletes again"),
        (Break::ListsFoldersOnly, "lists by prefix, sorted"),
        (Break::ListsBackwards, "takes odd but legal names"),
        (Break::ListsOnePage, "lists many objects"),
        (Break::ReadsNothing, "gives back what was put"),
        (Break::KeepsWhatIsDeleted, "deletes, and deletes again"),
        (Break::DeletesOne, "deletes many objects"),
        (Break::WrapsRanges, "cuts ranges at the end"),
        (Break::InventsRanges, "says that absent objects are absent"),
        (Break::TearsWrites, "shows no torn reads"),
        (Break::TakesAnyName, "refuses illegal names"),
    ];
    for (planted, check) in table {
        let found = failure(move || Arc::new(BrokenStore::new(planted)));
        let found = found.unwrap_or_else(|| panic!("{planted:?} passed the suite"));
        let expected = format!("conformance check `{check}` on broken double ({planted:?}): ");
        assert!(found.starts_with(&expected), "{planted:?}: {found}");
        assert!(conformance::names().any(|name| name == check), "{check}");
    }
}

#[test]
fn the_suite_finds_a_tear_at_any_write() {
    // The last writes only remove; those of the first checks are enough to see the effect.
    for n in 1..=8 {
        let plan = Plan::at_write(n, Effect::Tear { keep: 3 });
        let found = failure(move || Arc::new(FaultyStore::new(MemoryStore::new(), plan.clone())));
        assert!(found.is_some(), "a tear at write {n} passed the suite");
    }
}

#[test]
fn many_handles_on_one_directory_are_one_store() {
    let folder = tempfile::tempdir().unwrap();
    let start = Barrier::new(8);
    for round in 0..10 {
        let name = format!("job-{round}/m/1");
        let create = |writer: u8| {
            let store = LocalStore::open(folder.path()).unwrap();
            start.wait();
            let created = store.put_if_absent(&name, &[writer]).unwrap();
            // Whoever was told that it exists must be able to read it.
            assert!(store.get(&name).unwrap().is_some());
            assert_eq!(store.list(&format!("job-{round}/")).unwrap(), std::slice::from_ref(&name));
            (created == Created::Yes).then_some(writer)
        };
        let winners: Vec<u8> = std::thread::scope(|scope| {
            let create = &create;
            let handles: Vec<_> =
                (0..8).map(|writer| scope.spawn(move || create(writer))).collect();
            handles.into_iter().filter_map(|handle| handle.join().unwrap()).collect()
        });
        let store = LocalStore::open_read_only(folder.path()).unwrap();
        assert_eq!(store.get(&name).unwrap(), Some(winners.clone()), "round {round}");
        assert_eq!(winners.len(), 1, "round {round}");
    }
}

/// The message with which the suite fails, if it does.
fn failure(make: impl Fn() -> SharedStore + std::panic::UnwindSafe) -> Option<String> {
    let panic = catch_unwind(|| conformance::check(make)).err()?;
    Some(*panic.downcast::<String>().expect("the suite panics with a text"))
}
