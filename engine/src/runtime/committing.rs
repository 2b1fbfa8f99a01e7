//! The thread that makes prepared output visible once its checkpoint exists, while the next one is
//! already being made durable: a slow target holds up no checkpoint but the one after the next.
//!
//! After a failure nothing more is committed. A sink may say how far it has committed by the newest
//! epoch alone: to commit one behind another that failed would take that one for committed.

use std::collections::BTreeMap;
use std::sync::Arc;

use crossbeam_channel::Receiver;
use isochrone_persistence::ids::Epoch;
use serde_json::Value;

use super::lane::Lane;
use super::message::{Due, Report};
use super::pace::{COMMITTER, Pace, Planted, planted};
use super::under_way::Commits;
use super::uploader::Reporter;
use crate::Result;
use crate::erased::AnyCommitter;
use crate::protocol::Part;
use crate::time::SharedClock;

/// Committers by operator index.
pub(crate) type Committers = BTreeMap<usize, Box<dyn AnyCommitter>>;

/// What commits the output of one process.
pub(crate) struct Committing {
    pub(crate) inbox: Receiver<Due>,
    pub(crate) report: Reporter,
    pub(crate) committers: Committers,
    /// The sink instances of this process.
    pub(crate) sinks: Vec<Part>,
    pub(crate) prepared: BTreeMap<Part, Vec<(Epoch, Value)>>,
    /// Is told what is under way.
    pub(crate) commits: Arc<Commits>,
    pub(crate) clock: SharedClock,
    pub(crate) pace: Arc<dyn Pace>,
}

impl Committing {
    pub(crate) fn run(mut self) {
        let (inbox, report, pace) = (self.inbox.clone(), self.report.clone(), self.pace.clone());
        let (inbox, report, pace) = (&inbox, &report, &*pace);
        let lane = Lane { actor: COMMITTER, name: "a committer", inbox, report, pace };
        lane.work(|due| matches!(due, Due::End), |due| self.take(due));
    }

    fn take(&mut self, due: Due) -> Result<()> {
        match due {
            Due::Prepared { part, epoch, effect } => {
                if planted(&*self.pace, Planted::CommitBeforeManifest)
                    && let Some(committer) = self.committers.get_mut(&part.operator)
                {
                    committer.commit(std::slice::from_ref(&effect))?;
                }
                self.prepared.entry(part).or_default().push((epoch, effect));
            }
            Due::Commit { epoch } => self.commit(epoch)?,
            Due::End => {}
        }
        Ok(())
    }

    /// IMPORTANT: called only after the manifest of `epoch` is durable.
    fn commit(&mut self, epoch: Epoch) -> Result<()> {
        for (&operator, committer) in &mut self.committers {
            let of_operator = |part: &Part| part.operator == operator;
            let prepared = self.prepared.iter_mut().filter(|(part, _)| of_operator(part));
            let mut due = Vec::new();
            for (_, effects) in prepared {
                due.extend(effects.extract_if(.., |(cut, _)| *cut <= epoch).map(|(_, e)| e));
            }
            if self.commits.is_left_behind() {
                return Ok(());
            }
            if !due.is_empty() {
                self.commits.note(Some((operator, epoch, self.clock.monotonic_ms())));
                let committed = committer.commit(&due);
                self.commits.note(None);
                committed?;
            }
        }
        for &part in &self.sinks {
            (self.report)(Report::Committed { part, epoch });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use isochrone_persistence::ids::{OperatorId, Worker};
    use isochrone_persistence::{Error, ErrorKind};
    use serde_json::json;

    use super::super::pace::Free;
    use super::*;
    use crate::connector::Recovery;
    use crate::time::ManualClock;

    type Calls = Arc<Mutex<Vec<Value>>>;

    /// Fails, or panics, at the effect 2, and would commit any other.
    struct Once {
        calls: Calls,
        panics: bool,
    }

    impl AnyCommitter for Once {
        fn fence(&mut self, _: Option<&OperatorId>) -> Result<()> {
            Ok(())
        }
        fn recover(&mut self, _: Recovery<Value>) -> Result<Vec<String>> {
            Ok(Vec::new())
        }
        fn history(&self) -> Option<String> {
            None
        }
        fn commit(&mut self, effects: &[Value]) -> Result<()> {
            self.calls.lock().expect("no panic holds it").extend(effects.iter().cloned());
            match effects == [json!(2)] {
                true if self.panics => panic!("a committer that is wrong"),
                true => Err(Error::unavailable("the target is away")),
                false => Ok(()),
            }
        }
    }

    #[test]
    fn nothing_is_committed_behind_what_failed() {
        for (panics, kind) in [(false, ErrorKind::Unavailable), (true, ErrorKind::User)] {
            let part = Part { operator: 0, worker: Worker(0) };
            let (due, inbox) = crossbeam_channel::unbounded();
            for epoch in 1..=3 {
                let effect = json!(epoch);
                due.send(Due::Prepared { part, epoch: Epoch(epoch), effect }).expect("it is open");
            }
            for epoch in 1..=3 {
                due.send(Due::Commit { epoch: Epoch(epoch) }).expect("it is open");
            }
            due.send(Due::End).expect("it is open");
            let (calls, reports) = (Calls::default(), Arc::new(Mutex::new(Vec::new())));
            let heard = reports.clone();
            let report: Reporter =
                Arc::new(move |report| heard.lock().expect("no panic holds it").push(report));
            let once: Box<dyn AnyCommitter> = Box::new(Once { calls: calls.clone(), panics });
            let committers = Committers::from([(0, once)]);
            Committing {
                inbox,
                report,
                committers,
                sinks: vec![part],
                prepared: BTreeMap::new(),
                commits: Arc::default(),
                clock: Arc::new(ManualClock::default()),
                pace: Arc::new(Free),
            }
            .run();
            assert_eq!(*calls.lock().expect("no panic holds it"), [json!(1), json!(2)]);
            let reports = std::mem::take(&mut *reports.lock().expect("no panic holds it"));
            let [Report::Committed { epoch, .. }, Report::Failed(failure)] = &reports[..] else {
                panic!("{reports:?}")
            };
            assert_eq!(*epoch, Epoch(1));
            assert_eq!(Error::from(failure.clone()).kind(), kind);
        }
    }
}
