//! Event time across restarts: timers fire once and in order, watermarks are the least of all
//! inputs and are in the checkpoint, and what was seen is forgotten when its time has come.

#[path = "support/lab.rs"]
mod lab;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use isochrone::keyed::{Context, Process};
use isochrone::prelude::*;
use isochrone::{Error, ErrorKind};
use lab::*;

/// Time and key.
type Tick = (i64, u32);

/// Each record sets a timer some time later; each timer is a line.
struct Alarm(u64);

impl Process<u32, Tick> for Alarm {
    type State = u64;
    type Out = String;

    fn on_record(
        &self,
        mut cx: Context<'_, u32, u64>,
        _: Tick,
    ) -> impl IntoIterator<Item = String> {
        *cx.state += 1;
        cx.timer.set(cx.now.plus(Duration::from_millis(self.0)));
        None
    }

    fn on_timer(&self, cx: Context<'_, u32, u64>) -> impl IntoIterator<Item = String> {
        Some(format!("{} at {}", cx.key, cx.now.0))
    }
}

type Build = Box<dyn Fn(&Flow<'_>) -> Result<()> + Send + Sync>;

/// Timers 100 ms after each record. While `broken`, the record at time 777 fails.
fn alarms(lab: &Lab<Tick>, broken: &Arc<AtomicBool>) -> Build {
    alarms_heard(lab, broken, || ())
}

/// The same, noting each alarm.
fn alarms_heard(
    lab: &Lab<Tick>,
    broken: &Arc<AtomicBool>,
    heard: impl Fn() + Clone + Send + Sync + 'static,
) -> Build {
    let (source, out, broken) = (lab.source(), lab.out(), broken.clone());
    Box::new(move |flow| {
        let (broken, heard) = (broken.clone(), heard.clone());
        flow.source("ticks", source().event_time(|tick| EventTime(tick.0), Duration::ZERO))
            .try_map(move |tick| match tick.0 == 777 && broken.load(Ordering::SeqCst) {
                true => Err(Error::user("broken for once")),
                false => Ok(tick),
            })
            .key_by(|tick| tick.1)
            .process("alarms", Alarm(100))
            .inspect(move |_| heard())
            .sink("lines", PartFiles::at(&out).text());
        Ok(())
    })
}

fn never() -> Arc<AtomicBool> {
    Arc::default()
}

#[test]
fn timers_fire_once_and_in_order_across_stops_failures_and_other_worker_counts() {
    let phase = |times: std::ops::Range<i64>| -> Vec<Tick> {
        times.map(|time| (time, (time % 7) as u32)).collect()
    };
    let phases = vec![phase(0..250), phase(250..600), phase(600..778), phase(778..900)];
    for workers in [[1, 1, 1, 1], [1, 3, 2, 1], [4, 1, 7, 2]] {
        let mut lab = Lab::new(phases.clone());
        let broken = never();
        for (phase, workers) in workers.into_iter().enumerate() {
            let build = alarms(&lab, &broken);
            broken.store(phase == 2, Ordering::SeqCst);
            let end = lab.phase(&quiet(workers), build);
            if phase == 2 {
                // The whole phase is lost with the run; the next one reads it again.
                assert_eq!(end.unwrap_err().kind(), ErrorKind::User);
                broken.store(false, Ordering::SeqCst);
                let build = alarms(&lab, &broken);
                lab.run_until(178, lab.job(), &quiet(workers), build).unwrap();
            } else {
                end.unwrap();
            }
        }
        lab.finish(&quiet(2), alarms(&lab, &broken)).unwrap();
        let mut last = [i64::MIN; 7];
        let lines = lines_in_order(&lab.out());
        for line in &lines {
            let (key, at) = line.split_once(" at ").unwrap();
            let (key, at): (usize, i64) = (key.parse().unwrap(), at.parse().unwrap());
            assert!(at > last[key], "{line} came after {}", last[key]);
            assert_eq!((at - 100) % 7, key as i64, "{line} is of another key");
            last[key] = at;
        }
        assert_eq!(lines.len(), 900, "one timer per record, at {workers:?} workers");
    }
}

#[test]
fn a_timer_waits_for_the_slowest_split_also_after_a_restart() {
    for workers in [1, 2, 3] {
        // The split of key 0 runs ahead; the one of key 1 stays behind.
        let phases = vec![
            vec![(10, 0), (1000, 0), (10, 1)],
            vec![(2000, 0)],
            vec![(109, 1)],
            vec![(110, 1)],
            vec![(5000, 0)],
        ];
        let mut lab = Lab::new_split_by(phases, 2, |tick| tick.1 as usize);
        let mut seen = Vec::new();
        for (phase, due) in [0, 0, 0, 2].into_iter().enumerate() {
            let build = alarms_heard(&lab, &never(), lab.note());
            lab.phase_and(due, &quiet((workers + phase as u32) % 3 + 1), build).unwrap();
            seen.push(lab.lines());
        }
        let early = ["0 at 110", "1 at 110"];
        assert_eq!(seen[..3], [vec![], vec![], Vec::<String>::new()]);
        assert_eq!(seen[3], early, "both timers of 110 and no other");
        lab.finish(&quiet(workers), alarms(&lab, &never())).unwrap();
        let rest = ["0 at 1100", "0 at 2100", "0 at 5100", "1 at 209", "1 at 210"];
        let mut all: Vec<&str> = early.into_iter().chain(rest).collect();
        all.sort();
        assert_eq!(lab.lines(), all, "the end of the input fires the others");
    }
}

#[test]
fn a_timer_waits_for_the_slower_of_two_merged_inputs() {
    let ahead = Lab::new(vec![vec![(10, 0), (1000, 0)], vec![(1001, 0)]]);
    let behind = Lab::new(vec![vec![(10, 1)], vec![(2000, 1)]]);
    let build = || {
        let (ahead, behind, out) = (ahead.source(), behind.source(), ahead.out());
        move |flow: &Flow<'_>| {
            let time = |tick: &Tick| EventTime(tick.0);
            let ahead = flow.source("ahead", ahead().event_time(time, Duration::ZERO));
            let behind = flow.source("behind", behind().event_time(time, Duration::ZERO));
            let both = ahead.merge(&behind).key_by(|tick| tick.1).process("alarms", Alarm(100));
            both.sink("lines", PartFiles::at(&out).text());
            Ok(())
        }
    };
    let job = ahead.job();
    let (handle, first, second) = (job.handle(), ahead.read(), behind.read());
    let stopping = std::thread::spawn(move || {
        while first() < 2 || second() < 1 {
            pause();
        }
        handle.stop();
    });
    job.run(quiet(2), build()).unwrap();
    stopping.join().unwrap();
    assert!(ahead.lines().is_empty(), "{:?}", ahead.lines());
    behind.open();
    ahead.finish(&quiet(1), build()).unwrap();
    let all = ["0 at 110", "0 at 1100", "0 at 1101", "1 at 110", "1 at 2100"];
    assert_eq!(ahead.lines(), all);
}

