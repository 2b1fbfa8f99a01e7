//! Temporary names: who wrote them, and when nobody will need them any more.
//!
//! A name tells its writer: `.tmp-<place>-<process>-<started>-<nonce>`. A place is one process
//! namespace on one boot of one machine: only there does a process number mean anything.

use std::fs::{self, DirEntry, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::{Error, Result};

use super::failure::failed;
use super::read::{self, Entry};

const TEMPORARY: &str = ".tmp-";

/// Age at which the file of a writer that cannot be looked up is taken for abandoned.
const FOREIGN_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// A process, recognisable after its death.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Writer {
    /// `None` where the system tells no place; then only age counts.
    pub(super) place: Option<String>,
    pub(super) process: u32,
    pub(super) started: String,
}

impl Writer {
    /// This process.
    pub(super) fn this() -> Writer {
        let process = std::process::id();
        let started = start_of(process).unwrap_or_else(|| "0".to_owned());
        Writer { place: place(), process, started }
    }

    /// A name that nobody else has or will have.
    pub(super) fn temporary_name(&self) -> Result<String> {
        let nonce = getrandom::u64().map_err(|error| {
            Error::unavailable("the system gives no random number; try again").with_source(error)
        })?;
        let place = self.place.as_deref().unwrap_or("unknown");
        Ok(format!("{TEMPORARY}{place}-{}-{}-{nonce:016x}", self.process, self.started))
    }

    fn of(name: &str) -> Option<Writer> {
        let mut parts = name.strip_prefix(TEMPORARY)?.split('-');
        let place = parts.next().map(str::to_owned);
        let process = parts.next()?.parse().ok()?;
        let started = parts.next()?.to_owned();
        Some(Writer { place, process, started })
    }

    fn is_alive(&self) -> bool {
        start_of(self.process).is_some_and(|started| started == self.started)
    }
}

/// Removes the leftovers of dead writers below `root` and says how many.
pub(super) fn sweep(root: &Path, this: &Writer) -> Result<usize> {
    let mut found = Vec::new();
    read::walk(root, &mut |entry, _| {
        if let Entry::Hidden(file) = entry
            && file.file_name().to_string_lossy().starts_with(TEMPORARY)
        {
            found.push(file);
        }
        Ok(())
    })?;
    let mut now = None;
    let mut removed = 0;
    for file in found {
        if is_dead(&file, this, root, &mut now)? {
            removed += usize::from(super::draft::remove(&file.path())?);
        }
    }
    Ok(removed)
}

fn is_dead(
    file: &DirEntry,
    this: &Writer,
    root: &Path,
    now: &mut Option<SystemTime>,
) -> Result<bool> {
    let writer = Writer::of(&file.file_name().to_string_lossy());
    if let Some(writer) = writer.filter(|writer| this.place.is_some() && writer.place == this.place)
    {
        return Ok(!writer.is_alive());
    }
    let Ok(written) = file.metadata().and_then(|metadata| metadata.modified()) else {
        return Ok(false);
    };
    let now = match *now {
        Some(now) => now,
        None => *now.insert(file_system_time(root, this)?),
    };
    Ok(now.duration_since(written).is_ok_and(|age| age >= FOREIGN_AGE))
}

/// The time by the clock that stamps files, which on a shared drive is not this machine's.
fn file_system_time(root: &Path, this: &Writer) -> Result<SystemTime> {
    let path = root.join(this.temporary_name()?);
    let stamped = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    let time = stamped.and_then(|file| file.metadata()?.modified());
    let _left_to_the_sweep = fs::remove_file(&path);
    time.map_err(|error| failed("create a file in", root, error))
}

fn place() -> Option<String> {
    let boot = fs::read("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = fs::read_link("/proc/self/ns/pid").ok()?;
    let mut hasher = blake3::Hasher::new();
    hasher.update(&boot).update(namespace.as_os_str().as_encoded_bytes());
    Some(hasher.finalize().to_hex()[..16].to_owned())
}

/// When a process started, in the kernel's ticks; `None` if it is gone or is a zombie.
fn start_of(process: u32) -> Option<String> {
    let stat: io::Result<String> = fs::read_to_string(format!("/proc/{process}/stat"));
    let stat = stat.ok()?;
    // The command's name, in brackets, may hold anything; fields are counted after it.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let state = fields.first()?;
    (!matches!(*state, "Z" | "X")).then(|| fields.get(19).map(|start| (*start).to_owned()))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_is_read_back_from_its_temporary_name() {
        let writer = Writer::this();
        assert!(writer.place.is_some(), "this system has no /proc: {writer:?}");
        assert_eq!(Writer::of(&writer.temporary_name().unwrap()), Some(writer));
    }

    #[test]
    fn this_process_is_alive_and_another_start_of_its_number_is_not() {
        let writer = Writer::this();
        assert!(writer.is_alive());
        assert!(!Writer { started: "1".to_owned(), ..writer }.is_alive());
    }

    #[test]
    fn a_killed_process_is_dead_even_before_it_is_waited_for() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let started = start_of(child.id()).unwrap();
        let writer = Writer { place: None, process: child.id(), started };
        assert!(writer.is_alive());
        child.kill().unwrap();
        while writer.is_alive() {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(!writer.is_alive());
    }
}
