//! What the cluster tests share: members, and re-starting this test binary as a child process.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
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

/// An address at which nobody listens, and where nobody comes to listen by chance: of the loopback
/// network the part of this process, and a port that the system gives to nobody by itself.
pub fn free_address() -> SocketAddr {
    static PORT: AtomicU16 = AtomicU16::new(20_000);
    let [.., high, low] = std::process::id().to_be_bytes();
    SocketAddr::from(([127, 100, high, low], PORT.fetch_add(1, Ordering::Relaxed)))
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
