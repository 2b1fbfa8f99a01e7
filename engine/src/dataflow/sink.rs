//! A sink instance: packets through the gate to a writer; an epoch's output is prepared at its cut.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use isochrone_persistence::ids::{Epoch, OperatorId, Worker};
use isochrone_persistence::manifest::Kept;
use serde_json::Value;
use timely::dataflow::channels::pact::Pipeline;
use timely::dataflow::operators::generic::builder_rc::OperatorBuilder;
use timely::scheduling::Activator;

use super::Edge;
use super::gate::{Gate, Held, Turn};
use super::packet::{Body, Packet};
use super::pressure::Valve;
use super::worker::{Site, guarded};
use crate::Result;
use crate::connector::{Prepare, Readiness, Sink, SinkContext, Writer};
use crate::protocol::{Part, Prepared};
use crate::record::Record;
use crate::runtime::message::{Handover, Snapshot};

/// How long a writer that wants no more is left alone.
const ASK_AGAIN: std::time::Duration = std::time::Duration::from_millis(5);

/// Writes a stream to a sink.
pub(crate) fn sink<'s, T: Record, S: Sink<Item = T>>(
    site: &Site,
    input: Edge<'s, T>,
    sink: &S,
    id: &OperatorId,
    part: Part,
) -> Result<()> {
    let context = SinkContext {
        job: site.job.clone(),
        operator: id.clone(),
        generation: site.generation,
        worker: Worker(site.worker),
        run: site.run.clone(),
    };
    // IMPORTANT: before the operator is begun, for timely panics over one that is not finished.
    let writer = sink.writer(&context)?;
    let mut builder = OperatorBuilder::new(id.as_str().to_owned(), input.scope());
    let activator = input.scope().activator_for(builder.operator_info().address);
    let mut input = builder.new_input(input, Pipeline);
    let mut operator = Writing {
        site: site.clone(),
        part,
        gate: Gate::new(site.start),
        writer,
        kept: S::kept,
        valve: site.pressure.valve(),
        activator,
        full: false,
        written: None,
        count: site.control.written_by(part.operator),
    };
    let (control, place) = (site.control.clone(), format!("sink `{id}`"));
    builder.build(move |_| {
        move |frontiers| {
            input.for_each(|capability, packet| {
                let epoch = Epoch(*capability.least().expect("packets carry a time"));
                operator.gate.arrive(Held { epoch, hold: (), packet: std::mem::take(packet) });
            });
            operator.gate.observe(&operator.site.control, &frontiers[0]);
            guarded(&control, &place, || operator.turn());
        }
    });
    Ok(())
}

struct Writing<T, E> {
    site: Site,
    part: Part,
    gate: Gate<(), T>,
    writer: Box<dyn Writer<T, E>>,
    kept: fn(&E) -> Vec<Kept>,
    valve: Valve,
    activator: Activator,
    full: bool,
    written: Option<Epoch>,
    count: Arc<AtomicU64>,
}

impl<T: Record, E: serde::Serialize + Send + 'static> Writing<T, E> {
    fn turn(&mut self) -> Result<()> {
        while !self.site.control.has_failed() {
            match self.gate.next() {
                Turn::Apply(Held {
                    packet: Packet { body: Body::Records(records), .. },
                    epoch,
                    ..
                }) => {
                    let mut items = records.items;
                    self.written = Some(epoch);
                    self.count.fetch_add(items.len() as u64, Ordering::Relaxed);
                    self.full = self.writer.write(&mut items, epoch)? == Readiness::Full;
                }
                Turn::Apply(_) => {}
                Turn::Freeze(cut) => self.prepare(cut)?,
                Turn::Wait => break,
            }
        }
        if self.full {
            self.full = self.writer.readiness()? == Readiness::Full;
        }
        self.valve.set(self.full);
        if self.full {
            self.site.activate_after(&self.activator, ASK_AGAIN);
        }
        Ok(())
    }

    /// Ends the epoch before the cut: the one written last, if anything was written since.
    fn prepare(&mut self, cut: Epoch) -> Result<()> {
        self.gate.frozen(cut, &self.site.control);
        let started_us = self.site.control.clock().monotonic_us();
        let epoch = self.written.take().unwrap_or(Epoch(cut.0 - 1));
        let mut prepare = self.writer.prepare(epoch)?;
        let control = &self.site.control;
        control.note_pause(control.clock().monotonic_us() - started_us);
        let kept = self.kept;
        let erased: Prepare<Prepared> = Box::new(move || {
            let prepared = |effect: &E| {
                let kept = kept(effect);
                to_value(effect).map(|effect| Prepared { effect, kept })
            };
            prepare()?.as_ref().map(prepared).transpose()
        });
        let snapshot = Snapshot::Sink { prepare: erased };
        self.site.control.hand_over(Handover::Part { part: self.part, epoch: cut, snapshot });
        Ok(())
    }
}

fn to_value(effect: &impl serde::Serialize) -> Result<Value> {
    serde_json::to_value(effect).map_err(|error| {
        crate::Error::internal("a sink's effect does not encode as json").with_source(error)
    })
}
