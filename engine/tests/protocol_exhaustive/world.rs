//! What is durable, the runs that work on it, and every move that can be made.

use std::hash::{Hash, Hasher};
use std::rc::Rc;

use isochrone_engine::protocol::coordinator::Event;
use isochrone_engine::protocol::participant::{Mode, Participant};
use isochrone_persistence::ids::Epoch;

use crate::job::{Alignment, Bug, Effect, Manifest, Records, Setup};
use crate::run::{Instance, Publishing, Run, SINK, SOURCE, STATE, TIMEOUT_MS, part};

/// What survives every crash.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Durable {
    pub(crate) sequence: u64,
    pub(crate) generation: u64,
    pub(crate) manifest: Rc<Manifest>,
    pub(crate) visible: Records,
    committed: Vec<Effect>,
}

#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) setup: Rc<Setup>,
    pub(crate) durable: Durable,
    pub(crate) runs: Vec<Run>,
    requests: u8,
    pub(crate) abandons: u8,
    crashes: u8,
    rivals: u8,
    hangs: u8,
}

impl Hash for World {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.durable.hash(hasher);
        self.runs.hash(hasher);
        (self.requests, self.abandons, self.crashes, self.rivals, self.hangs).hash(hasher);
    }
}

/// A step of one run, or a fault.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Move {
    Step(usize, Step),
    /// All volatile state of the only run is gone; it starts again at this worker count.
    Crash(u32),
    /// Somebody starts the job a second time.
    Rival,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// The source on a worker reads from the n-th of its splits.
    Read(usize, usize),
    /// Operator and worker see the newest trigger.
    Trigger(usize, usize),
    /// Operator, worker, input, channel; `None`: from the restored log.
    Deliver(usize, usize, usize, Option<usize>),
    Frontier(usize, usize),
    Durable(usize, usize),
    Commit(usize),
    Request,
    Impatience,
    PublishApplied,
    PublishAnswered,
    PublishFailed,
    Timeout,
    Hang,
}

impl Move {
    /// Not to be relied on for getting on.
    pub(crate) fn is_fault(&self) -> bool {
        use Step::{Hang, Impatience, PublishFailed, Request, Timeout};
        match self {
            Move::Crash(_) | Move::Rival => true,
            Move::Step(_, step) => {
                matches!(step, Request | Impatience | PublishFailed | Timeout | Hang)
            }
        }
    }
}

impl World {
    pub(crate) fn new(setup: Setup) -> World {
        let manifest = Rc::new(Manifest::fresh(&setup));
        let durable =
            Durable { sequence: 0, generation: 0, manifest, visible: 0, committed: Vec::new() };
        let (requests, abandons) = (setup.requests, setup.abandons);
        let (crashes, rivals, workers) = (setup.crashes, setup.rivals, setup.workers);
        let hangs = setup.hangs;
        let setup = Rc::new(setup);
        let mut world =
            World { setup, durable, runs: Vec::new(), requests, abandons, crashes, rivals, hangs };
        world.start(workers).expect("a fresh start meets nothing");
        world
    }

    pub(crate) fn ended(&self) -> bool {
        !self.runs.is_empty() && self.runs.iter().all(|run| run.finished)
    }

    pub(crate) fn go(&mut self, step: Move) -> Result<(), String> {
        match step {
            Move::Step(run, step) => self.step(run, step),
            Move::Crash(workers) => {
                self.crashes -= 1;
                self.runs.clear();
                self.start(workers)
            }
            Move::Rival => {
                self.rivals -= 1;
                self.start(self.setup.workers)
            }
        }
    }

    /// Claims the job, finishes what the manifest lists as pending, restores.
    fn start(&mut self, workers: u32) -> Result<(), String> {
        self.durable.sequence += 1;
        self.durable.generation += 1;
        let base = Rc::clone(&self.durable.manifest);
        for effect in &base.summary.pending {
            self.durable.make_visible(*effect)?;
        }
        let Durable { sequence, generation, .. } = self.durable;
        let run = Run::restore(&self.setup, &base, generation, sequence, workers)?;
        self.runs.push(run);
        Ok(())
    }

