//! Many callers, one object.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Case, side_by_side};
use crate::Created;

const ROUNDS: usize = 20;
const WRITERS: u8 = 16;
/// Enough for a write to take several calls of the system or packets of the network.
const RACED_BYTES: usize = 64 << 10;

pub(super) fn creates_once_in_a_race(case: &Case) {
    for round in 0..ROUNDS {
        let name = format!("race/{round}");
        let start = Barrier::new(usize::from(WRITERS));
        let create = |writer: u8| -> Box<dyn FnOnce() -> Created + Send> {
            let (name, start) = (&name, &start);
            Box::new(move || {
                let bytes = vec![writer; RACED_BYTES];
                start.wait();
                case.create(name, &bytes)
            })
        };
        let answers = side_by_side((0..WRITERS).map(create).collect());
        let won = |(writer, answer): (u8, Created)| (answer == Created::Yes).then_some(writer);
        let winners: Vec<u8> = (0..WRITERS).zip(answers).filter_map(won).collect();
        let [winner] = winners[..] else {
            case.fail(&format!(
                "round {round}: exactly one of {WRITERS} must win, won {winners:?}"
            ));
        };
        case.holds(&name, Some(&vec![winner; RACED_BYTES]));
    }
}

const VERSIONS: u8 = 40;
const READERS: usize = 3;
const VERSION_BYTES: usize = 1 << 20;

pub(super) fn shows_no_torn_reads(case: &Case) {
    case.put("torn", &vec![0; VERSION_BYTES]);
    let done = AtomicBool::new(false);
    let read: fn(&Case, &AtomicBool) = |case, done| {
        let mut newest = 0;
        while !done.load(Ordering::Acquire) {
            newest = whole_version(case, case.get("torn"), VERSION_BYTES, newest);
            let tail = case.get_range("torn", VERSION_BYTES as u64 / 2..u64::MAX);
            newest = whole_version(case, tail, VERSION_BYTES / 2, newest);
        }
    };
    let write = || {
        // Also when a put panics, or the readers would never end.
        let _done = Finish(&done);
        for version in 1..=VERSIONS {
            case.put("torn", &vec![version; VERSION_BYTES]);
            let now = case.get("torn");
            whole_version(case, now, VERSION_BYTES, version);
        }
    };
    let mut threads: Vec<Box<dyn FnOnce() + Send>> = vec![Box::new(write)];
    for _ in 0..READERS {
        let done = &done;
        threads.push(Box::new(move || read(case, done)));
    }
    side_by_side(threads);
    case.holds("torn", Some(&vec![VERSIONS; VERSION_BYTES]));
}

/// Sets the flag at the end of a scope, however it ends.
struct Finish<'a>(&'a AtomicBool);

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Asserts that the bytes are all of one version, not older than `newest`; gives that version.
fn whole_version(case: &Case, bytes: Option<Vec<u8>>, length: usize, newest: u8) -> u8 {
    let Some(bytes) = bytes else { case.fail("an object vanished while it was replaced") };
    let what = format!("a read of {length} bytes gave {}", bytes.len());
    case.assert(bytes.len() == length, &what);
    let version = bytes[0];
    case.assert(bytes.iter().all(|byte| *byte == version), "a read mixed two versions");
    let what = format!("a read gave version {version} after version {newest}");
    case.assert(version >= newest, &what);
    version
}
