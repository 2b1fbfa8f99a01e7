//! Connecting to a process that may not be up yet. Knows no handshake; it is handed in.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use super::deadline::Deadline;
use crate::{Error, Result};

/// How often to try again.
const RETRY: Duration = Duration::from_millis(50);

/// Dials until the handshake is through, the deadline passes, or trying again cannot help.
pub(crate) fn dial_until<T>(
    address: &impl ToSocketAddrs,
    deadline: &Deadline,
    shake: impl Fn(&TcpStream) -> Result<T>,
) -> Result<(TcpStream, T)> {
    let mut last = Error::unavailable("there was no time to try");
    while let Some(left) = deadline.remaining() {
        let attempt =
            connect(address, left).and_then(|stream| shake(&stream).map(|shaken| (stream, shaken)));
        match attempt {
            Ok(connected) => return Ok(connected),
            Err(error) if !error.kind().is_retriable() => return Err(error),
            Err(error) => last = error,
        }
        deadline.pause(RETRY);
    }
    Err(last)
}

fn connect(address: &impl ToSocketAddrs, left: Duration) -> Result<TcpStream> {
    let failed = |error: io::Error| Error::unavailable("cannot connect").with_source(error);
    let addresses: Vec<SocketAddr> = address.to_socket_addrs().map_err(failed)?.collect();
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in &addresses {
        match TcpStream::connect_timeout(address, left) {
            Ok(stream) => {
                // A port of the ephemeral range on which nobody listens can connect to itself.
                if stream.local_addr().ok() == stream.peer_addr().ok() {
                    return Err(Error::unavailable(format!("nobody listens on {address}")));
                }
                stream.set_nodelay(true).map_err(failed)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(failed(last))
}
