//! The thread that waits so that workers need not: it makes parts durable and acknowledges them.
//!
//! What cannot be made durable now is kept and tried again before anything newer of the same
//! instance, so that a later checkpoint never misses what a failed one should have held.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender};
use isochrone_persistence::ids::{Epoch, Generation, JobName, OperatorId};
use isochrone_persistence::paths::{self, DataKind, DataName};
use isochrone_persistence::segment::{self, Identity, Rows};
use isochrone_persistence::{SharedStore, manifest};

use super::lane::Lane;
use super::message::{Due, Handover, Report, Snapshot};
use super::pace::{Pace, Planted, UPLOADER, planted};
use crate::Result;
use crate::connector::Prepare;
use crate::protocol::{Content, Part, Prepared};

/// Where reports go.
pub(crate) type Reporter = Arc<dyn Fn(Report) + Send + Sync>;

/// The uploader of one process.
pub(crate) struct Uploader {
    pub(crate) inbox: Receiver<Handover>,
    pub(crate) report: Reporter,
    pub(crate) store: SharedStore,
    pub(crate) job: JobName,
    pub(crate) generation: Generation,
    /// Ids by operator index.
    pub(crate) ids: Vec<OperatorId>,
    /// To whoever makes output visible.
    pub(crate) due: Sender<Due>,
    pub(crate) books: Books,
    pub(crate) pace: Arc<dyn Pace>,
}

/// What is still to be made durable.
#[derive(Default)]
pub(crate) struct Books {
    owed: BTreeMap<Part, VecDeque<(Epoch, Work)>>,
    /// Of a planted bug: acknowledged, but not durable yet.
    late: Vec<(String, Vec<u8>)>,
}

enum Work {
    Put { segment: manifest::Segment, bytes: Vec<u8> },
    Prepare(Prepare<Prepared>),
    Nothing(Content),
}

impl Uploader {
    pub(crate) fn run(mut self) {
        let (inbox, report, pace) = (self.inbox.clone(), self.report.clone(), self.pace.clone());
        let (inbox, report, pace) = (&inbox, &report, &*pace);
        let lane = Lane { actor: UPLOADER, name: "the uploader", inbox, report, pace };
        let take = |handover| {
            self.put_late();
            self.handle(handover);
            Ok(())
        };
        lane.work(|handover| matches!(handover, Handover::End), take);
    }

    fn handle(&mut self, handover: Handover) {
        match handover {
            Handover::Part { part, epoch, snapshot } => {
                match self.work(part, epoch, snapshot) {
                    Ok(work) => self.books.owed.entry(part).or_default().push_back((epoch, work)),
                    Err(error) => return self.failed(part, epoch, &error),
                }
                if let Err(error) = self.pay(part) {
                    self.failed(part, epoch, &error);
                }
            }
            Handover::Ended { part } => (self.report)(Report::Ended { part }),
            Handover::Loaded { part, rows, bytes } => {
                (self.report)(Report::Loaded { part, rows, bytes });
            }
            Handover::End => {}
        }
    }

    fn failed(&self, part: Part, epoch: Epoch, error: &crate::Error) {
        let reason = error.report();
        (self.report)(Report::PartFailed { part, epoch, reason });
    }

    fn work(&self, part: Part, epoch: Epoch, snapshot: Snapshot) -> Result<Work> {
        Ok(match snapshot {
            Snapshot::Source { splits, skipped } => {
                Work::Nothing(Content::Source { splits, skipped })
            }
            Snapshot::Sink { prepare } => Work::Prepare(prepare),
            Snapshot::State { rows } if rows.is_empty() => {
                Work::Nothing(Content::State { segment: None })
            }
            Snapshot::State { rows } => self.segment(part, epoch, rows)?,
        })
    }

    fn segment(&self, part: Part, epoch: Epoch, rows: Rows) -> Result<Work> {
        let operator = &self.ids[part.operator];
        let name =
            DataName::fresh(epoch, operator, part.worker, self.generation, DataKind::Segment)?;
        let identity = Identity {
            job: self.job.clone(),
            generation: self.generation,
            epoch,
            operator: operator.clone(),
            worker: part.worker,
        };
        let bytes = segment::encode(rows, &identity);
        let segment = segment::reference(paths::data(&self.job, &name), &bytes, &identity);
        Ok(Work::Put { segment, bytes })
    }

    /// Makes everything owed by an instance durable, oldest first, and acknowledges it.
    fn pay(&mut self, part: Part) -> Result<()> {
        let owed = self.books.owed.entry(part).or_default();
        while let Some((epoch, work)) = owed.front_mut() {
            let content = match work {
                Work::Nothing(content) => content.clone(),
                Work::Put { segment, bytes } if planted(&*self.pace, Planted::AckBeforeDurable) => {
                    self.books.late.push((segment.name.clone(), std::mem::take(bytes)));
                    Content::State { segment: Some(segment.clone()) }
                }
                Work::Put { segment, bytes } => {
                    self.store.put(&segment.name, bytes)?;
                    Content::State { segment: Some(segment.clone()) }
                }
                Work::Prepare(prepare) => {
                    let pending = prepare()?;
                    // IMPORTANT: before it is acknowledged, so that it comes before its commit.
                    if let Some(Prepared { effect, .. }) = &pending {
                        let (epoch, effect) = (*epoch, effect.clone());
                        // Without a committer the run is over.
                        let _ = self.due.send(Due::Prepared { part, epoch, effect });
                    }
                    Content::Sink { pending }
                }
            };
            (self.report)(Report::Ack { part, epoch: *epoch, content });
            owed.pop_front();
        }
        Ok(())
    }

    fn put_late(&mut self) {
        for (name, bytes) in std::mem::take(&mut self.books.late) {
            // Nobody waits for the answer: that is the bug.
            let _ = self.store.put(&name, &bytes);
        }
    }
}
