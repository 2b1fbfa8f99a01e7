//! Records computed from their number: for examples, benchmarks and trials.
//!
//! Nothing is stored but the next number, so that any part can be made again, on any worker.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use isochrone_engine::Result;
use isochrone_engine::connector::{Batch, Discovery, Poll, Reader, Source, Split};
use isochrone_engine::record::Record;
use isochrone_engine::time::SharedClock;
use serde::{Deserialize, Serialize};

/// A source of a given number of records, each a function of its number alone.
///
/// ```
/// use isochrone_connectors::generator::Generator;
/// use isochrone_engine::connector::{Batch, Poll, Reader, Source};
///
/// let source = Generator::counting(5, |number| number * 10).splits(2);
/// let splits = source.discover(&[])?.new;
/// let mut batch = Batch::default();
/// for split in splits {
///     while source.open(split.clone())?.poll(&mut batch, 100)? != Poll::Finished {}
/// }
/// assert_eq!(batch.items, [0, 10, 20, 30, 40]);
/// # Ok::<(), isochrone_engine::Error>(())
/// ```
#[derive(Clone)]
pub struct Generator<T, F> {
    count: u64,
    splits: u64,
    pace: Option<Pace>,
    record: Arc<F>,
    item: PhantomData<fn() -> T>,
}

/// Records a second for the whole source.
#[derive(Clone)]
struct Pace {
    per_second: u64,
    clock: SharedClock,
}

/// The numbers of a split that are still to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GeneratorPosition {
    /// The next number.
    pub next: u64,
    /// Behind the last number.
    pub end: u64,
}

/// Bits that look random, a function of the number alone (the finalizer of SplitMix64).
///
/// ```
/// use isochrone_connectors::generator::mix;
/// assert_eq!(mix(7), mix(7));
/// assert_ne!(mix(7) % 1000, mix(8) % 1000);
/// ```
#[inline]
pub fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

impl<T: Record> Generator<T, ()> {
    /// `count` records, each made of 64 bits that look random and that depend on `seed` and the
    /// record's number only. [`mix`] makes more bits of them.
    ///
    /// ```
    /// use isochrone_connectors::generator::Generator;
    /// let dice = Generator::new(1_000, 42, |random| random % 6 + 1);
    /// # let _ = dice;
    /// ```
    pub fn new<F: Fn(u64) -> T + 'static>(
        count: u64,
        seed: u64,
        record: F,
    ) -> Generator<T, impl Fn(u64) -> T + 'static> {
        let seed = mix(seed);
        Generator::counting(count, move |number| record(mix(seed ^ number)))
    }

    /// `count` records, each made of its number: 0, 1, 2 and so on.
    ///
    /// ```
    /// use isochrone_connectors::generator::{Generator, mix};
    /// let orders = Generator::counting(1_000, |number| (number, mix(number) % 100));
    /// # let _ = orders;
    /// ```
    pub fn counting<F: Fn(u64) -> T + 'static>(count: u64, record: F) -> Generator<T, F> {
        Generator { count, splits: 1, pace: None, record: Arc::new(record), item: PhantomData }
    }
}

impl<T, F> Generator<T, F> {
    /// Into how many ranges the numbers are cut, for as many workers; 1 unless told.
    ///
    /// ```
    /// use isochrone_connectors::generator::Generator;
    /// use isochrone_engine::connector::Source;
    /// let source = Generator::counting(10, |number| number).splits(4);
    /// assert_eq!(source.discover(&[])?.new[1].position.next, 2);
    /// # Ok::<(), isochrone_engine::Error>(())
    /// ```
    #[must_use]
    pub fn splits(mut self, splits: u64) -> Self {
        self.splits = splits.max(1);
        self
    }

