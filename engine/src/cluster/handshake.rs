//! The start of every connection: both sides prove that they know the secret, then say who they are.
//!
//! ```text
//! dialer -> acceptor   magic, version, purpose, nonce                 (fixed 43 bytes)
//! acceptor -> dialer   magic, version, purpose, nonce
//! dialer -> acceptor   CLAIM   proof, claim
//! acceptor -> dialer   ACCEPT  proof, claim     or     REFUSE  proof, exit code, text
//! ```
//!
//! A proof is a keyed hash over side, purpose, both nonces, frame kind and body, so that it serves once,
//! in one direction, for one body. Nothing is decoded before its proof was checked, and nothing longer
//! than a few kilobytes is read. The greeting has this layout in every version, so that both sides can
//! name a difference. What a claim says is the caller's business.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::deadline::{Deadline, Timed};
use super::secret::random_bytes;
use super::{Secret, frame};
use crate::{Error, ErrorKind, Result};

const MAGIC: [u8; 8] = *b"ISOCHRON";
const VERSION: u16 = 2;
const GREETING_BYTES: usize = 43;
const PROOF_BYTES: usize = 32;
/// The longest frame that is read from a stranger.
const HANDSHAKE_BYTES_MAX: usize = 4096;

const CLAIM: u8 = 1;
const ACCEPT: u8 = 2;
const REFUSE: u8 = 3;

type Nonce = [u8; 32];

/// What a connection is for; a proof for one purpose is none for the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Control = 1,
    Mesh = 2,
}

#[derive(Clone, Copy)]
enum Side {
    Dialer = 1,
    Acceptor = 2,
}

struct Session {
    key: [u8; 32],
    purpose: Purpose,
    dialer: Nonce,
    acceptor: Nonce,
}

impl Session {
    fn proof(&self, side: Side, kind: u8, body: &[u8]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(&[side as u8, self.purpose as u8, kind]);
        hasher.update(&self.dialer);
        hasher.update(&self.acceptor);
        hasher.update(body);
        hasher.finalize()
    }

    fn write(&self, to: &mut impl Write, side: Side, kind: u8, body: &[u8]) -> io::Result<()> {
        let mut payload = self.proof(side, kind, body).as_bytes().to_vec();
        payload.extend_from_slice(body);
        frame::write(to, kind, &payload)
    }

    /// The body if its proof holds. `blake3::Hash` compares in constant time.
    fn checked(&self, side: Side, kind: u8, payload: &[u8]) -> Option<Vec<u8>> {
        let (proof, body) = payload.split_first_chunk::<PROOF_BYTES>()?;
        (self.proof(side, kind, body) == blake3::Hash::from_bytes(*proof)).then(|| body.to_vec())
    }
}

/// Goes through the handshake as the side that dialled; gives the acceptor's claim. An error of kind
/// `Unavailable` is worth another try, any other is not.
pub(crate) fn dial(
    stream: &TcpStream,
    purpose: Purpose,
    secret: &Secret,
    claim: &[u8],
    deadline: &Deadline,
) -> Result<Vec<u8>> {
    let address = stream.peer_addr().map_err(broken)?;
    secret.permits(address)?;
    let mut stream = Timed { stream, deadline };
    let nonce = random_bytes()?;
    stream.write_all(&greeting(purpose, &nonce)).map_err(broken)?;
    let theirs = read_greeting(&mut stream)?;
    theirs.check(purpose)?;
    let session = Session { key: secret.key(), purpose, dialer: nonce, acceptor: theirs.nonce };
    session.write(&mut stream, Side::Dialer, CLAIM, claim).map_err(broken)?;
    let reply = frame::read(&mut stream, HANDSHAKE_BYTES_MAX).map_err(broken)?;
    let body = session.checked(Side::Acceptor, reply.kind, &reply.payload);
    match (reply.kind, body) {
        (ACCEPT, Some(claim)) => Ok(claim),
        (REFUSE, Some(body)) => Err(refusal(address, &body)),
        (ACCEPT | REFUSE, None) => Err(wrong_secret(address)),
        (kind, _) => Err(Error::unavailable(format!("unknown frame kind {kind} from {address}"))),
    }
}

/// A dialer that has proved itself and waits for the verdict.
pub(crate) struct Pending {
    stream: TcpStream,
    session: Session,
}

