//! What the parts have left durable, so that a manifest can name everything that is still needed.
//!
//! Knows manifest types and who acknowledged what; not the store, not whether a checkpoint is due.

use std::collections::BTreeMap;

use isochrone_persistence::ids::{Epoch, OperatorId, StateVersion, Worker};
use isochrone_persistence::manifest::{self, Kept, Pending, Segment, Split};
use isochrone_persistence::{Error, Result};
use serde_json::Value;

use super::coordinator::Part;

mod segments;

pub use segments::Run;
use segments::Segments;

/// What a part left for one epoch.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub enum Content {
    /// Of a source instance.
    Source {
        /// The splits that it owned at the cut.
        splits: Vec<Split>,
        /// Records that this instance has skipped since the run began.
        skipped: u64,
    },
    /// Of a state instance: the rows changed since its last segment, if any.
    State {
        /// `None`: nothing changed.
        segment: Option<Segment>,
    },
    /// Of a sink instance: output written since its last one, if any.
    Sink {
        /// `None`: nothing written.
        pending: Option<Prepared>,
    },
}

/// Output that was made durable and is still to be made visible.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Prepared {
    /// What commits it, in the connector's own terms.
    pub effect: Value,
    /// What must be in the write-ahead to commit it.
    pub kept: Vec<Kept>,
}

impl From<Value> for Prepared {
    fn from(effect: Value) -> Prepared {
        Prepared { effect, kept: Vec::new() }
    }
}

/// The ledger of one run.
///
/// - Checkpoint *E* is everything acknowledged with an epoch up to *E*, abandoned ones included:
///   a segment holds the changes since the one before, so none may be missing. Each part
///   acknowledges in the order of epochs; what it could not make durable for an abandoned epoch
///   it carries over into the next one.
/// - Output acknowledged for an abandoned epoch stays pending and is committed with the next
///   published one.
/// - The in-flight log of an abandoned epoch is void and never named.
/// - What was restored stays named until replaced: positions of splits that nobody owns,
///   segments, pending output of the run before.
///
/// ```
/// use isochrone_engine::protocol::coordinator::Part;
/// use isochrone_engine::protocol::ledger::{Content, Ledger};
/// use isochrone_persistence::ids::{Epoch, OperatorId, Worker};
/// use isochrone_persistence::manifest;
/// use serde_json::json;
///
/// let log = manifest::Operator {
///     id: OperatorId::new("log").unwrap(),
///     part: manifest::Part::Source { splits: Vec::new(), skipped: 0 },
/// };
/// let mut ledger = Ledger::restore(vec![log]);
/// let split =
///     manifest::Split { id: "a".into(), position: json!(7), watermark: None, finished: false };
/// let content = Content::Source { splits: vec![split.clone()], skipped: 0 };
/// ledger.ack(Part { operator: 0, worker: Worker(0) }, Epoch(1), content).unwrap();
/// let part = manifest::Part::Source { splits: vec![split], skipped: 0 };
/// assert_eq!(ledger.manifest_operators(Epoch(1))[0].part, part);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Ledger {
    operators: Vec<Account>,
    /// The last acknowledged epoch of each part: they only rise.
    acked: BTreeMap<Part, Epoch>,
    published: Option<Epoch>,
    in_flight: BTreeMap<(Epoch, Part), Vec<Segment>>,
}

#[derive(Clone, Debug, PartialEq)]
struct Account {
    id: OperatorId,
    entries: Entries,
}

#[derive(Clone, Debug, PartialEq)]
enum Entries {
    Source {
        /// By split id: the epoch of its position (`None`: restored) and the split.
        splits: BTreeMap<String, (Option<Epoch>, Split)>,
        skipped_before: u64,
        skipped: BTreeMap<Worker, u64>,
    },
    State {
        version: StateVersion,
        shape: String,
        codec: String,
        segments: Segments,
    },
    Sink {
        /// Of the runs before.
        restored: Vec<Pending>,
        history: Option<String>,
        target: Option<String>,
        pending: BTreeMap<(Epoch, Worker), Prepared>,
    },
}

