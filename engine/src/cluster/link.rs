//! One control connection: frames both ways, heartbeats both ways, and the news of its loss.

use std::fmt;
use std::io;
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError};

use super::deadline::{Deadline, pause};
use super::dial::dial_until;
use super::handshake::{self, Purpose};
use super::member::{Claim, Member};
use super::{claim, frame};
use crate::{Error, Result, threads};

/// The longest message of a link.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// How much may wait to be sent before [`Link::send`] refuses.
const QUEUE_MESSAGES_MAX: usize = 4096;
const QUEUE_BYTES_MAX: usize = 4 * MESSAGE_BYTES_MAX;
/// How often who waits for room looks again.
const ROOM_PAUSE: Duration = Duration::from_millis(1);
/// How long closing a link waits for the other side to take the last frames.
const LINGER: Duration = Duration::from_secs(1);

const MESSAGE: u8 = 16;
const HEARTBEAT: u8 = 17;
const GOODBYE: u8 = 18;

/// What comes from a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// A message, in the order sent.
    Frame {
        /// Who sent it.
        process: u32,
        /// What was sent.
        bytes: Vec<u8>,
    },
    /// The link is over; comes once, as the last event, unless the link was dropped on this side.
    Lost {
        /// Who is lost.
        process: u32,
        /// Why.
        reason: LostReason,
    },
}

/// Why a link is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LostReason {
    /// The other side dropped its link in good order.
    Closed,
    /// Nothing came for the heartbeat timeout: stopped, cut off, or its machine is gone.
    Silent,
    /// The connection broke, as it does when the other process dies.
    Broken(String),
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LostReason::Closed => f.write_str("it closed the control connection"),
            LostReason::Silent => f.write_str("it is silent; it may be stopped or cut off"),
            LostReason::Broken(text) => write!(f, "the control connection broke: {text}"),
        }
    }
}

/// How often to speak and how long to listen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pulse {
    timeout: Duration,
    interval: Duration,
}

impl Pulse {
    /// A fifth of the shorter of both timeouts between heartbeats; our own timeout for silence.
    pub(crate) fn of(me: &Member, them: &Claim) -> Pulse {
        let theirs = Duration::from_millis(them.heartbeat_timeout_ms);
        let shorter = me.heartbeat_timeout.min(theirs);
        let floor = Duration::from_millis(1);
        Pulse { timeout: me.heartbeat_timeout.max(floor), interval: (shorter / 5).max(floor) }
    }
}

/// A control connection to another process; dropping it sends what waits, says goodbye and ends its
/// threads, within a second or so.
#[derive(Debug)]
pub struct Link {
    process: u32,
    stream: TcpStream,
    outbound: Option<Sender<Vec<u8>>>,
    closing: Option<Sender<()>>,
    ended: Receiver<()>,
    state: Arc<State>,
    threads: Vec<JoinHandle<Option<()>>>,
}

#[derive(Debug)]
struct State {
    process: u32,
    /// Whether the end of the link has been told, or needs not be told.
    over: AtomicBool,
    /// Why the writer gave up, if it did. The reader tells it, after the last frame.
    write_failure: OnceLock<LostReason>,
    queued_bytes: AtomicUsize,
}

impl Link {
    /// Joins the hub at `address` as `me`; returns when all processes are there.
    ///
    /// Tries again while the hub is not up or breaks off, until `timeout`. Being turned away for a
    /// difference in job, settings, secret or index is final and says which.
    pub fn join(
        address: impl ToSocketAddrs + fmt::Debug,
        me: &Member,
        timeout: Duration,
        events: &Sender<LinkEvent>,
    ) -> Result<Link> {
        let deadline = Deadline::after(timeout);
        let said = claim::encode(&me.claim())?;
        let (stream, reply) = dial_until(&address, &deadline, |stream| {
            handshake::dial(stream, Purpose::Control, &me.secret, &said, &deadline)
        })
        .map_err(|error| {
            let text = format!("process {} could not join process 0 at {address:?}", me.process);
            Error::new(error.kind(), text).with_source(error)
        })?;
        Link::start(stream, 0, Pulse::of(me, &claim::decode(&reply)?), events)
    }