/// Goes through the handshake as the side that was dialled, up to the dialer's claim.
pub(crate) fn receive(
    stream: TcpStream,
    purpose: Purpose,
    secret: &Secret,
    deadline: &Deadline,
) -> Result<(Pending, Vec<u8>)> {
    let address = stream.peer_addr().map_err(broken)?;
    let mut timed = Timed { stream: &stream, deadline };
    let theirs = read_greeting(&mut timed)?;
    let nonce = random_bytes()?;
    timed.write_all(&greeting(purpose, &nonce)).map_err(broken)?;
    theirs.check(purpose)?;
    let session = Session { key: secret.key(), purpose, dialer: theirs.nonce, acceptor: nonce };
    let frame = frame::read(&mut timed, HANDSHAKE_BYTES_MAX).map_err(broken)?;
    if frame.kind != CLAIM {
        return Err(Error::unavailable(format!("frame kind {} where a claim belongs", frame.kind)));
    }
    let claim = session.checked(Side::Dialer, CLAIM, &frame.payload);
    let pending = Pending { stream, session };
    match claim {
        Some(claim) => Ok((pending, claim)),
        None => {
            let error = wrong_secret(address);
            pending.refuse(&error, deadline);
            Err(error)
        }
    }
}

impl Pending {
    /// Lets the dialer in, answering with our claim.
    pub(crate) fn accept(self, claim: &[u8], deadline: &Deadline) -> Result<TcpStream> {
        let mut timed = Timed { stream: &self.stream, deadline };
        self.session.write(&mut timed, Side::Acceptor, ACCEPT, claim).map_err(broken)?;
        Ok(self.stream)
    }

    /// Turns the dialer away, telling it why.
    pub(crate) fn refuse(self, error: &Error, deadline: &Deadline) {
        let mut text = error.to_string();
        text.truncate(text.floor_char_boundary(HANDSHAKE_BYTES_MAX / 2));
        let mut body = vec![error.kind().exit_code()];
        body.extend_from_slice(text.as_bytes());
        let mut timed = Timed { stream: &self.stream, deadline };
        if let Err(error) = self.session.write(&mut timed, Side::Acceptor, REFUSE, &body) {
            tracing::debug!(%error, "a refused peer did not hear why");
        }
    }

    /// Whether the dialer still waits: it has neither closed nor, against the protocol, said more.
    pub(crate) fn waits(&self) -> bool {
        is_open(&self.stream)
    }
}

/// Whether the other side has not closed the connection, as far as the system knows.
fn is_open(stream: &TcpStream) -> bool {
    let peeked = stream.set_nonblocking(true).and_then(|()| stream.peek(&mut [0]));
    let blocking = stream.set_nonblocking(false);
    let open = match peeked {
        Ok(bytes) => bytes > 0,
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    };
    open && blocking.is_ok()
}

struct Greeting {
    version: u16,
    purpose: u8,
    nonce: Nonce,
}

impl Greeting {
    fn check(&self, purpose: Purpose) -> Result<()> {
        if self.version != VERSION {
            return Err(Error::invalid(format!(
                "the peer speaks version {} of the cluster protocol, this process version {VERSION}; start all processes from the same binary",
                self.version
            )));
        }
        if self.purpose != purpose as u8 {
            return Err(Error::unavailable(format!(
                "the peer wants a connection of purpose {}, this one is for {purpose:?}",
                self.purpose
            )));
        }
        Ok(())
    }
}

fn greeting(purpose: Purpose, nonce: &Nonce) -> [u8; GREETING_BYTES] {
    let mut bytes = [0; GREETING_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
    bytes[10] = purpose as u8;
    bytes[11..].copy_from_slice(nonce);
    bytes
}

fn read_greeting(from: &mut impl Read) -> Result<Greeting> {
    let mut bytes = [0; GREETING_BYTES];
    // The magic alone first, so that a stranger with less to say is turned away at once.
    from.read_exact(&mut bytes[..8]).map_err(broken)?;
    if bytes[..8] != MAGIC {
        return Err(Error::unavailable("the first bytes are not those of the cluster protocol"));
    }
    from.read_exact(&mut bytes[8..]).map_err(broken)?;
    let mut nonce = [0; 32];
    nonce.copy_from_slice(&bytes[11..]);
    Ok(Greeting { version: u16::from_le_bytes([bytes[8], bytes[9]]), purpose: bytes[10], nonce })
}

fn refusal(address: SocketAddr, body: &[u8]) -> Error {
    let (code, text) = body.split_first().unwrap_or((&0, &[]));
    let kind = ErrorKind::from_exit_code(i32::from(*code)).unwrap_or(ErrorKind::Invalid);
    Error::new(kind, format!("{address} refused to connect: {}", String::from_utf8_lossy(text)))
}

fn wrong_secret(address: SocketAddr) -> Error {
    Error::invalid(format!(
        "the shared secret of {address} differs from ours; give all processes the same {} or `--secret-file`",
        super::env::SECRET
    ))
}

fn broken(error: io::Error) -> Error {
    Error::unavailable("the peer broke off the handshake").with_source(error)
}

#[cfg(test)]
mod tests;
