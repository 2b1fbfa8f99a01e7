//! Two hosts, as two network namespaces, that are cut off from each other and joined again: both
//! processes notice and end, and when they are started again the output is as if nothing had been.
//!
//! Needs root and the command `ip`, and fails without, unless `ISOCHRONE_WITHOUT_ROOT=1` says that
//! there is no such thing here. Hosts on the loopback interface are in `tests/hosts.rs`.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

#[path = "../examples/account_risk.rs"]
#[expect(dead_code, reason = "the example's own entrance is not used here")]
mod account_risk;
mod support;

use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use isochrone::ErrorKind;
use support::child::{Job, play};
use support::oracle::{Verdict, judge, parts};
use support::purchases::Log;
use support::{rights, wait};
use tempfile::TempDir;

const TEST: &str = "hosts_cut_off_and_joined_again_lose_and_double_nothing";
const HOSTS: [&str; 2] = ["10.99.7.1:4711", "10.99.7.2:4711"];
const SILENCE: Duration = Duration::from_secs(2);

#[test]
fn hosts_cut_off_and_joined_again_lose_and_double_nothing() {
    play(account_risk::run);
    let Some(net) = Net::new() else {
        return rights::go_without("two hosts cut off from each other: needs root and `ip netns`");
    };
    let folder = TempDir::new().unwrap();
    let log = Log::generate(7, &folder.path().join("input"), 100_000, 4);
    std::fs::write(folder.path().join("hosts"), HOSTS.join("\n")).unwrap();
    std::fs::write(folder.path().join("secret"), "known to both hosts and nobody else").unwrap();
    Command::new("chmod").arg("600").arg(folder.path().join("secret")).status().unwrap();

    let mut jobs = [0, 1].map(|index| start(&net, folder.path(), index, true));
    let visible = || !parts(&folder.path().join("output")).is_empty();
    assert!(wait::soon(visible), "{} {}", jobs[0].errors(), jobs[1].errors());
    let cut = wait::Since::now();
    net.link("down");
    for job in &mut jobs {
        let code = job.end().code();
        let unavailable = i32::from(ErrorKind::Unavailable.exit_code());
        assert_eq!(code, Some(unavailable), "{}", job.errors());
    }
    assert!(cut.passed() < SILENCE * 5, "they noticed after {:?}", cut.passed());
    net.link("up");
    // Committed while the other was not there any more, or not at all: both are right.
    let mut jobs = [0, 1].map(|index| start(&net, folder.path(), index, false));
    for job in &mut jobs {
        assert!(job.end().success(), "{}", job.errors());
    }
    assert_eq!(judge(&log, &folder.path().join("output")), Verdict::default());
}

fn start(net: &Net, folder: &Path, index: usize, follow: bool) -> Job {
    let at = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let mut flags: Vec<String> = [
        ("--input", at("input")),
        ("--output", at("output")),
        ("--store", at("store")),
        ("--hosts", at("hosts")),
        ("--process", index.to_string()),
        ("--secret-file", at("secret")),
        ("--heartbeat-timeout", format!("{}s", SILENCE.as_secs())),
        ("--checkpoint-every", "100ms".to_owned()),
    ]
    .into_iter()
    .flat_map(|(flag, value)| [flag.to_owned(), value])
    .collect();
    if follow {
        flags.push("--follow".to_owned());
    }
    let errors = folder.join(format!("errors-{index}"));
    Job::start_within(&net.enter(index), TEST, &flags, &errors)
}

/// Two namespaces and the link between them; taken down when dropped.
struct Net {
    names: [String; 2],
}

impl Net {
    fn new() -> Option<Net> {
        let id = std::process::id();
        let net = Net { names: [format!("iso-a-{id}"), format!("iso-b-{id}")] };
        let [a, b] = &net.names;
        let set_up = [
            format!("netns add {a}"),
            format!("netns add {b}"),
            format!("link add va netns {a} type veth peer name vb netns {b}"),
            format!("-n {a} addr add 10.99.7.1/24 dev va"),
            format!("-n {b} addr add 10.99.7.2/24 dev vb"),
            format!("-n {a} link set lo up"),
            format!("-n {b} link set lo up"),
            format!("-n {a} link set va up"),
            format!("-n {b} link set vb up"),
        ];
        set_up.iter().all(|command| ip(command)).then_some(net)
    }

    fn enter(&self, host: usize) -> Vec<String> {
        ["ip", "netns", "exec", &self.names[host]].map(str::to_owned).to_vec()
    }

    fn link(&self, state: &str) {
        assert!(ip(&format!("-n {} link set vb {state}", self.names[1])));
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for name in &self.names {
            ip(&format!("netns del {name}"));
        }
    }
}

fn ip(arguments: &str) -> bool {
    let ran = Command::new("ip").args(arguments.split(' ')).output();
    ran.is_ok_and(|output| {
        let _shown = std::io::stderr().write_all(&output.stderr);
        output.status.success()
    })
}
