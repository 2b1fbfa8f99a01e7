//! The clock of the tests: waiting for something with a deadline. Nothing else here looks at time.

use std::sync::mpsc;
use std::time::{Duration, Instant};

/// A deadline that no healthy run comes near, not even on a machine that is busy with much else.
pub const SOON: Duration = Duration::from_secs(180);

/// How long between two looks.
pub const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Since when.
#[derive(Clone, Copy)]
pub struct Since(Instant);

impl Since {
    #[expect(clippy::disallowed_methods, reason = "real processes run in real time")]
    pub fn now() -> Since {
        Since(Instant::now())
    }

    pub fn passed(self) -> Duration {
        self.0.elapsed()
    }
}

/// Waits for so long.
pub fn pause(span: Duration) {
    let (_keeps_it_open, never) = mpsc::channel::<()>();
    let _times_out = never.recv_timeout(span);
}

/// Looks again and again until there is an answer; `None` after `deadline`.
pub fn until<T>(deadline: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let started = Since::now();
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if started.passed() > deadline {
            return None;
        }
        pause(LOOK_EVERY);
    }
}

/// For a promise of time on a machine that does other work as well: of three attempts, each of which
/// tells how long it took, one must keep it, and none may come near ten times as much.
pub fn best_within<T>(promised: Duration, mut attempt: impl FnMut() -> (Duration, T)) -> T {
    let mut taken = Vec::new();
    while taken.len() < 3 {
        let (took, found) = attempt();
        taken.push(took);
        assert!(took < promised * 10, "each takes much longer than {promised:?}: {taken:?}");
        if took < promised {
            return found;
        }
    }
    panic!("none took less than {promised:?}: {taken:?}");
}

/// Whether it becomes true soon.
pub fn soon(mut is_true: impl FnMut() -> bool) -> bool {
    until(SOON, || is_true().then_some(())).is_some()
}
