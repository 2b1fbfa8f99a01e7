//! The data connections: one socket between each two processes of one run, for timely.
//!
//! Process *i* dials each *j* < *i* and is dialled by each *j* > *i*. A socket is bound to the run's
//! token and to both indices, so a process of an older generation, another job, or a stranger on the
//! port is turned away and harms nothing.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;
use std::{fmt, thread};

use isochrone_persistence::ids::{Generation, JobName};
use serde::{Deserialize, Serialize};

use super::acceptor::{HANDSHAKE_TIMEOUT, accept_until};
use super::deadline::Deadline;
use super::dial::dial_until;
use super::handshake::{self, Purpose};
use super::secret::random_bytes;
use super::{Secret, claim, hub};
use crate::{Error, Result};

/// What one run of a job is known by: process 0 makes it and sends it to the others.
///
/// ```
/// use isochrone_engine::cluster::mesh::RunToken;
/// use isochrone_persistence::ids::{Generation, JobName};
/// let job = JobName::new("risk")?;
/// let (one, two) = (RunToken::new(&job, Generation(7))?, RunToken::new(&job, Generation(7))?);
/// assert_ne!(one, two);
/// # Ok::<(), isochrone_engine::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunToken {
    /// The job.
    pub job: JobName,
    /// The generation that this run claimed.
    pub generation: Generation,
    /// Chosen anew for each run.
    pub nonce: [u8; 32],
}

impl RunToken {
    /// A token that no other run has.
    pub fn new(job: &JobName, generation: Generation) -> Result<RunToken> {
        Ok(RunToken { job: job.clone(), generation, nonce: random_bytes()? })
    }

    /// Whether a dialer with `theirs` belongs to our run. A dialer of an older run is fenced; one of
    /// a newer run may try again, since this process is about to end.
    fn admits(&self, theirs: &RunToken) -> Result<()> {
        if theirs == self {
            return Ok(());
        }
        let text = format!("the run differs: this process is of {self}, the dialer of {theirs}");
        if theirs.job != self.job {
            return Err(Error::invalid(text));
        }
        Err(match theirs.generation < self.generation {
            true => Error::fenced(text),
            false => Error::unavailable(text),
        })
    }
}

impl fmt::Display for RunToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job `{}` generation {}", self.job, self.generation)
    }
}

