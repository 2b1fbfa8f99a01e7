//! A keyed operator: packets through the gate into a table, snapshots out of it.

use std::rc::Rc;

use isochrone_persistence::ids::Epoch;
use timely::container::CapacityContainerBuilder;
use timely::dataflow::channels::pact::DistributorPact;
use timely::dataflow::operators::generic::OutputBuilder;
use timely::dataflow::operators::generic::OutputBuilderSession;
use timely::dataflow::operators::generic::builder_rc::OperatorBuilder;
use timely::dataflow::operators::{Capability, CapabilitySet};

use super::Edge;
use super::gate::{Gate, Held, Turn};
use super::packet::{Body, ByAddress, Packet, Packets, Records, send};
use super::pressure::Position;
use super::route::{Ack, Routed};
use super::worker::Site;
use crate::keyed::{Logic, Outputs, Table};
use crate::protocol::Part;
use crate::record::{Key, Record};
use crate::runtime::message::{Handover, Snapshot};
use crate::state::keyspace::Kept;
use crate::time::EventTime;
use crate::watermark::Watermarks;

/// Packets applied in one activation before others get their turn.
const PACKETS_PER_TURN: usize = 32;
/// Keys encoded for a snapshot in one activation.
const SNAPSHOT_KEYS_PER_TURN: usize = 4096;

/// Routes `input` by key and applies each record to its key's state.
pub(crate) fn keyed<'s, K, T, L, S, F>(
    site: &Site,
    input: Edge<'s, T>,
    key: Rc<F>,
    table: Table<K, T, L, S>,
    mark: EventTime,
    id: &str,
    part: Part,
) -> Edge<'s, L::Out>
where
    K: Key,
    T: Record,
    L: Logic<K, T>,
    S: Kept<K>,
    F: Fn(&T) -> K + 'static,
{
    let scope = input.scope();
    let routed = Routed::new(site, input, key.clone());
    let mut builder = OperatorBuilder::new(id.to_owned(), scope);
    let activator = scope.activator_for(builder.operator_info().address);
    let mut input = builder.new_input(routed.stream.clone(), DistributorPact(|_| ByAddress));
    let (output, stream) = builder.new_output::<Packet<L::Out>>();
    let mut output = OutputBuilder::<u64, Packets<L::Out>>::from(output);
    let (acks, acks_stream) = builder.new_output_connection::<Vec<Ack>, _>([]);
    let mut acks = OutputBuilder::<u64, CapacityContainerBuilder<Vec<Ack>>>::from(acks);
    site.pressure.wake(activator.clone());
    let mut operator = Keyed::new(site, key, table, mark, id, part);
    builder.build(move |capabilities| {
        drop(capabilities);
        move |frontiers| {
            input.for_each(|capability, packet| {
                let hold = capability.retain_least(0).expect("packets carry a time");
                let epoch = Epoch(*hold.time());
                operator.gate.arrive(Held { epoch, hold, packet: std::mem::take(packet) });
            });
            operator.gate.observe(&operator.site.control, &frontiers[0]);
            let more = operator.turn(&mut output.activate());
            operator.acknowledge(&mut acks.activate());
            if more {
                activator.activate();
            }
        }
    });
    routed.acknowledged_by(acks_stream);
    stream
}

struct Keyed<K: Key, T: Record, L: Logic<K, T>, S: Kept<K>, F> {
    site: Site,
    key: Rc<F>,
    id: String,
    part: Part,
    position: Position,
    gate: Gate<Capability<u64>, T>,
    marks: Watermarks,
    /// What timers gave that were due when the checkpoint was taken, until there is a capability.
    due: Outputs<L::Out>,
    table: Table<K, T, L, S>,
    snapshot: Option<Epoch>,
    applied: Vec<u64>,
}

type Session<'a, O> = OutputBuilderSession<'a, u64, Packets<O>>;

