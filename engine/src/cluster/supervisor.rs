//! Starts the processes of a job on this machine and keeps the set alive.
//!
//! A process cannot rejoin a running set, so when one dies all are ended and the whole set starts
//! again, as a new attempt with a new secret and a new port.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::Command;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError};

use super::Secret;
use super::assignment::Assignment;
use super::children::{Children, Exit};
use super::deadline::{Deadline, pause};
use super::orders::Order;
use super::restart::{Next, RestartPolicy, Restarts};
use super::signals::Signal;
use crate::time::Clock;
use crate::{Error, Result};

/// How long the others may take to end by themselves, and to say why, after one has died.
const GRACE: Duration = Duration::from_millis(500);
/// How often to look whether a child has ended.
const POLL: Duration = Duration::from_millis(20);

/// What a supervisor does, for logs and progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SupervisorEvent {
    /// All processes of an attempt were started.
    Started {
        /// Which start this is, from 0.
        attempt: u32,
        /// The operating system's process ids, by index.
        process_ids: Vec<u32>,
    },
    /// A process ended by itself.
    Exited(Exit),
    /// All are ended; they start again after a wait.
    Restarting {
        /// The next attempt.
        attempt: u32,
        /// The wait.
        after_ms: u64,
        /// Whose end it was, of those that ended.
        because_of: Exit,
    },
    /// All were asked to end in good order.
    Stopping,
}

/// Runs `processes` children until all end well, starting all again when one dies.
///
/// - `command` gives the program of a process (index, attempt); standard input, standard error and
///   the variables of [`env`](super::env) are set here. The child finds its place by
///   [`Assignment::from_env`] and must watch [`orders`](super::orders), so that it ends when this
///   process is killed.
/// - A child that dies by a signal, or with an exit code of a retriable or no known kind, costs one
///   restart of all; any other kind ends the supervision with an error of that kind, with the error
///   that the child left to be told, or else with its last lines. If several die together, the one that no restart helps decides.
/// - The first [`Signal::Stop`] asks all to end in good order and no restart follows; the next ends
///   them at once, and the error says what process 0 was waiting for, if that can tell. [`Signal::Checkpoint`] is passed on.
/// - When this function returns, or unwinds, no child lives.
///
/// ```
/// use std::process::Command;
/// use isochrone_engine::cluster::{RestartPolicy, SupervisorEvent, supervise};
/// use isochrone_engine::time::SystemClock;
///
/// // The first attempt fails, the second ends well.
/// let command = |_process, attempt| Command::new(if attempt == 0 { "false" } else { "true" });
/// let policy = RestartPolicy { backoff_ms: 1, ..RestartPolicy::default() };
/// let (_, signals) = crossbeam_channel::unbounded();
/// let mut starts = 0;
/// supervise(2, command, policy, &SystemClock::default(), &signals, |event| {
///     starts += usize::from(matches!(event, SupervisorEvent::Started { .. }));
/// })?;
/// assert_eq!(starts, 2);
/// # Ok::<(), isochrone_engine::Error>(())
/// ```
pub fn supervise(
    processes: u32,
    command: impl Fn(u32, u32) -> Command,
    policy: RestartPolicy,
    clock: &dyn Clock,
    signals: &Receiver<Signal>,
    mut on_event: impl FnMut(&SupervisorEvent),
) -> Result<()> {
    let mut restarts = Restarts::new(policy);
    let mut attempt = 0;
    loop {
        let started_ms = clock.monotonic_ms();
        let mut children = Children::start(commands(processes, attempt, &command)?)?;
        on_event(&SupervisorEvent::Started { attempt, process_ids: children.ids() });
        let failed = match attend(&mut children, signals, &mut on_event) {
            Outcome::Finished => return Ok(()),
            Outcome::Ended(error) => return Err(error),
            Outcome::Failed(exit) => exit,
        };
        drop(children);
        if !failed.kind().is_retriable() {
            return Err(fatal(&failed, "a restart would not help"));
        }
        let ran_ms = clock.monotonic_ms().saturating_sub(started_ms);
        let Next::Restart { after_ms } = restarts.after_failure(ran_ms) else {
            return Err(fatal(&failed, &format!("gave up after {} restarts", policy.limit)));
        };
        attempt += 1;
        let because_of = failed.clone();
        on_event(&SupervisorEvent::Restarting { attempt, after_ms, because_of });
        if !wait(clock, after_ms, signals) {
            return Err(fatal(&failed, "stopped before the next start"));
        }
    }
}

enum Outcome {
    /// All ended well.
    Finished,
    /// One ended badly while nobody had asked for an end; all are gone.
    Failed(Exit),
    /// Somebody asked for an end and it did not go well.
    Ended(Error),
}

