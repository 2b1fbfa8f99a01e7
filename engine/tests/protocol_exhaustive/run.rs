//! One run of the job: the real machines, and around them what the harness will do.

use std::collections::VecDeque;
use std::rc::Rc;

use isochrone_engine::protocol::coordinator::{
    Action, Coordinator, Event, Kind, Part, Plan, Settings,
};
use isochrone_engine::protocol::participant::{Arrival, Mode, Participant, Step};
use isochrone_persistence::ids::{Epoch, OperatorId, Worker};

use crate::job::{Alignment, Bug, Effect, Manifest, Records, Setup, bit};

pub(crate) const SOURCE: usize = 0;
pub(crate) const STATE: usize = 1;
pub(crate) const SINK: usize = 2;
pub(crate) const TIMEOUT_MS: u64 = 4;

/// What an instance froze for one epoch.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Frozen {
    pub(crate) epoch: Epoch,
    /// Applied since the one before.
    pub(crate) changed: Records,
    pub(crate) log: Vec<u8>,
    pub(crate) complete: bool,
}

/// A state or sink instance.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Instance {
    pub(crate) machine: Participant,
    /// Records in the state (or written by the sink), and those of them not yet frozen.
    pub(crate) applied: Records,
    pub(crate) changed: Records,
    /// Restored log: goes before all input.
    pub(crate) restored: VecDeque<u8>,
    pub(crate) stash: Vec<(Epoch, u8)>,
    pub(crate) frozen: VecDeque<Frozen>,
    /// Durable and acknowledged; of sinks, not yet committed.
    pub(crate) acked: Vec<Frozen>,
    pub(crate) acked_epoch: Option<Epoch>,
}

#[derive(Clone, Debug, Hash)]
pub(crate) struct Source {
    pub(crate) machine: Participant,
    pub(crate) splits: Vec<Next>,
    pub(crate) acked: Option<(Epoch, Vec<Next>)>,
    pub(crate) ended: bool,
}

/// How far a split has been read.
#[derive(Clone, Copy, Debug, Hash)]
pub(crate) struct Next {
    pub(crate) split: usize,
    pub(crate) position: usize,
    /// The watermark: restored as such, raised by each record.
    pub(crate) mark: Option<i64>,
}

#[derive(Clone, Debug, Hash)]
pub(crate) enum Publishing {
    No,
    Asked(Rc<Manifest>),
    /// Durable; the answer is on its way.
    Applied(Epoch),
}

#[derive(Clone, Debug, Hash)]
pub(crate) struct Run {
    pub(crate) generation: u64,
    /// The newest manifest that this run knows of.
    pub(crate) sequence: u64,
    pub(crate) workers: u32,
    /// The control plane: the newest trigger and commit.
    pub(crate) wanted: (Epoch, Mode),
    pub(crate) commit: Option<Epoch>,
    pub(crate) proof: Option<Epoch>,
    pub(crate) coordinator: Rc<Coordinator>,
    pub(crate) sources: Vec<Rc<Source>>,
    pub(crate) states: Vec<Rc<Instance>>,
    pub(crate) sinks: Vec<Rc<Instance>>,
    /// See `channel`.
    pub(crate) channels: Vec<Rc<VecDeque<(Epoch, u8)>>>,
    pub(crate) base: Rc<Manifest>,
    pub(crate) publishing: Publishing,
    pub(crate) finished: bool,
    /// Output was overdue too often.
    pub(crate) gave_up: bool,
}