    fn step(&mut self, r: usize, step: Step) -> Result<(), String> {
        let setup = Rc::clone(&self.setup);
        let run = &mut self.runs[r];
        match step {
            Step::Read(w, at) => run.read(&setup, w, at)?,
            Step::Trigger(operator, w) => run.trigger(&setup, operator, w)?,
            Step::Deliver(operator, w, input, channel) => {
                run.deliver(&setup, operator, w, input, channel)?;
            }
            Step::Frontier(operator, w) => {
                let mut machine = run.instance(operator, w).machine.clone();
                run.tell_frontiers(&setup, operator, w, &mut machine);
                run.instance(operator, w).machine = machine;
                run.steps(&setup, operator, w)?;
            }
            Step::Durable(operator, w) => run.durable(&setup, operator, w)?,
            Step::Commit(w) => return self.commit(r, w),
            Step::Hang => return self.hang(r),
            Step::Request => {
                self.requests -= 1;
                run.tell(&setup, Event::Request { id: 0, savepoint: None })?;
            }
            Step::Impatience => run.wanted.1 = Mode::Unaligned,
            Step::PublishApplied => return self.apply_publish(r),
            Step::PublishAnswered => {
                if let Publishing::Applied(epoch) = run.publishing {
                    run.published(&setup, epoch)?;
                }
            }
            Step::PublishFailed => {
                self.abandons -= 1;
                if let Publishing::Asked(manifest) = &run.publishing {
                    let (epoch, reason) = (manifest.summary.epoch, String::new());
                    run.publishing = Publishing::No;
                    run.tell(&setup, Event::PublishFailed { epoch, reason })?;
                }
            }
            Step::Timeout => {
                self.abandons -= 1;
                let before = u64::from(setup.abandons - self.abandons - 1);
                for now_ms in a_timeout_from(before * TIMEOUT_MS) {
                    run.tell(&setup, Event::Tick { now_ms, records_read: 0 })?;
                }
            }
        }
        let run = &self.runs[r];
        let all = setup.all();
        if run.finished
            && (self.durable.visible != all || self.durable.manifest.summary.state != all)
        {
            return Err(format!("finished with {:b} visible", self.durable.visible));
        }
        Ok(())
    }

    /// Creates the next manifest, unless somebody else did: then this run is over.
    fn apply_publish(&mut self, r: usize) -> Result<(), String> {
        let run = &mut self.runs[r];
        let fenced = self.setup.bug != Some(Bug::PublishUnfenced);
        if fenced && run.sequence != self.durable.sequence {
            self.runs.remove(r);
            return Ok(());
        }
        let Publishing::Asked(manifest) = &run.publishing else { return Ok(()) };
        let manifest = Rc::clone(manifest);
        let it = &manifest.summary;
        self.durable.sequence += 1;
        run.sequence = self.durable.sequence;
        run.proof = Some(it.epoch);
        run.publishing = Publishing::Applied(it.epoch);
        self.durable.manifest = manifest;
        Ok(())
    }

    fn commit(&mut self, r: usize, w: usize) -> Result<(), String> {
        let setup = Rc::clone(&self.setup);
        let run = &mut self.runs[r];
        let Some(epoch) = run.commit else { return Ok(()) };
        let effects = run.take_committable(w, epoch);
        if run.proof < Some(epoch) {
            return Err(format!("epoch {epoch} is committed before its manifest exists"));
        }
        for effect in effects {
            self.durable.make_visible(effect)?;
        }
        run.tell(&setup, Event::Committed { part: part(SINK, w), epoch })?;
        let all = setup.all();
        if run.finished && self.durable.visible != all {
            return Err(format!("finished with {:b} visible", self.durable.visible));
        }
        Ok(())
    }

    /// Some output does not become visible. The job must notice, and the next run goes on.
    fn hang(&mut self, r: usize) -> Result<(), String> {
        self.hangs -= 1;
        let setup = Rc::clone(&self.setup);
        for now_ms in a_timeout_from(u64::from(setup.abandons) * TIMEOUT_MS) {
            self.runs[r].tell(&setup, Event::Tick { now_ms, records_read: 0 })?;
        }
        if !self.runs.remove(r).gave_up {
            return Err("output is waited for without end".into());
        }
        self.start(setup.workers)
    }

