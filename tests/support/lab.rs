//! A job on a real store and a real output folder, stopped and started again: what restarts do.
//!
//! The input is a script with a gate after each phase. A run reads up to the next gate and is
//! stopped there, so that a history of several runs and checkpoints is the same every time.
#![allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]
#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use isochrone::args::OnDamage;
use isochrone::connectors::scripted::{Script, Step};
use isochrone::prelude::*;
use isochrone::record::Record;
use tempfile::TempDir;

/// Account and amount.
pub type Event = (u32, u64);

/// A sum per account.
#[derive(Default, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sum(pub u64);

impl State for Sum {
    const VERSION: u16 = 1;
}

pub struct Lab<T> {
    folder: TempDir,
    phases: Vec<Vec<T>>,
    script: Script<T>,
    done: usize,
    seen: Arc<AtomicU64>,
    /// Checkpoints kept.
    pub retain: usize,
}

pub const JOB: &str = "shop";

impl<T: Record + Sync> Lab<T> {
    pub fn new(phases: Vec<Vec<T>>) -> Lab<T> {
        Lab::new_split_by(phases, 1, |_| 0)
    }

    /// Deals each phase to so many splits by a number.
    pub fn new_split_by(
        phases: Vec<Vec<T>>,
        splits: usize,
        number_of: impl Fn(&T) -> usize,
    ) -> Lab<T> {
        let steps = |split: usize| {
            let mut steps = Vec::new();
            for (number, phase) in (0..).zip(&phases) {
                if number > 0 {
                    steps.push(Step::Gate(number));
                }
                let mine = phase.iter().filter(|item| number_of(item) % splits == split);
                steps.extend(mine.cloned().map(Step::Item));
            }
            steps
        };
        let script = (1..splits).fold(Script::new(steps(0)), |script, n| script.and(steps(n)));
        Lab { folder: folder(), phases, script, done: 0, seen: Arc::default(), retain: 1000 }
    }

    /// One phase, in which the input rests after each few records.
    pub fn with_pauses(items: Vec<T>, every: usize) -> Lab<T> {
        let mut lab = Lab::new(vec![items]);
        let rest = |few: &[T]| {
            let items = few.iter().cloned().map(Step::Item);
            items.chain(std::iter::repeat_n(Step::Pause, 20)).collect::<Vec<_>>()
        };
        lab.script = Script::new(lab.phases[0].chunks(every).flat_map(rest));
        lab
    }

    /// The same history up to here, in folders of its own.
    pub fn fork(&self) -> Lab<T> {
        let folder = folder();
        copy(self.folder.path(), folder.path());
        let Lab { phases, script, done, retain, .. } = self;
        let (phases, script) = (phases.clone(), script.clone());
        Lab { folder, phases, script, done: *done, seen: Arc::default(), retain: *retain }
    }

    pub fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    pub fn out(&self) -> PathBuf {
        self.folder.path().join("out")
    }

    /// The input, counted as it is read.
    pub fn source(&self) -> impl Fn() -> Counted<T> + Send + Sync + use<T> {
        let (script, seen) = (self.script.clone(), self.seen.clone());
        move || Counted { script: script.clone(), seen: seen.clone() }
    }

    /// Asks how many records have been read since the run began.
    pub fn read(&self) -> impl Fn() -> u64 + use<T> {
        let seen = self.seen.clone();
        move || seen.load(Ordering::SeqCst)
    }

    pub fn job(&self) -> Job {
        let checkpoint = Checkpoint::dir(self.store()).not_by_time();
        Job::new(JOB).checkpoint(checkpoint.retain(self.retain, Duration::ZERO))
    }

