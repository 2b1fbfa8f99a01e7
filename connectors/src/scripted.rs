//! A source whose steps are data, for tests.
//!
//! Clones share what has happened: a test builds the job anew for every run from one script, as if
//! it were one input outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use isochrone_engine::connector::{Batch, Discovery, Malformed, Poll, Reader, Source, Split};
use isochrone_engine::record::Record;
use isochrone_engine::{Error, Result};

/// What a scripted source does next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step<T> {
    /// Hands out a record.
    Item(T),
    /// Hands out a piece that is not a record, for this reason.
    Malformed(String),
    /// Has nothing for once. Every reader that comes here pauses.
    Pause,
    /// Fails as unavailable, once for all runs: the next reader passes.
    Fail(String),
    /// Has nothing until [`Script::open_gates`] was called so many times.
    Gate(u64),
}

/// A source of one split with a list of steps, or of several.
///
/// ```
/// use isochrone_connectors::scripted::{Script, Step::*};
/// use isochrone_engine::connector::{Batch, Poll, Reader, Source};
///
/// let script = Script::new([Item(1), Pause, Item(2)]);
/// let mut reader = script.open(script.discover(&[])?.new.remove(0))?;
/// let mut batch = Batch::default();
/// assert!(matches!(reader.poll(&mut batch, 10)?, Poll::Idle { .. }));
/// assert_eq!(batch.items, [1]);
/// assert_eq!(reader.poll(&mut batch, 10)?, Poll::Finished);
/// assert_eq!(batch.items, [1, 2]);
/// # Ok::<(), isochrone_engine::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Script<T> {
    splits: Vec<Arc<Steps<T>>>,
    gates: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Steps<T> {
    id: String,
    steps: Vec<Step<T>>,
    /// Per step, whether it has failed as it should.
    failed: Vec<AtomicBool>,
}

impl<T: Record + Sync> Script<T> {
    /// A source of one split.
    pub fn new(steps: impl IntoIterator<Item = Step<T>>) -> Script<T> {
        Script { splits: Vec::new(), gates: Arc::default() }.and(steps)
    }

    /// One more split with these steps.
    ///
    /// ```
    /// use isochrone_connectors::scripted::{Script, Step::Item};
    /// use isochrone_engine::connector::Source;
    /// let script = Script::new([Item('a')]).and([Item('b')]);
    /// assert_eq!(script.discover(&[])?.new[1].id, "script 1");
    /// # Ok::<(), isochrone_engine::Error>(())
    /// ```
    #[must_use]
    pub fn and(mut self, steps: impl IntoIterator<Item = Step<T>>) -> Script<T> {
        let steps: Vec<Step<T>> = steps.into_iter().collect();
        let failed = steps.iter().map(|_| AtomicBool::new(false)).collect();
        let id = format!("script {}", self.splits.len());
        self.splits.push(Arc::new(Steps { id, steps, failed }));
        self
    }

    /// Opens the gates with the next number, for this script and its clones.
    ///
    /// ```
    /// use isochrone_connectors::scripted::{Script, Step::*};
    /// use isochrone_engine::connector::{Batch, Poll, Reader, Source};
    /// let script = Script::new([Gate(1), Item(9)]);
    /// let mut reader = script.open(script.discover(&[])?.new.remove(0))?;
    /// let mut batch = Batch::default();
    /// assert!(matches!(reader.poll(&mut batch, 10)?, Poll::Idle { .. }));
    /// assert!(matches!(reader.poll(&mut batch, 10)?, Poll::Idle { .. }));
    /// script.open_gates();
    /// assert_eq!(reader.poll(&mut batch, 10)?, Poll::Finished);
    /// assert_eq!(batch.items, [9]);
    /// # Ok::<(), isochrone_engine::Error>(())
    /// ```
    pub fn open_gates(&self) {
        self.gates.fetch_add(1, Ordering::SeqCst);
    }
}

impl<T: Record + Sync> Source for Script<T> {
    type Item = T;
    /// The number of the next step.
    type Position = u64;

    fn discover(&self, known: &[String]) -> Result<Discovery<u64>> {
        let new = self.splits.iter().filter(|split| !known.contains(&split.id));
        let new = new.map(|split| Split { id: split.id.clone(), position: 0 }).collect();
        Ok(Discovery { new, complete: true })
    }

    fn has_more(&self, _split: &Split<u64>) -> Result<bool> {
        Ok(false)
    }

    fn open(&self, split: Split<u64>) -> Result<Box<dyn Reader<T, u64>>> {
        let steps = self.splits.iter().find(|steps| steps.id == split.id);
        let steps = steps.ok_or_else(|| {
            Error::incompatible(format!("the script has no split `{}`", split.id))
        })?;
        Ok(Box::new(ScriptReader {
            script: Arc::clone(steps),
            gates: Arc::clone(&self.gates),
            next: split.position,
        }))
    }
}

struct ScriptReader<T> {
    script: Arc<Steps<T>>,
    gates: Arc<AtomicU64>,
    next: u64,
}

const IDLE: Poll = Poll::Idle { retry_after: Duration::from_millis(1) };

impl<T: Record + Sync> Reader<T, u64> for ScriptReader<T> {
    fn poll(&mut self, batch: &mut Batch<T>, max: usize) -> Result<Poll> {
        for _ in 0..max {
            let at = usize::try_from(self.next).unwrap_or(usize::MAX);
            let Some(step) = self.script.steps.get(at) else { return Ok(Poll::Finished) };
            match step {
                Step::Gate(number) if self.gates.load(Ordering::SeqCst) < *number => {
                    return Ok(IDLE);
                }
                Step::Fail(message) if !self.script.failed[at].swap(true, Ordering::SeqCst) => {
                    return Err(Error::unavailable(message.clone()));
                }
                _ => self.next += 1,
            }
            match step {
                Step::Item(item) => batch.items.push(item.clone()),
                Step::Malformed(reason) => batch.malformed.push(Malformed {
                    place: format!("{}, step {at}", self.script.id),
                    reason: reason.clone(),
                    raw: Vec::new(),
                    origin: Vec::new(),
                }),
                Step::Pause => return Ok(IDLE),
                Step::Fail(_) | Step::Gate(_) => {}
            }
        }
        Ok(Poll::Ready)
    }

    fn position(&self) -> u64 {
        self.next
    }
}