fn commands(
    processes: u32,
    attempt: u32,
    command: &impl Fn(u32, u32) -> Command,
) -> Result<Vec<Command>> {
    let (secret, hub) = (Secret::random()?, free_address()?);
    let one = |process| {
        let mut command = command(process, attempt);
        let secret = secret.clone();
        Assignment { process, processes, hub, attempt, secret }.give(&mut command);
        command
    };
    Ok((0..processes).map(one).collect())
}

/// A loopback port that is free now. Another program may take it before process 0 does; that costs a
/// restart with another port.
fn free_address() -> Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|free| free.local_addr()).map_err(
        |error| {
            Error::unavailable("there is no free port on the loopback interface").with_source(error)
        },
    )
}

fn attend(
    children: &mut Children,
    signals: &Receiver<Signal>,
    on_event: &mut impl FnMut(&SupervisorEvent),
) -> Outcome {
    let mut stopping = false;
    loop {
        match next_signal(signals) {
            Some(Signal::Stop) if !stopping => {
                stopping = true;
                on_event(&SupervisorEvent::Stopping);
                children.order(Order::Stop);
            }
            Some(Signal::Stop | Signal::Kill) => {
                let awaited = awaited(children);
                return Outcome::Ended(Error::unavailable(format!(
                    "ended at once on request while waiting for {awaited}; the next run starts from \
                     the last checkpoint"
                )));
            }
            Some(Signal::Checkpoint) => children.order(Order::Checkpoint),
            None => {}
        }
        let failures = failures(children, on_event);
        if let Some(exit) = decisive(failures, children, on_event) {
            return match stopping {
                true => Outcome::Ended(fatal(&exit, "while it was asked to stop")),
                false => Outcome::Failed(exit),
            };
        }
        if children.all_ended() {
            return Outcome::Finished;
        }
    }
}

/// Ends all at once. What they were waiting for: process 0 may say so, if it still can.
fn awaited(children: &mut Children) -> String {
    let left = children.left();
    children.order(Order::Kill);
    let patience = Deadline::after(GRACE + GRACE);
    let mut ended = Vec::new();
    while !ended.iter().any(|exit: &Exit| exit.process == 0) && patience.remaining().is_some() {
        patience.pause(POLL);
        ended.extend(children.ended());
    }
    ended.extend(children.kill());
    let first = ended.into_iter().find(|exit| exit.process == 0);
    first.and_then(|exit| exit.report).unwrap_or_else(|| format!("process {}", left.join(", ")))
}

fn failures(children: &mut Children, on_event: &mut impl FnMut(&SupervisorEvent)) -> Vec<Exit> {
    let ended = children.ended();
    ended.iter().cloned().map(SupervisorEvent::Exited).for_each(|event| on_event(&event));
    ended.into_iter().filter(|exit| !exit.is_success()).collect()
}

/// After a failure: gives the others a moment to end by themselves, ends the rest, and picks the exit
/// that says most. The first to die is often only the first to notice.
fn decisive(
    mut failed: Vec<Exit>,
    children: &mut Children,
    on_event: &mut impl FnMut(&SupervisorEvent),
) -> Option<Exit> {
    if failed.is_empty() {
        return None;
    }
    let grace = Deadline::after(GRACE);
    while !children.all_ended() && grace.remaining().is_some() {
        grace.pause(POLL);
        failed.extend(failures(children, on_event));
    }
    let by_themselves = children.kill();
    failed.extend(by_themselves.into_iter().filter(|exit| !exit.is_success()));
    let fatal = failed.iter().position(|exit| !exit.kind().is_retriable());
    Some(failed.swap_remove(fatal.unwrap_or(0)))
}

fn next_signal(signals: &Receiver<Signal>) -> Option<Signal> {
    match signals.recv_timeout(POLL) {
        Ok(signal) => Some(signal),
        Err(RecvTimeoutError::Timeout) => None,
        Err(RecvTimeoutError::Disconnected) => {
            pause(POLL);
            None
        }
    }
}

/// Lets the wait pass; false if somebody asked for an end meanwhile.
fn wait(clock: &dyn Clock, span_ms: u64, signals: &Receiver<Signal>) -> bool {
    let until_ms = clock.monotonic_ms().saturating_add(span_ms);
    while clock.monotonic_ms() < until_ms {
        if matches!(next_signal(signals), Some(Signal::Stop | Signal::Kill)) {
            return false;
        }
    }
    true
}

fn fatal(exit: &Exit, outcome: &str) -> Error {
    let mut text = format!("{exit}; {outcome}");
    if let Some(report) = &exit.report {
        text = format!("{text}: {report}");
    } else if !exit.last_lines.is_empty() {
        text = format!("{text}; its last lines were:\n{}", exit.last_lines.join("\n"));
    }
    Error::new(exit.kind(), text)
}