    /// Runs to the end of the next phase and stops there.
    pub fn phase<F>(&mut self, args: &RunArgs, build: F) -> Result<Summary>
    where
        F: Fn(&Flow<'_>) -> Result<()> + Send + Sync + 'static,
    {
        self.phase_of(self.job(), args, build)
    }

    /// The same with another job than [`Lab::job`].
    pub fn phase_of<F>(&mut self, job: Job, args: &RunArgs, build: F) -> Result<Summary>
    where
        F: Fn(&Flow<'_>) -> Result<()> + Send + Sync + 'static,
    {
        let target = self.begin_phase();
        self.run_until(target, job, args, build)
    }

    /// The same, and goes on until so much else was noted with [`Lab::note`].
    pub fn phase_and<F>(&mut self, noted: u64, args: &RunArgs, build: F) -> Result<Summary>
    where
        F: Fn(&Flow<'_>) -> Result<()> + Send + Sync + 'static,
    {
        let target = self.begin_phase() + noted;
        self.run_until(target, self.job(), args, build)
    }

    /// Opens the next phase; answers how many records it has.
    fn begin_phase(&mut self) -> u64 {
        if self.done > 0 {
            self.script.open_gates();
        }
        self.done += 1;
        self.phases[self.done - 1].len() as u64
    }

    /// For what does not come with a record, but some time after it, as a watermark does.
    pub fn note(&self) -> impl Fn() + Clone + Send + Sync + use<T> {
        let seen = self.seen.clone();
        move || _ = seen.fetch_add(1, Ordering::SeqCst)
    }

    /// The next phase was run by the test itself.
    pub fn skip_phase(&mut self) {
        self.done += 1;
    }

    /// Runs until so many records have been read, and stops then.
    pub fn run_until<F>(&self, target: u64, job: Job, args: &RunArgs, build: F) -> Result<Summary>
    where
        F: Fn(&Flow<'_>) -> Result<()> + Send + Sync + 'static,
    {
        self.seen.store(0, Ordering::SeqCst);
        let (handle, seen) = (job.handle(), self.seen.clone());
        let over = Arc::new(AtomicBool::new(false));
        let watch = over.clone();
        let watcher = std::thread::spawn(move || {
            while seen.load(Ordering::SeqCst) < target && !watch.load(Ordering::SeqCst) {
                pause();
            }
            handle.stop();
        });
        let end = job.run(args.clone(), build);
        over.store(true, Ordering::SeqCst);
        watcher.join().unwrap();
        end
    }

    /// Opens all gates.
    pub fn open(&self) {
        self.phases.iter().for_each(|_| self.script.open_gates());
    }

    /// Runs to the end of the input.
    pub fn finish<F>(&self, args: &RunArgs, build: F) -> Result<Summary>
    where
        F: Fn(&Flow<'_>) -> Result<()> + Send + Sync + 'static,
    {
        self.open();
        self.job().run(args.clone(), build)
    }

    /// Lines of all visible parts, sorted.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = lines_in_order(&self.out());
        lines.sort();
        lines
    }

    pub fn manifests(&self) -> Vec<PathBuf> {
        files(&self.store().join(JOB).join("m"))
    }

    pub fn segments(&self) -> Vec<PathBuf> {
        files(&self.store().join(JOB).join("d"))
    }
}

impl Lab<Event> {
    /// Three phases of 40 events of 7 accounts; the third is read by nobody yet.
    pub fn with_history() -> Lab<Event> {
        let mut lab = Lab::new(phases());
        let build = totals(&lab);
        lab.phase(&quiet(1), build).unwrap();
        let build = totals(&lab);
        lab.phase(&quiet(1), build).unwrap();
        lab
    }

    pub fn expected(&self) -> Vec<String> {
        expected(self.phases.iter().flatten())
    }

    /// Restores and reads all that is left; what is visible must be exactly right.
    pub fn finishes_rightly(&self, args: &RunArgs) -> Summary {
        let summary = self.finish(args, totals(self)).unwrap();
        assert_eq!(self.lines(), self.expected());
        summary
    }
}

pub fn phases() -> Vec<Vec<Event>> {
    let event = |n: u64| ((n * n % 7) as u32, n);
    vec![
        (0..40).map(event).collect(),
        (40..80).map(event).collect(),
        (80..120).map(event).collect(),
    ]
}

/// One line per event: account and sum so far.
pub fn totals(lab: &Lab<Event>) -> impl Fn(&Flow<'_>) -> Result<()> + Send + Sync + 'static {
    totals_into(lab, lab.out(), "sums")
}

pub fn totals_into(
    lab: &Lab<Event>,
    out: PathBuf,
    state: impl Into<Id> + Clone + Send + Sync + 'static,
) -> impl Fn(&Flow<'_>) -> Result<()> + Send + Sync + 'static {
    let source = lab.source();
    move |flow| {
        flow.source("events", source())
            .key_by(|event| event.0)
            .state::<Sum>(state.clone())
            .map(|sum, event| {
                sum.0 += event.1;
                format!("{} {}", event.0, sum.0)
            })
            .sink("lines", PartFiles::at(&out).text());
        Ok(())
    }
}

/// What [`totals`] must write, sorted.
pub fn expected<'a>(events: impl IntoIterator<Item = &'a Event>) -> Vec<String> {
    let mut sums = std::collections::BTreeMap::<u32, u64>::new();
    let mut lines: Vec<String> = events
        .into_iter()
        .map(|(account, amount)| {
            let sum = sums.entry(*account).or_default();
            *sum += amount;
            format!("{account} {sum}")
        })
        .collect();
    lines.sort();
    lines
}

pub fn quiet(workers: u32) -> RunArgs {
    RunArgs { workers, quiet: true, ..RunArgs::default() }
}

pub fn previous() -> RunArgs {
    RunArgs { on_damage: OnDamage::Previous, ..quiet(1) }
}

/// A script that counts the records it hands out.
pub struct Counted<T: Record + Sync> {
    script: Script<T>,
    seen: Arc<AtomicU64>,
}

mod counted {
    use isochrone::connector::{Batch, Discovery, Poll, Reader, Source, Split};

    use super::*;

    impl<T: Record + Sync> Source for Counted<T> {
        type Item = T;
        type Position = u64;

        fn discover(&self, known: &[String]) -> Result<Discovery<u64>> {
            self.script.discover(known)
        }

        fn has_more(&self, split: &Split<u64>) -> Result<bool> {
            self.script.has_more(split)
        }

        fn open(&self, split: Split<u64>) -> Result<Box<dyn Reader<T, u64>>> {
            let (reader, seen) = (self.script.open(split)?, self.seen.clone());
            Ok(Box::new(CountedReader { reader, seen }))
        }
    }

    struct CountedReader<T> {
        reader: Box<dyn Reader<T, u64>>,
        seen: Arc<AtomicU64>,
    }

    impl<T: Record + Sync> Reader<T, u64> for CountedReader<T> {
        fn poll(&mut self, batch: &mut Batch<T>, max: usize) -> Result<Poll> {
            let before = batch.items.len();
            let poll = self.reader.poll(batch, max)?;
            self.seen.fetch_add((batch.items.len() - before) as u64, Ordering::SeqCst);
            Ok(poll)
        }

        fn position(&self) -> u64 {
            self.reader.position()
        }
    }
}

/// In memory where there is such a place: these tests are about bytes, not about disks.
pub fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { TempDir::new_in(memory).unwrap() } else { TempDir::new().unwrap() }
}

/// Lines of all visible parts, by epoch, then by worker, then as written.
pub fn lines_in_order(out: &Path) -> Vec<String> {
    let parts = files(out).into_iter().filter(|path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.starts_with("part-") && !name.contains(".superseded-")
    });
    let text = |path| std::fs::read_to_string(path).unwrap();
    parts.map(text).flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// All files below a folder, sorted by path.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut found = Vec::new();
    for path in entries.map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}

pub fn copy(from: &Path, to: &Path) {
    for path in files(from) {
        let target = to.join(path.strip_prefix(from).unwrap());
        let parent = target.parent().unwrap();
        make_private(parent);
        std::fs::copy(&path, target).unwrap();
    }
}

/// A store refuses a root that others may write.
fn make_private(folder: &Path) {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).unwrap();
}

#[expect(clippy::disallowed_methods, reason = "a test waits for a job on other threads")]
pub fn pause() {
    std::thread::sleep(Duration::from_millis(1));
}
