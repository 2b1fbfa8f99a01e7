//! Whole jobs: where each record came from, and when a run is over.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use isochrone_connectors::Collected;
use isochrone_connectors::kafka::{KafkaRecord, KafkaTopic};
use isochrone_engine::{Checkpoint, Error, Flow, Job, JobHandle, Result, RunArgs, Summary};

use crate::support::*;

/// Partition and value of each record.
pub(crate) type Out = Collected<(i32, String)>;

pub(crate) fn job(store: &Path) -> Job {
    Job::new("reader").checkpoint(Checkpoint::dir(store).every(Duration::from_millis(50)))
}

/// One whose runs leave a checkpoint only if they end well.
pub(crate) fn job_without_checkpoints(store: &Path) -> Job {
    Job::new("reader").checkpoint(Checkpoint::dir(store).not_by_time())
}

pub(crate) fn args(workers: u32) -> RunArgs {
    RunArgs { workers, quiet: true, ..RunArgs::default() }
}

/// Runs a job beside something else, after which it is stopped, if it has not ended by itself.
pub(crate) fn run_beside<F>(
    job: Job,
    workers: u32,
    build: F,
    beside: impl FnOnce(&JobHandle) + Send,
) -> Result<Summary>
where
    F: Fn(&Flow<'_>) -> Result<()> + Send + Sync + 'static,
{
    let stop = Stop(job.handle());
    std::thread::scope(|scope| {
        scope.spawn(move || beside(&stop.0));
        job.run(args(workers), build)
    })
}

/// Stops a job when it is dropped.
struct Stop(JobHandle);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Runs a job beside something else that makes it end by itself; it is stopped if it has not in time.
pub(crate) fn run_until_it_ends<F>(
    job: Job,
    workers: u32,
    build: F,
    beside: impl FnOnce() + Send,
) -> Result<Summary>
where
    F: Fn(&Flow<'_>) -> Result<()> + Send + Sync + 'static,
{
    let (stop, has_ended) = (Stop(job.handle()), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _stopped_at_last = stop;
            beside();
            within_patience(|| has_ended.load(Ordering::SeqCst));
        });
        let summary = job.run(args(workers), build);
        has_ended.store(true, Ordering::SeqCst);
        summary
    })
}

/// A job that only reads.
pub(crate) fn reading(
    topic: KafkaTopic,
    out: &Out,
) -> impl Fn(&Flow<'_>) -> Result<()> + Send + Sync + 'static {
    failing_at(topic, out, "none")
}

/// The same, failing at a record of this value: as if it were killed there.
pub(crate) fn failing_at(
    topic: KafkaTopic,
    out: &Out,
    value: &'static str,
) -> impl Fn(&Flow<'_>) -> Result<()> + Send + Sync + 'static {
    let out = out.clone();
    move |flow| {
        flow.source("records", topic.clone().records())
            .try_map(move |record: KafkaRecord| {
                let found = String::from_utf8(record.value.unwrap_or_default()).unwrap();
                match found == value {
                    true => Err(Error::user("killed")),
                    false => Ok((record.partition, found)),
                }
            })
            .sink("out", out.clone());
        Ok(())
    }
}

/// Reads until so many records are out.
pub(crate) fn read_until(job: Job, topic: KafkaTopic, out: &Out, count: usize) -> Result<Summary> {
    run_until(job, reading(topic, out), out, count)
}

/// Runs a job until so many records are out.
pub(crate) fn run_until<F>(job: Job, build: F, out: &Out, count: usize) -> Result<Summary>
where
    F: Fn(&Flow<'_>) -> Result<()> + Send + Sync + 'static,
{
    let seen = out.clone();
    let ended = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&ended);
    std::thread::scope(|scope| {
        let handle = job.handle();
        let watch = scope.spawn(move || {
            let is_out = || seen.items().len() >= count;
            let reached = within_patience(|| over.load(Ordering::SeqCst) || is_out());
            handle.stop();
            reached
        });
        let summary = job.run(args(2), build);
        ended.store(true, Ordering::SeqCst);
        let reached = watch.join().unwrap();
        assert!(reached, "{count} records are out: not in time; there are {:?}", out.items());
        summary
    })
}

/// All that is out, by partition and in order of value.
pub(crate) fn sorted(out: &Out) -> Vec<(i32, String)> {
    let mut items = out.items();
    items.sort_unstable();
    items
}

pub(crate) fn pairs(pairs: &[(i32, &str)]) -> Vec<(i32, String)> {
    pairs.iter().map(|(partition, value)| (*partition, (*value).to_owned())).collect()
}
