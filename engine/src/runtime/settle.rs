//! Pending output without a run: listing what the newest checkpoint still owes, making it visible,
//! or giving it up.

use std::sync::Arc;

use isochrone_persistence::lineage::Checkpoint;
use isochrone_persistence::manifest::{Operator, Part};
use isochrone_persistence::{Error, Result};

use super::lead::Setting;
use super::pace::Free;
use super::ready::Ready;
use super::takeover::{Ground, survey};
use crate::pending::PendingOutput;

/// What becomes of pending output.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settlement {
    /// It becomes visible.
    Commit,
    /// It never does.
    Abort,
}

impl Ready {
    /// What the checkpoint that a run would go on from still owes. Changes nothing.
    pub(crate) fn pending(&self) -> Result<Vec<PendingOutput>> {
        match survey(&self.store, &self.declared, &self.policy)? {
            Ground::Fresh => Ok(Vec::new()),
            Ground::From { manifest, .. } => Ok(self.pending_of(&manifest.operators)),
        }
    }

    /// What operators of a checkpoint owe, as their sinks describe it.
    pub(crate) fn pending_of(&self, operators: &[Operator]) -> Vec<PendingOutput> {
        let mut found = Vec::new();
        for operator in operators {
            let Part::Sink { pending, .. } = &operator.part else { continue };
            let sink = self.plan.sink_of(&operator.id);
            for pending in pending {
                found.push(PendingOutput {
                    sink: operator.id.clone(),
                    epoch: pending.epoch.0,
                    worker: pending.worker.0,
                    bytes: pending.kept.iter().map(|kept| kept.bytes).sum(),
                    what: match &sink {
                        Some(sink) => sink.describe(&pending.effect),
                        None => pending.effect.to_string(),
                    },
                });
            }
        }
        found
    }

    /// Takes the job over, as a run would, settles all pending output and leaves a checkpoint that
    /// owes nothing.
    pub(crate) fn settle(self, settlement: Settlement) -> Result<Vec<PendingOutput>> {
        let pending = self.pending()?;
        if pending.is_empty() {
            return Ok(pending);
        }
        let mut setting = self.set(1, 1, Arc::new(Free))?;
        if settlement == Settlement::Abort {
            for operator in &mut setting.operators {
                if let Part::Sink { pending, .. } = &mut operator.part {
                    pending.clear();
                }
            }
        }
        let (ledger, ..) = self.recover_sinks(&setting)?;
        let Setting { taken, .. } = setting;
        let from = taken.from.ok_or_else(|| {
            Error::unavailable("the checkpoint was taken away in between; look again")
        })?;
        let mut lineage = taken.lineage;
        let epoch = from.epoch.next();
        lineage.publish(Checkpoint {
            epoch,
            taken_at_ms: self.clock.wall_ms(),
            duration_ms: 0,
            bytes: 0,
            finished: from.finished,
            workers: from.workers,
            savepoint: None,
            operators: ledger.manifest_operators(epoch),
            in_flight: from.in_flight,
        })?;
        lineage.leave_hint();
        Ok(pending)
    }
}
