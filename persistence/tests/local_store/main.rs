//! What is particular to the store in a directory: rights, odd content, trouble, and real kills.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "helpers of tests are tests")]

mod kill;
mod trouble;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use isochrone_persistence::store::local::LocalStore;
use isochrone_persistence::{Created, Error, ErrorKind, Result, Store};

fn mode(path: impl AsRef<Path>) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Asserts kind and path of an error, and gives its report.
#[track_caller]
fn failed<T>(result: Result<T>, kind: ErrorKind, path: &Path) -> String {
    let error: Error = result.err().expect("it must fail");
    let report = error.report();
    assert_eq!(error.kind(), kind, "{report}");
    assert!(report.contains(path.to_str().unwrap()), "{report} does not name {}", path.display());
    report
}

#[test]
fn files_are_0600_and_folders_0700_with_all_parents_made() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("made/by/us");
    let store = LocalStore::open(&root).unwrap();
    store.put("orders/latest.json", b"{}").unwrap();
    store.put("orders/latest.json", b"{ }").unwrap();
    store.put_if_absent("orders/m/1", b"1").unwrap();
    for made in ["made", "made/by", "made/by/us", "made/by/us/orders", "made/by/us/orders/m"] {
        assert_eq!(mode(folder.path().join(made)), 0o700, "{made}");
    }
    for file in ["orders/latest.json", "orders/m/1"] {
        assert_eq!(mode(root.join(file)), 0o600, "{file}");
    }
}

#[test]
fn roots_that_others_may_write_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("state");
    fs::create_dir(&root).unwrap();
    for open_to_others in [0o770, 0o702, 0o777, 0o1777, 0o720] {
        chmod(&root, open_to_others);
        let report = failed(LocalStore::open(&root), ErrorKind::Invalid, &root);
        assert!(report.contains(&format!("{open_to_others:04o}")), "{report}");
        assert!(report.contains("chmod go-w"), "{report}");
        failed(LocalStore::open_read_only(&root), ErrorKind::Invalid, &root);
        assert_eq!(fs::read_dir(&root).unwrap().count(), 0);
    }
    for private in [0o700, 0o750, 0o755] {
        chmod(&root, private);
        LocalStore::open(&root).unwrap();
        assert_eq!(mode(&root), private, "an existing root keeps its rights");
    }
}

#[test]
fn reading_only_creates_and_removes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("state");
    let report = failed(LocalStore::open_read_only(&root), ErrorKind::Invalid, &root);
    assert!(report.contains("does not exist"), "{report}");
    assert!(!root.exists());

    LocalStore::open(&root).unwrap().put("orders/m/1", b"1").unwrap();
    // Would be swept by opening for writing: nobody with this number started at tick 1.
    let old = fs::File::create(root.join(".tmp-unknown-1-1-0")).unwrap();
    let now = old.metadata().unwrap().modified().unwrap();
    old.set_modified(now - std::time::Duration::from_secs(2 * 24 * 3600)).unwrap();

    let store = LocalStore::open_read_only(&root).unwrap();
    assert_eq!(store.list("").unwrap(), ["orders/m/1"]);
    assert_eq!(store.get("orders/m/1").unwrap().as_deref(), Some(&b"1"[..]));
    failed(store.put("a", b"1"), ErrorKind::Invalid, &root);
    failed(store.put_if_absent("a", b"1"), ErrorKind::Invalid, &root);
    failed(store.delete("orders/m/1"), ErrorKind::Invalid, &root);
    failed(store.sweep_leftovers(), ErrorKind::Invalid, &root);
    assert_eq!(fs::read_dir(&root).unwrap().count(), 2);

    LocalStore::open(&root).unwrap();
    assert_eq!(fs::read_dir(&root).unwrap().count(), 1, "the leftover is swept for writing");
}

#[test]
fn a_root_that_is_a_file_or_below_one_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, b"mine").unwrap();
    for root in [file.clone(), file.join("below"), file.join("below/below")] {
        failed(LocalStore::open(&root), ErrorKind::Invalid, &file);
        failed(LocalStore::open_read_only(&root), ErrorKind::Invalid, &file);
    }
    assert_eq!(fs::read(&file).unwrap(), b"mine");
}

#[test]
fn an_object_cannot_be_both_a_file_and_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::open(folder.path()).unwrap();
    store.put("file", b"1").unwrap();
    failed(store.put("file/below", b"2"), ErrorKind::Invalid, &folder.path().join("file"));
    failed(
        store.put_if_absent("file/below", b"2"),
        ErrorKind::Invalid,
        &folder.path().join("file"),
    );
    store.put("folder/below", b"1").unwrap();
    failed(store.put("folder", b"2"), ErrorKind::Invalid, &folder.path().join("folder"));
    failed(store.put_if_absent("folder", b"2"), ErrorKind::Invalid, &folder.path().join("folder"));
    assert_eq!(store.list("").unwrap(), ["file", "folder/below"]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "no temporary file is left");
}

