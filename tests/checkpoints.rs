//! What checkpoints hold and how long they are kept: only what changed is written, by the triggers
//! that were asked for, and no longer than wanted.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

#[path = "support/lab.rs"]
mod lab;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use isochrone::connector::{Discovery, Observer, OnMalformed, Reader, Source, Split};
use isochrone::connectors::Callback;
use isochrone::connectors::generator::Generator;
use isochrone::ids::JobName;
use isochrone::persistence::lineage::read_all;
use isochrone::persistence::manifest::{Manifest, Part, Step};
use isochrone::persistence::store::local::LocalStore;
use isochrone::prelude::*;
use isochrone::time::Clock;
use lab::*;

/// All checkpoints in the store, oldest first, without those that only say that output is out.
fn checkpoints<T: isochrone::record::Record + Sync>(lab: &Lab<T>) -> Vec<Manifest> {
    let store = LocalStore::open(lab.store()).unwrap();
    let mut all: Vec<Manifest> = read_all(&store, &JobName::new(JOB).unwrap())
        .unwrap()
        .into_iter()
        .map(|found| found.manifest.unwrap())
        .filter(|manifest| manifest.step == Step::Checkpoint)
        .collect();
    all.reverse();
    all
}

/// Rows that were written for a checkpoint.
fn rows_of(manifest: &Manifest, operator: &str) -> u64 {
    let part = manifest.operators.iter().find(|left| left.id.as_str() == operator).unwrap();
    let Part::State { segments, .. } = &part.part else { panic!("no state: {part:?}") };
    let own = segments.iter().filter(|segment| segment.epoch == manifest.epoch);
    own.map(|segment| segment.rows).sum()
}

