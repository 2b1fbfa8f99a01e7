//! A job: a name, where its checkpoints go and when they are taken, and a function over streams.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};
use isochrone_persistence::ids::{Epoch, JobName};
use isochrone_persistence::lineage::Retain;
use isochrone_persistence::store::local::LocalStore;
use isochrone_persistence::store::memory::MemoryStore;
use isochrone_persistence::{Error, Result, SharedStore, Store};

use crate::args::RunArgs;
use crate::flow::Flow;
use crate::protocol::Settings;
use crate::record::KEY_GROUPS;
use crate::runtime::conductor::Call;
use crate::summary::Summary;
use crate::time::{SharedClock, SystemClock};

/// Where checkpoints go and when they are taken. What the command line says goes before this.
///
/// ```
/// use std::time::Duration;
/// use isochrone_engine::{Checkpoint, Job};
/// let checkpoint = Checkpoint::dir("state")
///     .every(Duration::from_secs(5))
///     .every_records(1_000_000)
///     .retain(10, Duration::from_secs(24 * 60 * 60));
/// let job = Job::new("totals").checkpoint(checkpoint);
/// # let _ = job;
/// ```
#[derive(Clone)]
pub struct Checkpoint {
    pub(crate) place: Place,
    pub(crate) interval: Option<Duration>,
    pub(crate) records: Option<u64>,
    pub(crate) timeout: Duration,
    pub(crate) failures_max: u32,
    pub(crate) retain: Retain,
}

#[derive(Clone)]
pub(crate) enum Place {
    Directory(std::path::PathBuf),
    Store(SharedStore),
}

impl Checkpoint {
    /// In a local directory, which is created if need be.
    pub fn dir(path: impl Into<std::path::PathBuf>) -> Self {
        Checkpoint::at(Place::Directory(path.into()))
    }

    /// In memory: gone with the process.
    pub fn in_memory() -> Self {
        Checkpoint::store(MemoryStore::default())
    }

    /// In any store.
    pub fn store(store: impl Store) -> Self {
        Checkpoint::at(Place::Store(Arc::new(store)))
    }

    fn at(place: Place) -> Self {
        Checkpoint {
            place,
            interval: Some(Duration::from_secs(1)),
            records: None,
            timeout: Duration::from_secs(60),
            failures_max: 3,
            retain: Retain { last: 3, younger_than_ms: 0 },
        }
    }

    /// One so often. The first of a run comes after a tenth of that, but not within 200 ms, so that a
    /// run that had to start again soon shows output. Without this, every second.
    #[must_use]
    pub fn every(mut self, interval: Duration) -> Self {
        self.interval = Some(interval);
        self
    }

    /// One whenever so many records have been read.
    #[must_use]
    pub fn every_records(mut self, records: u64) -> Self {
        self.records = Some(records);
        self
    }

    /// None by time.
    #[must_use]
    pub fn not_by_time(mut self) -> Self {
        self.interval = None;
        self
    }

    /// A checkpoint that takes longer is dropped; output of a checkpoint that takes longer to become
    /// visible is warned of. Without this, a minute.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// So many dropped in a row end the job, and so does output that is not visible after so many
    /// [timeouts](Checkpoint::timeout). Without this, three.
    #[must_use]
    pub fn failures_max(mut self, failures: u32) -> Self {
        self.failures_max = failures;
        self
    }

    /// Keeps the last few, and all younger than some age, whichever is more. Without this, three.
    /// What is not kept is deleted at most once a second, so that there may be more for a moment.
    #[must_use]
    pub fn retain(mut self, last: usize, younger_than: Duration) -> Self {
        let younger_than_ms = u64::try_from(younger_than.as_millis()).unwrap_or(u64::MAX);
        self.retain = Retain { last, younger_than_ms };
        self
    }
}

/// A job under construction.
///
/// ```
/// use isochrone_connectors::{Collected, generator::Generator};
/// use isochrone_engine::{Checkpoint, Job, Outcome, RunArgs};
///
/// let folder = tempfile::tempdir().expect("a folder");
/// let output = Collected::default();
/// let run = |count| {
///     let sink = output.clone();
///     let job = Job::new("sums").checkpoint(Checkpoint::dir(folder.path()));
///     job.run(RunArgs { workers: 2, ..RunArgs::default() }, move |flow| {
///         let numbers = flow.source("numbers", Generator::counting(count, |n| n));
///         let ones = numbers.key_by(|_| ()).count("count").map(|(_, count)| count);
///         ones.sink("out", sink.clone());
///         Ok(())
///     })
/// };
/// assert_eq!(run(3)?.outcome, Outcome::InputEnded);
/// assert_eq!(run(3)?.outcome, Outcome::NothingToDo);
/// assert_eq!(output.items(), [1, 2, 3]);
/// # Ok::<(), isochrone_engine::Error>(())
/// ```
pub struct Job {
    pub(crate) name: String,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) key_groups: u16,
    pub(crate) clock: SharedClock,
    calls: (Sender<Call>, Receiver<Call>),
}

