//! Listening where strangers may knock: each connection shakes hands on a thread of its own, within a
//! deadline of its own, and only the good ones reach the caller.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::deadline::Deadline;
use crate::{Error, Result, threads};

/// How long one connection may take to prove itself.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// How many connections may be proving themselves at a time; more are dropped and may try again.
const HANDSHAKES_MAX: usize = 128;
const STACK_BYTES: usize = 256 << 10;
/// How often a quiet listener looks for connections.
const POLL: Duration = Duration::from_millis(5);

/// Accepts until `admit` says that all are there (true) or the deadline passes (false).
///
/// `greet` runs on the connection's thread and may take [`HANDSHAKE_TIMEOUT`]; `admit` runs here.
pub(crate) fn accept_until<C: Send + 'static>(
    listener: &TcpListener,
    deadline: &Deadline,
    greet: impl Fn(TcpStream) -> Result<C> + Send + Sync + 'static,
    mut admit: impl FnMut(Result<C>) -> Result<bool>,
) -> Result<bool> {
    let failed = |error: io::Error| {
        Error::unavailable("cannot listen for the other processes").with_source(error)
    };
    listener.set_nonblocking(true).map_err(failed)?;
    let greet = Arc::new(greet);
    let busy = Arc::new(AtomicUsize::new(0));
    let (results, greeted) = crossbeam_channel::unbounded();
    while deadline.remaining().is_some() {
        match listener.accept() {
            Ok((stream, address)) => {
                let (greet, results) = (Arc::clone(&greet), results.clone());
                start(stream, address, &busy, move |stream| {
                    // The listener may be done: then nobody wants the connection, and it closes.
                    let _unwanted = results.send((address, greet(stream)));
                });
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => tracing::warn!(%error, "cannot accept a connection"),
        }
        let Ok((address, result)) = greeted.recv_timeout(POLL) else { continue };
        if let Err(error) = &result {
            tracing::warn!(%address, error = error.report(), "connection dropped");
        }
        if admit(result)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// One connection less is proving itself, however that ended.
struct Done(Arc<AtomicUsize>);

impl Drop for Done {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn start(
    stream: TcpStream,
    address: SocketAddr,
    busy: &Arc<AtomicUsize>,
    greet: impl FnOnce(TcpStream) + Send + 'static,
) {
    if busy.fetch_add(1, Ordering::Relaxed) >= HANDSHAKES_MAX {
        busy.fetch_sub(1, Ordering::Relaxed);
        tracing::warn!(%address, "connection dropped: too many at once");
        return;
    }
    let done = Done(Arc::clone(busy));
    let greet = move || {
        let _done = done;
        if stream.set_nonblocking(false).and_then(|()| stream.set_nodelay(true)).is_ok() {
            greet(stream);
        }
    };
    if let Err(error) = threads::spawn_small("isochrone-greet", STACK_BYTES, threads::note, greet) {
        tracing::warn!(%address, %error, "connection dropped: no thread for it");
    }
}