/// A sight lasts 100 ms from the first of its key; see `keyed::Dedup`.
#[test]
fn what_was_seen_is_remembered_for_its_time_and_no_longer_across_restarts() {
    let phases = vec![
        vec![(0, 1)],             // new
        vec![(50, 1), (99, 1)],   // seen
        vec![(100, 1)],           // the sight of 0 has ended
        vec![(199, 1), (99, 2)],  // seen; new, though older than the watermark
        vec![(300, 3)],           // new, and ends the sights of 1 and 2
        vec![(150, 1), (150, 1)], // so late that its sight is forgotten: each starts fresh
        vec![(350, 3)],           // seen
    ];
    for workers in [[1; 7], [1, 2, 3, 7, 4, 1, 2]] {
        let mut lab = Lab::new(phases.clone());
        for workers in workers {
            let (source, out) = (lab.source(), lab.out());
            let build = move |flow: &Flow<'_>| {
                flow.source("ticks", source().event_time(|tick| EventTime(tick.0), Duration::ZERO))
                    .key_by(|tick| tick.1)
                    .dedup("seen", Duration::from_millis(100))
                    .map(|(time, key)| format!("{key} at {time}"))
                    .sink("lines", PartFiles::at(&out).text());
                Ok(())
            };
            lab.phase(&quiet(workers), build).unwrap();
        }
        let passed = ["1 at 0", "1 at 100", "1 at 150", "1 at 150", "2 at 99", "3 at 300"];
        assert_eq!(lab.lines(), passed, "at {workers:?} workers");
    }
}
