//! The gate of a participant: which packet may be applied now, and when the state is a checkpoint's.
//!
//! Packets that may be applied stand in a queue; those behind a cut stand in a stash under their
//! epoch. The protocol's state machine decides; this only holds. `H` is whatever must be kept with a
//! packet while it waits: the capability to send at its time, or nothing.

use std::collections::{BTreeMap, VecDeque};

use isochrone_persistence::ids::Epoch;
use timely::progress::frontier::MutableAntichain;

use super::packet::Packet;
use crate::protocol::{Arrival, Mode, Participant, Step};
use crate::runtime::control::Control;

/// Packets on their way into one operator instance.
pub(crate) struct Gate<H, T> {
    participant: Participant,
    queue: VecDeque<Held<H, T>>,
    stash: BTreeMap<Epoch, VecDeque<Held<H, T>>>,
    /// Since when a cut is known that has not been frozen, in microseconds.
    aligning_since_us: Option<u64>,
}

/// A packet with its epoch and what is kept with it.
pub(crate) struct Held<H, T> {
    pub(crate) epoch: Epoch,
    pub(crate) hold: H,
    pub(crate) packet: Packet<T>,
}

/// What to do next.
pub(crate) enum Turn<H, T> {
    /// Apply this packet.
    Apply(Held<H, T>),
    /// The state is now exactly that of this checkpoint.
    Freeze(Epoch),
    /// Wait.
    Wait,
}

impl<H, T> Gate<H, T> {
    pub(crate) fn new(start: Epoch) -> Self {
        Gate {
            participant: Participant::new(start, 1),
            queue: VecDeque::new(),
            stash: BTreeMap::new(),
            aligning_since_us: None,
        }
    }

    /// Takes in a packet that has arrived.
    pub(crate) fn arrive(&mut self, held: Held<H, T>) {
        match self.participant.on_message(0, held.epoch) {
            Arrival::Apply => self.queue.push_back(held),
            Arrival::Stash => self.stash.entry(held.epoch).or_default().push_back(held),
            Arrival::Log { .. } => unreachable!("only aligned checkpoints are triggered"),
        }
    }

    /// Takes note of the newest trigger and of the input's frontier. The clock is read once a cut.
    pub(crate) fn observe(&mut self, control: &Control, frontier: &MutableAntichain<u64>) {
        self.participant.on_trigger(control.triggered(), Mode::Aligned);
        self.participant.on_frontier(0, frontier.frontier().iter().next().copied().map(Epoch));
        if self.participant.draining() && self.aligning_since_us.is_none() {
            self.aligning_since_us = Some(control.clock().monotonic_us());
        }
    }

    /// A cut has just been frozen: tells how long this instance waited for it, from the first sign of
    /// it (its trigger, or a packet from behind it) on.
    pub(crate) fn frozen(&mut self, epoch: Epoch, control: &Control) {
        let now_us = control.clock().monotonic_us();
        let since_us = self.aligning_since_us.take().unwrap_or(now_us);
        control.note_alignment(epoch, now_us - since_us);
        // The next one is known already.
        self.aligning_since_us = self.participant.draining().then_some(now_us);
    }

    /// Whether a cut waits for packets that stand here: then back-pressure must not hold them.
    pub(crate) fn draining(&self) -> bool {
        self.participant.draining()
    }

    pub(crate) fn next(&mut self) -> Turn<H, T> {
        loop {
            if let Some(held) = self.queue.pop_front() {
                return Turn::Apply(held);
            }
            match self.participant.next() {
                Some(Step::Freeze(epoch)) => return Turn::Freeze(epoch),
                Some(Step::Drain(epoch)) => {
                    self.queue.extend(self.stash.remove(&epoch).unwrap_or_default());
                }
                Some(Step::Complete(_)) => unreachable!("only aligned checkpoints are triggered"),
                Some(Step::Closed) | None => return Turn::Wait,
            }
        }
    }
}
