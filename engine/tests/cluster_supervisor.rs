//! The supervisor with real child processes: restarts, gives up, passes on, leaves nobody behind.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::thread;

use crossbeam_channel::{Receiver, Sender};
use isochrone_engine::cluster::orders::{self, Order};
use isochrone_engine::cluster::signals::{Signal, Signals};
use isochrone_engine::cluster::{Assignment, RestartPolicy, SupervisorEvent, supervise};
use isochrone_engine::time::SystemClock;
use isochrone_engine::{ErrorKind, Result};
use support::{again, eventually, is_alive, role, signal};

const QUICK: RestartPolicy =
    RestartPolicy { limit: 3, backoff_ms: 10, backoff_max_ms: 20, healthy_after_ms: 600_000 };

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

/// Supervises children that run a script of (process, attempt); tells `watch` of each event.
fn run(
    processes: u32,
    script: impl Fn(u32, u32) -> String,
    signals: &Receiver<Signal>,
    mut watch: impl FnMut(&SupervisorEvent),
) -> (Result<()>, Vec<SupervisorEvent>) {
    let mut events = Vec::new();
    let command = |process, attempt| shell(&script(process, attempt));
    let clock = SystemClock::default();
    let result = supervise(processes, command, QUICK, &clock, signals, |event| {
        events.push(event.clone());
        watch(event);
    });
    (result, events)
}

fn silent() -> (Sender<Signal>, Receiver<Signal>) {
    crossbeam_channel::unbounded()
}

fn starts(events: &[SupervisorEvent]) -> Vec<Vec<u32>> {
    let ids = |event: &SupervisorEvent| match event {
        SupervisorEvent::Started { process_ids, .. } => Some(process_ids.clone()),
        _ => None,
    };
    events.iter().filter_map(ids).collect()
}

/// A child that stays until it is told to stop.
const STAYS: &str = "while read order; do test $order = stop && exit 0; done; exit 9";

#[test]
fn ends_well_when_all_children_do() {
    let (_sender, signals) = silent();
    let (result, events) = run(3, |_, _| "exit 0".to_owned(), &signals, |_| {});
    result.unwrap();
    assert_eq!(starts(&events).len(), 1);
    assert_eq!(starts(&events)[0].len(), 3);
}

#[test]
fn children_are_told_their_place_and_a_secret_of_the_attempt() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display().to_string();
    let script = |process: u32, attempt: u32| {
        format!(
            "echo $ISOCHRONE_PROCESS $ISOCHRONE_PROCESSES $ISOCHRONE_ATTEMPT $ISOCHRONE_HUB $ISOCHRONE_SECRET \
             > {path}/{process}-{attempt}; exit {}",
            if attempt == 0 { 4 } else { 0 }
        )
    };
    let (_sender, signals) = silent();
    run(2, script, &signals, |_| {}).0.unwrap();
    let told = |name: &str| {
        let text = std::fs::read_to_string(folder.path().join(name)).unwrap();
        text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(told("1-1")[..3], ["1", "2", "1"]);
    assert_eq!(told("0-1")[3..], told("1-1")[3..], "one hub and one secret for all of an attempt");
    assert_ne!(told("0-0")[4], told("0-1")[4], "a new secret for each attempt");
    assert_eq!(told("0-0")[4].len(), 64);
}

#[test]
fn a_killed_child_restarts_the_whole_set() {
    let (_sender, signals) = silent();
    let script = |_, attempt| if attempt == 0 { "exec sleep 600" } else { "exit 0" }.to_owned();
    let (result, events) = run(2, script, &signals, |event| {
        if let SupervisorEvent::Started { attempt: 0, process_ids } = event {
            signal("-KILL", process_ids[1]);
        }
    });
    result.unwrap();
    let starts = starts(&events);
    assert_eq!(starts.len(), 2);
    assert!(starts[0].iter().all(|id| !is_alive(*id)), "a child of the first attempt lives on");
    let killed = |event: &SupervisorEvent| matches!(event, SupervisorEvent::Exited(exit) if exit.process == 1 && exit.signal == Some(9));
    assert!(events.iter().any(killed), "{events:?}");
}