impl<K, T, L, S, F> Keyed<K, T, L, S, F>
where
    K: Key,
    T: Record,
    L: Logic<K, T>,
    S: Kept<K>,
    F: Fn(&T) -> K,
{
    fn new(
        site: &Site,
        key: Rc<F>,
        mut table: Table<K, T, L, S>,
        mark: EventTime,
        id: &str,
        part: Part,
    ) -> Self {
        let mut due = Outputs::default();
        table.advance(mark, &mut due);
        Keyed {
            site: site.clone(),
            key,
            id: id.to_owned(),
            part,
            position: site.pressure.position(),
            gate: Gate::new(site.start),
            marks: Watermarks::restored(site.peers as usize, mark),
            due,
            table,
            snapshot: None,
            applied: vec![0; site.peers as usize],
        }
    }

    /// Does a bounded amount of work; answers whether there is more that need not wait.
    fn turn(&mut self, output: &mut Session<'_, L::Out>) -> bool {
        self.advance_snapshot();
        for _ in 0..PACKETS_PER_TURN {
            if self.site.control.has_failed() || self.is_held() {
                return self.snapshot.is_some();
            }
            match self.gate.next() {
                Turn::Apply(held) => self.apply(held, output),
                Turn::Freeze(epoch) => self.freeze(epoch),
                Turn::Wait => return self.snapshot.is_some(),
            }
        }
        true
    }

    fn is_held(&self) -> bool {
        !self.gate.draining() && self.site.pressure.blocks(self.position)
    }

    fn apply(&mut self, held: Held<Capability<u64>, T>, output: &mut Session<'_, L::Out>) {
        let Packet { from, body, .. } = held.packet;
        let due = std::mem::take(&mut self.due);
        self.emit(due, &held.hold, output);
        let mut out = Outputs::default();
        match body {
            Body::Records(Records { mut items, times, hashes }) => {
                self.applied[from as usize] += items.len() as u64;
                let key = self.key.clone();
                let keyed = |record| (key(&record), record);
                self.guard(|table| table.apply(&mut items, keyed, &hashes, &times, &mut out));
                self.emit(out, &held.hold, output);
            }
            Body::Mark(mark) => {
                if let Some(mark) = self.marks.update(from as usize, mark) {
                    self.guard(|table| table.advance(mark, &mut out));
                    self.emit(out, &held.hold, output);
                    let packet = Packet::local(self.site.worker, Body::Mark(mark));
                    send(output, &held.hold, packet);
                }
            }
        }
    }

    fn emit(&self, out: Outputs<L::Out>, hold: &Capability<u64>, to: &mut Session<'_, L::Out>) {
        let records = Records { items: out.items, times: out.times, hashes: Vec::new() };
        send(to, hold, Packet::local(self.site.worker, Body::Records(records)));
    }

    /// Runs the user's code; a panic there ends the job, naming operator and key.
    fn guard(&mut self, work: impl FnOnce(&mut Table<K, T, L, S>)) {
        let table = &mut self.table;
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(table)));
        if let Err(panic) = done {
            let key = self.table.failing_key().unwrap_or_else(|| "unknown".to_owned());
            let place = format!("operator `{}` at key {key}", self.id);
            self.site.control.fail(super::worker::panicked(&place, panic.as_ref()));
        }
    }

    /// Ends the epoch; of a snapshot that is still under way, the rest comes first.
    fn freeze(&mut self, epoch: Epoch) {
        self.gate.frozen(epoch, &self.site.control);
        self.stopped(|operator| {
            while operator.snapshot.is_some() {
                operator.step_snapshot();
            }
            operator.table.freeze();
            operator.snapshot = Some(epoch);
            operator.step_snapshot();
        });
    }

    fn advance_snapshot(&mut self) {
        if self.snapshot.is_some() {
            self.stopped(Self::step_snapshot);
        }
    }

    /// Work for a snapshot, during which no record is applied.
    fn stopped(&mut self, work: impl FnOnce(&mut Self)) {
        let started_us = self.site.control.clock().monotonic_us();
        work(self);
        let control = &self.site.control;
        control.note_pause(control.clock().monotonic_us() - started_us);
    }

    fn step_snapshot(&mut self) {
        let Some(epoch) = self.snapshot else { return };
        if self.table.snapshot_step(SNAPSHOT_KEYS_PER_TURN) {
            self.snapshot = None;
            let snapshot = Snapshot::State { rows: self.table.take_rows() };
            self.site.control.hand_over(Handover::Part { part: self.part, epoch, snapshot });
        }
    }

    fn acknowledge(
        &mut self,
        acks: &mut OutputBuilderSession<'_, u64, CapacityContainerBuilder<Vec<Ack>>>,
    ) {
        let untimed = CapabilitySet::<u64>::new();
        let mut session = acks.session(&untimed);
        for (sender, applied) in (0..).zip(self.applied.iter_mut()) {
            if *applied > 0 {
                session.give((sender, std::mem::take(applied)));
            }
        }
    }
}
