//! The coordinator at work: turns reports into the protocol's events and its actions into orders and
//! writes. One per job, on a thread of process 0. What it does is decided in `protocol`; what has
//! been acknowledged is booked in the ledger; what must never fork is in the lineage.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use isochrone_persistence::ids::{Epoch, OperatorId};
use isochrone_persistence::lineage::{Checkpoint, Lineage, Published, Retain};
use isochrone_persistence::manifest::{Operator, Part};
use isochrone_persistence::{Error, ErrorKind, Result};

use super::awaited::Ending;
use super::control::Control;
use super::merge::{self, Bench, Merged};
use super::message::{Order, Progress, Report};
use super::pace::{COORDINATOR, Pace, Planted, planted};
use super::splits::Splits;
use super::tally::Tally;
use crate::connector::RunContext;
use crate::dataflow::PEER_GONE;
use crate::protocol::{Action, Cause, Coordinator, Event, Ledger, Output};
use crate::time::SharedClock;
use crate::{crash_point, threads};

/// How long to wait for a report before looking at the clock.
const WAIT: Duration = Duration::from_millis(5);
/// How long, and for how many calls at most, to wait for the name of a process that is gone.
const NAMED_WITHIN: Duration = Duration::from_millis(200);
const NEWS_MAX: usize = 1_000;
/// How long to wait before asking the store again what became of a manifest.
const RESOLVE_AFTER: Duration = Duration::from_millis(200);
/// How often the store is tidied up, at most: it costs the disk more than a checkpoint does.
const TIDY_EVERY_MS: u64 = 1_000;
/// How often a run without checkpoints asks whether another has taken over.
const ASK_OVERTAKEN_MS: u64 = 5_000;

/// Something that concerns the coordinator.
pub(crate) enum Call {
    Report(Report),
    /// A process is gone.
    Lost {
        process: usize,
        reason: String,
    },
    /// The background merge has ended.
    Merged(Result<Merged>),
    /// Take a last checkpoint and end.
    Stop,
    /// Say what the job is waiting for.
    Awaited {
        answer: Sender<String>,
    },
    /// Take a checkpoint; the answer goes to the sender.
    Checkpoint {
        savepoint: Option<String>,
        answer: Sender<Result<Epoch, String>>,
    },
}

/// Makes an error of a thread the end of the run.
pub(super) fn failed_to(calls: Sender<Call>) -> impl Fn(Error) + Send + Sync + 'static {
    // A coordinator that has left does not listen any more.
    move |error| drop(calls.send(Call::Report(Report::Failed((&error).into()))))
}

fn lost(process: usize, reason: &str) -> Error {
    Error::unavailable(format!("process {process} is gone: {reason}"))
}

/// Where orders go: to every process.
pub(crate) type Orders = Arc<dyn Fn(&Order) + Send + Sync>;

/// The coordinator of a job.
pub(crate) struct Conductor {
    pub(crate) coordinator: Coordinator,
    pub(crate) ledger: Ledger,
    pub(crate) lineage: Lineage,
    pub(crate) splits: Splits,
    pub(crate) tally: Tally,
    pub(crate) inbox: Receiver<Call>,
    pub(crate) orders: Orders,
    pub(crate) context: Arc<RunContext>,
    /// When it was last asked whether another run has taken over.
    pub(crate) overtaken_asked_ms: u64,
    /// There is something to tidy up in the store, and from when on that may be done.
    pub(crate) is_untidy: bool,
    pub(crate) tidy_due_ms: u64,
    /// What this process' own workers say of themselves.
    pub(crate) local: Arc<Control>,
    pub(crate) clock: SharedClock,
    pub(crate) retain: Retain,
    pub(crate) workers: u32,
    /// Of one process.
    pub(crate) workers_each: u32,
    pub(crate) ending: Ending,
    /// The last manifest names output that may not be visible yet.
    pub(crate) owes: bool,
    /// How long a checkpoint may take, the doubt about its manifest included.
    pub(crate) timeout: Duration,
    /// The proof that the last checkpoint exists.
    pub(crate) permit: Option<Published>,
    pub(crate) merge: Bench,
    pub(crate) ids: Vec<OperatorId>,
    pub(crate) requests: Vec<Sender<Result<Epoch, String>>>,
    pub(crate) pace: Arc<dyn Pace>,
}

