//! Sources: splits, positions, readers.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::record::Record;
use crate::time::EventTime;

/// A description of input that can be read again from any position it has given.
///
/// Contract:
/// - constructing it does no I/O and gives the same description on every worker;
/// - the set of splits does not depend on the number of workers, so that any number can restore;
/// - reading a split from a position yields the same records as the first time, or an error that
///   says how much is lost; never silently others.
pub trait Source: 'static {
    /// What it yields.
    type Item: Record;
    /// Where a split stands: the *next* to read, with all that is needed to find it again.
    type Position: Serialize + DeserializeOwned + Clone + Send + 'static;

    /// Finds splits. `known` are the ids of all splits found before, finished ones included.
    ///
    /// Called before the first record and, while the answer is not [`Discovery::complete`], again
    /// from time to time, always on a background thread of one process.
    ///
    /// Asking twice is asking once: an answer may be dropped, as by a run that only looks whether
    /// there is anything to do. So it depends on `known` and on the input, never on what was
    /// asked before, and has every split that is there until that is among the known ones. A source
    /// that looks in the background keeps what it has found; one that begins at a place such as
    /// "the latest" finds that place once.
    fn discover(&self, known: &[String]) -> Result<Discovery<Self::Position>>;

    /// Whether a split that was read to its end has grown since. Called once per finished split at
    /// the start of a run, so that a job whose input is done can say so.
    fn has_more(&self, split: &Split<Self::Position>) -> Result<bool>;

    /// Opens a split at its position, on the worker that will read it.
    fn open(
        &self,
        split: Split<Self::Position>,
    ) -> Result<Box<dyn Reader<Self::Item, Self::Position>>>;

    /// A position as people read it, for reports; JSON unless the source knows better.
    fn show(&self, position: &Self::Position) -> String {
        serde_json::to_string(position).unwrap_or_else(|error| format!("unreadable: {error}"))
    }

    /// What people should know of splits of the checkpoint that this description would not find now,
    /// a line each, for the restore report: input that was renamed, or another one than before.
    fn remarks(&self, _known: &[String]) -> Vec<String> {
        Vec::new()
    }

    /// The event time of a record, if the source has event time.
    fn event_time(&self, _item: &Self::Item) -> Option<EventTime> {
        None
    }

    /// How much older than its predecessors in the same split a record may be without being late.
    fn out_of_order(&self) -> Duration {
        Duration::ZERO
    }

    /// What to do with input that is not a record.
    fn on_malformed(&self) -> OnMalformed {
        OnMalformed::Fail
    }

    /// Who is told of checkpoints, if anybody. Asked for once a run, in one process.
    fn observer(&self) -> Option<Observer<Self::Position>> {
        None
    }
}

/// Is told the positions of all splits ever known in each checkpoint, once it exists, on a background
/// thread: for those who watch from outside, such as a broker that shows how far its readers are.
/// Nothing depends on it, it must not wait, and the last of several checkpoints may be the only one
/// that it hears of.
pub type Observer<P> = Box<dyn FnMut(&[Split<P>])>;

/// An independently readable part of a source: a file, a byte range, a partition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Split<P> {
    /// Stable name within the source; shown to people.
    pub id: String,
    /// Next to read.
    pub position: P,
}

/// An answer of [`Source::discover`].
#[derive(Clone, Debug)]
pub struct Discovery<P> {
    /// All splits not among the known ones, at their first position.
    pub new: Vec<Split<P>>,
    /// Whether there will never be more splits in this run.
    pub complete: bool,
}

/// Reads one split on a worker's thread.
///
/// Contract:
/// - `poll` never waits: a client that blocks lives on its own thread behind a bounded channel;
/// - after each `poll`, `position` is behind exactly the records and malformed pieces handed out;
/// - once `Finished`, always `Finished`.
pub trait Reader<T, P>: 'static {
    /// Appends up to about `max` records to the batch, in the split's order.
    fn poll(&mut self, batch: &mut Batch<T>, max: usize) -> Result<Poll>;

    /// The next to read.
    fn position(&self) -> P;
}

/// What a reader hands out in one call.
#[derive(Debug)]
pub struct Batch<T> {
    /// Records.
    pub items: Vec<T>,
    /// Pieces of input that are not records, in order among themselves.
    pub malformed: Vec<Malformed>,
}

impl<T> Default for Batch<T> {
    fn default() -> Self {
        Batch { items: Vec::new(), malformed: Vec::new() }
    }
}

/// Whether to poll again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poll {
    /// There may be more right now.
    Ready,
    /// Nothing now; ask again after about this long.
    Idle {
        /// How long to wait before asking again.
        retry_after: Duration,
    },
    /// The split has been read to its end.
    Finished,
}

/// A piece of input that is not a record.
///
/// It is itself a record, so that a dead-letter stream of them can be sunk like any other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Malformed {
    /// Split and place within it, as a person would look for it: `a.csv, line 7, byte 120`.
    pub place: String,
    /// What is wrong and what would be right.
    pub reason: String,
    /// The piece itself, cut at a bound of the connector's; not always text.
    pub raw: Vec<u8>,
    /// What else the connector knows of it, by name, for programs: of a record of Kafka its topic,
    /// partition, offset, key and headers. A name may be there several times.
    pub origin: Vec<(String, Vec<u8>)>,
}

/// How much of a malformed piece is shown, in characters.
const SHOWN_MAX: usize = 60;

