//! The story of the pinned log: events up to 47, a checkpoint, event 48, a crash before the next
//! checkpoint. After recovery event 48 has had exactly one published effect. And its neighbours:
//! a crash at every durable operation, state newer than position, position newer than state. Of these,
//! state from after the manifest's own cut is found out by the epochs in its segments; state or positions
//! from before it are not, since the manifest is the truth: there it is shown that no step of the
//! protocol, and no crash at any, leaves such a manifest.

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
use isochrone::persistence::lineage::{Found, read_all, read_newest};
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
fn gated_steps() -> [Vec<Step<Event>>; 2] {
    let split = |odd: u64| {
        let steps = (0..=GATES).flat_map(move |gate| {
            let numbers = (gate * 20..gate * 20 + 20).filter(move |n| n % ACCOUNTS % 2 == odd);
            items(numbers).chain((gate < GATES).then_some(Step::Gate(gate + 1)))
        });
        steps.collect()
    };
    [split(0), split(1)]
}

fn gated_script() -> Script<Event> {
    let [even, odd] = gated_steps();
    Script::new(even).and(odd)
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

    let (mut crashes, mut manifests) = (0, 0);
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
            manifests += assert_cuts(&left, &gated_steps(), &what).0;
            let workers = 1 + (n % 3) as u32;
            if let Err(error) = run(left.clone(), workers, &script, &sink, PATIENCE) {
                panic!("{what}: the restart fails: {error:?}");
            }
            assert_is_undisturbed(&left, &sink, &what);
            manifests += assert_cuts(&left, &gated_steps(), &what).0;
        }
    }
    println!("{crashes} crashes at {} operations", whole.operations());
    assert!(crashes > 40, "only {crashes} crashes");
    assert!(manifests > 400, "only {manifests} manifests");
}

// State and position.

#[test]
fn in_every_checkpoint_the_state_is_the_effect_of_exactly_what_the_position_has_passed() {
    let steps = |first: u64| items(first..first + 3_000).collect::<Vec<_>>();
    // The end is reached when a checkpoint has been taken in between at each gate, at the least.
    let with_pauses = |steps: Vec<Step<Event>>| {
        let rest = |(at, step): (u64, Step<Event>)| {
            let pause = (at % 40 == 0).then_some(Step::Pause);
            let gate = (at % 400 == 399).then_some(Step::Gate(at / 400 + 1));
            [step].into_iter().chain(pause).chain(gate)
        };
        (0_u64..).zip(steps).flat_map(rest).collect::<Vec<_>>()
    };
    const GATES: u32 = 7;
    let splits = [with_pauses(steps(0)), with_pauses(steps(3_000))];
    let script = Script::new(splits[0].clone()).and(splits[1].clone());
    let store = MemoryStore::new();
    let checkpoint = Checkpoint::store(store.clone())
        .every(Duration::from_millis(2))
        .retain(usize::MAX, Duration::MAX);
    let job = Job::new(JOB).checkpoint(checkpoint);
    let (handle, sink) = (job.handle(), Collected::default());
    let (gates, shown) = (script.clone(), sink.clone());
    let driver = thread::spawn(move || {
        for _ in 0..GATES {
            let before = shown.items().len();
            assert!(
                wait::soon(|| handle.checkpoint(None).is_err() || shown.items().len() > before)
            );
            gates.open_gates();
        }
    });
    job.run(quiet(2), move |flow| {
        pipeline(flow, &script, sink.clone());
        Ok(())
    })
    .unwrap();
    driver.join().unwrap();

    let (_, cuts) = assert_cuts(&store, &splits, "undisturbed");
    assert!(cuts >= GATES, "only {cuts} checkpoints in between");
}

