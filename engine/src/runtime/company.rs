//! The processes of a run as they find each other, before anything is under way.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};
use isochrone_persistence::{Error, ErrorKind, Result};

use super::conductor::Call;
use super::lead::failed_to;
use super::wire::{Downward, Upward};
use crate::cluster::{Hub, Link, LinkEvent, Member};
use crate::threads;

/// How long all processes together may take to find each other.
pub(crate) const GATHER_TIMEOUT: Duration = Duration::from_secs(60);

/// The other processes of a run, as process 0 has them.
pub(crate) struct Company {
    pub(crate) me: Member,
    pub(super) links: Vec<Link>,
    pub(super) events: Receiver<LinkEvent>,
    pub(super) listener: TcpListener,
    address: SocketAddr,
}

impl Company {
    /// Waits for the others at the hub.
    pub(crate) fn gather(me: Member, hub: Hub) -> Result<Company> {
        let (events, received) = crossbeam_channel::unbounded();
        let links = hub.gather(&me, GATHER_TIMEOUT, &events)?;
        let (listener, address) = hub.into_listener();
        Ok(Company { me, links, events: received, listener, address })
    }

    /// Waits until each has said where it listens for data.
    pub(super) fn addresses(&self) -> Result<Vec<SocketAddr>> {
        let mut found = vec![None; self.links.len() + 1];
        found[0] = Some(self.address);
        while found.iter().any(Option::is_none) {
            match self.events.recv_timeout(GATHER_TIMEOUT) {
                Ok(LinkEvent::Frame { process, bytes }) => {
                    if let Upward::Listening { address } = Upward::decode(&bytes)? {
                        found[process as usize] = Some(address);
                    }
                }
                Ok(LinkEvent::Lost { process, reason }) => {
                    return Err(Error::unavailable(format!(
                        "process {process} was lost before the start: {reason}"
                    )));
                }
                Err(_) => return Err(Error::unavailable("a process did not say where it listens")),
            }
        }
        Ok(found.into_iter().flatten().collect())
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

/// Waits for other processes on a thread of its own, and hears meanwhile what is asked of this one.
///
/// `None`: it is to stop. Nothing is under way yet, so it may leave at once; the thread finds that
/// nobody waits for it, and lets go of whoever has come. What else is asked is kept for the run.
pub(super) fn unless_stopped<T: Send + 'static>(
    calls: &(Sender<Call>, Receiver<Call>),
    awaited: &str,
    wait: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<Option<T>> {
    let (sender, inbox) = calls;
    let (done, result) = crossbeam_channel::bounded(1);
    let panicked = done.clone();
    let on_panic = move |error| drop(panicked.send(Err(error)));
    threads::spawn("isochrone-gathering", on_panic, move || drop(done.send(wait())))?;
    let mut kept = Vec::new();
    let end = loop {
        crossbeam_channel::select! {
            recv(result) -> end => break end.unwrap_or_else(|_| Err(Error::internal("no answer"))),
            recv(inbox) -> call => match call {
                Ok(Call::Stop) => return Ok(None),
                Ok(Call::Awaited { answer }) => drop(answer.send(awaited.to_owned())),
                Ok(call) => kept.push(call),
                Err(_) => return Err(Error::internal("nobody can ask anything any more")),
            },
        }
    };
    kept.into_iter().for_each(|call| drop(sender.send(call)));
    end.map(Some)
}

/// Passes on what the other processes say, on a thread that ends with their links.
pub(super) fn listen_to(events: Receiver<LinkEvent>, calls: Sender<Call>) -> Result<()> {
    let on_panic = failed_to(calls.clone());
    let pass_on = move || {
        for event in events {
            let call = match event {
                LinkEvent::Frame { process, bytes } => match Upward::decode(&bytes) {
                    Ok(Upward::Report(report)) => Call::Report(report),
                    Ok(Upward::Listening { .. }) => continue,
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
