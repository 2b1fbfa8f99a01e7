//! The manifest of a run, made by the real ledger, and the check that it is a consistent cut.

use isochrone_engine::protocol::ledger::{Content, Ledger};
use isochrone_persistence::ids::{Epoch, Generation, OperatorId, StateVersion, Worker};
use isochrone_persistence::manifest::{self, Operator, Segment, Split};
use serde_json::json;

use crate::job::{Effect, Manifest, Records, Setup, Summary, bit};
use crate::run::{Frozen, Next, Run, SINK, SOURCE, STATE, part};

impl Manifest {
    /// Of a job that has not begun.
    pub(crate) fn fresh(setup: &Setup) -> Manifest {
        let operator = |id, part| Operator { id: OperatorId::new(id).expect("legal"), part };
        let split = |split: usize| listed(&Next { split, position: 0, mark: None });
        let splits = (0..setup.splits.len()).map(split).collect();
        let state = manifest::Part::State {
            version: StateVersion(1),
            shape: String::new(),
            codec: String::new(),
            segments: Vec::new(),
        };
        let operators = vec![
            operator("log", manifest::Part::Source { splits, skipped: 0 }),
            operator("count", state),
            operator(
                "out",
                manifest::Part::Sink { pending: Vec::new(), history: None, target: None },
            ),
        ];
        let summary = summary(&operators, &[], Epoch(0), false, 0);
        Manifest { summary, operators }
    }
}

impl Run {
    /// Fails unless every part of `epoch` is durable and together they are one cut.
    pub(crate) fn manifest(
        &self,
        setup: &Setup,
        epoch: Epoch,
        finished: bool,
    ) -> Result<Manifest, String> {
        let mut ledger = Ledger::restore(self.base.operators.clone());
        ledger.recovered(SINK, None, None);
        let mut sunk = self.base.summary.sunk;
        for w in 0..self.sources.len() {
            let source = &self.sources[w];
            let acked = source.acked.as_ref().filter(|(e, _)| *e == epoch);
            let (_, splits) = acked.ok_or(format!("source {w} has not acknowledged {epoch}"))?;
            let splits = splits.iter().map(listed).collect();
            let content = Content::Source { splits, skipped: 0 };
            ledger.ack(part(SOURCE, w), epoch, content).map_err(|e| e.to_string())?;
        }
        for (operator, instances) in [(STATE, &self.states), (SINK, &self.sinks)] {
            for (w, instance) in instances.iter().enumerate() {
                if instance.acked_epoch != Some(epoch) {
                    return Err(format!("part {operator} of worker {w} is not durable at {epoch}"));
                }
                for frozen in &instance.acked {
                    let part = part(operator, w);
                    let log =
                        segment(self.generation, w, frozen.epoch, &log_name(operator, frozen));
                    ledger.in_flight(part, frozen.epoch, vec![log]);
                    let content = self.content(operator, w, frozen);
                    ledger.ack(part, frozen.epoch, content).map_err(|e| e.to_string())?;
                }
                if operator == SINK {
                    sunk |= instance.applied & !instance.changed & !unacked(instance.frozen.iter());
                }
            }
        }
        let operators = ledger.manifest_operators(epoch);
        let in_flight = ledger.manifest_in_flight(epoch);
        let summary = summary(&operators, &in_flight, epoch, finished, sunk);
        check(setup, &summary)?;
        Ok(Manifest { summary, operators })
    }

    fn content(&self, operator: usize, w: usize, frozen: &Frozen) -> Content {
        let some = frozen.changed != 0;
        if operator == SINK {
            let effect = self.effect(w, frozen);
            let pending = some.then(|| json!([effect.generation, effect.records]).into());
            return Content::Sink { pending };
        }
        let name = format!("{:b}", frozen.changed);
        Content::State { segment: some.then(|| segment(self.generation, w, frozen.epoch, &name)) }
    }
}

fn unacked<'a>(frozen: impl Iterator<Item = &'a Frozen>) -> Records {
    frozen.map(|f| f.changed).fold(0, |a, b| a | b)
}

fn log_name(operator: usize, frozen: &Frozen) -> String {
    let ids: Vec<_> = frozen.log.iter().map(u8::to_string).collect();
    format!("{operator}/{}", ids.join(","))
}

fn listed(next: &Next) -> Split {
    let Next { split, position, mark } = *next;
    Split { id: split.to_string(), position: json!(position), watermark: mark, finished: false }
}

fn segment(generation: u64, w: usize, epoch: Epoch, name: &str) -> Segment {
    Segment {
        name: name.into(),
        bytes: 0,
        digest: String::new(),
        rows: 0,
        generation: Generation(generation),
        epoch,
        worker: Worker(w as u32),
    }
}

/// Reads back what the manifest's operators say.
fn summary(
    operators: &[Operator],
    logs: &[Segment],
    epoch: Epoch,
    finished: bool,
    sunk: Records,
) -> Summary {
    let number = |v: &serde_json::Value| v.as_u64().expect("written as a number");
    let (mut positions, mut marks) = (Vec::new(), Vec::new());
    let mut state = 0;
    let mut pending = Vec::new();
    for operator in operators {
        match &operator.part {
            manifest::Part::Source { splits, .. } => {
                positions = splits.iter().map(|s| number(&s.position) as usize).collect();
                marks = splits.iter().map(|s| s.watermark).collect();
            }
            manifest::Part::State { segments, .. } => {
                let rows = |s: &Segment| Records::from_str_radix(&s.name, 2).expect("bits");
                state = segments.iter().map(rows).fold(0, |a, b| a | b);
            }
            manifest::Part::Sink { pending: listed, .. } => {
                pending.extend(listed.iter().map(|p| Effect {
                    generation: number(&p.effect[0]),
                    epoch: p.epoch,
                    worker: p.worker.0,
                    records: number(&p.effect[1]) as Records,
                }));
            }
        }
    }
    let log = |operator: usize| -> Vec<u8> {
        let prefix = format!("{operator}/");
        let of = logs.iter().filter_map(|s| s.name.strip_prefix(&prefix));
        of.flat_map(|ids| ids.split(',').filter_map(|id| id.parse().ok())).collect()
    };
    let (to_state, to_sink) = (log(STATE), log(SINK));
    Summary { epoch, finished, positions, marks, state, sunk, pending, to_state, to_sink }
}

/// The effect of each record and the position that reads past it are in the same checkpoint, and so is
/// the watermark that it raised.
pub(crate) fn check(setup: &Setup, it: &Summary) -> Result<(), String> {
    let exactly = |what: &str, applied: Records, log: &[u8], wanted: Records| {
        let logged: Records = log.iter().map(|id| bit(*id)).fold(0, |a, b| a | b);
        let twice = applied & logged != 0 || logged.count_ones() as usize != log.len();
        if twice || applied | logged != wanted {
            return Err(format!(
                "{what} of checkpoint {} holds {applied:b} and in flight {log:?} instead of {wanted:b}",
                it.epoch
            ));
        }
        Ok(())
    };
    exactly("state", it.state, &it.to_state, setup.before(&it.positions))?;
    exactly("output", it.sunk, &it.to_sink, it.state)?;
    for (position, mark) in it.positions.iter().zip(&it.marks) {
        let wanted = setup.mark(*position);
        if *mark != wanted {
            return Err(format!("the watermark at {position} is {mark:?} instead of {wanted:?}"));
        }
    }
    if it.finished && it.state != setup.all() {
        return Err("finished with records unread".into());
    }
    Ok(())
}
