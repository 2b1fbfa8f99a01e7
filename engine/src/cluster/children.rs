//! The child processes of one attempt: started together, spoken to through their standard input, and
//! gone together. Knows nothing of restarts.

use std::fmt;
use std::io::{self, Read, Write};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crossbeam_channel::Receiver;

use super::orders::Order;
use crate::{Error, ErrorKind, Result};

/// How much of a child's standard error is kept for the report of its end.
const TAIL_BYTES: usize = 8 << 10;
const TAIL_LINES: usize = 20;
/// How long to wait for the last lines of a child that has ended.
const TAIL_TIMEOUT: Duration = Duration::from_millis(200);

/// How a child ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Which.
    pub process: u32,
    /// Its exit code, if it ended by itself.
    pub code: Option<i32>,
    /// The signal that ended it, if one did.
    pub signal: Option<i32>,
    /// The last lines that it wrote to its standard error.
    pub last_lines: Vec<String>,
}

impl Exit {
    /// Whether it ended well.
    pub fn is_success(&self) -> bool {
        self.code == Some(0)
    }

    /// What its end asks for: the kind of its exit code, or `Unavailable` for signals, panics and
    /// other codes, which may go better the next time.
    pub fn kind(&self) -> ErrorKind {
        self.code.and_then(ErrorKind::from_exit_code).unwrap_or(ErrorKind::Unavailable)
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.process)?;
        match (self.code, self.signal) {
            (Some(code), _) => write!(f, " ended with exit code {code}"),
            (None, Some(signal)) => write!(f, " was ended by signal {signal}"),
            (None, None) => f.write_str(" ended for an unknown reason"),
        }
    }
}

/// All children of an attempt; those that still run are killed when this is dropped.
pub(crate) struct Children(Vec<Running>);

struct Running {
    process: u32,
    child: Child,
    tail: Tail,
    exited: bool,
}

impl Children {
    /// Starts one child for each command, in order.
    pub(crate) fn start(commands: Vec<Command>) -> Result<Children> {
        let mut children = Children(Vec::new());
        for (process, mut command) in (0..).zip(commands) {
            children.0.push(Running::start(process, &mut command)?);
        }
        Ok(children)
    }

    /// The operating system's id of each, for reports.
    pub(crate) fn ids(&self) -> Vec<u32> {
        self.0.iter().map(|running| running.child.id()).collect()
    }

    /// Those that have ended since the last call.
    pub(crate) fn ended(&mut self) -> Vec<Exit> {
        self.0.iter_mut().filter_map(Running::ended).collect()
    }

    /// The processes that have not ended, by number.
    pub(crate) fn left(&self) -> Vec<String> {
        let left = self.0.iter().filter(|running| !running.exited);
        left.map(|running| running.process.to_string()).collect()
    }

    pub(crate) fn all_ended(&self) -> bool {
        self.0.iter().all(|running| running.exited)
    }

    /// Tells all that still run.
    pub(crate) fn order(&mut self, order: Order) {
        for running in self.0.iter_mut().filter(|running| !running.exited) {
            let Some(pipe) = running.child.stdin.as_mut() else { continue };
            if let Err(error) = pipe.write_all(order.line().as_bytes()) {
                tracing::debug!(process = running.process, %error, "a child does not hear orders");
            }
        }
    }

    /// Ends all that still run, at once.
    pub(crate) fn kill(&mut self) {
        let mut left: Vec<_> = self.0.iter_mut().filter(|running| !running.exited).collect();
        // All are signalled before one is waited for: they share nothing that is worth an order.
        for running in &mut left {
            let _has_ended = running.child.kill();
        }
        for running in left {
            let _has_ended = running.child.wait();
            running.exited = true;
        }
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Running {
    fn start(process: u32, command: &mut Command) -> Result<Running> {
        command.stdin(Stdio::piped()).stderr(Stdio::piped());
        own_group(command);
        let mut child = command.spawn().map_err(|error| {
            let program = command.get_program().to_string_lossy().into_owned();
            Error::invalid(format!("cannot start process {process}, program `{program}`"))
                .with_source(error)
        })?;
        let stderr = child.stderr.take();
        let mut running = Running { process, child, tail: Tail::default(), exited: false };
        match stderr.map(Tail::follow).transpose() {
            Ok(tail) => running.tail = tail.unwrap_or_default(),
            Err(error) => {
                let _has_ended = running.child.kill();
                let _has_ended = running.child.wait();
                return Err(error);
            }
        }
        Ok(running)
    }

    fn ended(&mut self) -> Option<Exit> {
        if self.exited {
            return None;
        }
        let status = match self.child.try_wait() {
            Ok(None) => return None,
            Ok(Some(status)) => Some(status),
            // Not ours to wait for any more: as good as gone.
            Err(_) => None,
        };
        self.exited = true;
        Some(Exit {
            process: self.process,
            code: status.and_then(|status| status.code()),
            signal: status.and_then(signal),
            last_lines: self.tail.lines(),
        })
    }
}

/// A group of its own, so that Ctrl-C in a terminal reaches the supervisor only, which then tells the
/// children to stop in good order.
#[cfg(unix)]
fn own_group(command: &mut Command) {
    std::os::unix::process::CommandExt::process_group(command, 0);
}

#[cfg(not(unix))]
fn own_group(_command: &mut Command) {}

#[cfg(unix)]
fn signal(status: ExitStatus) -> Option<i32> {
    std::os::unix::process::ExitStatusExt::signal(&status)
}

#[cfg(not(unix))]
fn signal(_status: ExitStatus) -> Option<i32> {
    None
}

/// The end of a child's standard error, which is passed on to our own as it comes.
struct Tail {
    kept: Arc<Mutex<Vec<u8>>>,
    ended: Receiver<()>,
}

impl Default for Tail {
    fn default() -> Self {
        Tail { kept: Arc::default(), ended: crossbeam_channel::bounded(0).1 }
    }
}

impl Tail {
    fn follow(mut from: ChildStderr) -> Result<Tail> {
        let (end, ended) = crossbeam_channel::bounded::<()>(0);
        let kept = Arc::new(Mutex::new(Vec::new()));
        let writer = Arc::clone(&kept);
        let run = move || {
            let _end = end;
            let mut chunk = vec![0; TAIL_BYTES];
            while let Ok(length @ 1..) = read_some(&mut from, &mut chunk) {
                let _our_own_is_closed = io::stderr().write_all(&chunk[..length]);
                let mut kept = writer.lock().unwrap_or_else(PoisonError::into_inner);
                kept.extend_from_slice(&chunk[..length]);
                let surplus = kept.len().saturating_sub(TAIL_BYTES);
                kept.drain(..surplus);
            }
        };
        let thread = std::thread::Builder::new().name("isochrone-stderr".to_owned()).spawn(run);
        thread.map_err(|error| {
            Error::unavailable("cannot start the thread that reads a child").with_source(error)
        })?;
        Ok(Tail { kept, ended })
    }

    fn lines(&self) -> Vec<String> {
        // Ends by disconnection, or by time if a grandchild keeps the pipe open.
        let _disconnects = self.ended.recv_timeout(TAIL_TIMEOUT);
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&kept);
        let lines: Vec<&str> = text.lines().collect();
        let surplus = lines.len().saturating_sub(TAIL_LINES);
        lines[surplus..].iter().map(|line| (*line).to_owned()).collect()
    }
}

fn read_some(from: &mut impl Read, chunk: &mut [u8]) -> io::Result<usize> {
    loop {
        match from.read(chunk) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
