//! Output that is durable but perhaps not visible yet, and what an operator of a job may do with it
//! while the job does not run.

use std::fmt;

use isochrone_persistence::Result;
use isochrone_persistence::ids::OperatorId;

use crate::args::RunArgs;
use crate::flow::Flow;
use crate::job::Job;
use crate::runtime::{Ready, Settlement};

/// Output of one sink writer that the newest checkpoint names.
///
/// Some or all of it may be visible already: the checkpoint after the commit says so, and a run
/// that was killed in between did not get there.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PendingOutput {
    /// The sink.
    pub sink: OperatorId,
    /// The epoch that it belongs to.
    pub epoch: u64,
    /// The worker that wrote it.
    pub worker: u32,
    /// Bytes of it in the write-ahead, if the sink keeps it there.
    pub bytes: u64,
    /// What it is, in the sink's words.
    pub what: String,
}

impl fmt::Display for PendingOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PendingOutput { sink, epoch, worker, what, .. } = self;
        write!(f, "`{sink}`, epoch {epoch}, worker {worker}: {what}")
    }
}

/// The next run of a job settles what is pending by itself. These are for who wants to know, or to
/// have it settled without running the job: before its program changes, or for good.
///
/// ```
/// use isochrone_connectors::{Collected, generator::Generator};
/// use isochrone_engine::{Checkpoint, Flow, Job, RunArgs};
///
/// let folder = tempfile::tempdir().expect("a folder");
/// let output = Collected::default();
/// let job = || Job::new("sums").checkpoint(Checkpoint::dir(folder.path()));
/// let build = move |flow: &Flow<'_>| {
///     flow.source("numbers", Generator::counting(3, |n| n)).sink("out", output.clone());
///     Ok(())
/// };
/// job().run(RunArgs::default(), build.clone())?;
/// assert_eq!(job().pending(&RunArgs::default(), &build)?, [], "the run ended in peace");
/// assert_eq!(job().commit_pending(&RunArgs::default(), &build)?, []);
/// # Ok::<(), isochrone_engine::Error>(())
/// ```
impl Job {
    /// Lists what the checkpoint that the next run would go on from still owes. Changes nothing.
    ///
    /// Fails as the start of a run would if that checkpoint cannot be used.
    pub fn pending<F>(&self, args: &RunArgs, build: &F) -> Result<Vec<PendingOutput>>
    where
        F: Fn(&Flow<'_>) -> Result<()>,
    {
        Ready::new(self, args, build)?.pending()
    }

    /// Makes what is pending visible, as the next run would, and answers what it was. Takes the job
    /// over: a run that is still there is fenced. The positions of sources and all state stay.
    pub fn commit_pending<F>(self, args: &RunArgs, build: &F) -> Result<Vec<PendingOutput>>
    where
        F: Fn(&Flow<'_>) -> Result<()>,
    {
        Ready::new(&self, args, build)?.settle(Settlement::Commit)
    }

    /// Gives up what is pending and is not visible yet, for good, and answers what was pending. The
    /// input that it came from counts as read: **this loses output**. Takes the job over like
    /// [`Job::commit_pending`].
    pub fn abort_pending<F>(self, args: &RunArgs, build: &F) -> Result<Vec<PendingOutput>>
    where
        F: Fn(&Flow<'_>) -> Result<()>,
    {
        Ready::new(&self, args, build)?.settle(Settlement::Abort)
    }
}