impl Run {
    /// Restores what `base` says, at any worker count.
    pub(crate) fn restore(
        setup: &Setup,
        base: &Rc<Manifest>,
        generation: u64,
        sequence: u64,
        workers: u32,
    ) -> Result<Run, String> {
        let it = &base.summary;
        let logs = setup.bug != Some(Bug::LogNotRestored);
        let instance = |w: u32, inputs: usize, applied: Records, log: &[u8]| Instance {
            machine: Participant::new(it.epoch, inputs),
            applied: applied & setup.owned(w, workers),
            changed: 0,
            restored: log
                .iter()
                .filter(|id| logs && setup.owned(w, workers) & bit(**id) != 0)
                .copied()
                .collect(),
            stash: Vec::new(),
            frozen: VecDeque::new(),
            acked: Vec::new(),
            acked_epoch: None,
        };
        let owner = |split: usize| (split / 2) as u32 % workers;
        let source = |w: u32| Source {
            machine: Participant::new(it.epoch, 0),
            splits: it
                .positions
                .iter()
                .zip(&it.marks)
                .enumerate()
                .filter(|(split, _)| owner(*split) == w)
                .map(|(split, (&position, &mark))| Next {
                    split,
                    position,
                    mark: mark.filter(|_| setup.bug != Some(Bug::WatermarkNotRestored)),
                })
                .collect(),
            acked: None,
            ended: false,
        };
        let n = workers as usize;
        let mut run = Run {
            generation,
            sequence,
            workers,
            wanted: (it.epoch, Mode::Aligned),
            commit: None,
            proof: None,
            coordinator: Rc::new(coordinator(setup, workers, it.epoch)),
            sources: (0..workers).map(source).map(Rc::new).collect(),
            states: (0..workers).map(|w| Rc::new(instance(w, 2, it.state, &it.to_state))).collect(),
            sinks: (0..workers).map(|w| Rc::new(instance(w, 1, it.sunk, &it.to_sink))).collect(),
            channels: vec![Rc::default(); n * n * 2 + n],
            base: Rc::clone(base),
            publishing: Publishing::No,
            finished: false,
            gave_up: false,
        };
        run.end_sources(setup)?;
        Ok(run)
    }

    /// From the source on `from` to input `input` of the state on `to`.
    pub(crate) fn channel(&self, from: usize, to: usize, input: usize) -> usize {
        (from * self.workers as usize + to) * 2 + input
    }

    /// From the state on `w` to the sink there.
    pub(crate) fn to_sink(&self, w: usize) -> usize {
        self.channels.len() - self.workers as usize + w
    }

    pub(crate) fn instance(&mut self, operator: usize, w: usize) -> &mut Instance {
        Rc::make_mut(if operator == STATE { &mut self.states[w] } else { &mut self.sinks[w] })
    }

    pub(crate) fn read(&mut self, setup: &Setup, w: usize, at: usize) -> Result<(), String> {
        let Next { split, position, .. } = self.sources[w].splits[at];
        let record = setup.at(split, position).ok_or("read past the end")?;
        let next = &mut Rc::make_mut(&mut self.sources[w]).splits[at];
        next.position += 1;
        next.mark = Some(record.time);
        let mut timestamp = self.sources[w].machine.current();
        if setup.bug == Some(Bug::OldCapability) && self.sources[w].acked.is_some() {
            timestamp = self.base.summary.epoch;
        }
        let to = self.channel(w, (record.key % self.workers) as usize, split % 2);
        Rc::make_mut(&mut self.channels[to]).push_back((timestamp, record.id));
        self.end_sources(setup)
    }

    fn end_sources(&mut self, setup: &Setup) -> Result<(), String> {
        for w in 0..self.sources.len() {
            let source = &self.sources[w];
            let left =
                source.splits.iter().any(|next| setup.at(next.split, next.position).is_some());
            if !left && !source.ended {
                Rc::make_mut(&mut self.sources[w]).ended = true;
                self.tell(setup, Event::Ended { part: part(SOURCE, w) })?;
            }
        }
        Ok(())
    }

    pub(crate) fn trigger(
        &mut self,
        setup: &Setup,
        operator: usize,
        w: usize,
    ) -> Result<(), String> {
        let (epoch, mode) = self.wanted;
        if operator == SOURCE {
            let source = Rc::make_mut(&mut self.sources[w]);
            source.machine.on_trigger(epoch, mode);
            while source.machine.next().is_some() {}
            source.acked = Some((epoch, source.splits.clone()));
            return self.tell(setup, Event::Ack { part: part(SOURCE, w), epoch });
        }
        let instance = self.instance(operator, w);
        if setup.bug == Some(Bug::AckBeforeFreeze) && operator == STATE {
            instance.freeze(epoch, true);
        }
        instance.machine.on_trigger(epoch, mode);
        self.steps(setup, operator, w)
    }