    /// The process at the other end.
    pub fn process(&self) -> u32 {
        self.process
    }

    /// Queues a message; never waits. Fails with `Unavailable` if the link is over or more waits to
    /// be sent than the peer can take, with `Invalid` above [`MESSAGE_BYTES_MAX`].
    pub fn send(&self, bytes: &[u8]) -> Result<()> {
        match self.offer(bytes)? {
            true => Ok(()),
            false => Err(Error::unavailable(format!(
                "process {} does not take its messages; is it stuck?",
                self.process
            ))),
        }
    }

    /// Queues a message that must not be lost while the link lasts: waits for room. A peer that takes
    /// nothing for the heartbeat timeout is lost, and ends the wait; then, and above
    /// [`MESSAGE_BYTES_MAX`], it fails as [`Link::send`] does.
    pub fn deliver(&self, bytes: &[u8]) -> Result<()> {
        while !self.offer(bytes)? {
            pause(ROOM_PAUSE);
        }
        Ok(())
    }

    /// Queues a message, unless there is no room.
    fn offer(&self, bytes: &[u8]) -> Result<bool> {
        let process = self.process;
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(Error::invalid(format!(
                "a message of {} bytes to process {process}; at most {MESSAGE_BYTES_MAX} are allowed",
                bytes.len()
            )));
        }
        let over = || Error::unavailable(format!("the link to process {process} is over"));
        let outbound = self.outbound.as_ref().ok_or_else(over)?;
        if self.state.over.load(Ordering::Acquire) {
            return Err(over());
        }
        let queued = self.state.queued_bytes.fetch_add(bytes.len(), Ordering::AcqRel);
        let offered = if queued + bytes.len() > QUEUE_BYTES_MAX {
            Ok(false)
        } else {
            match outbound.try_send(bytes.to_vec()) {
                Ok(()) => Ok(true),
                Err(TrySendError::Full(_)) => Ok(false),
                Err(TrySendError::Disconnected(_)) => Err(over()),
            }
        };
        if !matches!(offered, Ok(true)) {
            self.state.queued_bytes.fetch_sub(bytes.len(), Ordering::AcqRel);
        }
        offered
    }

    pub(crate) fn start(
        stream: TcpStream,
        process: u32,
        pulse: Pulse,
        events: &Sender<LinkEvent>,
    ) -> Result<Link> {
        let failed = |error: io::Error| {
            let text = format!("cannot start the link to process {process}");
            Error::unavailable(text).with_source(error)
        };
        stream.set_read_timeout(Some(pulse.timeout)).map_err(failed)?;
        stream.set_write_timeout(Some(pulse.timeout)).map_err(failed)?;
        let state = Arc::new(State {
            process,
            over: AtomicBool::new(false),
            write_failure: OnceLock::new(),
            queued_bytes: AtomicUsize::new(0),
        });
        let (outbound, queue) = crossbeam_channel::bounded(QUEUE_MESSAGES_MAX);
        let (closing, closed) = crossbeam_channel::bounded(0);
        let (end, ended) = crossbeam_channel::bounded(0);
        let writer = Writer {
            stream: stream.try_clone().map_err(failed)?,
            queue,
            interval: pulse.interval,
            state: Arc::clone(&state),
        };
        let reader = Reader {
            stream: stream.try_clone().map_err(failed)?,
            events: events.clone(),
            state: Arc::clone(&state),
            closed,
            _end: end,
        };
        let mut link = Link {
            process,
            stream,
            outbound: Some(outbound),
            closing: Some(closing),
            ended,
            state,
            threads: Vec::new(),
        };
        let name = |side: &str| format!("isochrone-{side}-{process}");
        let (writer_panicked, reader_panicked) =
            (writer.panicked().map_err(failed)?, reader.panicked());
        let writer = threads::spawn(&name("tx"), writer_panicked, move || writer.run())?;
        link.threads.push(writer);
        let reader = threads::spawn(&name("rx"), reader_panicked, move || reader.run())?;
        link.threads.push(reader);
        Ok(link)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.state.over.store(true, Ordering::Release);
        self.closing = None;
        let _gone = self.stream.set_write_timeout(Some(LINGER));
        // The writer sends what waits, says goodbye, and shuts our direction. The reader reads on until
        // the peer has closed too: closing with unread bytes would reset the connection and could
        // destroy our last frames before the peer has read them.
        self.outbound = None;
        let _disconnects = self.ended.recv_timeout(LINGER);
        let _gone = self.stream.shutdown(Shutdown::Both);
        for thread in self.threads.drain(..) {
            let _panicked = thread.join();
        }
    }
}