/// Asks a running job for something, from any thread.
///
/// ```
/// use isochrone_connectors::{Collected, scripted::{Script, Step::*}};
/// use isochrone_engine::{Job, Outcome, RunArgs};
///
/// // A source that has one record and then waits for ever.
/// let script = Script::new([Item(1), Gate(1)]);
/// let job = Job::new("waiting");
/// let handle = job.handle();
/// let asking = std::thread::spawn(move || {
///     let savepoint = handle.checkpoint(Some("before-release"));
///     handle.stop();
///     savepoint
/// });
/// let summary = job.run(RunArgs::default(), move |flow| {
///     flow.source("in", script.clone()).sink("out", Collected::default());
///     Ok(())
/// })?;
/// assert_eq!(summary.outcome, Outcome::Stopped);
/// asking.join().expect("no panic")?;
/// # Ok::<(), isochrone_engine::Error>(())
/// ```
#[derive(Clone)]
pub struct JobHandle(Sender<Call>);

impl JobHandle {
    /// Asks for a checkpoint and waits until it exists; answers its number. With a label it is a
    /// savepoint, kept until it is dropped. Fails with `Unavailable` if it could not be taken.
    pub fn checkpoint(&self, savepoint: Option<&str>) -> Result<Epoch> {
        let (answer, answered) = crossbeam_channel::bounded(1);
        let savepoint = savepoint.map(str::to_owned);
        let gone = || Error::unavailable("the job is not running any more");
        self.0.send(Call::Checkpoint { savepoint, answer }).map_err(|_| gone())?;
        answered.recv().map_err(|_| gone())?.map_err(Error::unavailable)
    }

    /// Asks the job to take a last checkpoint, make its output visible and end. Does not wait.
    pub fn stop(&self) {
        // A job that has ended needs no stop.
        let _ = self.0.send(Call::Stop);
    }
}

impl Job {
    /// A job with this name, which is its identity in the store: `[a-z0-9_-]{1,64}`. Without
    /// [`Job::checkpoint`], checkpoints are kept in memory.
    pub fn new(name: &str) -> Job {
        Job {
            name: name.to_owned(),
            checkpoint: Checkpoint::in_memory(),
            key_groups: KEY_GROUPS,
            clock: Arc::new(SystemClock::default()),
            calls: crossbeam_channel::unbounded(),
        }
    }

    /// Where checkpoints go and when they are taken.
    #[must_use]
    pub fn checkpoint(mut self, checkpoint: Checkpoint) -> Job {
        self.checkpoint = checkpoint;
        self
    }

    /// The number of key groups, fixed for the job's life: more than there will ever be workers.
    #[must_use]
    pub fn key_groups(mut self, groups: u16) -> Job {
        self.key_groups = groups;
        self
    }

    /// Another clock, for tests.
    #[must_use]
    pub fn clock(mut self, clock: SharedClock) -> Job {
        self.clock = clock;
        self
    }

    /// What asks the job for checkpoints, or to stop, while [`Job::run`] runs.
    pub fn handle(&self) -> JobHandle {
        JobHandle(self.calls.0.clone())
    }

    /// Runs the job until its input ends, it is asked to stop, or it fails.
    ///
    /// The function is called once to learn what it declares and once on every worker; it must
    /// declare the same each time, and does no I/O of its own.
    pub fn run<F>(self, args: RunArgs, build: F) -> Result<Summary>
    where
        F: Fn(&Flow<'_>) -> Result<()> + Send + Sync + 'static,
    {
        args.validate()?;
        crate::runtime::launch::launch(self, args, Arc::new(build))
    }

    pub(crate) fn job_name(&self) -> Result<JobName> {
        JobName::new(&self.name)
    }

    pub(crate) fn calls(&self) -> (Sender<Call>, Receiver<Call>) {
        self.calls.clone()
    }

    /// The store that the flags or the program name.
    pub(crate) fn open_store(&self, args: &RunArgs) -> Result<SharedStore> {
        let directory = match (&args.store, &self.checkpoint.place) {
            (Some(path), _) => path,
            (None, Place::Directory(path)) => path,
            (None, Place::Store(store)) => return Ok(store.clone()),
        };
        Ok(Arc::new(LocalStore::open(directory)?))
    }

    pub(crate) fn settings(&self, args: &RunArgs) -> Settings {
        let interval = args.checkpoint_every.or(self.checkpoint.interval);
        let ms = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        Settings {
            interval_ms: interval.map(ms),
            records: args.checkpoint_records.or(self.checkpoint.records),
            timeout_ms: ms(self.checkpoint.timeout),
            failures_max: self.checkpoint.failures_max,
        }
    }
}
