//! The flags that every job understands, as a plain struct; with feature `cli` also for clap, to be
//! flattened into a job's own. Knows where a process stands in its job, not how a job runs.

use std::path::PathBuf;
use std::time::Duration;

use isochrone_persistence::ids::OperatorId;

use crate::cluster::Secret;
use crate::{Error, Result};

/// What to do when there is no checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum Restore {
    /// Go on from the newest checkpoint; start fresh if there is none.
    #[default]
    Auto,
    /// Go on from the newest checkpoint; stop if there is none.
    Required,
}

/// What to do when the newest checkpoint is damaged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum OnDamage {
    /// Stop and name the damage.
    #[default]
    Stop,
    /// Go on from the newest intact older one, and say so.
    Previous,
}

/// More threads than this on one machine are a slip of the pen.
const WORKERS_MAX: u64 = 1024;

/// What `--help` says below the flags.
#[cfg(feature = "cli")]
const AFTER_HELP: &str = "\
Signals:
  SIGTERM, SIGINT  take a last checkpoint, make its output visible, end with 0; a second one ends
                   the job at once, with 4, and says what it was waiting for
  SIGUSR1          take a checkpoint, and say so when it exists

Exit codes:
   0  all input is read, or the job was stopped
   2  fix the job, its flags or its input
   3  checkpoint and job do not fit: add an upgrade, a rename or --drop
   4  a store, file or peer did not answer: try again later
   5  bytes are not what was written: see --on-damage
   6  a newer run of the job has taken over
   7  a closure of the job failed
  70  a fault of the library";

/// How a job is run.
///
/// ```
/// use isochrone_engine::args::RunArgs;
/// let args = RunArgs { workers: 4, ..RunArgs::default() };
/// args.validate()?;
/// assert!(RunArgs { process: Some(1), ..args }.validate().is_err());
/// # Ok::<(), isochrone_engine::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[cfg_attr(feature = "cli", command(next_help_heading = "Running", after_help = AFTER_HELP))]
pub struct RunArgs {
    /// Worker threads of each process
    #[cfg_attr(feature = "cli", arg(long, value_name = "N", default_value = "1", value_parser = count, allow_negative_numbers = true))]
    pub workers: u32,

    /// Start and supervise N processes on this machine [default: one, not supervised]
    #[cfg_attr(feature = "cli", arg(long, value_name = "N", value_parser = count, allow_negative_numbers = true))]
    pub processes: Option<u32>,

    /// Be process I (from 0) of the cluster in `--hosts`
    #[cfg_attr(feature = "cli", arg(long, value_name = "I", value_parser = index, allow_negative_numbers = true))]
    pub process: Option<u32>,

    /// File with one `host:port` a line; line I is process I
    #[cfg_attr(feature = "cli", arg(long, value_name = "FILE"))]
    pub hosts: Option<PathBuf>,

    /// Directory that keeps the checkpoints [default: as the program says]
    #[cfg_attr(feature = "cli", arg(long, value_name = "DIR"))]
    pub store: Option<PathBuf>,

    /// Take a checkpoint every so often, such as 500ms, 5s or 2m [default: 1s, unless the program
    /// says otherwise]
    #[cfg_attr(feature = "cli", arg(long, value_name = "DURATION", value_parser = duration))]
    pub checkpoint_every: Option<Duration>,

    /// Take a checkpoint every N records [default: by time only]
    #[cfg_attr(feature = "cli", arg(long, value_name = "N", value_parser = records, allow_negative_numbers = true))]
    pub checkpoint_records: Option<u64>,

