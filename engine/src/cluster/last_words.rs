//! What a child says on its standard error: passed on to our own as it comes, its end kept for the
//! report of the child's end. An error is a line of its own form: it is kept for the supervisor, which
//! tells it once, however many processes ended because of it.
//!
//! Nothing that a child has said before its end is lost. What it wrote is in the pipe when it has gone,
//! however long the reader takes: after the end of the child we write a last line into the same pipe,
//! and wait until it comes out.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam_channel::Receiver;

use crate::{Error, Result, threads};

/// Leads the line of an error; no text for people begins so, and no JSON has it within.
const MARK: u8 = 0x1e;
/// Our own line, behind everything that the child has said.
const LAST: &[u8] = &[MARK, b'\n'];
/// How much of a child's standard error is kept.
const TAIL_BYTES: usize = 8 << 10;
const TAIL_LINES: usize = 20;
/// How long to wait for the last lines of a child that has ended: only a standard error of our own that
/// takes nothing more can keep the reader from coming to them.
const TAIL_TIMEOUT: Duration = Duration::from_secs(10);

/// Leaves the error with which this process ends to its supervisor.
pub(crate) fn leave(report: &str) {
    let mut line = vec![MARK];
    line.extend(serde_json::to_vec(report).expect("text is text in json too"));
    line.push(b'\n');
    // Whoever listened may be gone.
    let _ = io::stderr().write_all(&line);
}

/// Follows the standard error of one child.
pub(super) struct Tail {
    heard: Arc<Mutex<Heard>>,
    /// Our own end of the pipe, until the child has gone.
    into: Option<PipeWriter>,
    last_heard: Receiver<()>,
}

/// What a child has said.
#[derive(Default)]
struct Heard {
    kept: Vec<u8>,
    report: Option<String>,
    /// A line that has begun with the mark and is not complete.
    open: Option<Vec<u8>>,
    /// Our own last line has come out.
    is_complete: bool,
}

impl Tail {
    /// What follows a child, and what it must be given as its standard error.
    pub(super) fn follow() -> Result<(Tail, PipeWriter)> {
        let failed = |error: io::Error| {
            Error::unavailable("cannot hear what a child says").with_source(error)
        };
        let (from, into) = io::pipe().map_err(failed)?;
        let (told, last_heard) = crossbeam_channel::bounded(1);
        let heard = Arc::new(Mutex::new(Heard::default()));
        let listener = Arc::clone(&heard);
        let listen = move || {
            pass_on(from, &listener, || {
                // Whoever has waited may have given up.
                let _ = told.try_send(());
            });
        };
        threads::spawn("isochrone-stderr", threads::note, listen)?;
        let of_child = into.try_clone().map_err(failed)?;
        Ok((Tail { heard, into: Some(into), last_heard }, of_child))
    }

    /// The last lines of a child that has ended, and the error that it left.
    pub(super) fn end(&mut self) -> (Vec<String>, Option<String>) {
        if let Some(mut into) = self.into.take() {
            // A thread, since a full pipe that nobody reads would hold us up.
            let write = move || into.write_all(LAST);
            if threads::spawn("isochrone-last-line", threads::note, write).is_ok()
                && self.last_heard.recv_timeout(TAIL_TIMEOUT).is_err()
            {
                tracing::warn!("standard error takes nothing; what a child said last is not known");
            }
        }
        let heard = lock(&self.heard);
        let text = String::from_utf8_lossy(&heard.kept);
        let lines: Vec<&str> = text.lines().collect();
        let surplus = lines.len().saturating_sub(TAIL_LINES);
        let lines = lines[surplus..].iter().map(|line| (*line).to_owned()).collect();
        (lines, heard.report.clone())
    }
}

/// Reads until all who can write have gone: the child, we, and what the child may have started.
fn pass_on(mut from: PipeReader, heard: &Mutex<Heard>, mut on_last: impl FnMut()) {
    let mut chunk = vec![0; TAIL_BYTES];
    while let Ok(length @ 1..) = read_some(&mut from, &mut chunk) {
        let (passed_on, is_complete) = {
            let mut heard = lock(heard);
            (heard.hear(&chunk[..length]), heard.is_complete)
        };
        let _our_own_is_closed = io::stderr().write_all(&passed_on);
        if is_complete {
            on_last();
        }
    }
}

impl Heard {
    /// Takes in what came; answers what is to be passed on.
    fn hear(&mut self, chunk: &[u8]) -> Vec<u8> {
        let mut passed_on = Vec::with_capacity(chunk.len());
        for byte in chunk {
            match (&mut self.open, *byte) {
                // A line that its writer did not live to end goes before what comes behind it.
                (Some(line), MARK) => passed_on.append(line),
                (None, MARK) => self.open = Some(Vec::new()),
                (None, byte) => passed_on.push(byte),
                (Some(line), b'\n') => {
                    match serde_json::from_slice(line) {
                        Ok(report) => self.report = Some(report),
                        Err(_) if line.is_empty() => self.is_complete = true,
                        Err(_) => passed_on.append(line),
                    }
                    self.open = None;
                }
                (Some(line), byte) => line.push(byte),
            }
        }
        self.kept.extend_from_slice(&passed_on);
        let surplus = self.kept.len().saturating_sub(TAIL_BYTES);
        self.kept.drain(..surplus);
        passed_on
    }
}

fn lock(heard: &Mutex<Heard>) -> MutexGuard<'_, Heard> {
    heard.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read_some(from: &mut impl Read, chunk: &mut [u8]) -> io::Result<usize> {
    loop {
        match from.read(chunk) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_kept_and_everything_else_is_passed_on_however_it_is_cut() {
        let said = b"one\n\x1e\"it is\\nbroken\"\ntwo\r\x1eno error\nthree";
        for cut in 0..said.len() {
            let mut heard = Heard::default();
            let passed_on = [heard.hear(&said[..cut]), heard.hear(&said[cut..])].concat();
            assert_eq!(passed_on, b"one\ntwo\rno errorthree", "cut at {cut}");
            assert_eq!(heard.kept, passed_on);
            assert_eq!(heard.report.as_deref(), Some("it is\nbroken"));
            assert!(!heard.is_complete);
        }
    }

    /// A line that ended with its writer was swallowed.
    #[test]
    fn what_a_child_did_not_live_to_end_is_passed_on_when_the_last_line_comes() {
        for said in [&b"one\n\x1e\"it is bro"[..], b"one\ntwo", b"one\n\x1e"] {
            for cut in 0..said.len() {
                let mut heard = Heard::default();
                let parts = [&said[..cut], &said[cut..], LAST];
                let passed_on = parts.map(|part| heard.hear(part)).concat();
                let expected: Vec<u8> = said.iter().copied().filter(|byte| *byte != MARK).collect();
                assert_eq!(passed_on, expected, "cut at {cut}");
                assert!(heard.is_complete && heard.report.is_none());
            }
        }
    }
}