impl Ledger {
    /// The ledger of a run: one operator per durable operator of the plan, in the plan's order,
    /// with what the manifest said of it, or empty.
    pub fn restore(operators: Vec<manifest::Operator>) -> Ledger {
        Ledger {
            operators: operators.into_iter().map(Account::restore).collect(),
            acked: BTreeMap::new(),
            published: None,
            in_flight: BTreeMap::new(),
        }
    }

    /// `part` has acknowledged `epoch` and left `content`; to be told before the coordinator is.
    ///
    /// Fails with `Internal` if the content is not of the operator's kind, or the epoch is not
    /// after the part's last one: the change before would already be hidden by this one.
    pub fn ack(&mut self, part: Part, epoch: Epoch, content: Content) -> Result<()> {
        let account = self.operators.get_mut(part.operator).ok_or_else(|| {
            Error::internal(format!("operator {} is not in the plan", part.operator))
        })?;
        if let Some(last) = self.acked.get(&part).filter(|last| **last >= epoch) {
            return Err(Error::internal(format!(
                "`{}` on worker {} acknowledged epoch {epoch} after {last}",
                account.id, part.worker
            )));
        }
        account.record(part.worker, epoch, content)?;
        self.acked.insert(part, epoch);
        Ok(())
    }

    /// `part` has left logs of records that were in flight at cut `epoch`; to be told before its
    /// acknowledgement.
    pub fn in_flight(&mut self, part: Part, epoch: Epoch, logs: Vec<Segment>) {
        self.in_flight.insert((epoch, part), logs);
    }

    /// What manifest `epoch` names, in the plan's order.
    ///
    /// To be called when all parts have acknowledged `epoch` and none a later one (asserted: a
    /// later position would not fit an earlier state).
    pub fn manifest_operators(&self, epoch: Epoch) -> Vec<manifest::Operator> {
        let last = self.acked.values().max();
        assert!(last.is_none_or(|l| *l <= epoch), "epoch {last:?} was acknowledged before {epoch}");
        self.operators.iter().map(Account::to_manifest).collect()
    }

    /// The in-flight logs of manifest `epoch`, in the order of operators and workers.
    pub fn manifest_in_flight(&self, epoch: Epoch) -> Vec<Segment> {
        let of_epoch = self.in_flight.iter().filter(|((e, _), _)| *e == epoch);
        of_epoch.flat_map(|(_, logs)| logs.iter().cloned()).collect()
    }

    /// Manifest `epoch` exists: logs of cuts up to it are needed no more by later ones.
    pub fn published(&mut self, epoch: Epoch) {
        self.published = Some(epoch);
        self.in_flight.retain(|(e, _), _| *e > epoch);
    }

    /// The sink instance `part` made everything up to `epoch` visible. Asserts that the manifest
    /// exists: a sink that publishes without it cannot be recovered.
    pub fn committed(&mut self, part: Part, epoch: Epoch) {
        assert!(self.published >= Some(epoch), "epoch {epoch} was committed but not published");
        if let Entries::Sink { pending, .. } = &mut self.operators[part.operator].entries {
            pending.retain(|(e, w), _| *w != part.worker || *e > epoch);
        }
    }

    /// All restored pending output of sink `operator` has been made visible, and its output goes on
    /// with this history, to this target.
    pub fn recovered(
        &mut self,
        operator: usize,
        goes_on_with: Option<String>,
        goes_to: Option<String>,
    ) {
        let entries = &mut self.operators[operator].entries;
        if let Entries::Sink { restored, history, target, .. } = entries {
            restored.clear();
            (*history, *target) = (goes_on_with, goes_to);
        }
    }

    /// The segments of a state operator that follow one another: what can be merged.
    pub fn runs(&self, operator: usize) -> Vec<Run> {
        match &self.operators[operator].entries {
            Entries::State { segments, .. } => segments.runs(),
            _ => Vec::new(),
        }
    }

