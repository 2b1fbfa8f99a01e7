//! Full disks, limits and file systems that may not be written.
//!
//! A full disk needs a mount, so root. Where that is not to be had the tests fail, unless
//! `ISOCHRONE_WITHOUT_ROOT=1` says so: then they check the nearest thing that can be, a limit on file
//! size, which always is, and folder rights.

use std::fs;
use std::path::Path;
use std::process::Command;

use isochrone_persistence::store::local::LocalStore;
use isochrone_persistence::{Created, ErrorKind, Store};

use super::{chmod, failed};

/// A small file system in memory, unmounted when dropped.
struct Mount<'a>(&'a Path);

impl<'a> Mount<'a> {
    /// Mounts, or prints why it cannot be done where that was to be expected.
    fn try_new(at: &'a Path) -> Option<Mount<'a>> {
        let mut mount = Command::new("mount");
        let mount = mount.args(["-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs"]).arg(at);
        let why = match mount.output() {
            Ok(output) if output.status.success() => return Some(Mount(at)),
            Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            Err(why) => format!("there is no `mount`: {why}"),
        };
        let declared = std::env::var_os("ISOCHRONE_WITHOUT_ROOT").is_some_and(|value| value == "1");
        assert!(declared, "no mount here ({why}); to check less, set ISOCHRONE_WITHOUT_ROOT=1");
        println!("NOT CHECKED: no small file system can be mounted here ({why}); checking less");
        None
    }

    fn make_read_only(&self) {
        let done = Command::new("mount").args(["-o", "remount,ro"]).arg(self.0).status().unwrap();
        assert!(done.success());
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        let _left_to_the_system = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

fn files(root: &Path) -> usize {
    fs::read_dir(root).unwrap().count()
}

#[test]
fn a_full_disk_fails_that_write_and_works_again_when_there_is_space() {
    let folder = tempfile::tempdir().unwrap();
    let Some(_mount) = Mount::try_new(folder.path()) else {
        // `a_write_beyond_a_limit_leaves_nothing` is the nearest thing, and runs everywhere.
        return limited_child(folder.path());
    };
    let store = LocalStore::open(folder.path()).unwrap();
    let half = vec![7; 600 << 10];
    store.put("first", &half).unwrap();
    for _ in 0..2 {
        for report in [
            failed(store.put("second", &half), ErrorKind::Unavailable, folder.path()),
            failed(store.put_if_absent("second", &half), ErrorKind::Unavailable, folder.path()),
            failed(store.put("first", &half), ErrorKind::Unavailable, folder.path()),
        ] {
            assert!(report.contains("free space"), "{report}");
        }
        assert_eq!(files(folder.path()), 1, "what did not fit was removed");
    }
    assert_eq!(store.get("first").unwrap(), Some(half.clone()));
    store.delete("first").unwrap();
    assert_eq!(store.put_if_absent("second", &half).unwrap(), Created::Yes);
}

#[test]
fn a_file_system_for_reading_only_is_refused_for_writing_and_fine_for_reading() {
    let folder = tempfile::tempdir().unwrap();
    let mounted = Mount::try_new(folder.path());
    let store = LocalStore::open(folder.path()).unwrap();
    store.put("orders/m/1", b"1").unwrap();
    if let Some(mount) = &mounted {
        mount.make_read_only();
    } else if is_root() {
        println!("root may write any folder and mount nothing here: nothing to refuse");
        return;
    } else {
        chmod(&folder.path().join("orders/m"), 0o500);
        chmod(&folder.path().join("orders"), 0o500);
        chmod(folder.path(), 0o500);
    }
    failed(store.put("orders/m/1", b"2"), ErrorKind::Invalid, folder.path());
    failed(store.put("new", b"2"), ErrorKind::Invalid, folder.path());
    failed(store.put("new/new", b"2"), ErrorKind::Invalid, folder.path());
    failed(store.put_if_absent("orders/m/2", b"2"), ErrorKind::Invalid, folder.path());
    failed(store.delete("orders/m/1"), ErrorKind::Invalid, folder.path());
    assert_eq!(store.get("orders/m/1").unwrap().as_deref(), Some(&b"1"[..]));
    let below = folder.path().join("below/below");
    failed(LocalStore::open(&below), ErrorKind::Invalid, &folder.path().join("below"));
    let reader = LocalStore::open_read_only(folder.path()).unwrap();
    assert_eq!(reader.list("").unwrap(), ["orders/m/1"]);
    if mounted.is_none() {
        chmod(folder.path(), 0o700);
        chmod(&folder.path().join("orders"), 0o700);
        chmod(&folder.path().join("orders/m"), 0o700);
    }
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().unwrap();
    id.stdout == b"0\n"
}

const LIMITED: &str = "ISOCHRONE_TEST_LIMITED_ROOT";

/// This test is also its own child, under a limit on file size of 64 KiB.
#[test]
fn a_write_beyond_a_limit_leaves_nothing() {
    if let Some(root) = std::env::var_os(LIMITED) {
        return write_beyond_the_limit(Path::new(&root));
    }
    let folder = tempfile::tempdir().unwrap();
    limited_child(folder.path());
}

fn limited_child(root: &Path) {
    // The signal that goes with the limit would kill; ignored, it leaves the error.
    let script = "trap '' XFSZ; ulimit -f 128; exec \"$0\" --exact --nocapture \"$1\"";
    let output = Command::new("sh")
        .args(["-c", script])
        .arg(std::env::current_exe().unwrap())
        .arg("trouble::a_write_beyond_a_limit_leaves_nothing")
        .env(LIMITED, root)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(told.contains("1 passed"), "{told}");
    let store = LocalStore::open_read_only(root).unwrap();
    assert_eq!(store.list("").unwrap(), ["fits"], "the child did not do its part");
}

fn write_beyond_the_limit(root: &Path) {
    let store = LocalStore::open(root).unwrap();
    store.put("fits", &[7; 1 << 10]).unwrap();
    let large = vec![7; 1 << 20];
    failed(store.put("large", &large), ErrorKind::Unavailable, root);
    failed(store.put_if_absent("large", &large), ErrorKind::Unavailable, root);
    failed(store.put("fits", &large), ErrorKind::Unavailable, root);
    assert_eq!(files(root), 1, "the part that fitted was removed");
    assert_eq!(store.get("fits").unwrap(), Some(vec![7; 1 << 10]));
}