    /// Without a checkpoint: start fresh (auto) or stop (required)
    #[cfg_attr(
        feature = "cli",
        arg(
            long,
            value_enum,
            default_value_t,
            hide_possible_values = true,
            value_name = "auto|required"
        )
    )]
    pub restore: Restore,

    /// With a damaged checkpoint: stop, or take the previous intact one
    #[cfg_attr(
        feature = "cli",
        arg(
            long,
            value_enum,
            default_value_t,
            hide_possible_values = true,
            value_name = "stop|previous"
        )
    )]
    pub on_damage: OnDamage,

    /// Forget the state of an operator that the job no longer has and the checkpoint still has; may be
    /// repeated
    #[cfg_attr(feature = "cli", arg(long, value_name = "OPERATOR", value_parser = OperatorId::new))]
    pub drop: Vec<OperatorId>,

    /// File (mode 0600) with the secret of the cluster; else ISOCHRONE_SECRET
    #[cfg_attr(feature = "cli", arg(long, value_name = "FILE"))]
    pub secret_file: Option<PathBuf>,

    /// Hold a process for dead after so much silence
    #[cfg_attr(feature = "cli", arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration))]
    pub heartbeat_timeout: Duration,

    /// Give up after N restarts in a row
    #[cfg_attr(feature = "cli", arg(long, value_name = "N", default_value = "10", value_parser = index, allow_negative_numbers = true))]
    pub restarts: u32,

    /// Show no progress
    #[cfg_attr(feature = "cli", arg(long))]
    pub quiet: bool,

    /// Whether SIGTERM, SIGINT and SIGUSR1 drain, end and checkpoint the job. Flags say yes,
    /// [`RunArgs::default`] says no: a library does not take a program's signals unasked.
    #[cfg_attr(feature = "cli", arg(skip = true))]
    pub signals: bool,
}

impl Default for RunArgs {
    fn default() -> Self {
        RunArgs {
            workers: 1,
            processes: None,
            process: None,
            hosts: None,
            store: None,
            checkpoint_every: None,
            checkpoint_records: None,
            restore: Restore::Auto,
            on_damage: OnDamage::Stop,
            drop: Vec::new(),
            secret_file: None,
            heartbeat_timeout: Duration::from_secs(5),
            restarts: 10,
            quiet: false,
            signals: false,
        }
    }
}

/// Where this process stands in its job, as the flags say. A child of a supervisor has the flags of
/// its supervisor: ask [`Assignment::from_env`](crate::cluster::Assignment::from_env) first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The only process.
    Alone,
    /// The supervisor of so many processes on this machine.
    Supervisor {
        /// How many.
        processes: u32,
    },
    /// One process of a cluster over several machines.
    Hosted {
        /// Its index.
        process: u32,
        /// `host:port` of each process, by index.
        hosts: Vec<String>,
        /// What all of them share.
        secret: Secret,
    },
}

impl RunArgs {
    /// Checks each value and all combinations; reads the hosts file, if one is named.
    pub fn validate(&self) -> Result<()> {
        self.placement().map(drop)
    }

    /// Where this process stands; checks as [`RunArgs::validate`] does.
    pub fn placement(&self) -> Result<Placement> {
        self.check_values()?;
        let placement = match (self.processes, self.process, &self.hosts) {
            (Some(_), None, None) | (None, None, None) => Ok(match self.processes {
                Some(processes) if processes > 1 => Placement::Supervisor { processes },
                _ => Placement::Alone,
            }),
            (Some(_), _, _) => Err(Error::invalid(
                "flag `--processes` starts processes on this machine and goes with neither `--process` nor `--hosts`; give the number of hosts by the lines of the hosts file",
            )),
            (None, Some(_), None) => Err(Error::invalid(
                "flag `--process` needs `--hosts FILE`, a file with one `host:port` a line",
            )),
            (None, None, Some(_)) => Err(Error::invalid(
                "flag `--hosts` needs `--process I`, the line (from 0) that is this process",
            )),
            (None, Some(process), Some(path)) => return self.hosted(process, path),
        };
        match &self.secret_file {
            Some(file) if placement.is_ok() => Err(Error::invalid(format!(
                "flag `--secret-file {}` is for the processes of `--hosts`; leave it out",
                file.display()
            ))),
            _ => placement,
        }
    }

    fn check_values(&self) -> Result<()> {
        let zero = [
            ("--workers", self.workers == 0),
            ("--processes", self.processes == Some(0)),
            ("--checkpoint-records", self.checkpoint_records == Some(0)),
        ];
        if let Some((flag, _)) = zero.iter().find(|(_, is_zero)| *is_zero) {
            return Err(Error::invalid(format!("flag `{flag}` is 0; give 1 or more")));
        }
        let workers = u64::from(self.workers) * u64::from(self.processes.unwrap_or(1));
        if workers > WORKERS_MAX {
            return Err(Error::invalid(format!(
                "flags `--workers` and `--processes` ask for {workers} workers; give {WORKERS_MAX} \
                 or fewer: a worker is a thread of its own"
            )));
        }
        let none = [
            ("--checkpoint-every", self.checkpoint_every == Some(Duration::ZERO)),
            ("--heartbeat-timeout", self.heartbeat_timeout.is_zero()),
        ];
        if let Some((flag, _)) = none.iter().find(|(_, is_zero)| *is_zero) {
            return Err(Error::invalid(format!("flag `{flag}` is 0; give {DURATION_FORM}")));
        }
        Ok(())
    }

