//! A process of a run other than process 0: joins, restores its share, works, and does as told.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError};
use isochrone_persistence::{Error, ErrorKind, Result};

use super::company::{Asked, Calls, GATHER_TIMEOUT, unless_stopped};
use super::control::Control;
use super::message::{Order, Progress, Report};
use super::pace::Free;
use super::process::{Membership, Process};
use super::ready::Ready;
use super::restored::Restored;
use super::uploader::Reporter;
use super::wire::{Downward, Start, Upward};
use crate::cluster::mesh::{self, Party};
use crate::cluster::{Link, LinkEvent, Member};
use crate::dataflow::builders;
use crate::flow::Flow;
use crate::summary::Outcome;

/// How often a process says how far it is.
const PROGRESS_EVERY_MS: u64 = 50;
const PROGRESS_EVERY: Duration = Duration::from_millis(PROGRESS_EVERY_MS);

impl Ready {
    /// Joins process 0 at `hub` and works until it says that the run is over.
    ///
    /// Before the start it may be asked to stop: a process that nobody supervises (`hosted`) leaves at
    /// once if process 0 is not there, and otherwise with it.
    pub(crate) fn follow<F>(
        self,
        me: &Member,
        hub: &str,
        hosted: bool,
        listener: (TcpListener, SocketAddr),
        build: Arc<F>,
    ) -> Result<Outcome>
    where
        F: Fn(&Flow<'_>) -> Result<()> + Send + Sync + 'static,
    {
        let (events, received) = crossbeam_channel::unbounded();
        let (to, own) = (hub.to_owned(), me.clone());
        let join = move || Link::join(&*to, &own, GATHER_TIMEOUT, &events);
        let link = match hosted {
            true => {
                unless_stopped(&self.calls, "process 0 and all others to be there", join, drop)?
            }
            false => Some(join()?),
        };
        let Some(link) = link.map(Arc::new) else { return Ok(Outcome::Stopped) };
        let (listener, address) = listener;
        say(&link, &Upward::Listening { address });
        let start = match await_order(&received, &self.calls)? {
            Downward::Start(start) => *start,
            Downward::Leave => return Ok(Outcome::Stopped),
            _ => return Err(out_of_turn()),
        };
        let seat = (me.process, me.processes);
        let membership = Membership {
            job: self.name.clone(),
            generation: start.hold.generation,
            start: start.epoch,
            groups: self.declared.key_groups,
            first_worker: me.process * me.workers,
            workers: me.workers,
            store: self.store.clone(),
            context: self.context(&start.origin, &start.hold, seat),
            clock: self.clock.clone(),
            pace: Arc::new(Free),
        };
        let upward = link.clone();
        let report = Arc::new(move |report| report_to(&upward, report));
        let share = self.share(&membership, &start, report.clone());
        let (mut process, restored) =
            share.inspect_err(|error| report(Report::Failed(error.into())))?;
        let work = || {
            say(&link, &Upward::Loaded);
            match await_order(&received, &self.calls)? {
                Downward::Connect => {}
                Downward::Leave => return Ok(Outcome::Stopped),
                _ => return Err(out_of_turn()),
            }
            let token = start.token.clone();
            let party = Party { process: me.process, token, secret: me.secret.clone() };
            let sockets = mesh::connect(&listener, &party, &start.addresses, GATHER_TIMEOUT)?;
            let (allocators, others) = builders::across(sockets, me.process, me.workers)?;
            process.start_workers(&membership, restored, allocators, others, build)?;
            obey(&received, &process, me.process as usize, &*report);
            Ok(Outcome::ShareDone)
        };
        let worked = work();
        let ended = process.end(false);
        worked.and_then(|outcome| ended.map(|()| outcome))
    }

    /// What this process has of the checkpoint that the run starts from, and its threads.
    fn share(
        &self,
        membership: &Membership,
        start: &Start,
        report: Reporter,
    ) -> Result<(Process, Restored)> {
        let restored = match &start.from {
            Some(manifest) => Restored::load(&*self.store, &self.name, &self.plan, manifest)?,
            None => Restored::default(),
        };
        let mut committers = membership.committers(&self.plan)?;
        for (index, committer) in &mut committers {
            committer.join(start.histories.get(index).map(String::as_str))?;
        }
        Ok((Process::begin(membership, &self.plan, committers, report)?, restored))
    }
}

/// Says something before the start. If the link is over, its last events say why.
fn say(link: &Link, said: &Upward) {
    if let Err(error) = link.deliver(&said.encode()) {
        tracing::debug!(%error, "process 0 did not hear how far this process is");
    }
}

/// Tells process 0. How far a process is may be told later; nothing else is lost while the link lasts,
/// and its loss is an event of its own, which ends the run.
fn report_to(link: &Link, report: Report) {
    let may_wait = !matches!(report, Report::Progress(_));
    let bytes = Upward::Report(report).encode();
    let told = if may_wait { link.deliver(&bytes) } else { link.send(&bytes) };
    match told {
        Err(error) if error.kind() == ErrorKind::Invalid => {
            let failure = Upward::Report(Report::Failed((&error).into()));
            let told = link.deliver(&failure.encode());
            tracing::debug!(%error, ?told, "a report was too long");
        }
        Err(error) => tracing::debug!(%error, "a report was not sent"),
        Ok(()) => {}
    }
}

/// What process 0 says next before the start. It may have much to load and to finish first; if it is
/// lost meanwhile, the link says so. Where both are asked to stop, they leave together.
fn await_order(events: &Receiver<LinkEvent>, calls: &Calls) -> Result<Downward> {
    let awaited = "process 0, which says where the run begins";
    let mut asked = Asked::of(calls);
    loop {
        crossbeam_channel::select! {
            recv(events) -> event => {
                asked.take_all(awaited);
                return match event {
                    Ok(LinkEvent::Frame { bytes, .. }) => match Downward::decode(&bytes)? {
                        Downward::Order(Order::Abort(failure)) => Err(failure.into()),
                        order => Ok(order),
                    },
                    _ if asked.to_stop => Ok(Downward::Leave),
                    Ok(LinkEvent::Lost { reason, .. }) => Err(Error::unavailable(format!(
                        "process 0 was lost before the start: {reason}"
                    ))),
                    Err(_) => Err(Error::unavailable("the link to process 0 is gone")),
                };
            }
            recv(calls.1) -> call => asked.take(call, awaited),
        }
    }
}

fn out_of_turn() -> Error {
    Error::internal("process 0 gave an order out of its turn")
}

/// Does what process 0 says until the run is over; reports progress and failure.
fn obey(events: &Receiver<LinkEvent>, process: &Process, index: usize, report: &dyn Fn(Report)) {
    let (control, obey) = (process.control.clone(), process.orders());
    let mut told = false;
    let mut reported_ms = 0;
    while !control.is_over() || control.has_failed() && !told {
        if let Some(failure) = control.failure() {
            report(Report::Failed(failure));
            told = true;
            continue;
        }
        match events.recv_timeout(PROGRESS_EVERY) {
            Ok(event) => {
                told |= take(event, &control, &obey);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                told = true;
                control.fail(Error::unavailable("the link to process 0 is gone"));
            }
        }
        let now_ms = control.clock().monotonic_ms();
        if now_ms >= reported_ms + PROGRESS_EVERY_MS {
            reported_ms = now_ms;
            report(Report::Progress(Progress::of(index, &control)));
        }
    }
}

/// Does what an event means; answers whether process 0 knows of the end that it brings, if any.
fn take(event: LinkEvent, control: &Control, obey: &dyn Fn(&Order)) -> bool {
    match event {
        LinkEvent::Frame { bytes, .. } => match Downward::decode(&bytes) {
            Ok(Downward::Order(order)) => {
                obey(&order);
                matches!(order, Order::Abort(_))
            }
            Ok(Downward::Start(_) | Downward::Connect | Downward::Leave) => {
                control.fail(out_of_turn());
                false
            }
            Err(error) => {
                control.fail(error);
                false
            }
        },
        LinkEvent::Lost { reason, .. } => {
            control.fail(Error::unavailable(format!("process 0 is gone: {reason}")));
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use isochrone_persistence::ids::{Epoch, JobName, Worker};

    use super::*;
    use crate::cluster::{Fingerprint, Hub, MESSAGE_BYTES_MAX, Secret};
    use crate::protocol::Part;
    use crate::threads;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn member(process: u32) -> Member {
        Member {
            job: JobName::new("job").unwrap(),
            fingerprint: Fingerprint::of(b"settings"),
            process,
            processes: 2,
            workers: 1,
            secret: Secret::new("a secret for tests").unwrap(),
            heartbeat_timeout: PATIENCE,
        }
    }

    /// It was dropped once, and with it the checkpoint, time after time, without a reason.
    #[test]
    fn a_report_that_does_not_fit_is_told_as_a_failure() {
        let hub = Hub::bind("127.0.0.1:0").unwrap();
        let (address, (unheard, _)) = (hub.address(), crossbeam_channel::unbounded());
        let join = move || Link::join(address, &member(1), PATIENCE, &unheard).unwrap();
        let joining = threads::spawn("isochrone-test", threads::note, join).unwrap();
        let (events, heard) = crossbeam_channel::unbounded();
        let links = hub.gather(&member(0), PATIENCE, &events).unwrap();
        let link = joining.join().unwrap().unwrap();
        let (part, reason) =
            (Part { operator: 0, worker: Worker(1) }, "x".repeat(MESSAGE_BYTES_MAX));
        report_to(&link, Report::PartFailed { part, epoch: Epoch(1), reason });
        let Ok(LinkEvent::Frame { bytes, .. }) = heard.recv() else { panic!() };
        let Upward::Report(Report::Failed(failure)) = Upward::decode(&bytes).unwrap() else {
            panic!()
        };
        let error = Error::from(failure);
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().starts_with("a message of 16777"), "{error}");
        drop((link, links));
    }
}
