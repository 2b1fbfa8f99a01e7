//! The story of the pinned log: events up to 47, a checkpoint, event 48, a crash before the next
//! checkpoint. After recovery event 48 has had exactly one published effect. And its neighbours:
//! a crash at every durable operation, state newer than position, position newer than state.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use isochrone::connector::{Committer, Prepare, Readiness, Sink, SinkContext, Writer};
use isochrone::connectors::Collected;
use isochrone::connectors::scripted::{Script, Step};
use isochrone::ids::{Epoch, JobName};
use isochrone::persistence::lineage::{read_all, read_newest};
use isochrone::persistence::manifest::{self, Manifest, Part};
use isochrone::persistence::store::faulty::{Effect as Fault, FaultyStore, Plan};
use isochrone::persistence::store::local::LocalStore;
use isochrone::persistence::store::memory::MemoryStore;
use isochrone::persistence::{Store, paths};
use isochrone::prelude::*;
use isochrone::{ErrorKind, JobHandle};
use support::child::{self, assert_ends_well, play};
use support::oracle::parts;
use support::{stored, wait};
use tempfile::TempDir;

const JOB: &str = "pinned-log";
const ACCOUNTS: u64 = 7;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Event {
    number: u64,
    account: u64,
    cents: i64,
}

/// What an event does: the count and total of its account, just after it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Effect {
    number: u64,
    account: u64,
    events: u64,
    cents: i64,
}

type Totals = BTreeMap<u64, (u64, i64)>;

fn event(number: u64) -> Event {
    Event { number, account: number % ACCOUNTS, cents: 100 + number as i64 }
}

fn items(numbers: impl IntoIterator<Item = u64>) -> impl Iterator<Item = Step<Event>> {
    numbers.into_iter().map(|number| Step::Item(event(number)))
}

/// What a right run makes of these events, applied in this order.
fn apply(events: impl IntoIterator<Item = Event>) -> (Vec<Effect>, Totals) {
    let mut totals = Totals::new();
    let mut effects = Vec::new();
    for Event { number, account, cents } in events {
        let total = totals.entry(account).or_default();
        *total = (total.0 + 1, total.1 + cents);
        effects.push(Effect { number, account, events: total.0, cents: total.1 });
    }
    (effects, totals)
}

fn pipeline(flow: &Flow<'_>, script: &Script<Event>, sink: impl Sink<Item = Effect>) {
    flow.source("log", script.clone())
        .key_by(|event| event.account)
        .state::<(u64, i64)>("totals")
        .map(|total, Event { number, account, cents }| {
            *total = (total.0 + 1, total.1 + cents);
            Effect { number, account, events: total.0, cents: total.1 }
        })
        .sink("effects", sink);
}

fn quiet(workers: u32) -> RunArgs {
    RunArgs { workers, quiet: true, ..RunArgs::default() }
}

// The story.

#[test]
fn event_48_has_exactly_one_published_effect_after_a_kill_before_the_next_checkpoint() {
    play(|flags| pinned_log(Path::new(&flags[1]), flags[2] == "killed"));
    let folder = TempDir::new().unwrap();
    let start = |how: &str| {
        let flags = [folder.path().to_str().unwrap().to_owned(), how.to_owned()];
        let test =
            "event_48_has_exactly_one_published_effect_after_a_kill_before_the_next_checkpoint";
        child::Job::start(test, &flags, &folder.path().join("errors"))
    };
    let mut job = start("killed");
    assert!(wait::soon(|| written(folder.path()).exists()), "{}", job.errors());
    let published = published(folder.path());
    assert_eq!(published.last().map(|effect| effect.number), Some(47), "48 is only written");
    assert!(job.kill());

    assert_ends_well(&mut start("whole"));
    let (effects, totals) = apply((1..=48).map(event));
    assert_eq!(self::published(folder.path()), effects);
    let store = LocalStore::open(folder.path().join("state")).unwrap();
    let manifest = stored::newest(&store, JOB).unwrap();
    assert_eq!(stored::state::<u64, (u64, i64)>(&store, &manifest, "totals"), totals);
}

/// The job of the story. To be killed, it takes a checkpoint of the first 47 events, writes the effect
/// of event 48, says so by a file, and waits for ever.
fn pinned_log(folder: &Path, killed: bool) -> Result<()> {
    let steps = items(1..=47).chain([Step::Gate(1)]).chain(items([48])).chain([Step::Gate(2)]);
    let script = Script::new(steps);
    let newest = Arc::new(AtomicU64::new(0));
    let checkpoint = Checkpoint::dir(folder.join("state")).not_by_time();
    let job = Job::new(JOB).checkpoint(checkpoint);
    if killed {
        let (handle, script) = (job.handle(), script.clone());
        let (newest, folder) = (newest.clone(), folder.to_owned());
        thread::spawn(move || {
            assert!(wait::soon(|| newest.load(Ordering::SeqCst) == 47));
            handle.checkpoint(None).unwrap();
            assert!(wait::soon(|| published(&folder).len() == 47));
            script.open_gates();
            assert!(wait::soon(|| newest.load(Ordering::SeqCst) == 48));
            fs::write(written(&folder), "").unwrap();
        });
    } else {
        script.open_gates();
        script.open_gates();
    }
    let output = folder.join("output");
    job.run(quiet(1), move |flow| {
        let parts = PartFiles::at(&output).json();
        pipeline(flow, &script, Observed { sink: parts, newest: newest.clone() });
        Ok(())
    })
    .map(drop)
}