/// A process's part in a mesh.
#[derive(Clone, Debug)]
pub struct Party {
    /// Its index.
    pub process: u32,
    /// The run.
    pub token: RunToken,
    /// What all processes share and strangers do not know.
    pub secret: Secret,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Claim {
    token: RunToken,
    from: u32,
    to: u32,
    processes: u32,
}

/// Listens on a free port (0) or the given one of an interface.
///
/// ```
/// let (_listener, address) = isochrone_engine::cluster::mesh::listen([127, 0, 0, 1].into(), 0)?;
/// assert_ne!(address.port(), 0);
/// # Ok::<(), isochrone_engine::Error>(())
/// ```
pub fn listen(interface: IpAddr, port: u16) -> Result<(TcpListener, SocketAddr)> {
    let listener = hub::listen((interface, port))?;
    let address = listener
        .local_addr()
        .map_err(|error| Error::unavailable("the data port has no address").with_source(error))?;
    Ok((listener, address))
}

/// Connects this process with all others; `addresses` has those of all processes, by index.
///
/// Gives a socket for each process and `None` at the own index: what timely's
/// `initialize_networking_from_sockets` takes. Fails with `Unavailable` after `timeout`, naming the
/// missing processes, and with `Fenced` if a newer generation answers.
///
/// ```
/// use std::time::Duration;
/// use isochrone_engine::cluster::Secret;
/// use isochrone_engine::cluster::mesh::{self, Party, RunToken};
/// use isochrone_persistence::ids::{Generation, JobName};
///
/// let token = RunToken::new(&JobName::new("risk")?, Generation(7))?;
/// let first = Party { process: 0, token, secret: Secret::random()? };
/// let second = Party { process: 1, ..first.clone() };
/// let (listener, address) = mesh::listen([127, 0, 0, 1].into(), 0)?;
/// let (other_listener, other) = mesh::listen([127, 0, 0, 1].into(), 0)?;
/// let (addresses, timeout) = ([address, other], Duration::from_secs(10));
/// let peer = std::thread::spawn(move || {
///     mesh::connect(&other_listener, &second, &addresses, timeout)
/// });
/// let sockets = mesh::connect(&listener, &first, &addresses, timeout)?;
/// assert!(sockets[0].is_none() && sockets[1].is_some());
/// # peer.join().unwrap()?;
/// # Ok::<(), isochrone_engine::Error>(())
/// ```
pub fn connect(
    listener: &TcpListener,
    me: &Party,
    addresses: &[SocketAddr],
    timeout: Duration,
) -> Result<Vec<Option<TcpStream>>> {
    let processes = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
    if me.process >= processes {
        return Err(Error::invalid(format!(
            "process {} has no place among {processes} addresses",
            me.process
        )));
    }
    addresses.iter().try_for_each(|address| me.secret.permits(*address))?;
    let deadline = Deadline::after(timeout);
    let mut sockets: Vec<Option<TcpStream>> = addresses.iter().map(|_| None).collect();
    thread::scope(|scope| {
        let (lower, higher) = sockets.split_at_mut(me.process as usize);
        let dials = lower.iter_mut().zip(addresses).zip(0..).map(|((seat, address), to)| {
            let claim = Claim { token: me.token.clone(), from: me.process, to, processes };
            let deadline = &deadline;
            scope.spawn(move || {
                // One that can never be reached makes waiting for the others pointless.
                let dialled =
                    dial(me, &claim, *address, deadline).inspect_err(|_| deadline.cancel());
                dialled.map(|stream| *seat = Some(stream))
            })
        });
        let dials: Vec<_> = dials.collect();
        accept(listener, me, processes, &mut higher[1..], &deadline)?;
        dials.into_iter().try_for_each(|dial| {
            dial.join().unwrap_or_else(|_| Err(Error::internal("a dialling thread panicked")))
        })
    })?;
    let seats = sockets.iter().enumerate();
    let missing = seats.filter(|(index, s)| *index != me.process as usize && s.is_none());
    let missing: Vec<String> = missing.map(|(index, _)| index.to_string()).collect();
    if missing.is_empty() {
        return Ok(sockets);
    }
    Err(Error::unavailable(format!(
        "process {} did not connect to process {} within {timeout:?}; look at its log",
        missing.join(", "),
        me.process
    )))
}

fn dial(
    me: &Party,
    claimed: &Claim,
    address: SocketAddr,
    deadline: &Deadline,
) -> Result<TcpStream> {
    let said = claim::encode(claimed)?;
    let dialled = dial_until(&address, deadline, |stream| {
        let attempt = deadline.at_most(HANDSHAKE_TIMEOUT);
        handshake::dial(stream, Purpose::Mesh, &me.secret, &said, &attempt)
    });
    let (stream, _) = dialled.map_err(|error| {
        let text =
            format!("process {} cannot reach process {} at {address}", claimed.from, claimed.to);
        Error::new(error.kind(), text).with_source(error)
    })?;
    untimed(&stream)?;
    Ok(stream)
}

fn accept(
    listener: &TcpListener,
    me: &Party,
    processes: u32,
    seats: &mut [Option<TcpStream>],
    deadline: &Deadline,
) -> Result<()> {
    if seats.is_empty() {
        return Ok(());
    }
    let greeter = me.clone();
    let greet = move |stream| greet(&greeter, processes, stream);
    accept_until(listener, deadline, greet, |result| {
        if let Ok((from, stream)) = result {
            untimed(&stream)?;
            // The newer one: the older was given up by a dialer that did not hear our answer.
            seats[(from - me.process) as usize - 1] = Some(stream);
        }
        Ok(seats.iter().all(Option::is_some))
    })?;
    Ok(())
}

fn greet(me: &Party, processes: u32, stream: TcpStream) -> Result<(u32, TcpStream)> {
    let deadline = Deadline::after(HANDSHAKE_TIMEOUT);
    let (pending, said) = handshake::receive(stream, Purpose::Mesh, &me.secret, &deadline)?;
    match claim::decode(&said).and_then(|claim| check(me, processes, &claim)) {
        Ok(from) => Ok((from, pending.accept(&said, &deadline)?)),
        Err(error) => {
            pending.refuse(&error, &deadline);
            Err(error)
        }
    }
}

fn check(me: &Party, processes: u32, claim: &Claim) -> Result<u32> {
    me.token.admits(&claim.token)?;
    let right = me.process + 1..processes;
    if claim.to != me.process || claim.processes != processes || !right.contains(&claim.from) {
        return Err(Error::invalid(format!(
            "process {} of {} dials process {}, but this is process {} of {processes}",
            claim.from, claim.processes, claim.to, me.process
        )));
    }
    Ok(claim.from)
}

/// Timely reads and writes blocking, for as long as it takes.
fn untimed(stream: &TcpStream) -> Result<()> {
    let set = stream.set_read_timeout(None).and_then(|()| stream.set_write_timeout(None));
    set.map_err(|error| Error::unavailable("a data connection broke at once").with_source(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_higher_process_of_the_same_set_that_means_us_is_let_in() {
        let token = RunToken::new(&JobName::new("risk").unwrap(), Generation(1)).unwrap();
        let me = Party { process: 1, token: token.clone(), secret: Secret::open() };
        let admitted = |from, to, processes| {
            check(&me, 4, &Claim { token: token.clone(), from, to, processes }).ok()
        };
        for (from, to, processes, expected) in [
            (2, 1, 4, Some(2)),
            (3, 1, 4, Some(3)),
            (0, 1, 4, None),
            (1, 1, 4, None),
            (4, 1, 4, None),
            (u32::MAX, 1, 4, None),
            (2, 0, 4, None),
            (2, 1, 5, None),
        ] {
            assert_eq!(admitted(from, to, processes), expected, "{from} to {to} of {processes}");
        }
    }
}