/// In every manifest that a store holds, the state is the effect of exactly what its positions have
/// passed. Answers how many there are, and how many in the midst of the input.
fn assert_cuts(store: &MemoryStore, splits: &[Vec<Step<Event>>], what: &str) -> (u32, u32) {
    let all = read_all(store, &JobName::new(JOB).unwrap()).unwrap();
    let events = splits.iter().flatten().filter(|step| matches!(step, Step::Item(_))).count();
    let (mut manifests, mut cuts) = (0, 0);
    for manifest in all.into_iter().map(|found| found.manifest.unwrap()) {
        // Before the first checkpoint there is nothing in it.
        if manifest.operators.is_empty() {
            continue;
        }
        let passed = passed(&manifest, splits);
        manifests += 1;
        cuts += u32::from(!passed.is_empty() && passed.len() < events);
        let (_, totals) = apply(passed);
        let state = stored::state::<u64, (u64, i64)>(store, &manifest, "totals");
        assert_eq!(state, totals, "{what}: sequence {}", manifest.sequence);
    }
    (manifests, cuts)
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

/// Two checkpoints of one run, the older first, both before the end of the input; and the run's newest
/// manifest, with its digest.
fn two_of_one_run(store: &MemoryStore, script: &Script<Event>) -> (Manifest, Manifest, Found) {
    let keep_all = Checkpoint::store(store.clone()).not_by_time();
    let job = Job::new(JOB).checkpoint(keep_all.retain(usize::MAX, Duration::MAX));
    let (handle, gates, newest) = (job.handle(), script.clone(), Arc::new(AtomicU64::new(0)));
    let seen = newest.clone();
    // Each checkpoint has some event of the gate before it, and none of the next.
    let driver = thread::spawn(move || {
        for gate in 0..GATES {
            assert!(wait::soon(|| newest.load(Ordering::SeqCst) > gate * 20));
            handle.checkpoint(None).unwrap();
            gates.open_gates();
        }
    });
    let (input, sink) = (script.clone(), Collected::default());
    job.run(quiet(1), move |flow| {
        pipeline(flow, &input, Observed { sink: sink.clone(), newest: seen.clone() });
        Ok(())
    })
    .unwrap();
    driver.join().unwrap();
    let job = JobName::new(JOB).unwrap();
    let all = read_all(store, &job).unwrap().into_iter().map(|found| found.manifest.unwrap());
    let splits = gated_steps();
    let mut midway: Vec<Manifest> = all.filter(|found| !found.finished).collect();
    midway.retain(|found| !passed(found, &splits).is_empty());
    let (newer, older) = (midway.remove(0), midway.pop().unwrap());
    assert!(passed(&older, &splits).len() < passed(&newer, &splits).len());
    (older, newer, read_newest(store, &job).unwrap().top.unwrap())
}

/// Puts a manifest on top of all others, as if the protocol had written it: with the right sequence,
/// predecessor and digest. Answers with its name.
fn put_on_top(store: &MemoryStore, top: &Found, forged: Manifest) -> String {
    let newest = top.manifest.as_ref().unwrap();
    let forged = Manifest {
        sequence: newest.sequence.next(),
        generation: newest.generation,
        predecessor: top.digest.clone(),
        finished: false,
        ..forged
    };
    let name = paths::manifest(&forged.job, forged.sequence);
    store.put(&name, &manifest::encode(&forged)).unwrap();
    name
}

/// `manifest`, with those parts of `other` that `of_kind` picks.
fn with_parts_of(manifest: &Manifest, other: &Manifest, of_kind: fn(&Part) -> bool) -> Manifest {
    let mut mixed = manifest.clone();
    for (part, other) in mixed.operators.iter_mut().zip(&other.operators) {
        assert_eq!(part.id, other.id);
        if of_kind(&part.part) {
            *part = other.clone();
        }
    }
    mixed
}

fn is_state(part: &Part) -> bool {
    matches!(part, Part::State { .. })
}

fn is_source(part: &Part) -> bool {
    matches!(part, Part::Source { .. })
}

/// A manifest that names state written after its own epoch is found out: segments say their epoch.
#[test]
fn a_manifest_with_state_newer_than_its_epoch_is_refused() {
    let (store, script) = (MemoryStore::new(), gated_script());
    let (older, newer, top) = two_of_one_run(&store, &script);
    let name = put_on_top(&store, &top, with_parts_of(&older, &newer, is_state));
    let error = run(store, 1, &script, &Collected::default(), PATIENCE).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
    assert!(error.to_string().contains(&name), "{error:?}");
    assert!(error.to_string().contains("epoch"), "{error:?}");
}

/// What cannot be found out: a manifest whose state and positions are each whole, of different cuts,
/// with a digest that fits. It is what the job has, so the job goes on from exactly that: what lies
/// between the two cuts is left out (state older than positions) or applied twice (state newer). That
/// no step of the protocol writes such a manifest is shown above, and after each crash by
/// `a_crash_before_or_after_any_store_operation_changes_neither_output_nor_state`.
#[test]
fn a_manifest_of_two_cuts_whose_parts_are_whole_is_the_truth() {
    for of_kind in [is_state, is_source] {
        let (store, script) = (MemoryStore::new(), gated_script());
        let (older, newer, top) = two_of_one_run(&store, &script);
        let splits = gated_steps();
        let forged = with_parts_of(&newer, &older, of_kind);
        let (applied, read) = match of_kind(&older.operators[0].part) {
            false => (passed(&older, &splits), passed(&newer, &splits)),
            true => (passed(&newer, &splits), passed(&older, &splits)),
        };
        put_on_top(&store, &top, forged);
        run(store.clone(), 1, &script, &Collected::default(), PATIENCE).unwrap();

        let all = (0..20 * (GATES + 1)).map(event);
        let unread = all.filter(|event| !read.contains(event)).collect::<Vec<_>>();
        let (_, expected) = apply(applied.into_iter().chain(unread));
        let end = stored::newest(&store, JOB).unwrap();
        assert!(end.finished);
        let state = stored::state::<u64, (u64, i64)>(&store, &end, "totals");
        assert_eq!(state, expected);
        assert_ne!(state, apply((0..20 * (GATES + 1)).map(event)).1);
    }
}