fn written(folder: &Path) -> PathBuf {
    folder.join("48-is-written")
}

fn published(folder: &Path) -> Vec<Effect> {
    let read = |part| fs::read_to_string(part).unwrap();
    let text: String = parts(&folder.join("output")).into_iter().map(read).collect();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A sink that says which event it has been given last.
struct Observed<S> {
    sink: S,
    newest: Arc<AtomicU64>,
}

struct ObservedWriter<W: ?Sized> {
    newest: Arc<AtomicU64>,
    writer: Box<W>,
}

impl<S: Sink<Item = Effect>> Sink for Observed<S> {
    type Item = Effect;
    type Effect = S::Effect;

    fn writer(&self, context: &SinkContext) -> Result<Box<dyn Writer<Effect, S::Effect>>> {
        let (newest, writer) = (self.newest.clone(), self.sink.writer(context)?);
        Ok(Box::new(ObservedWriter { newest, writer }))
    }

    fn committer(&self, context: &SinkContext) -> Result<Box<dyn Committer<S::Effect>>> {
        self.sink.committer(context)
    }
}

impl<E: 'static> Writer<Effect, E> for ObservedWriter<dyn Writer<Effect, E>> {
    fn write(&mut self, batch: &mut Vec<Effect>, epoch: Epoch) -> Result<Readiness> {
        let last = batch.last().map(|effect| effect.number);
        let readiness = self.writer.write(batch, epoch)?;
        self.newest.store(last.unwrap_or(0), Ordering::SeqCst);
        Ok(readiness)
    }

    fn prepare(&mut self, epoch: Epoch) -> Result<Prepare<E>> {
        self.writer.prepare(epoch)
    }
}

// A crash at every step of the protocol.

/// Two splits with accounts of their own, and so many gates in each.
fn gated_script() -> Script<Event> {
    let split = |odd: u64| {
        (0..=GATES).flat_map(move |gate| {
            let numbers = (gate * 20..gate * 20 + 20).filter(move |n| n % ACCOUNTS % 2 == odd);
            items(numbers).chain((gate < GATES).then_some(Step::Gate(gate + 1)))
        })
    };
    Script::new(split(0)).and(split(1))
}

const GATES: u64 = 4;

/// Asks for a checkpoint before it opens each gate, whether the job takes it or not.
fn drive(handle: JobHandle, script: Script<Event>) -> JoinHandle<()> {
    thread::spawn(move || {
        for _ in 0..GATES {
            let _may_fail_by_plan = handle.checkpoint(None);
            script.open_gates();
        }
    })
}

fn run(
    store: impl Store,
    workers: u32,
    script: &Script<Event>,
    sink: &Collected<Effect>,
    timeout: Duration,
) -> Result<Summary> {
    let checkpoint = Checkpoint::store(store).not_by_time().failures_max(1).timeout(timeout);
    let job = Job::new(JOB).checkpoint(checkpoint);
    let driver = drive(job.handle(), script.clone());
    let (script, sink) = (script.clone(), sink.clone());
    let end = job.run(quiet(workers), move |flow| {
        pipeline(flow, &script, sink.clone());
        Ok(())
    });
    driver.join().unwrap();
    end
}

