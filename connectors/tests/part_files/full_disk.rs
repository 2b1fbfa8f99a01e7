//! A full disk, in every step that writes. Fails where none can be mounted, unless
//! `ISOCHRONE_WITHOUT_ROOT=1` says that there is no root here; `tests/full_disk.rs` at the root has what
//! needs none.

use std::process::Command;

use super::*;

/// A file system of 64 KiB, if this user may mount one.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn mount() -> Option<SmallDisk> {
        let folder = TempDir::new().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64k", "none"]).arg(folder.path());
        let mounted = mount.output().is_ok_and(|output| output.status.success());
        // Not made where nothing was mounted: it would be unmounted.
        mounted.then(|| SmallDisk(folder))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        assert!(Command::new("umount").arg(self.0.path()).status().unwrap().success());
    }
}

#[test]
fn a_full_disk_is_unavailable_and_loses_nothing() {
    let Some(disk) = SmallDisk::mount() else {
        let declared = std::env::var_os("ISOCHRONE_WITHOUT_ROOT").is_some_and(|value| value == "1");
        assert!(declared, "needs root and `mount`; to go without, set ISOCHRONE_WITHOUT_ROOT=1");
        return eprintln!("NOT CHECKED: only root can mount the small file system this needs");
    };
    let folder = disk.0.path();
    let sink = text(folder);
    let mut committer = recovered(&sink, 1, Vec::new());
    let mut writer = sink.writer(&context(1, 0)).unwrap();

    // In prepare: 40 KB stay in the buffer until then. Room is made, and the closure tried again.
    let ballast = folder.join("ballast");
    fs::write(&ballast, vec![0; 32 * 1024]).unwrap();
    let line = "x".repeat(999);
    write(&mut writer, 1, &vec![line.as_str(); 40]);
    let mut prepare = writer.prepare(Epoch(1)).unwrap();
    let error = prepare().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("part-0000000001-0000.txt"), "{error}");
    assert!(error.to_string().contains("the disk is full"), "{error}");
    assert!(lines(folder, "*.txt").is_empty());
    fs::remove_file(ballast).unwrap();
    committer.commit(&[prepare().unwrap().unwrap()]).unwrap();
    assert_eq!(lines(folder, "*.txt"), vec![line.clone(); 40]);

    // In write: an epoch larger than the disk. The next run starts clean, with what it had.
    let mut batch = vec![line.clone(); 300];
    let error = writer.write(&mut batch, Epoch(2)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("part-0000000002-0000.txt"), "{error}");
    drop(writer);
    recovered(&sink, 2, Vec::new());
    assert_eq!(all(folder), ["part-0000000001-0000.txt"]);
    assert_eq!(lines(folder, "*.txt"), vec![line; 40]);
}
