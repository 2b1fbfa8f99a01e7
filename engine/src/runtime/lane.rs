//! A thread that does one thing after another: what the uploader and the committer of a process have in
//! common.

use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError};

use super::message::Report;
use super::pace::Pace;
use super::uploader::Reporter;
use crate::{Result, threads};

/// How long to wait for work before looking whether the run is over.
const WAIT: Duration = Duration::from_millis(20);

/// Who works, where work comes from and where failures go.
pub(super) struct Lane<'a, T> {
    /// Turns are taken as this actor.
    pub(super) actor: usize,
    /// The same for people.
    pub(super) name: &'a str,
    pub(super) inbox: &'a Receiver<T>,
    pub(super) report: &'a Reporter,
    pub(super) pace: &'a dyn Pace,
}

impl<T> Lane<'_, T> {
    /// Works until the run is over, or the simulated machine crashes.
    ///
    /// An error, and a panic of user code, are reported and end the run. IMPORTANT: after that only the
    /// end is taken.
    pub(super) fn work(&self, is_end: impl Fn(&T) -> bool, mut take: impl FnMut(T) -> Result<()>) {
        let Lane { actor, name, inbox, report, pace } = self;
        let mut has_failed = false;
        while pace.turn(*actor) {
            match inbox.recv_timeout(if pace.parks() { WAIT } else { Duration::ZERO }) {
                Err(RecvTimeoutError::Disconnected) => break,
                Ok(item) if is_end(&item) => break,
                Ok(item) if !has_failed => {
                    let taken = threads::guard(name, || take(item)).and_then(|taken| taken);
                    if let Err(error) = taken {
                        has_failed = true;
                        report(Report::Failed((&error).into()));
                    }
                }
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
            }
            pace.pass(*actor);
        }
        pace.leave(*actor);
    }
}