fn assert_is_undisturbed(store: &MemoryStore, sink: &Collected<Effect>, what: &str) {
    let (mut expected, totals) = apply((0..20 * (GATES + 1)).map(event));
    let found = sink.items();
    for account in 0..ACCOUNTS {
        let of_account = |effects: &[Effect]| -> Vec<u64> {
            effects.iter().filter(|e| e.account == account).map(|e| e.number).collect()
        };
        assert_eq!(of_account(&found), of_account(&expected), "{what}: order of {account}");
    }
    let mut found = found;
    found.sort_by_key(|effect| effect.number);
    expected.sort_by_key(|effect| effect.number);
    assert_eq!(found, expected, "{what}");
    let manifest = stored::newest(store, JOB).unwrap();
    assert!(manifest.finished, "{what}");
    let state = stored::state::<u64, (u64, i64)>(store, &manifest, "totals");
    assert_eq!(state, totals, "{what}");
}

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_crash_before_or_after_any_store_operation_changes_neither_output_nor_state() {
    let whole = Arc::new(FaultyStore::new(MemoryStore::new(), Plan::none()));
    let sink = Collected::default();
    run(whole.clone(), 2, &gated_script(), &sink, PATIENCE).unwrap();
    assert_is_undisturbed(whole.inner(), &sink, "undisturbed");

    let mut crashes = 0;
    for n in 1..=whole.operations() {
        for fault in [Fault::CrashBefore, Fault::CrashAfter] {
            let what = format!("operation {n}, {fault:?}");
            let left = MemoryStore::new();
            let store = Arc::new(FaultyStore::new(left.clone(), Plan::at_operation(n, fault)));
            let (script, sink) = (gated_script(), Collected::default());
            // A store that is gone for good is asked until the checkpoint's time is over.
            let short = Duration::from_millis(500);
            if let Err(error) = run(store.clone(), 2, &script, &sink, short) {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{what}: {error:?}");
            }
            crashes += u32::from(store.is_crashed());
            let workers = 1 + (n % 3) as u32;
            if let Err(error) = run(left.clone(), workers, &script, &sink, PATIENCE) {
                panic!("{what}: the restart fails: {error:?}");
            }
            assert_is_undisturbed(&left, &sink, &what);
        }
    }
    println!("{crashes} crashes at {} operations", whole.operations());
    assert!(crashes > 40, "only {crashes} crashes");
}

// State and position.

#[test]
fn in_every_checkpoint_the_state_is_the_effect_of_exactly_what_the_position_has_passed() {
    let steps = |first: u64| items(first..first + 3_000).collect::<Vec<_>>();
    let with_pauses = |steps: Vec<Step<Event>>| {
        let pause = |(at, step)| [step].into_iter().chain((at % 40 == 0).then_some(Step::Pause));
        steps.into_iter().enumerate().flat_map(pause).collect::<Vec<_>>()
    };
    let splits = [with_pauses(steps(0)), with_pauses(steps(3_000))];
    let script = Script::new(splits[0].clone()).and(splits[1].clone());
    let store = MemoryStore::new();
    let checkpoint = Checkpoint::store(store.clone())
        .every(Duration::from_millis(2))
        .retain(usize::MAX, Duration::MAX);
    let job = Job::new(JOB).checkpoint(checkpoint);
    let sink = Collected::default();
    job.run(quiet(2), move |flow| {
        pipeline(flow, &script, sink.clone());
        Ok(())
    })
    .unwrap();

    let all = read_all(&store, &JobName::new(JOB).unwrap()).unwrap();
    let manifests: Vec<Manifest> = all.into_iter().map(|found| found.manifest.unwrap()).collect();
    let mut cuts = 0;
    for manifest in &manifests {
        let passed = passed(manifest, &splits);
        cuts += u32::from(!passed.is_empty() && passed.len() < 6_000);
        let (_, totals) = apply(passed);
        let state = stored::state::<u64, (u64, i64)>(&store, manifest, "totals");
        assert_eq!(state, totals, "sequence {}", manifest.sequence);
    }
    assert!(cuts > 5, "only {cuts} checkpoints in between");
}

/// The events before the positions in a manifest.
fn passed(manifest: &Manifest, splits: &[Vec<Step<Event>>]) -> Vec<Event> {
    let log = manifest.operators.iter().find(|operator| operator.id.as_str() == "log").unwrap();
    let Part::Source { splits: found, .. } = &log.part else { panic!("`log` is a source") };
    let mut events = Vec::new();
    for split in found {
        let index: usize = split.id.rsplit(' ').next().unwrap().parse().unwrap();
        let position = split.position.as_u64().unwrap() as usize;
        events.extend(splits[index][..position].iter().filter_map(|step| match step {
            Step::Item(event) => Some(event.clone()),
            _ => None,
        }));
    }
    events
}

#[test]
fn a_manifest_with_state_newer_than_its_positions_is_refused() {
    let store = MemoryStore::new();
    let (script, sink) = (gated_script(), Collected::default());
    run(store.clone(), 1, &script, &sink, PATIENCE).unwrap();
    let job = JobName::new(JOB).unwrap();
    let newest = read_newest(&store, &job).unwrap().top.unwrap();
    let whole = newest.manifest.unwrap();
    let older = read_all(&store, &job).unwrap().pop().unwrap().manifest.unwrap();
    assert!(older.epoch < whole.epoch);

    // The positions and epoch of the older one, the state of the newest.
    let mut forged = older;
    forged.operators.clone_from(&whole.operators);
    forged.sequence = whole.sequence.next();
    forged.generation = whole.generation;
    forged.predecessor = newest.digest;
    let name = paths::manifest(&job, forged.sequence);
    store.put(&name, &manifest::encode(&forged)).unwrap();
    let error = run(store, 1, &script, &sink, PATIENCE).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
    assert!(error.to_string().contains(&name), "{error:?}");
    assert!(error.to_string().contains("epoch"), "{error:?}");
}