#[test]
fn gives_up_after_the_limit_with_the_last_lines() {
    let (_sender, signals) = silent();
    let script = |_, attempt| format!("echo attempt {attempt} failed >&2; exit 4");
    let (result, events) = run(1, script, &signals, |_| {});
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let text = error.to_string();
    assert!(text.contains("process 0 ended with exit code 4; gave up after 3 restarts"), "{text}");
    assert!(text.ends_with("attempt 3 failed"), "{text}");
    assert_eq!(starts(&events).len(), 4);
}

#[test]
fn a_panic_or_an_unknown_exit_code_is_worth_a_restart() {
    for code in [1, 101] {
        let (_sender, signals) = silent();
        let script = |_, attempt| format!("exit {}", if attempt == 0 { code } else { 0 });
        let (result, events) = run(1, script, &signals, |_| {});
        result.unwrap();
        assert_eq!(starts(&events).len(), 2);
    }
}

#[test]
fn an_error_that_no_restart_helps_ends_all_with_its_kind() {
    use ErrorKind::{Corrupt, Fenced, Incompatible, Invalid, User};
    for kind in [Invalid, Incompatible, Corrupt, Fenced, User] {
        let (_sender, signals) = silent();
        let code = kind.exit_code();
        let script = |process, _| match process {
            1 => format!("echo key 17 is odd >&2; exit {code}"),
            _ => "exec sleep 600".to_owned(),
        };
        let (result, events) = run(2, script, &signals, |_| {});
        let error = result.unwrap_err();
        assert_eq!(error.kind(), kind);
        assert!(error.to_string().contains("key 17 is odd"), "{error}");
        let starts = starts(&events);
        assert!(starts.len() == 1 && !is_alive(starts[0][0]));
    }
}

#[test]
fn the_cause_decides_and_not_the_first_to_notice() {
    let (_sender, signals) = silent();
    let script = |process, _| ["exit 4", "sleep 0.2; exit 7"][process as usize].to_owned();
    let (result, _) = run(2, script, &signals, |_| {});
    assert_eq!(result.unwrap_err().kind(), ErrorKind::User);
}

#[test]
fn a_program_that_does_not_exist_is_named_and_not_tried_again() {
    let (_sender, signals) = silent();
    let clock = SystemClock::default();
    let command = |_, _| Command::new("no-such-program");
    let error = supervise(2, command, QUICK, &clock, &signals, |_| {}).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("`no-such-program`"), "{error}");
}

#[test]
fn a_stop_lets_all_end_in_good_order() {
    let (sender, signals) = silent();
    let (result, events) = run(
        2,
        |_, _| STAYS.to_owned(),
        &signals,
        |event| {
            if matches!(event, SupervisorEvent::Started { .. }) {
                sender.send(Signal::Stop).unwrap();
            }
        },
    );
    result.unwrap();
    assert_eq!(starts(&events).len(), 1);
    assert!(events.contains(&SupervisorEvent::Stopping));
}

