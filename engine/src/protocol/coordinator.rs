//! One per job: when a checkpoint starts, when it exists, and when the job may end.
//!
//! Knows the plan's durable operators, epochs and times handed in; not the store, not a clock.

use isochrone_persistence::ids::Epoch;

mod output;
mod queue;
mod status;
mod vocabulary;

use output::Owed;
use queue::{Queue, Waiting};
pub use status::{Attempt, Output, Status};
pub use vocabulary::{Action, Cause, Event, Kind, Part, Plan, Settings};

/// The first interval: such a part of the others, and no shorter than this.
const FIRST_PART: u64 = 10;
const FIRST_MS: u64 = 200;

/// The machine of a job.
///
/// - One checkpoint at a time. The next starts only after the one before was published or
///   abandoned; numbers only rise. Once `Publish` was asked for, only its answer decides: a
///   timeout cannot know whether the manifest exists.
/// - The first interval of a run is a tenth of the others, but not below 200 ms, so that a run that had
///   to start again soon shows output.
/// - Nothing is triggered while the output of the checkpoint before the last is not visible: a slow
///   target holds up checkpoints, and a manifest names the output of two epochs at most.
/// - Output that stays invisible for as long as a checkpoint may take is [`Action::Overdue`]; so often
///   as checkpoints may fail in a row, and the job gives up. It is measured from the commit, or from
///   when the output before it became visible.
/// - Both time-outs count the time in which the machine listens: neither a wait for the store nor a
///   sleep of the computer makes what came meanwhile late.
/// - An interval or record trigger is skipped while `records_read` is what it was at the trigger
///   of the last *published* checkpoint: nothing new would be in it. A watermark that moves by
///   itself is not a reason; a request always is.
/// - Requests that come while a checkpoint runs share the next one, unless their savepoint labels
///   differ. A request whose checkpoint is abandoned is answered with the reason.
/// - The final checkpoint follows when all sources ended or at `Stop`, again if it is abandoned.
///   Nothing is triggered after it; requests are answered with it. It is to be taken aligned, see
///   [`Cause::is_final`].
/// - An acknowledgement or failure that comes late, for an abandoned checkpoint, is accepted in
///   silence: what it left durable is the ledger's affair.
///
/// ```
/// use isochrone_engine::protocol::coordinator::*;
/// use isochrone_persistence::ids::{Epoch, OperatorId, Worker};
///
/// let plan = Plan { operators: vec![(OperatorId::new("log").unwrap(), Kind::Source)], workers: 1 };
/// let settings = Settings { interval_ms: None, records: None, timeout_ms: 1000, failures_max: 3 };
/// let mut coordinator = Coordinator::new(settings, plan, Epoch(7), 0);
/// let mut actions = Vec::new();
/// coordinator.on(Event::Request { id: 1, savepoint: None }, &mut actions);
/// assert_eq!(actions, [Action::Trigger { epoch: Epoch(8), cause: Cause::Request }]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Coordinator {
    settings: Settings,
    plan: Plan,
    now_ms: u64,
    /// The time in which it listened: not while a manifest is in doubt, and of a gap between two ticks
    /// a quarter of the time-out at most. After a longer one it hears first what came meanwhile.
    listened_ms: u64,
    records_read: u64,
    /// The highest number given out, or the restored checkpoint's.
    last_epoch: Epoch,
    has_triggered: bool,
    last_trigger_ms: u64,
    last_trigger_records: u64,
    published: Option<Published>,
    failures: u32,
    running: Option<Running>,
    owed: Option<Owed>,
    queue: Queue,
    /// Per part of a source: it has ended.
    ended: Vec<(Part, bool)>,
    /// Per part of a sink: committed up to here.
    committed: Vec<(Part, Epoch)>,
    stopping: bool,
    life: Life,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Published {
    epoch: Epoch,
    /// The one before it.
    before: Option<Epoch>,
    at_ms: u64,
    records: u64,
    savepoint: Option<String>,
}

/// A checkpoint between its trigger and its manifest.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Running {
    epoch: Epoch,
    cause: Cause,
    finished: bool,
    started_ms: u64,
    /// What was [`Coordinator::listened_ms`] then.
    listened_from_ms: u64,
    records: u64,
    /// Sorted.
    missing: Vec<Part>,
    savepoint: Option<String>,
    waiting: Vec<Waiting>,
    publishing: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Life {
    Running,
    /// The final checkpoint was published; its sinks are committing.
    Final(Cause),
    Over,
}

