//! The baton of a simulated machine: whoever holds it takes one step, then it is handed on.
//!
//! Who gets it, how much time passes and when the machine crashes is drawn from a seed. Knows no
//! records, no checkpoints and no store.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::random::Random;
use super::trace::Trace;
use crate::runtime::pace::{COMMITTER, COORDINATOR, Pace, Planted, UPLOADER};
use crate::time::ManualClock;

/// After so many steps a run that does not crash counts as stuck.
const STEPS_MAX: u64 = 300_000;

/// Steps for which actors keep their speed.
const PHASE: u64 = 48;

/// What a machine is to go through.
pub(crate) struct Fate {
    pub(crate) seed: u64,
    pub(crate) workers: usize,
    /// The step at which everything stops.
    pub(crate) crash_at: Option<u64>,
    /// Milliseconds that pass in a step at most; time must pass, or idle splits rest for ever.
    pub(crate) pass_ms_max: u64,
    pub(crate) planted: Option<Planted>,
    /// What happens from outside, ascending by step.
    pub(crate) events: VecDeque<(u64, Box<dyn FnOnce() + Send>)>,
}

/// Hands out turns.
pub(crate) struct Baton {
    state: Mutex<State>,
    /// One per actor.
    called: Vec<Condvar>,
    dead: AtomicBool,
    clock: Arc<ManualClock>,
    trace: Arc<Trace>,
    planted: Option<Planted>,
}

struct State {
    random: Random,
    arrived: Vec<bool>,
    gone: Vec<bool>,
    /// How often each actor gets the baton, relative to the others.
    weights: Vec<u64>,
    turn: Option<usize>,
    steps: u64,
    crash_at: Option<u64>,
    pass_ms_max: u64,
    events: VecDeque<(u64, Box<dyn FnOnce() + Send>)>,
}

impl Baton {
    pub(crate) fn new(fate: Fate, clock: Arc<ManualClock>, trace: Arc<Trace>) -> Baton {
        let actors = fate.workers + 3;
        let mut random = Random::new(fate.seed);
        let weights = (0..actors).map(|_| 1 + random.below(6)).collect();
        Baton {
            state: Mutex::new(State {
                random,
                arrived: vec![false; actors],
                gone: vec![false; actors],
                weights,
                turn: None,
                steps: 0,
                crash_at: fate.crash_at,
                pass_ms_max: fate.pass_ms_max,
                events: fate.events,
            }),
            called: (0..actors).map(|_| Condvar::new()).collect(),
            dead: AtomicBool::new(false),
            clock,
            trace,
            planted: fate.planted,
        }
    }

    /// Whether the machine has stopped: nothing may become durable any more.
    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    /// Stops the machine: nobody gets another turn.
    pub(crate) fn kill(&self) {
        let _state = self.lock();
        self.dead.store(true, Ordering::SeqCst);
        self.called.iter().for_each(Condvar::notify_all);
    }

    pub(crate) fn steps(&self) -> u64 {
        self.lock().steps
    }

    pub(crate) fn is_stuck(&self) -> bool {
        self.steps() >= STEPS_MAX
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slot(&self, actor: usize) -> usize {
        match actor {
            COMMITTER => self.called.len() - 3,
            UPLOADER => self.called.len() - 2,
            COORDINATOR => self.called.len() - 1,
            worker => worker,
        }
    }

    /// Calls the next actor. When nobody but the uploader and the committer is left, they only wait to
    /// be told that the run is over, by somebody who has no turns: their steps are not counted, since
    /// their number is a race.
    fn hand_on(&self, mut state: MutexGuard<'_, State>) {
        state.turn = self.choose_next(&mut state);
        let next = state.turn;
        // Whoever is called needs the lock.
        drop(state);
        match next {
            Some(slot) => self.called[slot].notify_one(),
            None => self.called.iter().for_each(Condvar::notify_all),
        }
    }

    fn choose_next(&self, state: &mut State) -> Option<usize> {
        let last = [self.slot(COMMITTER), self.slot(UPLOADER)];
        let here = |slot: &usize| !state.gone[*slot];
        let actors: Vec<usize> = (0..state.gone.len()).filter(here).collect();
        if actors.is_empty() || self.is_dead() {
            return None;
        }
        if actors.iter().all(|actor| last.contains(actor)) {
            // In turns.
            let other = actors.iter().find(|actor| state.turn != Some(**actor));
            return other.or(actors.first()).copied();
        }
        state.steps += 1;
        if state.steps.is_multiple_of(PHASE) {
            state.draw_weights();
        }
        while state.events.front().is_some_and(|(at, _)| *at <= state.steps) {
            if let Some((_, event)) = state.events.pop_front() {
                event();
            }
        }
        if state.crash_at.is_some_and(|at| state.steps >= at) || state.steps >= STEPS_MAX {
            self.dead.store(true, Ordering::SeqCst);
            return None;
        }
        let ms = if state.random.one_in(4) { state.random.below(state.pass_ms_max + 1) } else { 0 };
        self.clock.advance_ms(ms);
        let next = state.choose(&actors);
        self.trace.note((next as u64) << 32 | ms);
        Some(next)
    }
}

impl State {
    /// Some are fast, some stand still until the next phase.
    fn draw_weights(&mut self) {
        let State { random, weights, .. } = self;
        weights
            .iter_mut()
            .for_each(|weight| *weight = [0, 1, 1, 3, 6, 24][random.below(6) as usize]);
    }

    fn choose(&mut self, actors: &[usize]) -> usize {
        let all: u64 = actors.iter().map(|slot| self.weights[*slot]).sum();
        if all == 0 {
            // Everybody who is left stands still: they all get their turns.
            return actors[self.random.below(actors.len() as u64) as usize];
        }
        let mut drawn = self.random.below(all);
        for &slot in actors {
            match drawn.checked_sub(self.weights[slot]) {
                Some(rest) => drawn = rest,
                None => return slot,
            }
        }
        unreachable!("less was drawn than all weights together")
    }
}

impl Pace for Baton {
    fn turn(&self, actor: usize) -> bool {
        let me = self.slot(actor);
        let mut state = self.lock();
        if !state.arrived[me] {
            state.arrived[me] = true;
            if state.arrived.iter().all(|arrived| *arrived) {
                self.hand_on(state);
                state = self.lock();
            }
        }
        while !self.is_dead() && state.turn != Some(me) {
            state = self.called[me].wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        !self.is_dead()
    }

    fn pass(&self, _: usize) {
        self.hand_on(self.lock());
    }

    fn leave(&self, actor: usize) {
        let me = self.slot(actor);
        let mut state = self.lock();
        state.gone[me] = true;
        if state.turn == Some(me) {
            self.hand_on(state);
        }
    }

    fn parks(&self) -> bool {
        false
    }

    fn rest(&self, span: Duration) {
        self.clock.advance_ms(u64::try_from(span.as_millis()).unwrap_or(u64::MAX));
    }

    fn has(&self, bug: Planted) -> bool {
        self.planted == Some(bug)
    }
}