#[test]
fn a_second_stop_ends_all_at_once() {
    let (sender, signals) = silent();
    let (result, events) = run(
        2,
        |_, _| "exec sleep 600".to_owned(),
        &signals,
        |event| {
            if matches!(event, SupervisorEvent::Started { .. }) {
                sender.send(Signal::Stop).unwrap();
                sender.send(Signal::Kill).unwrap();
            }
        },
    );
    assert_eq!(result.unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(starts(&events)[0].iter().all(|id| !is_alive(*id)));
}

/// Process 0 knows what the job is waiting for.
#[test]
fn a_second_stop_tells_what_process_0_says_it_waits_for() {
    let (sender, signals) = silent();
    let says =
        "read order; read order; test $order = kill && printf '\\036\"the tide\"\\n' >&2; exit 4";
    let script = |process, _| [says, "exec sleep 600"][process as usize].to_owned();
    let (result, _) = run(2, script, &signals, |event| {
        if matches!(event, SupervisorEvent::Started { .. }) {
            sender.send(Signal::Stop).unwrap();
            sender.send(Signal::Kill).unwrap();
        }
    });
    let text = result.unwrap_err().to_string();
    assert!(text.starts_with("ended at once on request while waiting for the tide;"), "{text}");
}

/// It may have ended in the middle of a line, behind much else, and have left somebody behind who holds
/// its standard error open.
#[test]
fn the_last_words_of_a_child_are_heard_to_the_end() {
    let (_sender, signals) = silent();
    let much =
        "i=0; while test $i -lt 300; do echo $i is one of many lines of text >&2; i=$((i+1)); done";
    for (last, heard) in [
        ("printf '\\036\"it is broken\"\\n' >&2", "; a restart would not help: it is broken"),
        ("printf '\\036\"it is bro' >&2", "\n\"it is bro"),
        ("printf 'no end' >&2", "\nno end"),
    ] {
        let script = |_, _| format!("sleep 20 & {much}; {last}; exit 7");
        let (result, _) = run(1, script, &signals, |_| {});
        let text = result.unwrap_err().to_string();
        assert!(text.ends_with(heard), "{text}");
    }
}

#[test]
fn a_child_that_dies_while_it_stops_is_not_started_again() {
    let (sender, signals) = silent();
    let script = |process, _| ["read order; exit 4", STAYS][process as usize].to_owned();
    let (result, events) = run(2, script, &signals, |event| {
        if matches!(event, SupervisorEvent::Started { .. }) {
            sender.send(Signal::Stop).unwrap();
        }
    });
    assert!(result.unwrap_err().to_string().contains("while it was asked to stop"));
    assert_eq!(starts(&events).len(), 1);
}

#[test]
fn a_stop_during_the_wait_ends_the_wait() {
    let (sender, signals) = silent();
    let clock = SystemClock::default();
    let slow = RestartPolicy { backoff_ms: 600_000, backoff_max_ms: 600_000, ..QUICK };
    let result = supervise(
        1,
        |_, _| shell("exit 4"),
        slow,
        &clock,
        &signals,
        |event| {
            if matches!(event, SupervisorEvent::Restarting { .. }) {
                sender.send(Signal::Stop).unwrap();
            }
        },
    );
    assert!(result.unwrap_err().to_string().contains("stopped before the next start"));
}

#[test]
fn a_checkpoint_request_reaches_every_child() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display().to_string();
    let script = |process, _| format!("read order; echo $order > {path}/{process}");
    let (sender, signals) = silent();
    let (result, _) = run(2, script, &signals, |event| {
        if matches!(event, SupervisorEvent::Started { .. }) {
            sender.send(Signal::Checkpoint).unwrap();
        }
    });
    result.unwrap();
    for process in ["0", "1"] {
        let heard = std::fs::read_to_string(folder.path().join(process)).unwrap();
        assert_eq!(heard, "checkpoint\n");
    }
}

#[test]
fn a_panic_of_the_caller_leaves_no_child_behind() {
    let started = Mutex::new(Vec::new());
    let panicked = std::panic::catch_unwind(|| {
        let (_sender, signals) = silent();
        run(
            2,
            |_, _| "exec sleep 600".to_owned(),
            &signals,
            |event| {
                if let SupervisorEvent::Started { process_ids, .. } = event {
                    *started.lock().unwrap() = process_ids.clone();
                    std::panic::resume_unwind(Box::new("of the caller"));
                }
            },
        )
    });
    assert!(panicked.is_err());
    let started = started.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    assert!(started.len() == 2 && started.iter().all(|id| !is_alive(*id)));
}