impl Malformed {
    /// How the piece begins, for messages: cut, on one line, and without anything that a terminal
    /// would act upon.
    ///
    /// ```
    /// use isochrone_engine::connector::Malformed;
    /// let malformed = Malformed {
    ///     place: "a.jsonl, line 1".to_owned(),
    ///     reason: "not JSON".to_owned(),
    ///     raw: b"{\"id\": 7,\n".to_vec(),
    ///     origin: Vec::new(),
    /// };
    /// assert_eq!(malformed.beginning(), r#"it reads `{"id": 7,\n`"#);
    /// ```
    pub fn beginning(&self) -> String {
        // A character has four bytes at most; the one that is cut is not shown.
        let text = String::from_utf8_lossy(&self.raw[..self.raw.len().min(4 * SHOWN_MAX + 4)]);
        let shown: String = text.chars().take(SHOWN_MAX).flat_map(escaped).collect();
        match text.chars().nth(SHOWN_MAX) {
            _ if self.raw.is_empty() => "it is empty".to_owned(),
            None => format!("it reads `{shown}`"),
            Some(_) => format!("it begins with `{shown}`"),
        }
    }
}

fn escaped(c: char) -> impl Iterator<Item = char> {
    let is_plain = !c.is_control() && (c.is_ascii() || c.is_alphanumeric());
    let (plain, escape) = (is_plain.then_some(c), (!is_plain).then(|| c.escape_default()));
    plain.into_iter().chain(escape.into_iter().flatten())
}

/// What to do with input that is not a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnMalformed {
    /// Stop the job, naming the place.
    #[default]
    Fail,
    /// Go on; the number of pieces skipped is in every checkpoint and in the summary.
    Skip,
}

/// Comforts for every source.
///
/// ```
/// use std::time::Duration;
/// use isochrone_connectors::generator::Generator;
/// use isochrone_engine::connector::{OnMalformed, Source, SourceExt};
/// use isochrone_engine::time::EventTime;
///
/// let seconds = Generator::counting(60, |second| second)
///     .event_time(|second| EventTime(*second as i64 * 1000), Duration::from_secs(1))
///     .on_malformed(OnMalformed::Skip);
/// assert_eq!(Source::event_time(&seconds, &2), Some(EventTime(2000)));
/// ```
pub trait SourceExt: Source + Sized {
    /// Gives each record its event time. `out_of_order` is how much older than its predecessors in
    /// the same split a record may be: watermarks stay that far behind.
    fn event_time<F>(self, time: F, out_of_order: Duration) -> Timed<Self, F>
    where
        F: Fn(&Self::Item) -> EventTime + 'static,
    {
        Timed { source: self, time, out_of_order }
    }

    /// Chooses what happens to input that is not a record.
    fn on_malformed(self, policy: OnMalformed) -> WithPolicy<Self> {
        WithPolicy { source: self, policy }
    }
}

impl<S: Source> SourceExt for S {}

/// A source whose records have event time; made by [`SourceExt::event_time`].
#[derive(Debug)]
pub struct Timed<S, F> {
    source: S,
    time: F,
    out_of_order: Duration,
}

impl<S: Source, F: Fn(&S::Item) -> EventTime + 'static> Source for Timed<S, F> {
    type Item = S::Item;
    type Position = S::Position;

    fn discover(&self, known: &[String]) -> Result<Discovery<S::Position>> {
        self.source.discover(known)
    }

    fn has_more(&self, split: &Split<S::Position>) -> Result<bool> {
        self.source.has_more(split)
    }

    fn open(&self, split: Split<S::Position>) -> Result<Box<dyn Reader<S::Item, S::Position>>> {
        self.source.open(split)
    }

    fn show(&self, position: &S::Position) -> String {
        self.source.show(position)
    }

    fn remarks(&self, known: &[String]) -> Vec<String> {
        self.source.remarks(known)
    }

    fn event_time(&self, item: &S::Item) -> Option<EventTime> {
        Some((self.time)(item))
    }

    fn out_of_order(&self) -> Duration {
        self.out_of_order
    }

    fn on_malformed(&self) -> OnMalformed {
        Source::on_malformed(&self.source)
    }

    fn observer(&self) -> Option<Observer<S::Position>> {
        self.source.observer()
    }
}

/// A source with a chosen policy for malformed input; made by [`SourceExt::on_malformed`].
#[derive(Debug)]
pub struct WithPolicy<S> {
    source: S,
    policy: OnMalformed,
}

impl<S: Source> Source for WithPolicy<S> {
    type Item = S::Item;
    type Position = S::Position;

    fn discover(&self, known: &[String]) -> Result<Discovery<S::Position>> {
        self.source.discover(known)
    }

    fn has_more(&self, split: &Split<S::Position>) -> Result<bool> {
        self.source.has_more(split)
    }

    fn open(&self, split: Split<S::Position>) -> Result<Box<dyn Reader<S::Item, S::Position>>> {
        self.source.open(split)
    }

    fn show(&self, position: &S::Position) -> String {
        self.source.show(position)
    }

    fn remarks(&self, known: &[String]) -> Vec<String> {
        self.source.remarks(known)
    }

    fn event_time(&self, item: &S::Item) -> Option<EventTime> {
        Source::event_time(&self.source, item)
    }

    fn out_of_order(&self) -> Duration {
        self.source.out_of_order()
    }

    fn on_malformed(&self) -> OnMalformed {
        self.policy
    }

    fn observer(&self) -> Option<Observer<S::Position>> {
        self.source.observer()
    }
}