impl Coordinator {
    /// The machine of a run that restored checkpoint `start`, or starts fresh at epoch 0.
    pub fn new(settings: Settings, plan: Plan, start: Epoch, now_ms: u64) -> Coordinator {
        Coordinator {
            ended: plan.parts_of(Kind::Source).map(|part| (part, false)).collect(),
            committed: plan.parts_of(Kind::Sink).map(|part| (part, start)).collect(),
            settings,
            plan,
            now_ms,
            listened_ms: 0,
            records_read: 0,
            last_epoch: start,
            has_triggered: false,
            last_trigger_ms: now_ms,
            last_trigger_records: 0,
            published: None,
            failures: 0,
            running: None,
            owed: None,
            queue: Queue::default(),
            stopping: false,
            life: Life::Running,
        }
    }

    /// Takes an event and adds what is to be done, in order, to `actions`.
    pub fn on(&mut self, event: Event, actions: &mut Vec<Action>) {
        match event {
            Event::Tick { now_ms, records_read } => self.on_tick(now_ms, records_read, actions),
            Event::Request { id, savepoint } => self.on_request(Waiting { id, savepoint }, actions),
            Event::Ended { part } => self.on_ended(part),
            Event::Stop => self.stopping = true,
            Event::Ack { part, epoch } => self.on_ack(part, epoch, actions),
            Event::PartFailed { part, epoch, reason } => {
                if self.running.as_ref().is_some_and(|r| r.epoch == epoch && !r.publishing) {
                    self.abandon(format!("{}: {reason}", self.plan.name(part)), actions);
                }
            }
            Event::Published { epoch } => self.on_published(epoch, actions),
            Event::PublishFailed { epoch, reason } => {
                if self.running.as_ref().is_some_and(|r| r.epoch == epoch && r.publishing) {
                    self.abandon(format!("the manifest could not be published: {reason}"), actions);
                }
            }
            Event::Committed { part, epoch } => self.on_committed(part, epoch),
        }
        self.note_owed();
        self.trigger_if_due(actions);
        self.finish_if_committed(actions);
    }

    fn on_tick(&mut self, now_ms: u64, records_read: u64, actions: &mut Vec<Action>) {
        let gap_ms = now_ms.saturating_sub(self.now_ms);
        self.now_ms += gap_ms;
        self.records_read = self.records_read.max(records_read);
        if self.running.as_ref().is_some_and(|r| r.publishing) {
            return;
        }
        self.listened_ms += gap_ms.min(self.settings.timeout_ms.div_ceil(4).max(1));
        self.time_output(actions);
        let Some(running) = &self.running else { return };
        if self.listened_ms - running.listened_from_ms >= self.settings.timeout_ms {
            let age_ms = self.now_ms - running.started_ms;
            let missing: Vec<_> = running.missing.iter().map(|p| self.plan.name(*p)).collect();
            let missing = missing.join(", ");
            self.abandon(format!("timed out after {age_ms} ms; still missing: {missing}"), actions);
        }
    }

    fn on_request(&mut self, request: Waiting, actions: &mut Vec<Action>) {
        let in_final = self.running.as_mut().filter(|r| r.cause.is_final());
        if let Some(running) = in_final {
            if let Some(refused) = running.join(request) {
                actions.push(refused.refuse("the job is finishing without another checkpoint"));
            }
        } else if self.life == Life::Running {
            self.queue.push(request);
        } else {
            let covered = self.published.as_ref().filter(|p| {
                matches!(self.life, Life::Final(_))
                    && (request.savepoint.is_none() || request.savepoint == p.savepoint)
            });
            actions.push(match covered {
                Some(published) => Action::Answer { id: request.id, result: Ok(published.epoch) },
                None => request.refuse("the job has taken its last checkpoint"),
            });
        }
    }

    fn on_ended(&mut self, part: Part) {
        for (_, ended) in self.ended.iter_mut().filter(|(p, _)| *p == part) {
            *ended = true;
        }
    }

    fn on_ack(&mut self, part: Part, epoch: Epoch, actions: &mut Vec<Action>) {
        let Some(running) = self.running.as_mut().filter(|r| r.epoch == epoch) else { return };
        if let Ok(at) = running.missing.binary_search(&part) {
            running.missing.remove(at);
        }
        self.publish_if_complete(actions);
    }

    fn publish_if_complete(&mut self, actions: &mut Vec<Action>) {
        let Some(running) = self.running.as_mut() else { return };
        if running.missing.is_empty() && !running.publishing {
            running.publishing = true;
            actions.push(Action::Publish {
                epoch: running.epoch,
                savepoint: running.savepoint.clone(),
                finished: running.finished,
                duration_ms: self.now_ms - running.started_ms,
            });
        }
    }

