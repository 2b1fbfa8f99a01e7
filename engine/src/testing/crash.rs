//! Crash points: places in the program where a test kills or stops the process, chosen by the
//! environment, so that a real process can be made to die exactly there.
//!
//! `ISOCHRONE_CRASH=name` kills the process when it comes to the point `name`; `name@3` at the third
//! time; `name=stop` stops it there, as `SIGSTOP` does, so that it can be woken later as a process of
//! the past; `name+20ms` kills it so long after the point, while it goes on. `a=stop,b` stops it at one
//! and kills it at the other.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use signal_hook::consts::{SIGKILL, SIGSTOP};

/// The variable that names the point.
pub const VARIABLE: &str = "ISOCHRONE_CRASH";

static CHOSEN: OnceLock<Vec<Chosen>> = OnceLock::new();

struct Chosen {
    name: String,
    time: u64,
    seen: AtomicU64,
    action: Action,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Kill,
    Stop,
    KillAfter(Duration),
}

/// Dies here, if that is what the environment says.
pub fn point(name: &str) {
    let chosen = CHOSEN.get_or_init(|| {
        let text = std::env::var(VARIABLE).unwrap_or_default();
        text.split(',').filter(|text| !text.is_empty()).map(parse).collect()
    });
    let Some(chosen) = chosen.iter().find(|chosen| chosen.name == name) else { return };
    if chosen.seen.fetch_add(1, Ordering::AcqRel) + 1 != chosen.time {
        return;
    }
    match chosen.action {
        Action::Kill => signal(SIGKILL),
        Action::Stop => signal(SIGSTOP),
        Action::KillAfter(delay) => {
            std::thread::spawn(move || {
                std::thread::park_timeout(delay);
                signal(SIGKILL);
            });
        }
    }
}

fn parse(text: &str) -> Chosen {
    let (rest, action) = match (text.split_once('='), text.split_once('+')) {
        (Some((rest, "stop")), _) => (rest, Action::Stop),
        (_, Some((rest, delay))) => {
            let delay = delay.strip_suffix("ms").and_then(|ms| ms.parse().ok());
            let delay = delay.expect("a crash point's delay is written `+20ms`");
            (rest, Action::KillAfter(Duration::from_millis(delay)))
        }
        _ => (text, Action::Kill),
    };
    let (name, time) = rest.split_once('@').unwrap_or((rest, "1"));
    let time = time.parse().expect("a crash point's turn is a number");
    Chosen { name: name.to_owned(), time, seen: AtomicU64::new(0), action }
}

/// Sends this process a signal, and does not come back before it has arrived: it goes to this thread,
/// where one to the process may find another that a busy machine lets wait, while this one goes on.
fn signal(number: i32) {
    signal_hook::low_level::raise(number).expect("a process may signal itself");
    if number == SIGKILL {
        loop {
            std::thread::park();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_happens() {
        let read = |text| {
            let Chosen { name, time, action, .. } = parse(text);
            (name, time, action)
        };
        assert_eq!(read("a"), ("a".to_owned(), 1, Action::Kill));
        assert_eq!(read("a-b@3"), ("a-b".to_owned(), 3, Action::Kill));
        assert_eq!(read("a@2=stop"), ("a".to_owned(), 2, Action::Stop));
        let later = Action::KillAfter(Duration::from_millis(20));
        assert_eq!(read("a@2+20ms"), ("a".to_owned(), 2, later));
    }
}