    /// The next record on the way to an instance comes up.
    pub(crate) fn deliver(
        &mut self,
        setup: &Setup,
        operator: usize,
        w: usize,
        input: usize,
        channel: Option<usize>,
    ) -> Result<(), String> {
        let start = self.base.summary.epoch;
        let (timestamp, id) = match channel {
            Some(channel) => {
                Rc::make_mut(&mut self.channels[channel]).pop_front().ok_or("empty channel")?
            }
            None => (start, self.instance(operator, w).restored.pop_front().ok_or("empty log")?),
        };
        let instance = self.instance(operator, w);
        if timestamp < instance.machine.current() && instance.machine.logging().is_none() {
            return Err(format!("record {id} comes after the cut that it belongs before"));
        }
        match instance.machine.on_message(input, timestamp) {
            Arrival::Stash if setup.bug != Some(Bug::NoStash) => {
                instance.stash.push((timestamp, id))
            }
            Arrival::Apply | Arrival::Stash => self.apply(setup, operator, w, id)?,
            Arrival::Log { restamp } => {
                let open = instance.frozen.back_mut().filter(|f| f.epoch == restamp);
                if let Some(open) = open {
                    open.log.push(id);
                } else if setup.bug != Some(Bug::AckBeforeLogComplete) {
                    return Err(format!("no log of cut {restamp} is open"));
                }
                self.apply(setup, operator, w, id)?;
            }
        }
        self.steps(setup, operator, w)
    }

    fn apply(&mut self, setup: &Setup, operator: usize, w: usize, id: u8) -> Result<(), String> {
        let instance = self.instance(operator, w);
        setup.check_turn(id, instance.applied)?;
        instance.applied |= bit(id);
        instance.changed |= bit(id);
        if operator == STATE {
            let timestamp = instance.machine.current();
            let to = self.to_sink(w);
            Rc::make_mut(&mut self.channels[to]).push_back((timestamp, id));
        }
        Ok(())
    }

    pub(crate) fn steps(&mut self, setup: &Setup, operator: usize, w: usize) -> Result<(), String> {
        while let Some(step) = self.instance(operator, w).machine.next() {
            let instance = self.instance(operator, w);
            match step {
                Step::Freeze(epoch) => {
                    let early = setup.bug == Some(Bug::AckBeforeLogComplete);
                    let complete = early || instance.machine.logging().is_none();
                    if setup.bug != Some(Bug::AckBeforeFreeze) || operator != STATE {
                        instance.freeze(epoch, complete);
                    }
                }
                Step::Drain(epoch) => {
                    let (now, later) =
                        instance.stash.iter().partition::<Vec<_>, _>(|(t, _)| *t == epoch);
                    instance.stash = later;
                    for (_, id) in now {
                        self.apply(setup, operator, w, id)?;
                    }
                }
                Step::Complete(epoch) => {
                    let open = instance.frozen.iter_mut().filter(|f| f.epoch == epoch);
                    open.for_each(|f| f.complete = true);
                }
                Step::Closed => {}
            }
        }
        Ok(())
    }

    /// The oldest frozen part of an instance has become durable.
    pub(crate) fn durable(
        &mut self,
        setup: &Setup,
        operator: usize,
        w: usize,
    ) -> Result<(), String> {
        let instance = self.instance(operator, w);
        let frozen = instance.frozen.pop_front().ok_or("nothing frozen")?;
        let epoch = frozen.epoch;
        instance.acked_epoch = Some(epoch);
        instance.acked.push(frozen);
        if setup.bug == Some(Bug::OneAckMissing) && operator == STATE {
            for other in 0..self.states.len() {
                self.tell(setup, Event::Ack { part: part(STATE, other), epoch })?;
            }
        }
        self.tell(setup, Event::Ack { part: part(operator, w), epoch })
    }