    fn on_published(&mut self, epoch: Epoch, actions: &mut Vec<Action>) {
        let Some(running) = self.running.take_if(|r| r.epoch == epoch && r.publishing) else {
            return;
        };
        self.failures = 0;
        if running.cause.is_final() {
            self.life = Life::Final(running.cause);
        }
        actions.extend([Action::Commit { epoch }, Action::Collect]);
        let answer = |w: Waiting| Action::Answer { id: w.id, result: Ok(epoch) };
        actions.extend(running.waiting.into_iter().map(answer));
        self.published = Some(Published {
            epoch,
            before: self.published.as_ref().map(|published| published.epoch),
            at_ms: self.now_ms,
            records: running.records,
            savepoint: running.savepoint,
        });
    }

    fn on_committed(&mut self, part: Part, epoch: Epoch) {
        for (_, committed) in self.committed.iter_mut().filter(|(p, _)| *p == part) {
            *committed = (*committed).max(epoch);
        }
    }

    fn abandon(&mut self, why: String, actions: &mut Vec<Action>) {
        let Some(running) = self.running.take() else { return };
        self.failures += 1;
        for waiting in running.waiting {
            actions.push(waiting.refuse(&why));
        }
        actions.push(Action::Abandon { epoch: running.epoch, why: why.clone() });
        if self.failures >= self.settings.failures_max.max(1) {
            self.life = Life::Over;
            let message = match self.failures {
                1 => format!("checkpoint {} failed: {why}", running.epoch),
                n => format!("{n} checkpoints in a row failed, the last, {}: {why}", running.epoch),
            };
            actions.extend(self.queue.drain().map(|w| w.refuse(&message)));
            actions.push(Action::Fail { message });
        }
    }

    fn trigger_if_due(&mut self, actions: &mut Vec<Action>) {
        if self.running.is_some() || self.life != Life::Running || self.is_output_behind() {
            return;
        }
        let Some(cause) = self.due() else { return };
        let (savepoint, waiting) = self.queue.take_batch();
        self.last_epoch = self.last_epoch.next();
        self.has_triggered = true;
        self.last_trigger_ms = self.now_ms;
        self.last_trigger_records = self.records_read;
        self.running = Some(Running {
            epoch: self.last_epoch,
            cause,
            finished: self.input_ended(),
            started_ms: self.now_ms,
            listened_from_ms: self.listened_ms,
            records: self.records_read,
            missing: self.plan.parts().collect(),
            savepoint,
            waiting,
            publishing: false,
        });
        actions.push(Action::Trigger { epoch: self.last_epoch, cause });
        self.publish_if_complete(actions);
    }

    /// Why a checkpoint should start now, if it should. Requests that one final checkpoint cannot
    /// serve together, because their labels differ, are served before it.
    fn due(&self) -> Option<Cause> {
        if self.queue.needs_several() {
            return Some(Cause::Request);
        }
        if self.input_ended() {
            return Some(Cause::InputEnded);
        }
        if self.stopping {
            return Some(Cause::Stopped);
        }
        if !self.queue.is_empty() {
            return Some(Cause::Request);
        }
        if self.records_read == self.published.as_ref().map_or(0, |p| p.records) {
            return None;
        }
        let read = self.records_read - self.last_trigger_records;
        if self.settings.records.is_some_and(|n| read >= n) {
            return Some(Cause::Records);
        }
        let age_ms = self.now_ms - self.last_trigger_ms;
        let interval_ms = self.settings.interval_ms.map(|interval_ms| match self.has_triggered {
            true => interval_ms,
            false => interval_ms.min(FIRST_MS.max(interval_ms / FIRST_PART)),
        });
        interval_ms.is_some_and(|due_ms| age_ms >= due_ms).then_some(Cause::Interval)
    }

    /// A job without sources has no input to end.
    fn input_ended(&self) -> bool {
        !self.ended.is_empty() && self.ended.iter().all(|(_, ended)| *ended)
    }

    fn finish_if_committed(&mut self, actions: &mut Vec<Action>) {
        let Life::Final(cause) = self.life else { return };
        let Some(last) = self.published.as_ref().map(|p| p.epoch) else { return };
        if self.committed.iter().all(|(_, epoch)| *epoch >= last) {
            self.life = Life::Over;
            actions.push(Action::Finish { cause });
        }
    }
}

impl Running {
    /// Takes a request in, or gives it back if its label can no longer be honoured.
    fn join(&mut self, request: Waiting) -> Option<Waiting> {
        if request.savepoint.is_some() && request.savepoint != self.savepoint {
            if self.publishing || self.savepoint.is_some() {
                return Some(request);
            }
            self.savepoint.clone_from(&request.savepoint);
        }
        self.waiting.push(request);
        None
    }
}

#[cfg(test)]
mod tests;
