//! Processes of one run as threads, each with a store of its own temper on the same objects.

use std::io::Write;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use isochrone_persistence::Store;
use isochrone_persistence::store::Created;
use isochrone_persistence::store::memory::MemoryStore;

use super::*;
use crate::args::RunArgs;
use crate::job::{Checkpoint, Job, JobHandle};
use crate::summary::{Outcome, Summary};
use crate::testing::Script;
use crate::time::{Clock, SystemClock};

fn pause(span: Duration) {
    crossbeam_channel::after(span).recv().ok();
}

/// A store that gives out segments after `delay`, or fails to.
#[derive(Clone, Default)]
struct Slow {
    store: MemoryStore,
    delay: Duration,
    /// Gives out other bytes than were put in.
    is_broken: bool,
}

impl Store for Slow {
    fn get(&self, name: &str) -> Result<Option<Vec<u8>>> {
        if name.ends_with(".seg") {
            pause(self.delay);
            if self.is_broken {
                return Err(Error::corrupt("bytes as the store of one process has it"));
            }
        }
        self.store.get(name)
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Option<Vec<u8>>> {
        self.store.get_range(name, range)
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<()> {
        self.store.put(name, bytes)
    }

    fn put_if_absent(&self, name: &str, bytes: &[u8]) -> Result<Created> {
        self.store.put_if_absent(name, bytes)
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>> {
        self.store.list(prefix)
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.store.delete(name)
    }

    fn describe(&self) -> String {
        self.store.describe()
    }
}

/// A job that counts the first numbers by key.
struct Counting {
    handle: JobHandle,
    /// The sum of all counts that this process has seen.
    seen: Arc<AtomicU64>,
    run: JoinHandle<Option<Result<Summary>>>,
}

impl Counting {
    fn start(store: Slow, args: RunArgs, numbers: u64) -> Counting {
        let seen = Arc::new(AtomicU64::new(0));
        let sum = seen.clone();
        let job = Job::new("loads").checkpoint(Checkpoint::store(store));
        let handle = job.handle();
        let run = threads::spawn("isochrone-test", threads::note, move || {
            job.run(args, move |flow| {
                let sum = sum.clone();
                let _counts = flow
                    .source("numbers", Script::new(1, vec![(0..numbers).collect()]))
                    .key_by(|number| number % 10)
                    .state::<u64>("counts")
                    .map(move |count, _| {
                        *count += 1;
                        sum.fetch_add(*count, Ordering::SeqCst)
                    });
                Ok(())
            })
        });
        let run = run.unwrap();
        Counting { handle, seen, run }
    }

    fn end(self) -> Result<Summary> {
        self.run.join().unwrap().expect("no panic")
    }
}

fn seat(process: u32, hosts: &Path) -> RunArgs {
    let hosts = Some(hosts.to_owned());
    RunArgs { process: Some(process), hosts, quiet: true, ..RunArgs::default() }
}

/// A checkpoint, and then processes that go on from it, each with this temper of its store.
fn go_on<const N: usize>(tempers: [Slow; N]) -> [Counting; N] {
    let store = MemoryStore::default();
    let first = Slow { store: store.clone(), ..Slow::default() };
    let alone = RunArgs { quiet: true, ..RunArgs::default() };
    Counting::start(first, alone, 100).end().unwrap();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let free = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let hosts = free.map(|listener| listener.local_addr().unwrap().to_string());
    file.write_all(hosts.join("\n").as_bytes()).unwrap();
    let (_, path) = file.keep().unwrap();
    let mut process = 0;
    tempers.map(|temper| {
        let store = Slow { store: store.clone(), ..temper };
        process += 1;
        Counting::start(store, seat(process - 1, &path), 200)
    })
}

fn slow(delay: Duration) -> Slow {
    Slow { delay, ..Slow::default() }
}

/// Finding each other is bounded; what there is to load is not.
#[test]
fn a_process_that_loads_for_longer_than_they_may_take_to_meet_is_waited_for() {
    let delay = GATHER_TIMEOUT + Duration::from_secs(1);
    let [first, second] = go_on([Slow::default(), slow(delay)]);
    let seen = [first.seen.clone(), second.seen.clone()];
    let summary = first.end().unwrap();
    assert_eq!((summary.outcome, summary.read), (Outcome::InputEnded, 100));
    assert_eq!(second.end().unwrap().outcome, Outcome::ShareDone);
    let [seen, seen_by_second] = seen.map(|seen| seen.load(Ordering::SeqCst));
    let expected: u64 = (11..=20).sum::<u64>() * 10;
    assert_eq!(seen + seen_by_second, expected, "each key's count goes on at 10");
    assert!(seen > 0 && seen_by_second > 0, "{seen} {seen_by_second}");
}

#[test]
fn why_one_process_cannot_load_its_share_is_what_all_end_with() {
    let broken = Slow { is_broken: true, ..Slow::default() };
    for counting in go_on([Slow::default(), broken, Slow::default()]) {
        let error = counting.end().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
        assert!(error.report().contains("as the store of one process has it"), "{error:?}");
    }
}

/// What is owed is visible by then, and nothing has been read.
#[test]
fn a_stop_while_one_of_them_loads_lets_all_leave() {
    let clock = SystemClock::default();
    let delay = Duration::from_secs(4);
    let [first, second, third] = go_on([Slow::default(), slow(delay), Slow::default()]);
    pause(Duration::from_millis(500));
    first.handle.stop();
    for early in [first, third] {
        assert_eq!(early.end().unwrap().outcome, Outcome::Stopped);
    }
    assert!(
        Duration::from_millis(clock.monotonic_ms()) < delay,
        "they did not wait for the second"
    );
    assert_eq!(second.end().unwrap().outcome, Outcome::Stopped);
}

/// As an orchestrator does: whoever is asked first leaves first.
#[test]
fn processes_that_are_all_asked_to_stop_before_the_start_all_leave_well() {
    let long = Duration::from_secs(2);
    for order in [[0, 1], [1, 0]] {
        for after_ms in [0, 1, 2, 5, 10, 20, 50, 100, 200] {
            let all = go_on([Slow::default(), slow(long)]);
            pause(Duration::from_millis(after_ms));
            order.iter().for_each(|process: &usize| all[*process].handle.stop());
            for counting in all {
                let outcome = counting.end().unwrap().outcome;
                assert!(matches!(outcome, Outcome::Stopped | Outcome::ShareDone), "{outcome:?}");
            }
        }
    }
}
