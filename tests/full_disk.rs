//! No room for the output of a running job: it ends as something that passes, what was visible
//! stays, and with room again it goes on as if nothing had been.
//!
//! Once by a limit on the size of files, which needs nobody's permission, and once on a small file
//! system that is really full, which only root can mount.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

#[path = "../examples/account_risk.rs"]
#[expect(dead_code, reason = "the example's own entrance is not used here")]
mod account_risk;
mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use isochrone::ErrorKind;
use support::child::{Job, assert_ends_well, play};
use support::oracle::{Verdict, judge, parts};
use support::purchases::Log;
use support::{rights, wait};
use tempfile::TempDir;

const LINES: u64 = 100_000;

struct Place {
    folder: TempDir,
    log: Log,
    output: PathBuf,
}

impl Place {
    fn new() -> Place {
        let folder = TempDir::new().unwrap();
        let log = Log::generate(5, &folder.path().join("input"), LINES, 2);
        let output = folder.path().join("disk/output");
        std::fs::create_dir(folder.path().join("disk")).unwrap();
        Place { folder, log, output }
    }

    fn flags(&self, more: &[(&str, &str)]) -> Vec<String> {
        let at = |name: &str| self.folder.path().join(name).to_str().unwrap().to_owned();
        let own = [("--input", at("input")), ("--store", at("store"))];
        let output = self.output.to_str().unwrap().to_owned();
        let pairs = own.into_iter().chain([("--output", output), ("--workers", "2".to_owned())]);
        let more = more.iter().map(|(flag, value)| (*flag, (*value).to_owned()));
        pairs.chain(more).flat_map(|(flag, value)| [flag.to_owned(), value]).collect()
    }

    fn errors(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The job ends with 4 and names the part; what was visible stays.
    fn assert_fails(&self, mut job: Job, why: &str) {
        let code = job.end().code();
        let errors = job.errors();
        assert_eq!(code, Some(i32::from(ErrorKind::Unavailable.exit_code())), "{errors}");
        for part in [self.output.to_str().unwrap(), "part-", why] {
            assert!(errors.contains(part), "`{part}` is not in: {errors}");
        }
        let verdict = judge(&self.log, &self.output);
        let Verdict { lost, doubled, out_of_order, wrong, .. } = verdict;
        assert_eq!((doubled, out_of_order, wrong), (0, 0, 0));
        assert!(lost > 0, "everything had room");
    }

    fn assert_goes_on(&self, test: &str) {
        let flags = self.flags(&[("--checkpoint-every", "50ms")]);
        assert_ends_well(&mut Job::start(test, &flags, &self.errors("room")));
        assert_eq!(judge(&self.log, &self.output), Verdict::default());
    }
}

#[test]
fn an_output_beyond_a_limit_on_files_ends_the_job_and_with_room_it_goes_on() {
    play(account_risk::run);
    let test = "an_output_beyond_a_limit_on_files_ends_the_job_and_with_room_it_goes_on";
    let place = Place::new();
    // Something is visible before.
    let flags = place.flags(&[("--checkpoint-every", "20ms")]);
    let mut before = Job::start(test, &flags, &place.errors("before"));
    assert!(wait::soon(|| !parts(&place.output).is_empty()), "{}", before.errors());
    assert!(before.kill(), "{}", before.errors());
    // The signal that goes with the limit would kill; ignored, it leaves the error. 512 blocks of
    // 512 bytes or 1 KiB, as the shell has it: less than the part of one long epoch.
    let limited =
        ["sh", "-c", "trap '' XFSZ; ulimit -f 512; exec \"$0\" \"$@\""].map(str::to_owned);
    let flags = place.flags(&[("--checkpoint-every", "1h")]);
    let job = Job::start_within(&limited, test, &flags, &place.errors("limited"));
    place.assert_fails(job, "File too large");
    place.assert_goes_on(test);
}

#[test]
fn a_full_disk_under_the_output_ends_the_job_and_with_room_it_goes_on() {
    play(account_risk::run);
    let test = "a_full_disk_under_the_output_ends_the_job_and_with_room_it_goes_on";
    let place = Place::new();
    let Some(disk) = Disk::mount(&place.folder.path().join("disk")) else {
        return rights::go_without("a small file system for output: needs root and `mount`");
    };
    let flags = place.flags(&[("--checkpoint-every", "20ms")]);
    place.assert_fails(Job::start(test, &flags, &place.errors("full")), "the disk is full");
    disk.enlarge();
    place.assert_goes_on(test);
}

/// A file system of 2 MiB, for an output of some 8; unmounted when dropped.
struct Disk(PathBuf);

impl Disk {
    fn mount(at: &Path) -> Option<Disk> {
        mount("size=2m", at).then(|| Disk(at.to_owned()))
    }

    fn enlarge(&self) {
        assert!(mount("remount,size=64m", &self.0));
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _left_to_the_system = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn mount(options: &str, at: &Path) -> bool {
    let mut command = Command::new("mount");
    let output = command.args(["-t", "tmpfs", "-o", options, "none"]).arg(at).output();
    output.is_ok_and(|output| {
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        output.status.success()
    })
}
