//! A closure as a sink, at least once.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::rc::Rc;

use isochrone_engine::Result;
use isochrone_engine::connector::{Committer, Prepare, Readiness, Sink, SinkContext, Writer};
use isochrone_engine::ids::Epoch;

use crate::immediate::{Nothing, NothingToCommit, nothing_to_prepare};

/// Calls a closure with each record, on the worker's thread, **at least once**: after a crash, it
/// is called again with the records since the last checkpoint.
///
/// ```
/// use isochrone_connectors::Callback;
/// let mut largest = 0;
/// let sink = Callback::new(move |item: &u64| largest = largest.max(*item));
/// ```
pub struct Callback<T, F> {
    call: Rc<RefCell<F>>,
    ready: Ready,
    item: PhantomData<fn(T)>,
}

type Ready = Rc<RefCell<dyn FnMut() -> bool>>;

impl<T: 'static, F: FnMut(&T) + 'static> Callback<T, F> {
    /// A sink that calls `call`.
    pub fn new(call: F) -> Self {
        let ready = Rc::new(RefCell::new(|| true));
        Callback { call: Rc::new(RefCell::new(call)), ready, item: PhantomData }
    }

    /// Asks `ready` after every batch, and again later while it says no, whether more is wanted:
    /// for a receiver that fills up, and for modelling one that stands still.
    ///
    /// ```
    /// use isochrone_connectors::Callback;
    /// let (sender, _receiver) = std::sync::mpsc::channel();
    /// let open = std::rc::Rc::new(std::cell::Cell::new(false));
    /// let sink = Callback::new(move |item: &u64| drop(sender.send(*item)))
    ///     .ready({ let open = open.clone(); move || open.get() });
    /// open.set(true);
    /// ```
    #[must_use]
    pub fn ready(mut self, ready: impl FnMut() -> bool + 'static) -> Self {
        self.ready = Rc::new(RefCell::new(ready));
        self
    }
}

impl<T: 'static, F: FnMut(&T) + 'static> Sink for Callback<T, F> {
    type Item = T;
    type Effect = NothingToCommit;

    fn writer(&self, _context: &SinkContext) -> Result<Box<dyn Writer<T, NothingToCommit>>> {
        Ok(Box::new(Caller { call: self.call.clone(), ready: self.ready.clone() }))
    }

    fn committer(&self, _context: &SinkContext) -> Result<Box<dyn Committer<NothingToCommit>>> {
        Ok(Box::new(Nothing))
    }
}

struct Caller<F> {
    call: Rc<RefCell<F>>,
    ready: Ready,
}

impl<T: 'static, F: FnMut(&T) + 'static> Writer<T, NothingToCommit> for Caller<F> {
    fn write(&mut self, batch: &mut Vec<T>, _epoch: Epoch) -> Result<Readiness> {
        let mut call = self.call.borrow_mut();
        batch.drain(..).for_each(|item| call(&item));
        Ok(ask(&self.ready))
    }

    fn readiness(&mut self) -> Result<Readiness> {
        Ok(ask(&self.ready))
    }

    fn prepare(&mut self, _epoch: Epoch) -> Result<Prepare<NothingToCommit>> {
        Ok(nothing_to_prepare())
    }
}

fn ask(ready: &Ready) -> Readiness {
    if (ready.borrow_mut())() { Readiness::Ready } else { Readiness::Full }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use isochrone_engine::connector::{Recovery, SinkContext};

    use super::*;

    fn context() -> SinkContext {
        SinkContext::alone("job", "out", 1, 0).unwrap()
    }

    #[test]
    fn is_called_in_order_at_once_and_says_when_it_is_full() {
        let seen = Rc::new(RefCell::new(Vec::new()));
        let open = Rc::new(Cell::new(false));
        let (push, ready) = (seen.clone(), open.clone());
        let sink = Callback::new(move |item: &u64| push.borrow_mut().push(*item))
            .ready(move || ready.get());
        let mut writer = sink.writer(&context()).unwrap();
        let mut batch = vec![3, 1, 2];
        assert_eq!(writer.write(&mut batch, Epoch(1)).unwrap(), Readiness::Full);
        assert!(batch.is_empty());
        assert_eq!(*seen.borrow(), [3, 1, 2]);
        assert_eq!(writer.readiness().unwrap(), Readiness::Full);
        open.set(true);
        assert_eq!(writer.readiness().unwrap(), Readiness::Ready);
        assert!(writer.prepare(Epoch(1)).unwrap()().unwrap().is_none());
        let fresh = Recovery {
            pending: Vec::new(),
            from: None,
            renamed_from: None,
            is_new: false,
            history: None,
        };
        sink.committer(&context()).unwrap().recover(fresh).unwrap();
    }
}
