//! What the commit thread of a process is doing, for whoever waits for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use isochrone_persistence::ids::Epoch;
use serde::{Deserialize, Serialize};

/// A sink that is making output visible.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UnderWay {
    /// Of the sink.
    pub(crate) operator: usize,
    /// Of the newest output that is to become visible.
    pub(crate) epoch: Epoch,
    pub(crate) for_ms: u64,
}

/// Shared by the commit thread of a process and those who wait for it.
#[derive(Default)]
pub(crate) struct Commits {
    now: Mutex<Option<(usize, Epoch, u64)>>,
    left: AtomicBool,
}

impl Commits {
    /// A sink is handed its output now; `None`: it has returned.
    pub(crate) fn note(&self, now: Option<(usize, Epoch, u64)>) {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }

    pub(crate) fn under_way(&self, now_ms: u64) -> Option<UnderWay> {
        let now = *self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let (operator, epoch, since_ms) = now?;
        Some(UnderWay { operator, epoch, for_ms: now_ms.saturating_sub(since_ms) })
    }

    /// Nobody waits for the commit thread any more: when it comes back it has nothing more to do.
    pub(crate) fn leave_behind(&self) {
        self.left.store(true, Ordering::Release);
    }

    pub(crate) fn is_left_behind(&self) -> bool {
        self.left.load(Ordering::Acquire)
    }
}
