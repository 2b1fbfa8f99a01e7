//! What a supervisor tells a child it starts, by environment variables. The one place of their names.

use std::net::SocketAddr;
use std::process::Command;
use std::str::FromStr;

use super::Secret;
use crate::{Error, Result};

/// Names of the environment variables of a process of a job.
pub mod env {
    /// The shared secret; also set by people for a cluster over several machines.
    pub const SECRET: &str = "ISOCHRONE_SECRET";
    /// Index of the process; set by a supervisor only.
    pub const PROCESS: &str = "ISOCHRONE_PROCESS";
    /// Number of processes; set by a supervisor only.
    pub const PROCESSES: &str = "ISOCHRONE_PROCESSES";
    /// Address of process 0's control port; set by a supervisor only.
    pub const HUB: &str = "ISOCHRONE_HUB";
    /// Which start of the set this is, from 0; set by a supervisor only.
    pub const ATTEMPT: &str = "ISOCHRONE_ATTEMPT";
}

/// A child's place in a supervised set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// Index of the process.
    pub process: u32,
    /// Number of processes.
    pub processes: u32,
    /// Where process 0 listens for the others; process 0 binds it.
    pub hub: SocketAddr,
    /// Which start of the set this is, from 0.
    pub attempt: u32,
    /// The secret of this attempt.
    pub secret: Secret,
}

impl Assignment {
    /// The assignment of this process, or `None` if no supervisor started it.
    ///
    /// ```
    /// use isochrone_engine::cluster::Assignment;
    /// assert!(Assignment::from_env()?.is_none());
    /// # Ok::<(), isochrone_engine::Error>(())
    /// ```
    pub fn from_env() -> Result<Option<Assignment>> {
        Assignment::from_lookup(|name| std::env::var(name).ok())
    }

    fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Option<Assignment>> {
        if lookup(env::PROCESS).is_none() {
            return Ok(None);
        }
        let found = |name: &str| {
            lookup(name).ok_or_else(|| Error::invalid(format!(
                "the environment has {} but not {name}; unset both, only a supervisor sets them",
                env::PROCESS
            )))
        };
        Ok(Some(Assignment {
            process: parsed(env::PROCESS, &found(env::PROCESS)?)?,
            processes: parsed(env::PROCESSES, &found(env::PROCESSES)?)?,
            hub: parsed(env::HUB, &found(env::HUB)?)?,
            attempt: parsed(env::ATTEMPT, &found(env::ATTEMPT)?)?,
            secret: Secret::new(&found(env::SECRET)?)?,
        }))
    }

    /// Puts the assignment into a child's environment.
    pub(crate) fn give(&self, command: &mut Command) {
        command.env(env::PROCESS, self.process.to_string());
        command.env(env::PROCESSES, self.processes.to_string());
        command.env(env::HUB, self.hub.to_string());
        command.env(env::ATTEMPT, self.attempt.to_string());
        command.env(env::SECRET, self.secret.expose().unwrap_or_default());
    }
}

fn parsed<T: FromStr>(name: &str, text: &str) -> Result<T> {
    text.parse().map_err(|_| {
        Error::invalid(format!(
            "the environment variable {name} has `{}`; unset it, only a supervisor sets it",
            text.escape_debug()
        ))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_child_reads_what_its_supervisor_gave() {
        let given = Assignment {
            process: 1,
            processes: 3,
            hub: "127.0.0.1:4000".parse().unwrap(),
            attempt: 2,
            secret: Secret::random().unwrap(),
        };
        let mut command = Command::new("true");
        given.give(&mut command);
        let text = |part: &std::ffi::OsStr| part.to_str().unwrap().to_owned();
        let mut set: BTreeMap<String, String> =
            command.get_envs().map(|(name, value)| (text(name), text(value.unwrap()))).collect();
        assert_eq!(Assignment::from_lookup(|name| set.get(name).cloned()).unwrap(), Some(given));

        set.insert(env::HUB.to_owned(), "nowhere".to_owned());
        let error = Assignment::from_lookup(|name| set.get(name).cloned()).unwrap_err();
        assert!(error.to_string().contains("ISOCHRONE_HUB has `nowhere`"), "{error}");
        set.remove(env::HUB);
        assert!(Assignment::from_lookup(|name| set.get(name).cloned()).is_err());
        set.remove(env::PROCESS);
        assert_eq!(Assignment::from_lookup(|name| set.get(name).cloned()).unwrap(), None);
    }
}
