//! Event time as data, and the wall clock as something handed in.
//!
//! An operator never reads a clock: event time comes with the records and is the only time that a
//! replay can repeat. The wall clock serves triggers, timeouts and reports.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Milliseconds since 1970-01-01 UTC, as the record says.
///
/// ```
/// use isochrone_engine::time::EventTime;
/// assert_eq!(EventTime::from_date(1997, 1, 2), Some(EventTime(852_163_200_000)));
/// assert!(EventTime::from_date(1997, 2, 30).is_none());
/// ```
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct EventTime(pub i64);

impl EventTime {
    /// Before all time: the watermark that promises nothing.
    pub const MIN: EventTime = EventTime(i64::MIN);
    /// After all time: the watermark of input that has ended.
    pub const MAX: EventTime = EventTime(i64::MAX);

    /// Midnight UTC of a day of the proleptic Gregorian calendar, or `None` if there is no such day.
    /// Method: Howard Hinnant, "chrono-compatible low-level date algorithms", `days_from_civil`.
    pub fn from_date(year: i32, month: u32, day: u32) -> Option<EventTime> {
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let days_in_month = match month {
            1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
            4 | 6 | 9 | 11 => 30,
            2 => 28 + u32::from(leap),
            _ => return None,
        };
        if day == 0 || day > days_in_month {
            return None;
        }
        let year = i64::from(year) - i64::from(month <= 2);
        let era = year.div_euclid(400);
        let year_of_era = year.rem_euclid(400);
        let month_from_march = i64::from((month + 9) % 12);
        let day_of_year = (153 * month_from_march + 2) / 5 + i64::from(day) - 1;
        let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        Some(EventTime((era * 146_097 + day_of_era - 719_468) * 86_400_000))
    }

    /// This time and `span` later, without overflow.
    #[must_use]
    pub fn plus(self, span: Duration) -> EventTime {
        EventTime(self.0.saturating_add(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)))
    }

    /// This time and `span` earlier, without overflow.
    #[must_use]
    pub fn minus(self, span: Duration) -> EventTime {
        EventTime(self.0.saturating_sub(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)))
    }
}

impl fmt::Display for EventTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}

/// The two clocks that a run needs, handed in so that a test can move them.
pub trait Clock: Send + Sync + 'static {
    /// Milliseconds since 1970, for people and retention; may jump.
    fn wall_ms(&self) -> u64;
    /// Microseconds since some start, for intervals and timeouts; never goes back.
    fn monotonic_us(&self) -> u64;
    /// Milliseconds of [`Clock::monotonic_us`].
    fn monotonic_ms(&self) -> u64 {
        self.monotonic_us() / 1000
    }
}

/// A clock shared by the threads of a process.
pub type SharedClock = Arc<dyn Clock>;

/// The machine's clock.
#[derive(Debug)]
pub struct SystemClock {
    started: std::time::Instant,
}

impl Default for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]
    fn default() -> Self {
        SystemClock { started: std::time::Instant::now() }
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]
    fn wall_ms(&self) -> u64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(0, |age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX))
    }

    fn monotonic_us(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

/// A clock that stands until it is moved.
///
/// ```
/// use isochrone_engine::time::{Clock, ManualClock};
/// let clock = ManualClock::default();
/// clock.advance_ms(250);
/// assert_eq!(clock.monotonic_ms(), 250);
/// ```
#[derive(Debug, Default)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// Moves the clock forward by so many milliseconds.
    pub fn advance_ms(&self, by: u64) {
        self.0.fetch_add(by * 1000, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn wall_ms(&self) -> u64 {
        self.monotonic_ms()
    }

    fn monotonic_us(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}
