//! A sink that fails now and then, before or after it has done what it was asked for.

use std::sync::{Arc, Mutex};

use isochrone::connector::{Committer, Prepare, Readiness, Recovery, Sink, SinkContext, Writer};
use isochrone::ids::{Epoch, OperatorId};
use isochrone::testing::Random;
use isochrone::{Error, Result};

/// Chance shared by all sinks of a job, over all its runs.
#[derive(Clone)]
pub(crate) struct Shaky(Arc<Mutex<(Random, u64)>>);

impl Shaky {
    /// Fails `times` times at most.
    pub(crate) fn new(seed: u64, times: u64) -> Shaky {
        Shaky(Arc::new(Mutex::new((Random::new(seed), times))))
    }

    pub(crate) fn around<S: Sink>(&self, sink: S) -> ShakySink<S> {
        ShakySink { inner: sink, chance: self.clone() }
    }

    fn fails(&self) -> bool {
        let (random, left) = &mut *self.0.lock().unwrap();
        let fails = *left > 0 && random.one_in(8);
        *left -= u64::from(fails);
        fails
    }

    /// Does the work, or fails before, or after.
    fn attempt<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let failure = || Error::unavailable("planned fault of a sink");
        if self.fails() {
            return Err(failure());
        }
        let done = work()?;
        if self.fails() { Err(failure()) } else { Ok(done) }
    }
}

pub(crate) struct ShakySink<S> {
    inner: S,
    chance: Shaky,
}

struct Around<I> {
    inner: I,
    chance: Shaky,
}

impl<S: Sink> Sink for ShakySink<S> {
    type Item = S::Item;
    type Effect = S::Effect;

    fn writer(&self, context: &SinkContext) -> Result<Box<dyn Writer<S::Item, S::Effect>>> {
        let inner = self.inner.writer(context)?;
        Ok(Box::new(Around { inner, chance: self.chance.clone() }))
    }

    fn committer(&self, context: &SinkContext) -> Result<Box<dyn Committer<S::Effect>>> {
        let inner = self.inner.committer(context)?;
        Ok(Box::new(Around { inner, chance: self.chance.clone() }))
    }
}

impl<T: 'static, E: Send + 'static> Writer<T, E> for Around<Box<dyn Writer<T, E>>> {
    fn write(&mut self, batch: &mut Vec<T>, epoch: Epoch) -> Result<Readiness> {
        self.inner.write(batch, epoch)?;
        Ok(Readiness::Full)
    }

    fn readiness(&mut self) -> Result<Readiness> {
        let full = self.chance.fails();
        if full { Ok(Readiness::Full) } else { self.inner.readiness() }
    }

    fn prepare(&mut self, epoch: Epoch) -> Result<Prepare<E>> {
        let mut inner = self.inner.prepare(epoch)?;
        let chance = self.chance.clone();
        Ok(Box::new(move || chance.attempt(&mut inner)))
    }
}

impl<E: Send + 'static> Committer<E> for Around<Box<dyn Committer<E>>> {
    fn fence(&mut self, renamed_from: Option<&OperatorId>) -> Result<()> {
        let Around { inner, chance } = self;
        chance.attempt(|| inner.fence(renamed_from))
    }

    fn recover(&mut self, recovery: Recovery<E>) -> Result<Vec<String>> {
        let Around { inner, chance } = self;
        chance.attempt(|| inner.recover(recovery))
    }

    fn history(&self) -> Option<String> {
        self.inner.history()
    }

    fn commit(&mut self, effects: &[E]) -> Result<()> {
        let Around { inner, chance } = self;
        chance.attempt(|| inner.commit(effects))
    }
}
