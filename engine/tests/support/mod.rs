//! What the cluster tests share: members, and re-starting this test binary as a child process.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

use std::process::{Command, Stdio};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};
use isochrone_engine::cluster::{Fingerprint, LinkEvent, Member, Secret};
use isochrone_persistence::ids::JobName;

pub const SOON: Duration = Duration::from_secs(20);

pub fn secret() -> Secret {
    Secret::new("a secret for tests").unwrap()
}

pub fn member(process: u32, processes: u32) -> Member {
    Member {
        job: JobName::new("risk").unwrap(),
        fingerprint: Fingerprint::of(b"settings"),
        process,
        processes,
        workers: 2,
        secret: secret(),
        heartbeat_timeout: Duration::from_secs(5),
    }
}

pub fn events() -> (Sender<LinkEvent>, Receiver<LinkEvent>) {
    crossbeam_channel::unbounded()
}

/// This test binary again, to run one test: by name, with the role in the environment.
pub fn again(test: &str, role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]);
    command.env("CLUSTER_TEST_ROLE", role).stdout(Stdio::null());
    command
}

/// The role of this process, if it was started by [`again`].
pub fn role() -> Option<String> {
    std::env::var("CLUSTER_TEST_ROLE").ok()
}

pub fn is_alive(process_id: u32) -> bool {
    // A zombie is dead: its state is the first letter after the name.
    let stat = std::fs::read_to_string(format!("/proc/{process_id}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

pub fn signal(name: &str, process_id: u32) {
    let status = Command::new("kill").args([name, &process_id.to_string()]).status().unwrap();
    assert!(status.success());
}

pub fn pause(ms: u64) {
    let _ = crossbeam_channel::never::<()>().recv_timeout(Duration::from_millis(ms));
}

/// Whether it became true within a generous time.
pub fn eventually(mut is_true: impl FnMut() -> bool) -> bool {
    (0..2000).any(|_| {
        is_true() || {
            pause(10);
            false
        }
    })
}