struct Writer {
    stream: TcpStream,
    queue: Receiver<Vec<u8>>,
    interval: Duration,
    state: Arc<State>,
}

impl Writer {
    /// What a panic of this thread means: the reader tells that the link is over.
    fn panicked(&self) -> io::Result<impl FnOnce(Error) + Send + 'static> {
        let (stream, state) = (self.stream.try_clone()?, Arc::clone(&self.state));
        Ok(move |error: Error| {
            state.write_failure.get_or_init(|| LostReason::Broken(error.to_string()));
            let _gone = stream.shutdown(Shutdown::Both);
        })
    }

    fn run(mut self) {
        loop {
            let written = match self.queue.recv_timeout(self.interval) {
                Ok(bytes) => {
                    self.state.queued_bytes.fetch_sub(bytes.len(), Ordering::AcqRel);
                    frame::write(&mut self.stream, MESSAGE, &bytes)
                }
                Err(RecvTimeoutError::Timeout) => frame::write(&mut self.stream, HEARTBEAT, &[]),
                Err(RecvTimeoutError::Disconnected) => {
                    let said = frame::write(&mut self.stream, GOODBYE, &[]);
                    let _gone = said.and_then(|()| self.stream.shutdown(Shutdown::Write));
                    return;
                }
            };
            if let Err(error) = written {
                self.state.write_failure.get_or_init(|| reason(&error));
                let _gone = self.stream.shutdown(Shutdown::Both);
                return;
            }
        }
    }
}

struct Reader {
    stream: TcpStream,
    events: Sender<LinkEvent>,
    state: Arc<State>,
    closed: Receiver<()>,
    /// Dropped at the end of the thread, which the link's drop waits for.
    _end: Sender<()>,
}

impl Reader {
    /// What a panic of this thread means.
    fn panicked(&self) -> impl FnOnce(Error) + Send + 'static {
        let (events, closed) = (self.events.clone(), self.closed.clone());
        let state = Arc::clone(&self.state);
        move |error| {
            if !state.over.swap(true, Ordering::AcqRel) {
                let (process, reason) = (state.process, LostReason::Broken(error.to_string()));
                tell(&events, &closed, LinkEvent::Lost { process, reason });
            }
        }
    }

    fn run(mut self) {
        let reason = loop {
            match frame::read(&mut self.stream, MESSAGE_BYTES_MAX) {
                Ok(frame) if frame.kind == HEARTBEAT => {}
                Ok(frame) if frame.kind == GOODBYE => break LostReason::Closed,
                Ok(frame) if frame.kind == MESSAGE => {
                    let process = self.state.process;
                    let event = LinkEvent::Frame { process, bytes: frame.payload };
                    tell(&self.events, &self.closed, event);
                }
                Ok(frame) => break LostReason::Broken(format!("unknown frame {}", frame.kind)),
                Err(error) => break reason(&error),
            }
        };
        if !self.state.over.swap(true, Ordering::AcqRel) {
            let reason = self.state.write_failure.get().cloned().unwrap_or(reason);
            let process = self.state.process;
            tracing::debug!(process, %reason, "link over");
            tell(&self.events, &self.closed, LinkEvent::Lost { process, reason });
        }
        let _gone = self.stream.shutdown(Shutdown::Both);
    }
}

/// Delivers an event, waiting for room; gives up when the link is dropped or nobody listens.
fn tell(events: &Sender<LinkEvent>, closed: &Receiver<()>, event: LinkEvent) {
    crossbeam_channel::select! {
        send(events, event) -> _nobody_listens => {}
        recv(closed) -> _always_disconnected => {}
    }
}

fn reason(error: &io::Error) -> LostReason {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => LostReason::Silent,
        io::ErrorKind::UnexpectedEof => LostReason::Broken("end of file".to_owned()),
        _ => LostReason::Broken(error.to_string()),
    }
}
