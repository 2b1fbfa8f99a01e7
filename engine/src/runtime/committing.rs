//! The thread that makes prepared output visible once its checkpoint exists, while the next one is
//! already being made durable: a slow target holds up no checkpoint but the one after the next.

use std::collections::BTreeMap;
use std::sync::Arc;

use crossbeam_channel::{Receiver, RecvTimeoutError};
use isochrone_persistence::ids::Epoch;
use serde_json::Value;

use super::message::{Due, Report};
use super::pace::{COMMITTER, Pace, Planted, planted};
use super::uploader::{Reporter, WAIT};
use crate::Result;
use crate::erased::AnyCommitter;
use crate::protocol::Part;

/// Committers by operator index.
pub(crate) type Committers = BTreeMap<usize, Box<dyn AnyCommitter>>;

/// What commits the output of one process.
pub(crate) struct Committing {
    inbox: Receiver<Due>,
    report: Reporter,
    committers: Committers,
    /// The sink instances of this process.
    sinks: Vec<Part>,
    prepared: BTreeMap<Part, Vec<(Epoch, Value)>>,
    pace: Arc<dyn Pace>,
}

impl Committing {
    pub(crate) fn new(
        inbox: Receiver<Due>,
        report: Reporter,
        committers: Committers,
        sinks: Vec<Part>,
        pace: Arc<dyn Pace>,
    ) -> Committing {
        Committing { inbox, report, committers, sinks, prepared: BTreeMap::new(), pace }
    }

    /// Works until the run is over, or the simulated machine crashes.
    pub(crate) fn run(mut self) {
        let pace = self.pace.clone();
        while pace.turn(COMMITTER) {
            let wait = if pace.parks() { WAIT } else { std::time::Duration::ZERO };
            match self.inbox.recv_timeout(wait) {
                Ok(Due::End) | Err(RecvTimeoutError::Disconnected) => break,
                Ok(due) => {
                    if let Err(error) = self.take(due) {
                        (self.report)(Report::Failed((&error).into()));
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            pace.pass(COMMITTER);
        }
        pace.leave(COMMITTER);
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
            if !due.is_empty() {
                committer.commit(&due)?;
            }
        }
        for &part in &self.sinks {
            (self.report)(Report::Committed { part, epoch });
        }
        Ok(())
    }
}
