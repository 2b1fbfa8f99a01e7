//! What the file system says of a file's last change, and how far that can be trusted.

use std::fs::Metadata;
use std::time::{SystemTime, UNIX_EPOCH};

use isochrone_engine::time::{Clock, SystemClock};

/// File systems tell the time of a change as coarsely as by two seconds, and late by some
/// milliseconds.
const COARSE_MS: u64 = 3_000;

/// Length and last change of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) length: u64,
    modified: Option<SystemTime>,
    /// Unlike the other, no program can set this one back.
    changed: Option<(i64, i64)>,
}

impl Stamp {
    pub(super) fn of(found: &Metadata) -> Stamp {
        Stamp { length: found.len(), modified: found.modified().ok(), changed: changed(found) }
    }

    /// Whether every later change gives another stamp. One that comes soon after the change before
    /// may have the same time as that.
    pub(super) fn is_settled(&self) -> bool {
        self.is_settled_at(SystemClock::default().wall_ms())
    }

    fn is_settled_at(&self, now_ms: u64) -> bool {
        let modified = self.modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let Some(modified) = modified.and_then(|age| u64::try_from(age.as_millis()).ok()) else {
            return false;
        };
        let changed = self.changed.map(|(seconds, nanos)| seconds * 1_000 + nanos / 1_000_000);
        let changed = changed.map_or(Some(modified), |changed| u64::try_from(changed).ok());
        changed.is_some_and(|changed| changed.max(modified).saturating_add(COARSE_MS) <= now_ms)
    }
}

#[cfg(unix)]
fn changed(found: &Metadata) -> Option<(i64, i64)> {
    use std::os::unix::fs::MetadataExt;
    Some((found.ctime(), found.ctime_nsec()))
}

#[cfg(not(unix))]
fn changed(_found: &Metadata) -> Option<(i64, i64)> {
    None
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn stamp(modified_ms: u64, changed_ms: Option<i64>) -> Stamp {
        Stamp {
            length: 7,
            modified: Some(UNIX_EPOCH + Duration::from_millis(modified_ms)),
            changed: changed_ms.map(|ms| (ms / 1_000, ms % 1_000 * 1_000_000)),
        }
    }

    #[test]
    fn a_stamp_is_trusted_once_the_file_has_rested_and_not_if_it_comes_from_the_future() {
        let now = 1_000_000;
        for (modified, changed, settled) in [
            (now - COARSE_MS, None, true),
            (now - COARSE_MS + 1, None, false),
            (now + 60_000, None, false),
            (now - 9_000, Some(now as i64 - 9_000), true),
            // The time of modification was set back.
            (now - 9_000, Some(now as i64 - 1), false),
            (now - 9_000, Some(-1), false),
        ] {
            let stamp = stamp(modified, changed);
            assert_eq!(stamp.is_settled_at(now), settled, "{modified} {changed:?}");
        }
        assert!(!Stamp { modified: None, ..stamp(0, None) }.is_settled_at(now));
    }
}