impl Conductor {
    /// Works until the job has finished or failed. The orders for either have been given then.
    pub(crate) fn run(&mut self) -> Result<Cause> {
        let pace = self.pace.clone();
        self.fold();
        let end = loop {
            if !pace.turn(COORDINATOR) {
                break Err(Error::unavailable("the machine has crashed"));
            }
            let wait = if pace.parks() { WAIT } else { Duration::ZERO };
            // The store and sources are user code.
            let step = threads::guard("the coordinator", || self.step(wait)).and_then(|step| step);
            // The last step lasts until its orders have been given.
            match step {
                Ok(None) => pace.pass(COORDINATOR),
                Ok(Some(cause)) => break Ok(cause),
                Err(error) => break Err(error),
            }
        };
        match &end {
            Ok(_) => (self.orders)(&Order::Finish),
            Err(error) => (self.orders)(&Order::Abort(error.into())),
        }
        pace.leave(COORDINATOR);
        end
    }

    fn step(&mut self, wait: Duration) -> Result<Option<Cause>> {
        let call = match self.inbox.recv_timeout(wait) {
            Ok(call) => Some(call),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Error::internal("all workers are gone"));
            }
        };
        if let Some(error) = self.local.take_failure() {
            return Err(self.named(error));
        }
        let now_ms = self.clock.monotonic_ms();
        self.tally.progress(Progress::of(0, &self.local));
        let tick = Event::Tick { now_ms, records_read: self.tally.read() };
        let mut end = self.tell(tick)?;
        if let Some(event) = call.map(|call| self.take(call)).transpose()?.flatten() {
            end = end.or(self.tell(event)?);
        }
        self.tidy_if_due();
        self.splits.discover_if_due(now_ms, &self.orders)?;
        self.check_overtaken_if_due(now_ms)?;
        let status = self.coordinator.status();
        self.tally.show(now_ms, &status);
        self.tell_if_ending(now_ms, &status);
        Ok(end)
    }

    /// A worker may find earlier than the control connection that another process is gone, but cannot
    /// tell which.
    fn named(&self, error: Error) -> Error {
        if error.to_string() != PEER_GONE {
            return error;
        }
        let named = std::iter::from_fn(|| self.inbox.recv_timeout(NAMED_WITHIN).ok());
        let lost = named.take(NEWS_MAX).find_map(|call| match call {
            Call::Lost { process, reason } => Some(lost(process, &reason)),
            _ => None,
        });
        lost.unwrap_or(error)
    }

    /// A run that publishes finds out that it was overtaken; one that has nothing to publish asks.
    /// In a simulation nothing happens beside its plan.
    fn check_overtaken_if_due(&mut self, now_ms: u64) -> Result<()> {
        if now_ms < self.overtaken_asked_ms + ASK_OVERTAKEN_MS || !self.pace.parks() {
            return Ok(());
        }
        self.overtaken_asked_ms = now_ms;
        match self.context.fence.check() {
            Err(error) if error.kind() == ErrorKind::Fenced => Err(error),
            Err(error) => {
                tracing::debug!(%error, "could not ask whether another run has taken over");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Books a call and says what it means to the protocol.
    fn take(&mut self, call: Call) -> Result<Option<Event>> {
        Ok(Some(match call {
            Call::Stop => Event::Stop,
            Call::Awaited { answer } => {
                // Whoever asked may have stopped waiting.
                let _ = answer.send(self.awaited());
                return Ok(None);
            }
            Call::Merged(result) => {
                self.merge.done();
                self.replace(result);
                return Ok(None);
            }
            Call::Lost { process, reason } => return Err(lost(process, &reason)),
            Call::Checkpoint { savepoint, answer } => {
                self.requests.push(answer);
                Event::Request { id: self.requests.len() as u64 - 1, savepoint }
            }
            Call::Report(report) => return self.book(report),
        }))
    }

    fn book(&mut self, report: Report) -> Result<Option<Event>> {
        Ok(Some(match report {
            Report::Ack { part, epoch, content } => {
                self.tally.acknowledged(part, epoch, &content);
                self.ledger.ack(part, epoch, content)?;
                Event::Ack { part, epoch }
            }
            Report::PartFailed { part, epoch, reason } => Event::PartFailed { part, epoch, reason },
            Report::Ended { part } => Event::Ended { part },
            Report::Committed { part, epoch } => {
                self.ledger.committed(part, epoch);
                Event::Committed { part, epoch }
            }
            Report::Loaded { part, rows, bytes } => {
                self.tally.loaded(&self.ids[part.operator], part.worker, rows, bytes);
                return Ok(None);
            }
            Report::Progress(progress) => {
                self.tally.progress(progress);
                return Ok(None);
            }
            Report::Failed(failure) => return Err(failure.into()),
        }))
    }

    fn tell(&mut self, event: Event) -> Result<Option<Cause>> {
        let mut actions = Vec::new();
        self.coordinator.on(event, &mut actions);
        if planted(&*self.pace, Planted::PublishWithoutAck) {
            self.forgo_the_last(&mut actions);
        }
        let mut end = None;
        while !actions.is_empty() {
            for action in std::mem::take(&mut actions) {
                match action {
                    Action::Publish { epoch, savepoint, finished, duration_ms } => {
                        let published = self.publish(epoch, savepoint, finished, duration_ms)?;
                        let event = match published {
                            Some(permit) => {
                                self.permit = Some(permit);
                                Event::Published { epoch }
                            }
                            None => {
                                let reason = "the store did not take it in time".to_owned();
                                Event::PublishFailed { epoch, reason }
                            }
                        };
                        self.coordinator.on(event, &mut actions);
                    }
                    Action::Finish { cause } => {
                        self.settle(cause)?;
                        self.tidy();
                        end = Some(cause);
                    }
                    action => self.act(action)?,
                }
            }
        }
        Ok(end)
    }

    fn act(&mut self, action: Action) -> Result<()> {
        match action {
            Action::Trigger { epoch, .. } => (self.orders)(&Order::Trigger { epoch }),
            Action::Commit { epoch } => {
                let permit = self.permit.as_ref().filter(|permit| permit.epoch() == epoch);
                let permit = permit.expect("the protocol commits only what it has published");
                (self.orders)(&Order::commit(permit));
            }
            Action::Abandon { epoch, why } => self.tally.abandoned(epoch, &why),
            Action::Collect => {
                self.is_untidy = true;
                self.tidy_if_due();
                self.fold();
            }
            Action::Answer { id, result } => {
                if let Some(answer) = usize::try_from(id).ok().and_then(|id| self.requests.get(id))
                {
                    // Whoever asked may have stopped waiting.
                    let _ = answer.send(result);
                }
            }
            Action::Overdue { epoch, waited_ms, missing, gives_up } => {
                self.overdue(&Output { epoch, age_ms: waited_ms, missing }, gives_up)?;
            }
            Action::Fail { message } => return Err(Error::unavailable(message)),
            Action::Publish { .. } | Action::Finish { .. } => {
                unreachable!("carried out by `tell`, because they lead to more")
            }
        }
        Ok(())
    }

    /// The planted bug: who is the last one missing counts as if it had acknowledged.
    fn forgo_the_last(&mut self, actions: &mut Vec<Action>) {
        let Some(running) = self.coordinator.status().running else { return };
        if let [part] = running.missing[..] {
            self.coordinator.on(Event::Ack { part, epoch: running.epoch }, actions);
        }
    }

    /// Makes a checkpoint exist; `None` if it is certain that it never will.
    fn publish(
        &mut self,
        epoch: Epoch,
        savepoint: Option<String>,
        finished: bool,
        duration_ms: u64,
    ) -> Result<Option<Published>> {
        let bytes = self.tally.bytes_of(epoch);
        let checkpoint = Checkpoint {
            epoch,
            taken_at_ms: self.clock.wall_ms(),
            duration_ms,
            bytes,
            finished,
            workers: self.workers,
            savepoint,
            operators: self.ledger.manifest_operators(epoch),
            in_flight: Vec::new(),
        };
        self.owes = owes_output(&checkpoint.operators);
        let observed = self.splits.observed(&checkpoint.operators);
        crash_point("manifest-due");
        let published = self.publish_surely(checkpoint)?;
        crash_point("manifest-written");
        if published.is_some() {
            self.splits.tell(observed);
            self.ledger.published(epoch);
            self.overtaken_asked_ms = self.clock.monotonic_ms();
            self.tally.published(epoch, duration_ms, bytes, self.clock.monotonic_ms());
        }
        Ok(published)
    }

    /// A publish without an answer may have happened: until that is known, nothing else may. When the
    /// time of the checkpoint is over, it is given up, if the store lets that be proved; otherwise
    /// the run ends, and the next one finds out.
    fn publish_surely(&mut self, checkpoint: Checkpoint) -> Result<Option<Published>> {
        let (epoch, since_ms) = (checkpoint.epoch, self.clock.monotonic_ms());
        let timeout_ms = u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX / 2);
        // A checkpoint that was under way while the machine slept is older than its time-out.
        let left_ms = timeout_ms.saturating_sub(checkpoint.duration_ms).max(timeout_ms / 4);
        let end_ms = since_ms + left_ms;
        let mut end = self.lineage.publish(checkpoint);
        let mut asked = 0;
        while let Err(error) = &end
            && error.kind() == ErrorKind::Unavailable
        {
            if let Some(failure) = self.local.take_failure() {
                return Err(failure);
            }
            if self.clock.monotonic_ms() >= end_ms {
                return self.give_up(epoch, since_ms);
            }
            if asked == 0 {
                tracing::warn!(error = %error.report(), "asking what became of a manifest");
            }
            asked += 1;
            self.pace.rest(RESOLVE_AFTER);
            end = self.lineage.resolve();
        }
        if asked > 0 && end.is_ok() {
            tracing::warn!(epoch = epoch.0, asked, "the manifest exists; the job goes on");
        }
        end.map(Some)
    }

    fn give_up(&mut self, epoch: Epoch, since_ms: u64) -> Result<Option<Published>> {
        let given_up = self.lineage.give_up(self.clock.wall_ms());
        given_up.map_err(|error| match error.kind() {
            ErrorKind::Unavailable => {
                let asked_ms = self.clock.monotonic_ms() - since_ms;
                Error::unavailable(format!(
                    "the store was asked for {asked_ms} ms whether it has checkpoint {epoch}, without \
                     an answer; start the job again when it answers: the next run finds out"
                ))
                .with_source(error)
            }
            _ => error,
        })
    }

    /// After the last output has become visible: a checkpoint that owes nothing any more, so that a
    /// later run need not look for output that somebody may have taken away.
    fn settle(&mut self, cause: Cause) -> Result<()> {
        if !self.owes {
            return Ok(());
        }
        let epoch = self.lineage.epoch();
        self.publish(epoch.next(), None, cause == Cause::InputEnded, 0).map(drop)
    }

    /// Starts the next merge, if one is due and none runs.
    fn fold(&mut self) {
        if !self.merge.is_free() {
            return;
        }
        let due = (0..self.ledger.operators()).find_map(|operator| {
            let runs = self.ledger.runs(operator);
            runs.iter().find_map(|run| merge::plan(operator, &self.ids[operator], run))
        });
        if let Some(result) = due.and_then(|task| self.merge.take(task)) {
            self.replace(result);
        }
    }

    /// A merge that failed changes nothing; the next one may succeed.
    fn replace(&mut self, result: Result<Merged>) {
        let replaced = result.and_then(|Merged { operator, replaced, base }| {
            self.ledger.replace(operator, &replaced, base)
        });
        if let Err(error) = replaced {
            tracing::warn!(%error, "segments could not be merged");
        }
    }

    /// A simulation tidies up each time.
    fn tidy_if_due(&mut self) {
        let is_due = !self.pace.parks() || self.clock.monotonic_ms() >= self.tidy_due_ms;
        if self.is_untidy && is_due {
            self.tidy();
        }
    }

    /// What nobody waits for. Failing to collect loses nothing but space; the next time may succeed.
    fn tidy(&mut self) {
        self.is_untidy = false;
        self.tidy_due_ms = self.clock.monotonic_ms() + TIDY_EVERY_MS;
        self.lineage.leave_hint();
        match self.lineage.collect(&self.retain, self.clock.wall_ms()) {
            Ok(collected) => tracing::debug!(?collected, "collected"),
            Err(error) => tracing::warn!(%error, "old checkpoints could not be collected"),
        }
    }
}

/// Whether some sink has output that was prepared and perhaps not yet made visible.
pub(crate) fn owes_output(operators: &[Operator]) -> bool {
    let owes = |part: &Part| matches!(part, Part::Sink { pending, .. } if !pending.is_empty());
    operators.iter().any(|operator| owes(&operator.part))
}