/// A sum that is forgotten when an event brings 0.
fn forgetful(lab: &Lab<Event>) -> impl Fn(&Flow<'_>) -> Result<()> + Send + Sync + 'static {
    let (source, out) = (lab.source(), lab.out());
    move |flow| {
        flow.source("events", source())
            .key_by(|event| event.0)
            .state::<Sum>("sums")
            .map(|sum, (account, amount)| {
                sum.0 = if amount == 0 { 0 } else { sum.0 + amount };
                format!("{account} {}", sum.0)
            })
            .sink("lines", PartFiles::at(&out).text());
        Ok(())
    }
}

#[test]
fn a_checkpoint_writes_only_keys_that_changed_or_went() {
    let all = (0..500).map(|account| (account, 1)).collect();
    let few = vec![(3, 1), (4, 1), (4, 1)];
    let gone = vec![(5, 0), (6, 0), (7, 1)];
    let came_and_went = vec![(900, 1), (900, 0)];
    let nothing = vec![(901, 0)];
    let mut lab = Lab::new(vec![all, few, gone, came_and_went, nothing, vec![(3, 1), (5, 1)]]);
    let mut written = Vec::new();
    for _ in 0..6 {
        let build = forgetful(&lab);
        let summary = lab.phase(&quiet(2), build).unwrap();
        let all = checkpoints(&lab);
        let newest = all.iter().filter(|manifest| manifest.generation.0 == summary.generation);
        written.push(newest.map(|manifest| rows_of(manifest, "sums")).sum::<u64>());
    }
    assert_eq!(written[..3], [500, 2, 3], "all, then the changed, then changed and removed");
    assert!(written[3] <= 1, "a key that came and went: {}", written[3]);
    assert_eq!(written[4..], [0, 2]);
    // What was removed is gone for a restored job, too: account 5 began anew.
    assert!(lab.lines().contains(&"5 1".to_owned()) && lab.lines().contains(&"3 3".to_owned()));
}

#[test]
fn so_many_checkpoints_are_kept_and_what_only_older_ones_need_is_collected() {
    let mut lab = Lab::new((0..8).map(|n| vec![(1, n + 1)]).collect());
    lab.retain = 2;
    for phase in 0..8 {
        let build = totals(&lab);
        lab.phase(&quiet(1), build).unwrap();
        let kept = checkpoints(&lab);
        assert!(kept.len() <= 3, "phase {phase}: {} checkpoints", kept.len());
    }
    let named: Vec<String> = checkpoints(&lab)
        .iter()
        .flat_map(|manifest| &manifest.operators)
        .flat_map(|operator| match &operator.part {
            Part::State { segments, .. } => segments.clone(),
            _ => Vec::new(),
        })
        .map(|segment| segment.name)
        .collect();
    for path in lab.segments() {
        let name = path.strip_prefix(lab.store()).unwrap().to_str().unwrap().to_owned();
        assert!(named.contains(&name), "{name} is needed by nobody");
    }
}

/// A clock whose wall time is set by hand and whose other time is real.
#[derive(Default)]
struct Wall {
    ms: std::sync::atomic::AtomicU64,
    real: isochrone::time::SystemClock,
}

impl Clock for Wall {
    fn wall_ms(&self) -> u64 {
        self.ms.load(std::sync::atomic::Ordering::SeqCst)
    }

    fn monotonic_us(&self) -> u64 {
        self.real.monotonic_us()
    }
}

#[test]
fn checkpoints_younger_than_wanted_are_kept_besides() {
    let wall = Arc::new(Wall::default());
    let mut lab = Lab::new((0..6).map(|n| vec![(1, n + 1)]).collect());
    let hour_ms = 60 * 60 * 1000;
    for phase in 0..6u64 {
        wall.ms.store((1000 + phase) * hour_ms, std::sync::atomic::Ordering::SeqCst);
        let checkpoint = Checkpoint::dir(lab.store()).not_by_time();
        let young = Duration::from_millis(hour_ms * 5 / 2);
        let job = Job::new(JOB).checkpoint(checkpoint.retain(1, young)).clock(wall.clone());
        let build = totals(&lab);
        lab.phase_of(job, &quiet(1), build).unwrap();
    }
    let kept = checkpoints(&lab);
    let hours: Vec<u64> = kept.iter().map(|manifest| manifest.taken_at_ms / hour_ms).collect();
    assert!(hours.contains(&1003) && hours.contains(&1005), "{hours:?}");
    assert!(hours.iter().all(|hour| *hour >= 1003), "{hours:?}");
}

#[test]
fn a_savepoint_outlives_retention_and_can_be_gone_back_to() {
    let mut lab = Lab::new(phases());
    lab.retain = 1;
    let job = lab.job();
    let (handle, read) = (job.handle(), lab.read());
    let asking = std::thread::spawn(move || {
        while read() < 40 {
            pause();
        }
        let epoch = handle.checkpoint(Some("before-release")).unwrap();
        handle.stop();
        epoch
    });
    job.run(quiet(1), totals(&lab)).unwrap();
    let epoch = asking.join().unwrap();
    lab.skip_phase();
    for _ in 0..2 {
        let build = totals(&lab);
        lab.phase(&quiet(1), build).unwrap();
    }
    let savepoints = |lab: &Lab<Event>| -> Vec<_> {
        let all = checkpoints(lab).into_iter();
        all.filter_map(|manifest| Some((manifest.savepoint.clone()?, manifest.epoch))).collect()
    };
    assert_eq!(savepoints(&lab), [("before-release".to_owned(), epoch)]);

    // Everything newer is lost: the savepoint still has all of its data.
    for manifest in lab.manifests().iter().skip(1) {
        std::fs::write(manifest, "ruined").unwrap();
    }
    let summary = lab.finishes_rightly(&previous());
    assert_eq!((summary.restore.epoch, summary.read), (Some(epoch.0), 80));
    assert_eq!(savepoints(&lab).len(), 1);
}

#[test]
fn a_checkpoint_is_taken_whenever_so_many_records_were_read() {
    let lab = Lab::with_pauses((0..40u64).map(|n| ((n % 3) as u32, n)).collect(), 5);
    let args = RunArgs { checkpoint_records: Some(10), ..quiet(1) };
    let summary = lab.finishes_rightly(&args);
    // Every 10 records but the last ones, which end together with the input.
    let published = summary.checkpoints.published;
    assert!((3..=6).contains(&published), "{published} checkpoints");
}

/// A cut at the very start found workers that had not looked at their splits yet; the splits were not
/// in the checkpoint, and came back after a restart as new ones, behind the watermark.
#[test]
fn the_first_checkpoint_has_all_splits_that_were_given_before_it() {
    let folder = tempfile::TempDir::new().unwrap();
    let checkpoint = Checkpoint::dir(folder.path()).not_by_time().retain(9, Duration::ZERO);
    let job = Job::new(JOB).checkpoint(checkpoint);
    let handle = job.handle();
    // Waits in the queue when the run begins, so that the cut comes before anything is read.
    let asked = std::thread::spawn(move || {
        let epoch = handle.checkpoint(None);
        handle.stop();
        epoch
    });
    let clock = Arc::new(isochrone::time::SystemClock::default());
    job.run(quiet(3), move |flow| {
        let numbers = Generator::counting(u64::MAX, |number| number).splits(7);
        flow.source("numbers", numbers.per_second(100, clock.clone()))
            .sink("out", Callback::new(|_: &u64| ()));
        Ok(())
    })
    .unwrap();
    let epoch = asked.join().unwrap().unwrap();
    let store = LocalStore::open(folder.path()).unwrap();
    let manifests = read_all(&store, &JobName::new(JOB).unwrap()).unwrap();
    let manifests = manifests.into_iter().map(|found| found.manifest.unwrap());
    let first = manifests.filter(|manifest| manifest.epoch == epoch).last().unwrap();
    let splits = first.operators.iter().find_map(|operator| match &operator.part {
        Part::Source { splits, .. } => Some(splits.len()),
        _ => None,
    });
    assert_eq!(splits, Some(7));
}

/// The input, and what it was told of checkpoints.
struct Watched {
    input: Counted<Event>,
    told: Arc<Mutex<Vec<Vec<Split<u64>>>>>,
}

impl Source for Watched {
    type Item = Event;
    type Position = u64;

    fn discover(&self, known: &[String]) -> Result<Discovery<u64>> {
        self.input.discover(known)
    }

    fn has_more(&self, split: &Split<u64>) -> Result<bool> {
        self.input.has_more(split)
    }

    fn open(&self, split: Split<u64>) -> Result<Box<dyn Reader<Event, u64>>> {
        self.input.open(split)
    }

    fn observer(&self) -> Option<Observer<u64>> {
        let told = Arc::clone(&self.told);
        Some(Box::new(move |splits| told.lock().unwrap().push(splits.to_vec())))
    }
}

#[test]
fn a_source_is_told_the_positions_of_every_checkpoint_once_it_exists() {
    let phases = vec![vec![(1, 1), (2, 1), (3, 1)], vec![(1, 2)], vec![(2, 5), (3, 5)]];
    let mut lab = Lab::new_split_by(phases, 2, |event| event.0 as usize);
    let told = Arc::new(Mutex::new(Vec::new()));
    for _ in 0..3 {
        let (source, out, told) = (lab.source(), lab.out(), told.clone());
        let build = move |flow: &Flow<'_>| {
            // Comforts around a source do not hide it.
            let input = Watched { input: source(), told: told.clone() }
                .on_malformed(OnMalformed::Skip)
                .event_time(|event| EventTime(event.1 as i64), Duration::ZERO);
            flow.source("events", input)
                .map(|event| format!("{event:?}"))
                .sink("lines", PartFiles::at(&out).text());
            Ok(())
        };
        lab.phase(&quiet(2), build).unwrap();
    }
    let positions = |manifest: &Manifest| -> Vec<Split<u64>> {
        let part =
            &manifest.operators.iter().find(|left| left.id.as_str() == "events").unwrap().part;
        let Part::Source { splits, .. } = part else { panic!("no source: {part:?}") };
        let split = |split: &isochrone::persistence::manifest::Split| Split {
            id: split.id.clone(),
            position: split.position.as_u64().unwrap(),
        };
        splits.iter().map(split).collect()
    };
    let expected: Vec<_> = checkpoints(&lab).iter().map(positions).collect();
    let told = told.lock().unwrap();
    assert!(told.len() >= 3, "{told:?}");
    assert_eq!(*told, expected);
}
