//! A target that does not answer: the commit of a user's sink does not return, or is slow.

use super::*;

use isochrone::connector::{Prepare, Readiness};
use isochrone::persistence::store::faulty::{FaultyStore, Operation, Plan};

/// How a commit goes wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trouble {
    /// The first one of this process, in all runs, never returns.
    Hangs { process: u32 },
    /// Each takes so long.
    Slow { ms: u64 },
}

/// A sink that writes a file for each epoch and worker.
#[derive(Clone)]
struct Shelf {
    folder: PathBuf,
    trouble: Trouble,
}

/// Epoch, worker and numbers.
type Parcel = (u64, u32, Vec<u64>);

impl Sink for Shelf {
    type Item = u64;
    type Effect = Parcel;

    fn writer(&self, context: &SinkContext) -> Result<Box<dyn Writer<u64, Parcel>>> {
        Ok(Box::new(Filling { worker: context.worker.0, numbers: Vec::new() }))
    }

    fn committer(&self, context: &SinkContext) -> Result<Box<dyn Committer<Parcel>>> {
        Ok(Box::new(Shelving { shelf: self.clone(), process: context.run.process }))
    }
}

struct Filling {
    worker: u32,
    numbers: Vec<u64>,
}

impl Writer<u64, Parcel> for Filling {
    fn write(&mut self, batch: &mut Vec<u64>, _: isochrone::ids::Epoch) -> Result<Readiness> {
        self.numbers.append(batch);
        Ok(Readiness::Ready)
    }

    fn prepare(&mut self, epoch: isochrone::ids::Epoch) -> Result<Prepare<Parcel>> {
        let numbers = std::mem::take(&mut self.numbers);
        let filled = (!numbers.is_empty()).then_some((epoch.0, self.worker, numbers));
        Ok(Box::new(move || Ok(filled.clone())))
    }
}

struct Shelving {
    shelf: Shelf,
    process: u32,
}

impl Shelving {
    fn put(&self, boxes: &[Parcel]) {
        for (epoch, worker, numbers) in boxes {
            let text = serde_json::to_string(numbers).unwrap();
            let at = self.shelf.folder.join(format!("{epoch}-{worker}"));
            std::fs::write(at.with_extension("open"), text).unwrap();
            std::fs::rename(at.with_extension("open"), at).unwrap();
        }
    }
}

impl Committer<Parcel> for Shelving {
    fn recover(&mut self, recovery: Recovery<Parcel>) -> Result<Vec<String>> {
        self.put(&recovery.pending);
        Ok(Vec::new())
    }

    fn commit(&mut self, boxes: &[Parcel]) -> Result<()> {
        match self.shelf.trouble {
            Trouble::Hangs { process } if process == self.process => {
                let hung = std::fs::File::create_new(self.shelf.folder.join("hung"));
                if hung.is_ok() {
                    wait::pause(Duration::from_secs(600));
                }
            }
            Trouble::Hangs { .. } => {}
            Trouble::Slow { ms } => wait::pause(Duration::from_millis(ms)),
        }
        self.put(boxes);
        Ok(())
    }
}

const NUMBERS: u64 = 3_000;

/// All that is visible, sorted.
fn shelved(folder: &Path) -> Vec<u64> {
    let boxes = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let boxes = boxes.filter(|path| path.file_name().unwrap().to_str().unwrap().contains('-'));
    let of = |path| -> Vec<u64> {
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    };
    let mut numbers: Vec<u64> = boxes.flat_map(of).collect();
    numbers.sort_unstable();
    numbers
}

/// Reads numbers for some seconds, with a checkpoint every 20 ms.
fn shelve(folder: &Path, trouble: Trouble, timeout: Duration, args: RunArgs) -> Result<Summary> {
    // All commits of a slow one together take longer than the time-out.
    let (failures, per_second) = match trouble {
        Trouble::Slow { .. } => (1, NUMBERS / 6),
        Trouble::Hangs { .. } => (3, 1_000),
    };
    let checkpoint = Checkpoint::dir(folder.join("state")).every(Duration::from_millis(20));
    let checkpoint = checkpoint.timeout(timeout).failures_max(failures);
    let shelf = Shelf { folder: folder.to_owned(), trouble };
    let clock = Arc::new(isochrone::time::SystemClock::default());
    Job::new("shelving").checkpoint(checkpoint).run(args, move |flow| {
        let numbers = Generator::counting(NUMBERS, |number| number).splits(4);
        flow.source("numbers", numbers.per_second(per_second, clock.clone()))
            .sink("out", shelf.clone());
        Ok(())
    })
}

/// A job whose first commit hangs, in the last of its processes. Flags: folder, processes, timeout in
/// milliseconds.
fn hanging_job(flags: &[std::ffi::OsString]) -> Result<Summary> {
    let log = tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false);
    log.with_max_level(tracing_subscriber::filter::LevelFilter::WARN).init();
    let number = |flag: &std::ffi::OsString| flag.to_str().unwrap().parse::<u64>().unwrap();
    let (processes, timeout) = (number(&flags[2]), Duration::from_millis(number(&flags[3])));
    let processes = u32::try_from(processes).unwrap();
    let args = RunArgs { processes: Some(processes), signals: true, ..RunArgs::default() };
    shelve(Path::new(&flags[1]), Trouble::Hangs { process: processes - 1 }, timeout, args)
}

fn start(test: &str, folder: &Path, processes: u32, timeout_ms: u64) -> child::Job {
    let flags =
        [folder.to_str().unwrap().to_owned(), processes.to_string(), timeout_ms.to_string()];
    let job = child::Job::start(test, &flags, &folder.join("errors"));
    assert!(wait::soon(|| folder.join("hung").exists()), "{}", job.errors());
    job
}

