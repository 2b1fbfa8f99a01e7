//! What a child says on its standard error: passed on to our own as it comes, its end kept for the
//! report of the child's end. An error is a line of its own form: it is kept for the supervisor, which
//! tells it once, however many processes ended because of it.

use std::io::{self, Read, Write};
use std::process::ChildStderr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam_channel::Receiver;

use crate::{Error, Result};

/// Leads the line of an error; no text for people begins so.
const MARK: u8 = 0x1e;
/// How much of a child's standard error is kept.
const TAIL_BYTES: usize = 8 << 10;
const TAIL_LINES: usize = 20;
/// How long to wait for the last lines of a child that has ended.
const TAIL_TIMEOUT: Duration = Duration::from_millis(200);

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
    ended: Receiver<()>,
}

/// What a child has said.
#[derive(Default)]
struct Heard {
    kept: Vec<u8>,
    report: Option<String>,
    /// A line that has begun with the mark and is not complete.
    open: Option<Vec<u8>>,
}

impl Default for Tail {
    fn default() -> Self {
        Tail { heard: Arc::default(), ended: crossbeam_channel::bounded(0).1 }
    }
}

impl Tail {
    pub(super) fn follow(mut from: ChildStderr) -> Result<Tail> {
        let (end, ended) = crossbeam_channel::bounded::<()>(0);
        let heard = Arc::new(Mutex::new(Heard::default()));
        let writer = Arc::clone(&heard);
        let run = move || {
            let _end = end;
            let mut chunk = vec![0; TAIL_BYTES];
            while let Ok(length @ 1..) = read_some(&mut from, &mut chunk) {
                let passed_on = lock(&writer).hear(&chunk[..length]);
                let _our_own_is_closed = io::stderr().write_all(&passed_on);
            }
        };
        let thread = std::thread::Builder::new().name("isochrone-stderr".to_owned()).spawn(run);
        thread.map_err(|error| {
            Error::unavailable("cannot start the thread that reads a child").with_source(error)
        })?;
        Ok(Tail { heard, ended })
    }

    /// The last lines of a child that has ended, and the error that it left.
    pub(super) fn end(&self) -> (Vec<String>, Option<String>) {
        // Ends by disconnection, or by time if a grandchild keeps the pipe open.
        let _disconnects = self.ended.recv_timeout(TAIL_TIMEOUT);
        let heard = lock(&self.heard);
        let text = String::from_utf8_lossy(&heard.kept);
        let lines: Vec<&str> = text.lines().collect();
        let surplus = lines.len().saturating_sub(TAIL_LINES);
        let lines = lines[surplus..].iter().map(|line| (*line).to_owned()).collect();
        (lines, heard.report.clone())
    }
}

impl Heard {
    /// Takes in what came; answers what is to be passed on.
    fn hear(&mut self, chunk: &[u8]) -> Vec<u8> {
        let mut passed_on = Vec::with_capacity(chunk.len());
        for byte in chunk {
            match &mut self.open {
                None if *byte == MARK => self.open = Some(Vec::new()),
                None => passed_on.push(*byte),
                Some(line) if *byte != b'\n' => line.push(*byte),
                Some(line) => {
                    match serde_json::from_slice(line) {
                        Ok(report) => self.report = Some(report),
                        Err(_) => passed_on.append(line),
                    }
                    self.open = None;
                }
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
        }
    }
}