    pub(crate) fn moves(&self) -> Vec<Move> {
        let mut moves = Vec::new();
        for (r, run) in self.runs.iter().enumerate().filter(|(_, run)| !run.finished) {
            if let Some(step) = run.prompt(&self.setup) {
                return vec![Move::Step(r, step)];
            }
            let mut steps = run.moves(&self.setup);
            let status = run.coordinator.status();
            let attempt = status.running.as_ref();
            if attempt.is_none() && self.requests > 0 && run.commit == run.proof {
                steps.push(Step::Request);
            }
            if attempt.is_some_and(|a| !a.publishing) && self.abandons > 0 {
                steps.push(Step::Timeout);
            }
            if matches!(run.publishing, Publishing::Asked(_)) && self.abandons > 0 {
                steps.push(Step::PublishFailed);
            }
            let owes = status.output.is_some() && matches!(run.publishing, Publishing::No);
            if owes && self.hangs > 0 {
                steps.push(Step::Hang);
            }
            let patient = self.setup.alignment == Alignment::UntilTimeout;
            if patient
                && attempt.is_some_and(|a| !a.cause.is_final())
                && run.wanted.1 == Mode::Aligned
            {
                steps.push(Step::Impatience);
            }
            moves.extend(steps.into_iter().map(|step| Move::Step(r, step)));
        }
        if !moves.is_empty() && self.crashes > 0 {
            moves.extend(self.setup.restarts.iter().map(|w| Move::Crash(*w)));
        }
        if !moves.is_empty() && self.rivals > 0 {
            moves.push(Move::Rival);
        }
        moves
    }
}

impl Durable {
    /// Idempotent for the same effect; no record becomes visible by two.
    fn make_visible(&mut self, effect: Effect) -> Result<(), String> {
        if let Err(at) = self.committed.binary_search(&effect) {
            if self.visible & effect.records != 0 {
                return Err(format!("{effect:?} doubles output in {:b}", self.visible));
            }
            self.visible |= effect.records;
            self.committed.insert(at, effect);
        }
        Ok(())
    }
}

impl Run {
    /// A move that commutes with all others, so that only this one need be tried.
    fn prompt(&self, setup: &Setup) -> Option<Step> {
        let mut steps = Vec::new();
        let sinks = 0..self.workers as usize;
        for w in sinks.filter(|_| setup.prompt_sinks) {
            self.instance_moves(setup, SINK, w, 0, self.to_sink(w), &mut steps);
        }
        // Unless a checkpoint can be abandoned, only the last acknowledgement shows.
        for operator in [STATE, SINK].into_iter().filter(|_| setup.abandons == 0) {
            let instances = if operator == STATE { &self.states } else { &self.sinks };
            let ready = |i: &Instance| i.frozen.front().is_some_and(|f| f.complete);
            let durable = |w| Step::Durable(operator, w);
            steps.extend(instances.iter().position(|i| ready(i)).map(durable));
        }
        steps.pop()
    }

    fn moves(&self, setup: &Setup) -> Vec<Step> {
        let mut steps = Vec::new();
        for w in 0..self.workers as usize {
            self.source_moves(setup, w, &mut steps);
            for input in 0..2 {
                let from = (0..self.workers as usize).map(|from| self.channel(from, w, input));
                from.for_each(|channel| {
                    self.instance_moves(setup, STATE, w, input, channel, &mut steps)
                });
            }
            self.instance_moves(setup, SINK, w, 0, self.to_sink(w), &mut steps);
            for operator in [STATE, SINK] {
                self.turn_moves(setup, operator, w, &mut steps);
            }
            let sink = part(SINK, w);
            let due = self.commit.is_some_and(|c| self.sinks[w].acked.iter().any(|f| f.epoch <= c));
            if due {
                steps.push(Step::Commit(sink.worker.0 as usize));
            }
        }
        match self.publishing {
            Publishing::No => {}
            Publishing::Asked(_) => steps.push(Step::PublishApplied),
            Publishing::Applied(_) => steps.push(Step::PublishAnswered),
        }
        steps
    }

