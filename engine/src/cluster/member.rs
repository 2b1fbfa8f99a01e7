//! Who a process says it is, and whether the hub takes it: a decision without I/O.

use std::fmt;
use std::time::Duration;

use isochrone_persistence::ids::JobName;
use serde::{Deserialize, Serialize};

use super::Secret;
use crate::{Error, Result};

/// Digest of a job and its settings: all processes of a run must show the same.
///
/// ```
/// use isochrone_engine::cluster::Fingerprint;
/// let fingerprint = Fingerprint::of(b"job and settings");
/// assert_eq!(fingerprint.to_string().len(), 16);
/// assert_ne!(fingerprint, Fingerprint::of(b"other settings"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// The digest of bytes that describe job and settings.
    pub fn of(bytes: &[u8]) -> Fingerprint {
        Fingerprint(*blake3::hash(bytes).as_bytes())
    }
}

/// The first eight bytes in hexadecimal: enough for two people to compare.
impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().take(8).try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

/// One process of a job, as it sees itself.
#[derive(Clone, Debug)]
pub struct Member {
    /// The job it runs.
    pub job: JobName,
    /// Digest of the job and its settings.
    pub fingerprint: Fingerprint,
    /// Its index; 0 is the hub.
    pub process: u32,
    /// How many processes there are.
    pub processes: u32,
    /// How many workers each process has.
    pub workers: u32,
    /// What all processes share and strangers do not know.
    pub secret: Secret,
    /// A peer that is silent for so long is lost.
    pub heartbeat_timeout: Duration,
}

/// What goes over the wire of a [`Member`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Claim {
    pub(crate) job: String,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) process: u32,
    pub(crate) processes: u32,
    pub(crate) workers: u32,
    pub(crate) heartbeat_timeout_ms: u64,
}

impl Member {
    pub(crate) fn claim(&self) -> Claim {
        Claim {
            job: self.job.as_str().to_owned(),
            fingerprint: self.fingerprint,
            process: self.process,
            processes: self.processes,
            workers: self.workers,
            heartbeat_timeout_ms: u64::try_from(self.heartbeat_timeout.as_millis())
                .unwrap_or(u64::MAX),
        }
    }

    /// Whether a process that claims this may join a hub that is `self`; the error names the first
    /// difference and both values.
    pub(crate) fn admits(&self, claim: &Claim) -> Result<()> {
        let them = claim.process;
        let refuse = |what: &str, hub: String, peer: String, advice: &str| {
            let text =
                format!("{what} differs: process 0 has {hub}, process {them} has {peer}; {advice}");
            Err(Error::invalid(text))
        };
        let (ours, theirs) = (self.fingerprint, claim.fingerprint);
        if claim.job != self.job.as_str() {
            let (hub, peer) =
                (format!("`{}`", self.job), format!("`{}`", claim.job.escape_debug()));
            return refuse("the job", hub, peer, "look at the address of process 0");
        }
        if claim.processes != self.processes {
            let (hub, peer) = (self.processes.to_string(), claim.processes.to_string());
            return refuse("the number of processes", hub, peer, "give all the same hosts");
        }
        if claim.workers != self.workers {
            let (hub, peer) = (self.workers.to_string(), claim.workers.to_string());
            return refuse("`--workers`", hub, peer, "give all the same number");
        }
        if ours != theirs {
            let advice = "start all processes from the same binary with the same settings";
            let what = "the fingerprint of job and settings";
            return refuse(what, ours.to_string(), theirs.to_string(), advice);
        }
        if them == 0 || them >= self.processes {
            return Err(Error::invalid(format!(
                "index {them} cannot join process 0; the others of {} processes have 1 to {}",
                self.processes,
                self.processes.saturating_sub(1)
            )));
        }
        Ok(())
    }
}