    /// Tells the coordinator and does what it asks for.
    pub(crate) fn tell(&mut self, setup: &Setup, event: Event) -> Result<(), String> {
        let mut actions = Vec::new();
        Rc::make_mut(&mut self.coordinator).on(event, &mut actions);
        for action in actions {
            match action {
                Action::Trigger { epoch, cause } => {
                    let mode = match setup.alignment {
                        Alignment::Always(mode)
                            if !cause.is_final() || setup.bug == Some(Bug::FinalUnaligned) =>
                        {
                            mode
                        }
                        _ => Mode::Aligned,
                    };
                    self.wanted = (epoch, mode);
                }
                Action::Publish { epoch, finished, .. } => {
                    let manifest = self.manifest(setup, epoch, finished)?;
                    self.publishing = Publishing::Asked(Rc::new(manifest));
                    if setup.bug == Some(Bug::CommitBeforePublish) {
                        self.commit = Some(epoch);
                    }
                }
                Action::Abandon { epoch, .. } => {
                    if setup.bug == Some(Bug::AbandonedForgotten) {
                        for instance in &mut self.states {
                            Rc::make_mut(instance).acked.retain(|f| f.epoch != epoch);
                        }
                    }
                }
                Action::Commit { epoch } => self.commit = Some(epoch),
                Action::Finish { .. } => self.finished = true,
                Action::Overdue { gives_up, .. } => self.gave_up |= gives_up,
                Action::Fail { message } => return Err(message),
                Action::Answer { result: Ok(epoch), .. } if self.proof < Some(epoch) => {
                    return Err(format!("{epoch} is answered with, and has no manifest"));
                }
                Action::Answer { .. } | Action::Collect => {}
            }
        }
        Ok(())
    }

    /// The manifest that was published is what the run now builds on.
    pub(crate) fn published(&mut self, setup: &Setup, epoch: Epoch) -> Result<(), String> {
        for instance in &mut self.states {
            Rc::make_mut(instance).merge();
        }
        self.publishing = Publishing::No;
        self.tell(setup, Event::Published { epoch })
    }

    /// What sink instance `w` has to make visible now.
    pub(crate) fn take_committable(&mut self, w: usize, epoch: Epoch) -> Vec<Effect> {
        let (now, later) = self.sinks[w].acked.iter().cloned().partition(|f| f.epoch <= epoch);
        Rc::make_mut(&mut self.sinks[w]).acked = later;
        let now: Vec<Frozen> = now;
        now.iter().filter(|f| f.changed != 0).map(|f| self.effect(w, f)).collect()
    }

    pub(crate) fn effect(&self, w: usize, frozen: &Frozen) -> Effect {
        Effect {
            generation: self.generation,
            epoch: frozen.epoch,
            worker: w as u32,
            records: frozen.changed,
        }
    }
}

impl Instance {
    fn freeze(&mut self, epoch: Epoch, complete: bool) {
        let changed = std::mem::take(&mut self.changed);
        self.frozen.push_back(Frozen { epoch, changed, log: Vec::new(), complete });
    }

    /// Stands for the background merge: keeps the number of different states small.
    fn merge(&mut self) {
        let Some(last) = self.acked.last().cloned() else { return };
        let changed = self.acked.iter().map(|f| f.changed).fold(0, |a, b| a | b);
        self.acked = vec![Frozen { changed, log: Vec::new(), ..last }];
    }
}

pub(crate) fn part(operator: usize, w: usize) -> Part {
    Part { operator, worker: Worker(w as u32) }
}

fn coordinator(setup: &Setup, workers: u32, start: Epoch) -> Coordinator {
    let id = |name| OperatorId::new(name).expect("legal");
    let operators =
        vec![(id("log"), Kind::Source), (id("count"), Kind::State), (id("out"), Kind::Sink)];
    let settings = Settings {
        interval_ms: None,
        records: None,
        timeout_ms: TIMEOUT_MS,
        failures_max: if setup.hangs > 0 { 1 } else { u32::MAX },
    };
    Coordinator::new(settings, Plan { operators, workers }, start, 0)
}