    fn source_moves(&self, setup: &Setup, w: usize, steps: &mut Vec<Step>) {
        let source = &self.sources[w];
        if source.machine.current() < self.wanted.0 {
            steps.push(Step::Trigger(SOURCE, w));
        }
        for (at, next) in source.splits.iter().enumerate() {
            let Some(record) = setup.at(next.split, next.position) else { continue };
            let to = (record.key % self.workers) as usize;
            let waiting = self.channels[self.channel(w, to, next.split % 2)].len();
            let credits = match setup.bug {
                Some(Bug::NoCredits) => usize::MAX,
                _ => setup.credits,
            };
            if waiting + self.states[to].stash.len() < credits {
                steps.push(Step::Read(w, at));
            }
        }
    }

    fn instance_moves(
        &self,
        setup: &Setup,
        operator: usize,
        w: usize,
        input: usize,
        channel: usize,
        steps: &mut Vec<Step>,
    ) {
        let instance = if operator == STATE { &self.states[w] } else { &self.sinks[w] };
        let sink = &self.sinks[w];
        let full = self.channels[self.to_sink(w)].len() + sink.stash.len() >= setup.credits;
        let blocked = operator == STATE && full && !instance.machine.draining();
        if instance.restored.is_empty() && !self.channels[channel].is_empty() && !blocked {
            steps.push(Step::Deliver(operator, w, input, Some(channel)));
        }
    }

    /// Moves of an instance other than taking a message.
    fn turn_moves(&self, setup: &Setup, operator: usize, w: usize, steps: &mut Vec<Step>) {
        let instance = if operator == STATE { &self.states[w] } else { &self.sinks[w] };
        if !instance.restored.is_empty() {
            steps.push(Step::Deliver(operator, w, 0, None));
        }
        if instance.frozen.front().is_some_and(|f| f.complete) {
            steps.push(Step::Durable(operator, w));
        }
        let mut told = instance.machine.clone();
        told.on_trigger(self.wanted.0, self.wanted.1);
        if told != instance.machine {
            steps.push(Step::Trigger(operator, w));
        }
        // A frontier that leads to nothing yet need not be told: only the newest counts.
        let mut probe = instance.machine.clone();
        self.tell_frontiers(setup, operator, w, &mut probe);
        if probe.next().is_some() {
            steps.push(Step::Frontier(operator, w));
        }
    }

    fn tell_frontiers(&self, setup: &Setup, operator: usize, w: usize, machine: &mut Participant) {
        let (first, second) = match operator {
            STATE => (self.state_input(w, 0), Some(self.state_input(w, 1))),
            _ => (self.sink_input(w), None),
        };
        let fastest = second.map_or(first, |second| first.max(second));
        for (input, frontier) in [Some(first), second].into_iter().flatten().enumerate() {
            let hasty = setup.bug == Some(Bug::FirstFrontierOfTwo);
            machine.on_frontier(input, Some(if hasty { fastest } else { frontier }));
        }
    }

    /// The least timestamp that can still come: queued, or what a source may still send.
    fn state_input(&self, w: usize, input: usize) -> Epoch {
        let from = (0..self.workers as usize).map(|from| {
            let queued = self.channels[self.channel(from, w, input)].front().map(|(t, _)| *t);
            queued.into_iter().fold(self.sources[from].machine.current(), Epoch::min)
        });
        let least = from.min().expect("one worker at least");
        if self.states[w].restored.is_empty() { least } else { self.base.summary.epoch }
    }

    fn sink_input(&self, w: usize) -> Epoch {
        let state = &self.states[w];
        let sendable = self.state_input(w, 0).min(self.state_input(w, 1));
        let held = state.stash.iter().map(|(t, _)| *t);
        let queued = self.channels[self.to_sink(w)].iter().map(|(t, _)| *t);
        let least = held.chain(queued).fold(sendable, Epoch::min);
        if self.sinks[w].restored.is_empty() { least } else { self.base.summary.epoch }
    }
}

/// The times of ticks in which a whole time-out is listened to.
fn a_timeout_from(start_ms: u64) -> impl Iterator<Item = u64> {
    (1..=TIMEOUT_MS).map(move |passed_ms| start_ms + passed_ms)
}