    fn hosted(&self, process: u32, path: &std::path::Path) -> Result<Placement> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            Error::invalid(format!("flag `--hosts`: cannot read `{}`", path.display()))
                .with_source(error)
        })?;
        let hosts = parse_hosts(&text).map_err(|problem| {
            Error::invalid(format!("flag `--hosts`: {problem} of `{}`", path.display()))
        })?;
        if process as usize >= hosts.len() {
            return Err(Error::invalid(format!(
                "flag `--process` is {process} but `{}` has {} hosts; give 0 to {}",
                path.display(),
                hosts.len(),
                hosts.len() - 1
            )));
        }
        let secret = Secret::find(self.secret_file.as_deref())?;
        if let Some(host) = hosts.iter().find(|host| !is_loopback(host)) {
            secret.required_for(host)?;
        }
        Ok(Placement::Hosted { process, hosts, secret })
    }
}

/// Lines of `host:port`; empty ones and those that begin with `#` do not count.
fn parse_hosts(text: &str) -> Result<Vec<String>, String> {
    let mut hosts: Vec<String> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let port = line.rsplit_once(':').filter(|(host, _)| !host.is_empty());
        let port = port.and_then(|(_, port)| port.parse::<u16>().ok());
        if port.is_none_or(|port| port == 0) {
            return Err(format!("`{line}` is not `host:port`, in line {number}"));
        }
        if hosts.iter().any(|host| host == line) {
            return Err(format!("`{line}` comes twice, the second time in line {number}"));
        }
        hosts.push(line.to_owned());
    }
    if hosts.is_empty() { Err("no `host:port` in any line".to_owned()) } else { Ok(hosts) }
}

fn is_loopback(host_and_port: &str) -> bool {
    match host_and_port.parse::<std::net::SocketAddr>() {
        Ok(address) => address.ip().is_loopback(),
        Err(_) => host_and_port.rsplit_once(':').is_some_and(|(host, _)| host == "localhost"),
    }
}

const DURATION_FORM: &str = "a number above 0 and ms, s, m or h, such as 500ms or 5s";

/// Parses a duration such as `500ms`, `5s`, `2m` or `1h`; zero is none.
///
/// ```
/// use std::time::Duration;
/// assert_eq!(isochrone_engine::args::duration("500ms"), Ok(Duration::from_millis(500)));
/// assert!(isochrone_engine::args::duration("5").is_err());
/// ```
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("give {DURATION_FORM}");
    let unit = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let number: u64 = text[..unit].parse().map_err(|_| wrong())?;
    let unit_ms = match &text[unit..] {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(wrong()),
    };
    match number.checked_mul(unit_ms) {
        None | Some(0) => Err(wrong()),
        Some(span_ms) => Ok(Duration::from_millis(span_ms)),
    }
}

#[cfg(feature = "cli")]
fn count(text: &str) -> Result<u32, String> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| "give a whole number from 1".to_owned())
}

#[cfg(feature = "cli")]
fn index(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "give a whole number from 0".to_owned())
}

#[cfg(feature = "cli")]
fn records(text: &str) -> Result<u64, String> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| "give a whole number from 1".to_owned())
}

impl From<Restore> for isochrone_persistence::restore::Require {
    fn from(restore: Restore) -> Self {
        match restore {
            Restore::Auto => Self::Auto,
            Restore::Required => Self::Required,
        }
    }
}

impl From<OnDamage> for isochrone_persistence::restore::OnDamage {
    fn from(on_damage: OnDamage) -> Self {
        match on_damage {
            OnDamage::Stop => Self::Stop,
            OnDamage::Previous => Self::Previous,
        }
    }
}