#[test]
fn what_cannot_be_an_object_is_neither_listed_nor_touched() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::open(folder.path()).unwrap();
    store.put("orders/m/1", b"1").unwrap();
    for name in ["README.md", ".hidden", "orders/with space", "orders/m/UPPER"] {
        fs::write(folder.path().join(name), b"").unwrap();
    }
    fs::create_dir(folder.path().join("lost+found")).unwrap();
    fs::write(folder.path().join("lost+found/1"), b"").unwrap();
    fs::create_dir(folder.path().join("empty")).unwrap();
    assert_eq!(store.list("").unwrap(), ["orders/m/1"]);
    assert_eq!(store.get("empty").unwrap(), None);
    store.delete("empty").unwrap();
    assert!(folder.path().join("empty").exists());
}

#[test]
fn symbolic_links_are_followed_to_the_root_and_not_below_it() {
    let folder = tempfile::tempdir().unwrap();
    let (real, link) = (folder.path().join("real"), folder.path().join("link"));
    LocalStore::open(&real).unwrap().put("orders/m/1", b"1").unwrap();
    symlink(&real, &link).unwrap();
    let store = LocalStore::open(&link).unwrap();
    assert_eq!(store.list("").unwrap(), ["orders/m/1"]);

    let outside = folder.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("1"), b"not ours").unwrap();
    symlink(&outside, real.join("folder")).unwrap();
    symlink(outside.join("1"), real.join("orders/object")).unwrap();
    let (folder, object) = (real.join("folder"), real.join("orders/object"));
    for report in [
        failed(store.get("folder/1"), ErrorKind::Invalid, &folder),
        failed(store.get_range("folder/1", 0..1), ErrorKind::Invalid, &folder),
        failed(store.put("folder/2", b"2"), ErrorKind::Invalid, &folder),
        failed(store.put_if_absent("folder/2", b"2"), ErrorKind::Invalid, &folder),
        failed(store.delete("folder/1"), ErrorKind::Invalid, &folder),
        failed(store.list("folder/"), ErrorKind::Invalid, &folder),
        failed(store.list("folder/1"), ErrorKind::Invalid, &folder),
        failed(store.get("orders/object"), ErrorKind::Invalid, &object),
        failed(store.list("orders/"), ErrorKind::Invalid, &object),
    ] {
        assert!(report.contains("symbolic link"), "{report}");
    }
    failed(store.list(""), ErrorKind::Invalid, &real);
    // Replacing and deleting act on the link itself, never on what it points to.
    assert_eq!(store.put_if_absent("orders/object", b"2").unwrap(), Created::Exists);
    store.put("orders/object", b"2").unwrap();
    assert_eq!(fs::read(outside.join("1")).unwrap(), b"not ours");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
}

#[test]
fn a_root_that_vanished_or_was_swapped_is_an_error_and_not_empty() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("state");
    let store = LocalStore::open(&root).unwrap();
    store.put("orders/m/1", b"1").unwrap();
    let check = || {
        failed(store.get("orders/m/1"), ErrorKind::Unavailable, &root);
        failed(store.get("absent"), ErrorKind::Unavailable, &root);
        failed(store.list(""), ErrorKind::Unavailable, &root);
        failed(store.put("a", b"1"), ErrorKind::Unavailable, &root);
        failed(store.put_if_absent("a", b"1"), ErrorKind::Unavailable, &root);
        failed(store.delete("a"), ErrorKind::Unavailable, &root);
    };
    fs::rename(&root, folder.path().join("away")).unwrap();
    check();
    // As an unmounted drive leaves its empty mount point.
    fs::create_dir(&root).unwrap();
    check();
    assert_eq!(fs::read_dir(&root).unwrap().count(), 0);
    fs::remove_dir(&root).unwrap();
    fs::rename(folder.path().join("away"), &root).unwrap();
    assert_eq!(store.list("").unwrap(), ["orders/m/1"]);
}

#[test]
fn a_folder_that_somebody_removed_is_made_again_by_the_second_attempt() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::open(folder.path()).unwrap();
    store.put("orders/m/1", b"1").unwrap();
    fs::remove_dir_all(folder.path().join("orders")).unwrap();
    let report = failed(store.put("orders/m/2", b"2"), ErrorKind::Unavailable, folder.path());
    assert!(report.contains("orders/m"), "{report}");
    store.put("orders/m/2", b"2").unwrap();
    assert_eq!(store.list("").unwrap(), ["orders/m/2"]);
}

#[test]
fn a_store_is_described_by_its_path_as_given() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::open(folder.path().join("state")).unwrap();
    assert_eq!(
        store.describe(),
        format!("local directory {}", folder.path().join("state").display())
    );
}