    /// How many records a second, all splits together; as many as are asked for unless told.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use isochrone_connectors::generator::Generator;
    /// use isochrone_engine::time::SystemClock;
    /// let clock = Arc::new(SystemClock::default());
    /// let ticks = Generator::counting(60, |number| number).per_second(1, clock);
    /// # let _ = ticks;
    /// ```
    #[must_use]
    pub fn per_second(mut self, per_second: u64, clock: SharedClock) -> Self {
        self.pace = Some(Pace { per_second: per_second.max(1), clock });
        self
    }

    fn start_of(&self, split: u64) -> u64 {
        let start = u128::from(self.count) * u128::from(split) / u128::from(self.splits);
        u64::try_from(start).expect("at most the count")
    }
}

impl<T, F> fmt::Debug for Generator<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Generator")
            .field("count", &self.count)
            .field("splits", &self.splits)
            .field("per_second", &self.pace.as_ref().map(|pace| pace.per_second))
            .finish_non_exhaustive()
    }
}

impl<T: Record, F: Fn(u64) -> T + 'static> Source for Generator<T, F> {
    type Item = T;
    type Position = GeneratorPosition;

    fn discover(&self, known: &[String]) -> Result<Discovery<GeneratorPosition>> {
        let splits = (0..self.splits).map(|split| Split {
            id: format!("part {split} of {}", self.splits),
            position: GeneratorPosition {
                next: self.start_of(split),
                end: self.start_of(split + 1),
            },
        });
        let new = splits.filter(|split| !known.contains(&split.id)).collect();
        Ok(Discovery { new, complete: true })
    }

    fn has_more(&self, _split: &Split<GeneratorPosition>) -> Result<bool> {
        Ok(false)
    }

    fn open(
        &self,
        split: Split<GeneratorPosition>,
    ) -> Result<Box<dyn Reader<T, GeneratorPosition>>> {
        let meter = self.pace.as_ref().map(|pace| Meter {
            started_ms: pace.clock.monotonic_ms(),
            first: split.position.next,
            records: u128::from(pace.per_second),
            per_ms: 1000 * u128::from(self.splits),
            clock: SharedClock::clone(&pace.clock),
        });
        Ok(Box::new(GeneratorReader {
            position: split.position,
            meter,
            record: Arc::clone(&self.record),
            item: PhantomData,
        }))
    }
}

struct GeneratorReader<T, F> {
    position: GeneratorPosition,
    meter: Option<Meter>,
    record: Arc<F>,
    item: PhantomData<fn() -> T>,
}

/// How far one split may have come: `records` every `per_ms` since it was opened.
struct Meter {
    clock: SharedClock,
    started_ms: u64,
    first: u64,
    records: u128,
    per_ms: u128,
}

impl Meter {
    /// Behind the last number that is due.
    fn due(&self) -> u64 {
        let passed_ms = u128::from(self.clock.monotonic_ms() - self.started_ms);
        let records = passed_ms * self.records / self.per_ms;
        self.first.saturating_add(u64::try_from(records).unwrap_or(u64::MAX))
    }

    /// Until about the next record.
    fn interval(&self) -> Duration {
        let interval_ms = (self.per_ms / self.records).clamp(1, 100);
        Duration::from_millis(u64::try_from(interval_ms).expect("clamped"))
    }
}

impl<T: Record, F: Fn(u64) -> T + 'static> Reader<T, GeneratorPosition> for GeneratorReader<T, F> {
    fn poll(&mut self, batch: &mut Batch<T>, max: usize) -> Result<Poll> {
        let GeneratorPosition { next, end } = self.position;
        let due = self.meter.as_ref().map_or(end, |meter| meter.due().min(end));
        let until = next.saturating_add(max as u64).min(due).max(next);
        batch.items.extend((next..until).map(|number| (self.record)(number)));
        self.position.next = until;
        Ok(match &self.meter {
            _ if until == end => Poll::Finished,
            Some(meter) if until == due => Poll::Idle { retry_after: meter.interval() },
            _ => Poll::Ready,
        })
    }

    fn position(&self) -> GeneratorPosition {
        self.position
    }
}
