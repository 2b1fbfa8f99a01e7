//! Back-pressure on one worker: who has too much outstanding, and who must therefore wait.
//!
//! timely's queues have no bound. A *valve* stands where records leave the worker (an exchange, a
//! sink); it is shut while too many of its records are unacknowledged. An operator may go on only
//! while every valve *after* it is open; since positions follow the order of construction and a
//! stream never flows backwards, the last operator never waits for another and nothing deadlocks.

use std::cell::RefCell;
use std::rc::Rc;

use timely::scheduling::Activator;

/// Valves and waiters of one worker.
#[derive(Clone, Default)]
pub(crate) struct Pressure(Rc<RefCell<Inner>>);

#[derive(Default)]
struct Inner {
    next: usize,
    shut: Vec<usize>,
    waiters: Vec<Activator>,
}

/// A place in the order of construction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position(usize);

impl Pressure {
    pub(crate) fn position(&self) -> Position {
        let mut inner = self.0.borrow_mut();
        inner.next += 1;
        Position(inner.next)
    }

    /// Registers an operator that asks [`Pressure::blocks`], to be activated when a valve opens.
    pub(crate) fn wake(&self, waiter: Activator) {
        self.0.borrow_mut().waiters.push(waiter);
    }

    /// Whether a valve after `position` is shut.
    pub(crate) fn blocks(&self, position: Position) -> bool {
        self.0.borrow().shut.iter().any(|&valve| valve > position.0)
    }

    /// A new valve, open.
    pub(crate) fn valve(&self) -> Valve {
        Valve { pressure: self.clone(), position: self.position(), shut: false }
    }
}

/// One place where records leave the worker.
pub(crate) struct Valve {
    pressure: Pressure,
    position: Position,
    shut: bool,
}

impl Valve {
    pub(crate) fn set(&mut self, shut: bool) {
        if shut == self.shut {
            return;
        }
        self.shut = shut;
        let mut inner = self.pressure.0.borrow_mut();
        if shut {
            inner.shut.push(self.position.0);
        } else {
            inner.shut.retain(|&valve| valve != self.position.0);
            inner.waiters.iter().for_each(Activator::activate);
        }
    }
}