    /// The number of operators.
    pub fn operators(&self) -> usize {
        self.operators.len()
    }

    /// A merge wrote segment `base`, which holds what `merged` held.
    ///
    /// Fails with `Invalid` and changes nothing unless `merged` follow one another among the
    /// restored segments and those of one worker: a row between them would change its turn.
    pub fn replace(&mut self, operator: usize, merged: &[String], base: Segment) -> Result<()> {
        let account = &mut self.operators[operator];
        let replaced = match &mut account.entries {
            Entries::State { segments, .. } => segments.replace(merged, base),
            _ => false,
        };
        replaced.then_some(()).ok_or_else(|| {
            Error::invalid(format!(
                "segments {merged:?} of `{}` cannot be merged: not there, or not in a row",
                account.id
            ))
        })
    }
}

impl Account {
    fn restore(operator: manifest::Operator) -> Account {
        let entries = match operator.part {
            manifest::Part::Source { splits, skipped } => Entries::Source {
                splits: splits.into_iter().map(|s| (s.id.clone(), (None, s))).collect(),
                skipped_before: skipped,
                skipped: BTreeMap::new(),
            },
            manifest::Part::State { version, shape, codec, segments } => {
                Entries::State { version, shape, codec, segments: Segments::restore(segments) }
            }
            manifest::Part::Sink { pending, history, target } => {
                Entries::Sink { restored: pending, history, target, pending: BTreeMap::new() }
            }
        };
        Account { id: operator.id, entries }
    }

    fn record(&mut self, worker: Worker, epoch: Epoch, content: Content) -> Result<()> {
        match (&mut self.entries, content) {
            (
                Entries::Source { splits, skipped, .. },
                Content::Source { splits: read, skipped: n },
            ) => {
                skipped.insert(worker, n);
                for split in read {
                    record_split(splits, epoch, split);
                }
            }
            (Entries::State { segments, .. }, Content::State { segment }) => {
                segments.push(worker, epoch, segment);
            }
            (Entries::Sink { pending, .. }, Content::Sink { pending: effect }) => {
                pending.extend(effect.map(|effect| ((epoch, worker), effect)));
            }
            (_, content) => {
                let id = &self.id;
                return Err(Error::internal(format!("`{id}` acknowledged with {content:?}")));
            }
        }
        Ok(())
    }

    fn to_manifest(&self) -> manifest::Operator {
        let part = match &self.entries {
            Entries::Source { splits, skipped_before, skipped } => manifest::Part::Source {
                splits: splits.values().map(|(_, split)| split.clone()).collect(),
                skipped: skipped_before + skipped.values().sum::<u64>(),
            },
            Entries::State { version, shape, codec, segments } => manifest::Part::State {
                version: *version,
                shape: shape.clone(),
                codec: codec.clone(),
                segments: segments.listed(),
            },
            Entries::Sink { restored, history, target, pending } => {
                let mut all = restored.clone();
                all.extend(pending.iter().map(|((epoch, worker), prepared)| Pending {
                    worker: *worker,
                    epoch: *epoch,
                    effect: prepared.effect.clone(),
                    kept: prepared.kept.clone(),
                }));
                let (history, target) = (history.clone(), target.clone());
                manifest::Part::Sink { pending: all, history, target }
            }
        };
        manifest::Operator { id: self.id.clone(), part }
    }
}

/// The newest position wins: a split may change its owner between two epochs, and a late
/// acknowledgement of the old owner must not take it back.
fn record_split(splits: &mut BTreeMap<String, (Option<Epoch>, Split)>, epoch: Epoch, split: Split) {
    let known = splits.get(&split.id).and_then(|(known, _)| *known);
    if known <= Some(epoch) {
        splits.insert(split.id.clone(), (Some(epoch), split));
    }
}

#[cfg(test)]
mod tests;
