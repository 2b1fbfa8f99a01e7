//! Fifty kills and more of one job of two processes at seeded moments, from the start of its
//! supervisor to the middle of a transaction, while its input goes on growing: of all its processes at
//! once, or of one, whose set its supervisor starts again. Each job has another number of workers.

use std::collections::BTreeMap;
use std::time::Duration;

use isochrone::persistence::manifest::Step;

use crate::place::Place;
use crate::support::child::Job;
use crate::support::seed::Seeded;
use crate::support::{stored, wait};

/// At least.
const KILLS: u32 = 50;
/// How often may be drawn before there are enough of each kind.
const KILLS_MAX: u32 = 4 * KILLS;
const RECORDS: u64 = 200_000;
/// In which the records between two kills are written.
const SLICES: u64 = 4;
const PROCESSES: usize = 2;
/// A start and a recovery take about so long.
const START_MS: u64 = 800;
/// Of all kinds of kills there are at least so many: it is drawn on until there are, since which of them
/// come before the first checkpoint is a matter of how fast the machine is.
const EACH_MIN: u32 = 3;
/// Most of them meet a job that has taken up its work.
const STEADY_MIN: u32 = 15;

/// When a process is killed, after its input has grown.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// So long after the start.
    After(Duration),
    /// So long after the run has claimed the job: in the midst of its recovery.
    Claimed(Duration),
    /// So long after so many checkpoints of its own: about when their output becomes visible.
    Steady(usize, Duration),
}

impl Moment {
    fn draw(seeded: &mut Seeded) -> Moment {
        let kind = seeded.below(6);
        let mut up_to = |ms| Duration::from_millis(seeded.below(ms));
        match kind {
            0 => Moment::After(up_to(START_MS)),
            1 => Moment::Claimed(up_to(60)),
            _ => {
                let delay = up_to(40);
                Moment::Steady(1 + seeded.below(3) as usize, delay)
            }
        }
    }
}

/// A run of the job: from a start, or from the death of a process under its supervisor, on.
struct Attempt {
    started: wait::Since,
    /// Of the run before.
    older: u64,
    /// Generation and step of all manifests that were seen.
    seen: BTreeMap<String, (u64, Step)>,
}

impl Attempt {
    fn begin(place: &Place) -> Attempt {
        let mut attempt = Attempt { started: wait::Since::now(), older: 0, seen: BTreeMap::new() };
        attempt.look(place);
        let generations = attempt.seen.values().map(|(generation, _)| *generation);
        attempt.older = generations.max().unwrap_or(0);
        attempt
    }

    fn look(&mut self, place: &Place) {
        for name in place.manifests() {
            if !self.seen.contains_key(&name)
                && let Some(found) = stored::manifest(&place.store(), &place.name, &name)
            {
                self.seen.insert(name, (found.generation.0, found.step));
            }
        }
    }

    /// Whether it has taken the job over. Its claim may have been collected by now.
    fn has_claimed(&mut self, place: &Place) -> bool {
        self.look(place);
        self.seen.values().any(|(generation, _)| *generation > self.older)
    }

    fn checkpoints(&mut self, place: &Place) -> usize {
        self.look(place);
        let own = self.seen.values().filter(|(generation, _)| *generation > self.older);
        own.filter(|(_, step)| *step == Step::Checkpoint).count()
    }

    fn wait_for(&mut self, moment: Moment, place: &mut Place, job: &mut Job) {
        let came = wait::soon(|| {
            // Without more input there are no more checkpoints.
            place.feed(20);
            wait::pause(Duration::from_millis(10));
            job.ended().is_some()
                || match moment {
                    Moment::After(span) => self.started.passed() >= span,
                    Moment::Claimed(_) => self.has_claimed(place),
                    Moment::Steady(count, _) => self.checkpoints(place) >= count,
                }
        });
        assert!(came, "{moment:?} never comes; the job says: {}", job.errors());
        if let Moment::Claimed(delay) | Moment::Steady(_, delay) = moment {
            wait::pause(delay);
        }
    }
}

#[derive(Debug, Default)]
struct Tally {
    /// The supervisor and both its processes.
    of_all: u32,
    /// The supervisor before it had started both.
    of_few: u32,
    of_one: u32,
    before_its_first_checkpoint: u32,
    after_its_first_checkpoint: u32,
}

impl Tally {
    fn kills(&self) -> u32 {
        self.of_all + self.of_few + self.of_one
    }

    fn is_enough(&self) -> bool {
        let (before, after) = (self.before_its_first_checkpoint, self.after_its_first_checkpoint);
        self.kills() >= KILLS
            && [self.of_one, before].iter().all(|n| *n >= EACH_MIN)
            && [self.of_all, after].iter().all(|n| *n >= STEADY_MIN)
    }
}

/// Waits until half of what was fed so far is committed, and more than before; answers how much is.
fn await_half(place: &mut Place, before: u64, job: &mut Job) -> u64 {
    let (half, mut so_far) = (place.expected.len() as u64 / 2, 0);
    let is_there = wait::soon(|| {
        place.feed(20);
        so_far = place.check_so_far("while it runs");
        so_far > before.max(half) || job.ended().is_some()
    });
    assert!(is_there, "{so_far} committed, {before} before: {}", job.errors());
    so_far
}

#[test]
fn fifty_kills_of_two_processes_leave_each_record_once() {
    let mut seeded = Seeded::announced();
    let mut place = Place::new("kills");
    let slice = RECORDS / u64::from(KILLS) / SLICES;
    let (mut tally, mut committed) = (Tally::default(), 0);
    let mut goes_on: Option<(Job, Attempt)> = None;
    for kill in 1.. {
        let (moment, of_one) = (Moment::draw(&mut seeded), seeded.one_in(3));
        // What is to die early has no time for more.
        let before = if matches!(moment, Moment::Steady(..)) { 1 } else { SLICES };
        (0..before).for_each(|_| place.feed(slice));
        let (mut job, mut attempt) = goes_on.take().unwrap_or_else(|| {
            let attempt = Attempt::begin(&place);
            let workers = seeded.pick(&[1, 2, 3]);
            (place.job().processes(PROCESSES as u32).workers(workers).start(), attempt)
        });
        (before..SLICES).for_each(|_| place.feed(slice));
        attempt.wait_for(moment, &mut place, &mut job);
        if kill % 10 == 0 {
            committed = await_half(&mut place, committed, &mut job);
        }
        assert!(job.ended().is_none(), "kill {kill}: the job ended before: {}", job.errors());
        if of_one {
            // While all start again there is none.
            assert!(wait::soon(|| job.kill_a_child(&mut seeded)), "{}", job.errors());
            tally.of_one += 1;
        } else if job.kill_all() == PROCESSES {
            tally.of_all += 1;
        } else {
            tally.of_few += 1;
        }
        match attempt.checkpoints(&place) {
            0 => tally.before_its_first_checkpoint += 1,
            _ => tally.after_its_first_checkpoint += 1,
        }
        if of_one {
            goes_on = Some((job, Attempt::begin(&place)));
        }
        if kill % 10 == 0 {
            let so_far = place.check_so_far(&format!("after kill {kill}"));
            let fed = place.expected.len();
            eprintln!("{kill} kills, {so_far} of {fed} records are committed: {tally:?}");
        }
        if tally.is_enough() {
            break;
        }
        assert!(kill < KILLS_MAX, "some are rare: {tally:?}");
    }
    // Processes without a supervisor end by themselves, beside their successors.
    drop(goes_on);
    place.job().processes(PROCESSES as u32).workers(2).ends_well();
    place.check();
}
