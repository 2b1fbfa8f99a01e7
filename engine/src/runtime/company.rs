//! The processes of a run as they find each other, before anything is under way.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvError, SendError, Sender};
use isochrone_persistence::{Error, ErrorKind, Result};

use super::conductor::{Call, failed_to};
use super::message::Report;
use super::wire::{Downward, Upward};
use crate::cluster::{Hub, Link, LinkEvent, Member};
use crate::threads;

/// How long all processes together may take to find each other, and then to connect.
pub(crate) const GATHER_TIMEOUT: Duration = Duration::from_secs(if cfg!(test) { 5 } else { 60 });

/// How often a process says for whom it waits, if that has no bound.
const TOLD_EVERY: Duration = Duration::from_secs(30);

/// The inbox of a run, to which requests come also before there is one.
pub(crate) type Calls = (Sender<Call>, Receiver<Call>);

/// The other processes of a run, as process 0 has them.
pub(crate) struct Company {
    pub(crate) me: Member,
    pub(super) links: Arc<Vec<Link>>,
    pub(super) events: Receiver<LinkEvent>,
    pub(super) listener: TcpListener,
    address: SocketAddr,
}

impl Company {
    /// Waits for the others at the hub.
    pub(crate) fn gather(me: Member, hub: Hub) -> Result<Company> {
        let (events, received) = crossbeam_channel::unbounded();
        let links = Arc::new(hub.gather(&me, GATHER_TIMEOUT, &events)?);
        let (listener, address) = hub.into_listener();
        Ok(Company { me, links, events: received, listener, address })
    }

    /// Where each takes data connections, as it says when it has joined. `None`: asked to stop.
    pub(super) fn addresses(&self, calls: &Calls) -> Result<Option<Vec<SocketAddr>>> {
        let others = self.hear(calls, Some(GATHER_TIMEOUT), |said| match said {
            Upward::Listening { address } => Some(address),
            _ => None,
        })?;
        Ok(others.map(|others| std::iter::once(self.address).chain(others).collect()))
    }

    /// Waits until each has its share of the checkpoint. That takes as long as it takes: who is lost
    /// meanwhile, or cannot have it, says so. `None`: asked to stop.
    pub(super) fn loaded(&self, calls: &Calls) -> Result<Option<()>> {
        let loaded = self.hear(calls, None, |said| matches!(said, Upward::Loaded).then_some(()))?;
        Ok(loaded.map(drop))
    }

    /// What each of the others says, in their order; the wait for each next one is bounded if so said.
    fn hear<T>(
        &self,
        calls: &Calls,
        timeout: Option<Duration>,
        pick: impl Fn(Upward) -> Option<T>,
    ) -> Result<Option<Vec<T>>> {
        let mut asked = Asked::of(calls);
        let mut heard: Vec<Option<T>> = self.links.iter().map(|_| None).collect();
        let mut waited = Duration::ZERO;
        while let Some(missing) = heard.iter().position(Option::is_none) {
            let missing = missing + 1;
            crossbeam_channel::select! {
                recv(self.events) -> event => {
                    let (process, said) = before_the_start(event)?;
                    let seat = &mut heard[process - 1];
                    *seat = pick(said).or(seat.take());
                }
                recv(calls.1) -> call => {
                    asked.take(call, &format!("process {missing} to load its share"));
                    if asked.to_stop {
                        return Ok(None);
                    }
                }
                default(timeout.unwrap_or(TOLD_EVERY)) => {
                    if timeout.is_some() {
                        return Err(Error::unavailable(format!(
                            "process {missing} has joined and says nothing"
                        )));
                    }
                    waited += TOLD_EVERY;
                    tracing::warn!("process {missing} has been loading its share for {waited:?}");
                }
            }
        }
        Ok(Some(heard.into_iter().flatten().collect()))
    }

    /// Says that there will be no run, which is nobody's fault.
    pub(crate) fn dismiss(&self) {
        // Shorter than any bound.
        let _ = Company::tell(&self.links, &Downward::Leave);
    }

    /// Fails with `Invalid` if the message is too long. A link that is lost is told by its own event.
    pub(super) fn tell(links: &[Link], message: &Downward) -> Result<()> {
        let bytes = message.encode();
        for link in links {
            match link.deliver(&bytes) {
                Err(error) if error.kind() == ErrorKind::Invalid => return Err(error),
                Err(error) => {
                    tracing::debug!(%error, process = link.process(), "an order was not sent");
                }
                Ok(()) => {}
            }
        }
        Ok(())
    }
}

