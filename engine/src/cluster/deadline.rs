//! A moment after which waiting on a socket ends. Sockets wait in real time, so this does not take a
//! clock that a test could move.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::time::{Clock, SystemClock};

/// A span of real time, counted from its creation.
#[derive(Debug)]
pub(crate) struct Deadline {
    clock: SystemClock,
    span: Duration,
    cancelled: AtomicBool,
}

impl Deadline {
    pub(crate) fn after(span: Duration) -> Deadline {
        Deadline { clock: SystemClock::default(), span, cancelled: AtomicBool::new(false) }
    }

    /// What is left, or `None` when nothing is.
    pub(crate) fn remaining(&self) -> Option<Duration> {
        let passed = Duration::from_millis(self.clock.monotonic_ms());
        let left = self.span.checked_sub(passed).filter(|left| !left.is_zero());
        left.filter(|_| !self.cancelled.load(Ordering::Acquire))
    }

    /// Ends it now, for all who wait by it.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
    }

    /// A new deadline: what is left of this one, but at most `span`.
    pub(crate) fn at_most(&self, span: Duration) -> Deadline {
        Deadline::after(self.remaining().unwrap_or(Duration::ZERO).min(span))
    }

    /// Waits for `span` or until the deadline, whichever is sooner.
    pub(crate) fn pause(&self, span: Duration) {
        pause(self.remaining().unwrap_or(Duration::ZERO).min(span));
    }
}

/// Lets `span` pass.
pub(crate) fn pause(span: Duration) {
    let _nothing_comes = crossbeam_channel::never::<()>().recv_timeout(span);
}

/// A socket whose reads and writes fail with `TimedOut` at the deadline, however slowly bytes trickle.
pub(crate) struct Timed<'a> {
    pub(crate) stream: &'a TcpStream,
    pub(crate) deadline: &'a Deadline,
}

impl Timed<'_> {
    fn remaining(&self) -> io::Result<Duration> {
        self.deadline.remaining().ok_or_else(|| io::ErrorKind::TimedOut.into())
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.remaining()?))?;
        self.stream.read(buffer).map_err(timed_out)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.remaining()?))?;
        self.stream.write(bytes).map_err(timed_out)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// A socket timeout is `WouldBlock` on Unix and `TimedOut` elsewhere: one name for both.
fn timed_out(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    }
}