/// As a child: a supervisor over children that watch their orders, or one of these.
fn play_role(test: &str, folder: &str) -> Result<()> {
    if Assignment::from_env()?.is_none() {
        let signals = Signals::install()?;
        let clock = SystemClock::default();
        let command = |_, _| again(test, folder);
        return supervise(2, command, QUICK, &clock, signals.receiver(), |_| {});
    }
    let (told, received) = crossbeam_channel::unbounded();
    orders::watch_stdin(move |order| match order {
        Order::Orphaned => std::process::exit(4),
        order => told.send(order).unwrap(),
    })?;
    let name = std::process::id().to_string();
    std::fs::write(std::path::Path::new(folder).join(&name), name).unwrap();
    loop {
        if received.recv() == Ok(Order::Stop) {
            return Ok(());
        }
    }
}

/// A supervisor in a process of its own, and the ids of its two children.
fn supervisor_process(test: &str, folder: &std::path::Path) -> (Child, Vec<u32>) {
    let mut command = again(test, &folder.display().to_string());
    let supervisor = command.stdin(Stdio::null()).spawn().unwrap();
    let children = || {
        let entries = std::fs::read_dir(folder).unwrap();
        entries.map(|e| e.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect()
    };
    assert!(eventually(|| {
        let ids: Vec<u32> = children();
        ids.len() == 2
    }));
    (supervisor, children())
}

#[test]
fn children_of_a_killed_supervisor_end() {
    const TEST: &str = "children_of_a_killed_supervisor_end";
    if let Some(folder) = role() {
        return play_role(TEST, &folder).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let (mut supervisor, children) = supervisor_process(TEST, folder.path());
    assert!(children.iter().all(|id| is_alive(*id)));
    supervisor.kill().unwrap();
    supervisor.wait().unwrap();
    assert!(eventually(|| children.iter().all(|id| !is_alive(*id))), "orphans live on");
}

#[test]
fn sigterm_to_the_supervisor_drains_its_children() {
    const TEST: &str = "sigterm_to_the_supervisor_drains_its_children";
    if let Some(folder) = role() {
        return play_role(TEST, &folder).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let (mut supervisor, children) = supervisor_process(TEST, folder.path());
    signal("-TERM", supervisor.id());
    assert!(supervisor.wait().unwrap().success());
    assert!(children.iter().all(|id| !is_alive(*id)));
}

#[test]
fn signals_become_values_and_a_second_stop_is_a_kill() {
    const TEST: &str = "signals_become_values_and_a_second_stop_is_a_kill";
    let heard = |folder: &std::path::Path, count: usize| folder.join(count.to_string());
    if let Some(folder) = role() {
        let hears = |count| std::fs::write(heard(folder.as_ref(), count), "").unwrap();
        let signals = Signals::install().unwrap();
        hears(0);
        let hear = |count| {
            let signal = signals.receiver().recv().unwrap();
            hears(count);
            signal
        };
        let got = [1, 2, 3].map(hear);
        return assert_eq!(got, [Signal::Checkpoint, Signal::Stop, Signal::Kill]);
    }
    let folder = tempfile::tempdir().unwrap();
    let mut child = again(TEST, &folder.path().display().to_string()).spawn().unwrap();
    // One after the other: of signals that wait at the same time, the order is not that of their coming.
    for (count, name) in ["-USR1", "-TERM", "-INT"].into_iter().enumerate() {
        let ready = || heard(folder.path(), count).exists();
        assert!(eventually(ready), "{count} signals were not heard");
        signal(name, child.id());
    }
    assert!(child.wait().unwrap().success());
}

#[test]
fn orders_end_with_orphaned_whatever_was_said() {
    let (mut supervisor, child) = std::os::unix::net::UnixStream::pair().unwrap();
    let (told, orders) = crossbeam_channel::unbounded();
    orders::watch(child, move |order| told.send(order).unwrap()).unwrap();
    let said = thread::spawn(move || {
        supervisor.write_all(b"checkpoint\nnonsense\nsto").unwrap();
        supervisor.write_all(b"p\n").unwrap();
    });
    said.join().unwrap();
    let heard: Vec<Order> = orders.iter().collect();
    assert_eq!(heard, [Order::Checkpoint, Order::Stop, Order::Orphaned]);
}
