//! The child processes of one attempt: started together, spoken to through their standard input, and
//! gone together. Knows nothing of restarts.

use std::fmt;
use std::io::Write;
use std::process::{Child, Command, ExitStatus, Stdio};

use super::last_words::Tail;
use super::orders::Order;
use crate::{Error, ErrorKind, Result};

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
    /// The error that it left to its supervisor to tell, if it did.
    pub report: Option<String>,
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

    /// Ends all that still run, at once. Answers how those ended that had done so by themselves since
    /// anybody looked.
    pub(crate) fn kill(&mut self) -> Vec<Exit> {
        let mut left: Vec<_> = self.0.iter_mut().filter(|running| !running.exited).collect();
        // All are signalled before one is waited for: they share nothing that is worth an order.
        for running in &mut left {
            let _has_ended = running.child.kill();
        }
        let by_themselves = left.into_iter().filter_map(|running| {
            let status = running.child.wait().ok();
            running.exited = true;
            status.filter(|status| status.code().is_some()).map(|_| running.exit(status))
        });
        by_themselves.collect()
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Running {
    fn start(process: u32, command: &mut Command) -> Result<Running> {
        let (tail, stderr) = Tail::follow()?;
        command.stdin(Stdio::piped()).stderr(stderr);
        own_group(command);
        let child = command.spawn().map_err(|error| {
            let program = command.get_program().to_string_lossy().into_owned();
            Error::invalid(format!("cannot start process {process}, program `{program}`"))
                .with_source(error)
        })?;
        Ok(Running { process, child, tail, exited: false })
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
        Some(self.exit(status))
    }

    fn exit(&mut self, status: Option<ExitStatus>) -> Exit {
        let (last_lines, report) = self.tail.end();
        Exit {
            process: self.process,
            code: status.and_then(|status| status.code()),
            signal: status.and_then(signal),
            last_lines,
            report,
        }
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
