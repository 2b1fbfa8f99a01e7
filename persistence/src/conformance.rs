//! The contract of a store, checked: one suite that every implementation passes.
//!
//! Knows the trait and nothing about implementations. Each check works under a prefix of its own,
//! so that a store which is shared or not empty will do, and removes what it wrote when it passes.

mod names;
mod objects;
mod races;

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::{Created, Error, ErrorKind, SharedStore};

/// Runs the whole contract; panics at the first check that fails, saying which, on which store,
/// what was expected and what was found. `make` gives a store for each check: the same one, another
/// handle on it, or a new one.
///
/// ```
/// use isochrone_persistence::{conformance, store::memory::MemoryStore};
/// use std::sync::Arc;
/// conformance::check(|| Arc::new(MemoryStore::new()));
/// ```
pub fn check(make: impl Fn() -> SharedStore) {
    for (name, run) in CHECKS {
        let case = Case::new(name, make());
        run(&case);
        case.clean();
    }
}

/// The names of all checks, for a report.
///
/// ```
/// assert!(isochrone_persistence::conformance::names().any(|name| name == "creates once in a race"));
/// ```
pub fn names() -> impl Iterator<Item = &'static str> {
    CHECKS.iter().map(|(name, _)| *name)
}

type Check = fn(&Case);

const CHECKS: &[(&str, Check)] = &[
    ("gives back what was put", objects::gives_back_what_was_put),
    ("replaces whole objects", objects::replaces_whole_objects),
    ("says that absent objects are absent", objects::says_that_absent_objects_are_absent),
    ("cuts ranges at the end", objects::cuts_ranges_at_the_end),
    ("keeps empty and large objects", objects::keeps_empty_and_large_objects),
    ("deletes, and deletes again", objects::deletes_and_deletes_again),
    ("deletes many objects", objects::deletes_many_objects),
    ("leaves what exists unchanged", objects::leaves_what_exists_unchanged),
    ("takes odd but legal names", names::takes_odd_but_legal_names),
    ("refuses illegal names", names::refuses_illegal_names),
    ("lists by prefix, sorted", names::lists_by_prefix_sorted),
    ("lists many objects", names::lists_many_objects),
    ("creates once in a race", races::creates_once_in_a_race),
    ("shows no torn reads", races::shows_no_torn_reads),
];

/// One check on one store: calls that panic readably, under a prefix that nobody else uses.
struct Case {
    check: &'static str,
    store: SharedStore,
    prefix: String,
}

impl Case {
    fn new(check: &'static str, store: SharedStore) -> Self {
        let nonce = getrandom::u64().expect("the system gives random numbers");
        Case { check, store, prefix: format!("conformance/{nonce:016x}/") }
    }

    /// The full name of the object that a check calls `name`.
    fn full(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    #[track_caller]
    fn fail(&self, what: &str) -> ! {
        panic!("conformance check `{}` on {}: {what}", self.check, self.store.describe())
    }

    #[track_caller]
    fn assert(&self, holds: bool, what: &str) {
        if !holds {
            self.fail(what);
        }
    }

    #[track_caller]
    fn ok<T>(&self, what: &str, result: Result<T, Error>) -> T {
        match result {
            Ok(value) => value,
            Err(error) => self.fail(&format!("{what} failed: {error:?}")),
        }
    }

    #[track_caller]
    fn refused<T>(&self, what: &str, result: Result<T, Error>) {
        match result {
            Err(error) if error.kind() == ErrorKind::Invalid => {}
            Err(error) => self.fail(&format!("{what} must fail with Invalid, got {error:?}")),
            Ok(_) => self.fail(&format!("{what} must fail with Invalid, got a success")),
        }
    }

    #[track_caller]
    fn put(&self, name: &str, bytes: &[u8]) {
        self.ok(&format!("put {name:?}"), self.store.put(&self.full(name), bytes));
    }

    #[track_caller]
    fn create(&self, name: &str, bytes: &[u8]) -> Created {
        let created = self.store.put_if_absent(&self.full(name), bytes);
        self.ok(&format!("put_if_absent {name:?}"), created)
    }

    #[track_caller]
    fn get(&self, name: &str) -> Option<Vec<u8>> {
        self.ok(&format!("get {name:?}"), self.store.get(&self.full(name)))
    }

    #[track_caller]
    fn get_range(&self, name: &str, range: Range<u64>) -> Option<Vec<u8>> {
        let bytes = self.store.get_range(&self.full(name), range.clone());
        self.ok(&format!("get_range {name:?} {range:?}"), bytes)
    }

    #[track_caller]
    fn delete(&self, name: &str) {
        self.ok(&format!("delete {name:?}"), self.store.delete(&self.full(name)));
    }

    #[track_caller]
    fn delete_all(&self, names: &[&str]) {
        let full: Vec<String> = names.iter().map(|name| self.full(name)).collect();
        self.ok(&format!("delete_all {names:?}"), self.store.delete_all(&full));
    }

    /// The names under the check's prefix that start with `prefix`, in the store's order.
    #[track_caller]
    fn list(&self, prefix: &str) -> Vec<String> {
        let names = self.ok(&format!("list {prefix:?}"), self.store.list(&self.full(prefix)));
        let own = |name: String| match name.strip_prefix(&self.prefix) {
            Some(own) => own.to_owned(),
            None => self.fail(&format!("list {prefix:?} gave {name:?}, which has another prefix")),
        };
        names.into_iter().map(own).collect()
    }

    /// Asserts the content of an object, without printing megabytes.
    #[track_caller]
    fn holds(&self, name: &str, expected: Option<&[u8]>) {
        let found = self.get(name);
        if found.as_deref() != expected {
            let text = |bytes: Option<&[u8]>| bytes.map_or("nothing".to_owned(), shortened);
            let (expected, found) = (text(expected), text(found.as_deref()));
            self.fail(&format!("{name:?} must hold {expected}, holds {found}"));
        }
    }

    fn clean(&self) {
        for name in self.list("") {
            self.delete(&name);
        }
    }
}

fn shortened(bytes: &[u8]) -> String {
    match bytes {
        [] => "0 bytes".to_owned(),
        _ => format!("{} bytes {:?}..", bytes.len(), &bytes[..bytes.len().min(8)]),
    }
}

/// Runs all closures side by side; the panic of one, with its message, becomes the caller's.
fn side_by_side<T: Send>(threads: Vec<Box<dyn FnOnce() -> T + Send + '_>>) -> Vec<T> {
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let spawned: Vec<_> = threads
            .into_iter()
            .map(|run| scope.spawn(move || catch_unwind(AssertUnwindSafe(run))))
            .collect();
        spawned.into_iter().map(|thread| thread.join().and_then(|outcome| outcome)).collect()
    });
    let unwound =
        |outcome: std::thread::Result<T>| outcome.unwrap_or_else(|why| resume_unwind(why));
    outcomes.into_iter().map(unwound).collect()
}
