//! What only the inside can set up: other writers' leftovers and folders that fail to sync.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::leftovers::Writer;
use super::*;
use crate::ErrorKind;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Puts a temporary file of `writer` into `folder`, as if written `age` ago.
fn leave(folder: &Path, writer: &Writer, age: Duration) -> PathBuf {
    leave_named(folder, &writer.temporary_name().unwrap(), age)
}

fn leave_named(folder: &Path, name: &str, age: Duration) -> PathBuf {
    let path = folder.join(name);
    let file = File::create(&path).unwrap();
    let now = file.metadata().unwrap().modified().unwrap();
    file.set_modified(now - age).unwrap();
    path
}

fn dead_here() -> Writer {
    // Our own number, but a process that started at another time.
    Writer { started: "1".to_owned(), ..Writer::this() }
}

fn elsewhere() -> Writer {
    Writer { place: Some("0123456789abcdef".to_owned()), ..Writer::this() }
}

#[test]
fn opening_removes_what_dead_writers_left_in_any_folder() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::open(folder.path()).unwrap();
    store.put("orders/m/1", b"kept").unwrap();
    let left: Vec<PathBuf> = ["", "orders", "orders/m"]
        .iter()
        .map(|below| leave(&folder.path().join(below), &dead_here(), Duration::ZERO))
        .collect();
    assert_eq!(store.list("").unwrap(), ["orders/m/1"], "leftovers must be invisible");
    LocalStore::open(folder.path()).unwrap();
    assert!(left.iter().all(|path| !path.exists()), "{left:?}");
    assert_eq!(store.get("orders/m/1").unwrap().as_deref(), Some(&b"kept"[..]));
}

#[test]
fn a_sweep_spares_the_living_the_young_and_what_is_not_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::open(folder.path()).unwrap();
    let foreign = folder.path().join("Not-Ours");
    fs::create_dir(&foreign).unwrap();
    let spared = [
        leave(folder.path(), &Writer::this(), 2 * DAY),
        leave(folder.path(), &elsewhere(), Duration::ZERO),
        leave(folder.path(), &elsewhere(), DAY / 2),
        leave_named(folder.path(), ".tmp-", Duration::ZERO),
        leave_named(folder.path(), ".keep", 2 * DAY),
        leave_named(folder.path(), "object.tmp", 2 * DAY),
        leave(&foreign, &dead_here(), 2 * DAY),
    ];
    let swept = [
        leave(folder.path(), &dead_here(), Duration::ZERO),
        leave(folder.path(), &elsewhere(), 2 * DAY),
        leave_named(folder.path(), ".tmp-of-an-older-version", 2 * DAY),
    ];
    assert_eq!(store.sweep_leftovers().unwrap(), swept.len());
    assert!(spared.iter().all(|path| path.exists()), "{spared:?}");
    assert!(swept.iter().all(|path| !path.exists()), "{swept:?}");
    // Nothing of the sweep's own is left: the ones spared, and nothing more.
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), spared.len());
}

#[test]
fn a_writer_whose_file_was_swept_publishes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::open(folder.path()).unwrap();
    for replace in [false, true] {
        let (path, _, draft) = store.draft("a", b"1").unwrap();
        for entry in fs::read_dir(folder.path()).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        let outcome =
            if replace { draft.replace(&path) } else { draft.create(&path).map(|_created| ()) };
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Unavailable);
        assert_eq!(store.get("a").unwrap(), None);
    }
}

#[test]
fn a_link_that_worked_but_was_reported_as_taken_is_ones_own() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::open(folder.path()).unwrap();
    let (path, _, draft) = store.draft("a", b"1").unwrap();
    // What a network file system does: it links, loses the answer, and links again.
    let temporary = fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    fs::hard_link(temporary, &path).unwrap();
    assert_eq!(draft.create(&path).unwrap(), Created::Yes);
    assert_eq!(store.put_if_absent("a", b"2").unwrap(), Created::Exists);
    assert_eq!(store.get("a").unwrap().as_deref(), Some(&b"1"[..]));
}

#[test]
fn after_a_folder_failed_to_sync_the_store_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::open(folder.path()).unwrap();
    store.put("a", b"1").unwrap();
    let cause = io::Error::from_raw_os_error(libc::EIO);
    store.folders.give_up(&failure::unknown("sync folder", folder.path(), cause));
    let outcomes = [
        store.get("a").map(|_bytes| ()),
        store.get_range("a", 0..1).map(|_bytes| ()),
        store.put("a", b"2"),
        store.put_if_absent("b", b"2").map(|_created| ()),
        store.list("").map(|_names| ()),
        store.delete("a"),
    ];
    for outcome in outcomes {
        let error = outcome.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("sync folder"), "{error}");
    }
    let reopened = LocalStore::open(folder.path()).unwrap();
    assert_eq!(reopened.list("").unwrap(), ["a"]);
}