/// Who has said what; an error if there can be no run.
fn before_the_start(event: Result<LinkEvent, RecvError>) -> Result<(usize, Upward)> {
    match event {
        Ok(LinkEvent::Frame { process, bytes }) => match Upward::decode(&bytes)? {
            Upward::Report(Report::Failed(failure)) => Err(failure.into()),
            said => Ok((process as usize, said)),
        },
        Ok(LinkEvent::Lost { process, reason }) => Err(Error::unavailable(format!(
            "process {process} was lost before the start: {reason}"
        ))),
        Err(RecvError) => Err(Error::unavailable("all other processes are gone")),
    }
}

/// What is asked of a process while it waits for others. It is put back for the run in the end.
pub(super) struct Asked<'a> {
    calls: &'a Calls,
    kept: Vec<Call>,
    pub(super) to_stop: bool,
}

impl<'a> Asked<'a> {
    pub(super) fn of(calls: &'a Calls) -> Asked<'a> {
        Asked { calls, kept: Vec::new(), to_stop: false }
    }

    pub(super) fn take(&mut self, call: Result<Call, RecvError>, awaited: &str) {
        match call {
            Ok(Call::Awaited { answer }) => drop(answer.send(awaited.to_owned())),
            Ok(call) => {
                self.to_stop |= matches!(call, Call::Stop);
                self.kept.push(call);
            }
            Err(RecvError) => unreachable!("the sender is at hand"),
        }
    }

    /// The same with what lies there by now.
    pub(super) fn take_all(&mut self, awaited: &str) {
        while let Ok(call) = self.calls.1.try_recv() {
            self.take(Ok(call), awaited);
        }
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        // The receiver is at hand.
        self.kept.drain(..).for_each(|call| drop(self.calls.0.send(call)));
    }
}

/// Waits for other processes on a thread of its own, and hears meanwhile what is asked of this one.
///
/// `None`: it is to stop. Nothing is under way yet, so it may leave at once; the thread finds that
/// nobody waits for it, within [`GATHER_TIMEOUT`], and lets go of whoever has come.
pub(super) fn unless_stopped<T: Send + 'static>(
    calls: &Calls,
    awaited: &str,
    wait: impl FnOnce() -> Result<T> + Send + 'static,
    let_go: impl FnOnce(T) + Send + 'static,
) -> Result<Option<T>> {
    // Without room: what is sent has been taken.
    let (done, result) = crossbeam_channel::bounded(0);
    let panicked = done.clone();
    let on_panic = move |error| drop(panicked.send(Err(error)));
    let work = move || {
        if let Err(SendError(Ok(unwanted))) = done.send(wait()) {
            let_go(unwanted);
        }
    };
    threads::spawn("isochrone-gathering", on_panic, work)?;
    let mut asked = Asked::of(calls);
    while !asked.to_stop {
        crossbeam_channel::select! {
            recv(result) -> end => return end.unwrap_or_else(|_| gone()).map(Some),
            recv(calls.1) -> call => asked.take(call, awaited),
        }
    }
    match result.try_recv() {
        Ok(end) => end.map(Some),
        Err(_) => Ok(None),
    }
}

fn gone<T>() -> Result<T> {
    Err(Error::internal("the thread that waited for other processes is gone"))
}

/// Passes on what the other processes say, on a thread that ends with their links.
pub(super) fn listen_to(events: Receiver<LinkEvent>, calls: Sender<Call>) -> Result<()> {
    let on_panic = failed_to(calls.clone());
    let pass_on = move || {
        for event in events {
            let call = match event {
                LinkEvent::Frame { process, bytes } => match Upward::decode(&bytes) {
                    Ok(Upward::Report(report)) => Call::Report(report),
                    Ok(Upward::Listening { .. } | Upward::Loaded) => continue,
                    Err(error) => Call::Lost { process: process as usize, reason: error.report() },
                },
                LinkEvent::Lost { process, reason } => {
                    Call::Lost { process: process as usize, reason: reason.to_string() }
                }
            };
            if calls.send(call).is_err() {
                return;
            }
        }
    };
    threads::spawn("isochrone-listener", on_panic, pass_on).map(drop)
}

#[cfg(test)]
mod tests;
