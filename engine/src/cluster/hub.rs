//! Process 0's side of the control connections: listens and gathers the others.

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::time::Duration;

use crossbeam_channel::Sender;

use super::acceptor::{HANDSHAKE_TIMEOUT, accept_until};
use super::claim;
use super::deadline::Deadline;
use super::handshake::{self, Pending, Purpose};
use super::link::{Link, LinkEvent, Pulse};
use super::member::{Claim, Member};
use crate::{Error, Result};

/// How long telling a peer the verdict may take.
const VERDICT_TIMEOUT: Duration = Duration::from_secs(1);

/// The control port of process 0.
#[derive(Debug)]
pub struct Hub {
    listener: TcpListener,
    address: SocketAddr,
}

/// A process that has proved itself and waits until all are there.
struct Candidate {
    pending: Pending,
    claim: Claim,
}

impl Hub {
    /// Listens on an address; port 0 takes a free one.
    pub fn bind(address: impl ToSocketAddrs) -> Result<Hub> {
        let listener = listen(address)?;
        let address = listener.local_addr().map_err(|error| {
            Error::unavailable("the control port has no address").with_source(error)
        })?;
        Ok(Hub { listener, address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until processes 1 to `me.processes - 1` have joined; gives their links in that order.
    ///
    /// - All are let in together: until the last one is there, each waits in [`Link::join`], and one
    ///   that dies meanwhile may come again.
    /// - Strangers, garbage and silence are dropped with a log line and cost nothing but that.
    /// - A process of another job, fingerprint, secret or set is told which and turned away; so is a
    ///   second one with the index of one that waits.
    /// - Fails with `Unavailable` after `timeout`, naming who is missing and the last refusal.
    ///
    /// What the links receive, and their loss, goes to `events`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use isochrone_engine::cluster::{Fingerprint, Hub, Link, LinkEvent, Member, Secret};
    /// use isochrone_persistence::ids::JobName;
    ///
    /// let second = Member {
    ///     job: JobName::new("risk")?,
    ///     fingerprint: Fingerprint::of(b"job and settings"),
    ///     process: 1,
    ///     processes: 2,
    ///     workers: 4,
    ///     secret: Secret::random()?,
    ///     heartbeat_timeout: Duration::from_secs(5),
    /// };
    /// let first = Member { process: 0, ..second.clone() };
    /// let timeout = Duration::from_secs(10);
    /// let hub = Hub::bind("127.0.0.1:0")?;
    /// let (address, (events, received)) = (hub.address(), crossbeam_channel::unbounded());
    /// let peer_events = events.clone();
    /// let peer = std::thread::spawn(move || Link::join(address, &second, timeout, &peer_events));
    /// let links = hub.gather(&first, timeout, &events)?;
    /// let to_hub = peer.join().unwrap()?;
    ///
    /// to_hub.send(b"ready")?;
    /// let frame = LinkEvent::Frame { process: 1, bytes: b"ready".to_vec() };
    /// assert_eq!(received.recv().unwrap(), frame);
    /// # drop(links);
    /// # Ok::<(), isochrone_engine::Error>(())
    /// ```
    pub fn gather(
        &self,
        me: &Member,
        timeout: Duration,
        events: &Sender<LinkEvent>,
    ) -> Result<Vec<Link>> {
        me.secret.permits(self.address)?;
        let deadline = Deadline::after(timeout);
        let mut waiting: Vec<Option<Candidate>> = (1..me.processes).map(|_| None).collect();
        let mut refused = None;
        if !waiting.is_empty() {
            let greeter = me.clone();
            let greet = move |stream| {
                let deadline = Deadline::after(HANDSHAKE_TIMEOUT);
                let (pending, claim) =
                    handshake::receive(stream, Purpose::Control, &greeter.secret, &deadline)?;
                judge(&greeter, pending, &claim, &deadline)
            };
            accept_until(&self.listener, &deadline, greet, |result| {
                match result {
                    Ok(candidate) => seat(candidate, &mut waiting),
                    Err(error) => refused = Some(error),
                }
                Ok(waiting.iter().all(|seat| seat.as_ref().is_some_and(|c| c.pending.waits())))
            })?;
        }
        let missing = missing(&waiting);
        if !missing.is_empty() {
            return Err(absent(&missing, timeout, refused.as_ref()));
        }
        waiting.into_iter().flatten().map(|candidate| let_in(candidate, me, events)).collect()
    }

    /// The listener, for the data mesh: process 0 then needs one port only.
    pub fn into_listener(self) -> (TcpListener, SocketAddr) {
        (self.listener, self.address)
    }
}

/// How long a port may be taken: whoever dials it before somebody listens can get it for a moment, as
/// its own end of a connection to itself.
const BUSY_MAX: Duration = Duration::from_secs(1);
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// A listener, or an error that names the address.
pub(crate) fn listen(address: impl ToSocketAddrs) -> Result<TcpListener> {
    let addresses: Vec<SocketAddr> = address
        .to_socket_addrs()
        .map_err(|error| {
            Error::invalid("cannot resolve the address to listen on").with_source(error)
        })?
        .collect();
    let deadline = Deadline::after(BUSY_MAX);
    loop {
        let error = match TcpListener::bind(&addresses[..]) {
            Ok(listener) => return Ok(listener),
            Err(error) => error,
        };
        if error.kind() != io::ErrorKind::AddrInUse || deadline.remaining().is_none() {
            let text =
                format!("cannot listen on {addresses:?}; is another process using the port?");
            return Err(Error::unavailable(text).with_source(error));
        }
        deadline.pause(BUSY_PAUSE);
    }
}

fn judge(me: &Member, pending: Pending, claim: &[u8], deadline: &Deadline) -> Result<Candidate> {
    let judged = claim::decode(claim).and_then(|claim| me.admits(&claim).map(|()| claim));
    match judged {
        Ok(claim) => Ok(Candidate { pending, claim }),
        Err(error) => {
            pending.refuse(&error, deadline);
            Err(error)
        }
    }
}

fn seat(candidate: Candidate, waiting: &mut [Option<Candidate>]) {
    let process = candidate.claim.process;
    let seat = &mut waiting[process as usize - 1];
    if seat.as_ref().is_some_and(|other| other.pending.waits()) {
        let text = format!("process {process} has joined already; is it started twice?");
        tracing::warn!(process, "a second process with the index of one that waits was refused");
        candidate.pending.refuse(&Error::unavailable(text), &Deadline::after(VERDICT_TIMEOUT));
        return;
    }
    tracing::debug!(process, "joined");
    *seat = Some(candidate);
}

fn missing(waiting: &[Option<Candidate>]) -> Vec<String> {
    let seats = waiting.iter().enumerate();
    let empty = seats.filter(|(_, seat)| !seat.as_ref().is_some_and(|c| c.pending.waits()));
    empty.map(|(index, _)| (index + 1).to_string()).collect()
}

fn absent(missing: &[String], timeout: Duration, refused: Option<&Error>) -> Error {
    let last = refused.map(|error| format!("; the last one refused: {error}")).unwrap_or_default();
    Error::unavailable(format!(
        "process {} did not join within {timeout:?}; look at its log{last}",
        missing.join(", ")
    ))
}

fn let_in(candidate: Candidate, me: &Member, events: &Sender<LinkEvent>) -> Result<Link> {
    let Candidate { pending, claim: theirs } = candidate;
    let reply = claim::encode(&me.claim())?;
    let stream = pending.accept(&reply, &Deadline::after(VERDICT_TIMEOUT)).map_err(|error| {
        let text = format!("process {} went away while it joined", theirs.process);
        Error::unavailable(text).with_source(error)
    })?;
    Link::start(stream, theirs.process, Pulse::of(me, &theirs), events)
}
