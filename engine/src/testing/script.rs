//! A source whose records are a list per split, handed out in small batches.

use std::sync::Arc;
use std::time::Duration;

use super::random::Random;
use crate::Result;
use crate::connector::{Batch, Discovery, Poll, Reader, Source, Split};
use crate::record::Record;

/// Several splits of given records. How many records a poll gives, and whether it rests after, is
/// drawn from a seed and the position: the same at every reading.
///
/// ```
/// use isochrone_engine::connector::{Batch, Poll, Reader, Source};
/// use isochrone_engine::testing::Script;
///
/// let script = Script::new(7, vec![vec![1, 2, 3], vec![4]]);
/// let found = script.discover(&[])?.new;
/// assert_eq!(found.len(), 2);
/// let mut reader = script.open(found[0].clone())?;
/// let mut batch = Batch::default();
/// while reader.poll(&mut batch, 2)? != Poll::Finished {}
/// assert_eq!(batch.items, [1, 2, 3]);
/// # Ok::<(), isochrone_engine::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Script<T> {
    seed: u64,
    splits: Arc<Vec<Vec<T>>>,
}

impl<T: Record + Sync> Script<T> {
    /// A source of these splits.
    pub fn new(seed: u64, splits: Vec<Vec<T>>) -> Script<T> {
        Script { seed, splits: Arc::new(splits) }
    }
}

impl<T: Record + Sync> Source for Script<T> {
    type Item = T;
    /// The number of the next record.
    type Position = u64;

    fn discover(&self, known: &[String]) -> Result<Discovery<u64>> {
        let ids = (0..self.splits.len()).map(|index| index.to_string());
        let new = ids.filter(|id| !known.contains(id)).map(|id| Split { id, position: 0 });
        Ok(Discovery { new: new.collect(), complete: true })
    }

    fn has_more(&self, split: &Split<u64>) -> Result<bool> {
        let index: usize = split.id.parse().unwrap_or(usize::MAX);
        Ok(self.splits.get(index).is_some_and(|records| split.position < records.len() as u64))
    }

    fn open(&self, split: Split<u64>) -> Result<Box<dyn Reader<T, u64>>> {
        let index: usize = split.id.parse().unwrap_or(usize::MAX);
        if index >= self.splits.len() {
            return Err(crate::Error::incompatible(format!("there is no split `{}`", split.id)));
        }
        Ok(Box::new(Reading { script: self.clone(), index, next: split.position }))
    }
}

struct Reading<T> {
    script: Script<T>,
    index: usize,
    next: u64,
}

impl<T: Record + Sync> Reader<T, u64> for Reading<T> {
    fn poll(&mut self, batch: &mut Batch<T>, max: usize) -> Result<Poll> {
        let place = (self.index as u64) << 32 | self.next;
        let mut random = Random::new(self.script.seed ^ place);
        let records = &self.script.splits[self.index];
        let start = usize::try_from(self.next).unwrap_or(usize::MAX).min(records.len());
        let count = usize::try_from(1 + random.below(8)).unwrap_or(1).min(max);
        let given = &records[start..records.len().min(start + count)];
        batch.items.extend(given.iter().cloned());
        self.next += given.len() as u64;
        Ok(if self.next >= records.len() as u64 {
            Poll::Finished
        } else if random.one_in(4) {
            Poll::Idle { retry_after: Duration::from_millis(random.below(20)) }
        } else {
            Poll::Ready
        })
    }

    fn position(&self) -> u64 {
        self.next
    }
}