fn says(job: &child::Job, parts: &[&str]) {
    for part in parts {
        assert!(job.errors().contains(part), "`{part}` is not in: {}", job.errors());
    }
}

const ENDS: &str =
    "hung::a_commit_that_never_returns_is_told_and_ends_the_job_and_the_next_run_publishes";

/// It once held up checkpoints, requests and the end of the job for ever, in silence.
#[test]
fn a_commit_that_never_returns_is_told_and_ends_the_job_and_the_next_run_publishes() {
    play(|flags| hanging_job(&flags));
    let folder = TempDir::new().unwrap();
    let mut job = start(ENDS, folder.path(), 1, 2_000);
    assert_eq!(job.end().code(), Some(4), "{}", job.errors());
    says(
        &job,
        &[
            "output is still not visible after",
            "sink `out` in process 0, which began",
            "start the job again",
            "the committer does not return, and is left behind",
        ],
    );
    // Of the first, unless that took too long before.
    let gives_up = |line: &str| {
        let output = line.split_once("the output of checkpoint ");
        let said = output.map(|(_, of)| of.trim_start_matches(|sign: char| sign.is_ascii_digit()));
        said.is_some_and(|said| said.starts_with(" has not become visible in "))
    };
    assert!(job.errors().lines().any(gives_up), "{}", job.errors());
    let warned = job.errors().matches("output is still not visible after").count();
    assert_eq!(warned, 2, "at each time-out but the last: {}", job.errors());
    assert!(shelved(folder.path()).is_empty());
    let trouble = Trouble::Hangs { process: 0 };
    let summary = shelve(folder.path(), trouble, Duration::from_secs(60), quiet(2)).unwrap();
    assert_eq!(summary.outcome, Outcome::InputEnded);
    assert_eq!(shelved(folder.path()), (0..NUMBERS).collect::<Vec<_>>());
}

const RESTARTS: &str =
    "hung::a_commit_that_hangs_in_one_process_of_several_is_named_and_costs_a_restart";

#[test]
fn a_commit_that_hangs_in_one_process_of_several_is_named_and_costs_a_restart() {
    play(|flags| hanging_job(&flags));
    let folder = TempDir::new().unwrap();
    let mut job = start(RESTARTS, folder.path(), 2, 2_000);
    assert_ends_well(&mut job);
    says(
        &job,
        &[
            "all processes start again from the newest checkpoint",
            "sink `out` in process 1, which began",
        ],
    );
    assert_eq!(shelved(folder.path()), (0..NUMBERS).collect::<Vec<_>>());
}

const NAMED: &str = "hung::whoever_asks_a_job_to_end_is_told_which_sink_it_waits_for";

#[test]
fn whoever_asks_a_job_to_end_is_told_which_sink_it_waits_for() {
    play(|flags| hanging_job(&flags));
    for processes in [1, 2] {
        let folder = TempDir::new().unwrap();
        let mut job = start(NAMED, folder.path(), processes, 60_000);
        job.signal("TERM");
        let awaited = "waits for the output of checkpoint 1 to become visible, for";
        assert!(wait::soon(|| job.errors().contains(awaited)), "{}", job.errors());
        assert_eq!(job.ended(), None, "{}", job.errors());
        job.signal("TERM");
        assert_eq!(job.end().code(), Some(4), "{}", job.errors());
        let ended = "ended at once on request while waiting for the output of checkpoint 1 to become \
                     visible, for";
        let sink = format!("sink `out` in process {}, which began", processes - 1);
        says(&job, &[ended, &sink]);
    }
}

/// A store of which the puts of data do not return.
fn stuck() -> FaultyStore<MemoryStore> {
    FaultyStore::new(MemoryStore::new(), Plan::none()).with_latency(|call| {
        if call.operation == Operation::Put && call.name.contains("/d/") {
            wait::pause(Duration::from_secs(600));
        }
    })
}

/// The end of a run that had failed once waited for the very thread that had made it fail.
#[test]
fn a_store_or_a_closure_that_never_returns_fails_checkpoints_and_then_the_job_ends() {
    for (closure_hangs, missing) in [(false, "`counts` on worker 0"), (true, "`out` on worker 0")] {
        let checkpoint = Checkpoint::store(stuck()).failures_max(2);
        let checkpoint = checkpoint.every(Duration::from_millis(20));
        let job = Job::new("stuck").checkpoint(checkpoint.timeout(Duration::from_millis(300)));
        let end = job.run(quiet(1), move |flow| {
            let counts =
                flow.source("numbers", endless()).key_by(|number| number % 10).count("counts");
            let hang = move |_: &(u64, u64)| {
                if closure_hangs {
                    wait::pause(Duration::from_secs(600));
                }
            };
            counts.inspect(hang).sink("out", Callback::new(|_: &(u64, u64)| ()));
            Ok(())
        });
        let error = end.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        for part in ["2 checkpoints in a row failed", "timed out after", missing] {
            assert!(error.to_string().contains(part), "{error:?}");
        }
    }
}

/// Longer than the interval, shorter than the time-out, and one time-out would be one too many.
#[test]
fn a_commit_that_is_merely_slow_is_waited_for() {
    let folder = TempDir::new().unwrap();
    let timeout = Duration::from_secs(3);
    let summary = shelve(folder.path(), Trouble::Slow { ms: 600 }, timeout, quiet(2)).unwrap();
    assert_eq!(summary.outcome, Outcome::InputEnded);
    assert_eq!(summary.checkpoints.failed, 0, "{summary}");
    assert!((3..20).contains(&summary.checkpoints.published), "{summary}");
    assert_eq!(shelved(folder.path()), (0..NUMBERS).collect::<Vec<_>>());
}
