//! Fifty kills of one job of two processes at seeded moments, from the start of its supervisor to
//! the middle of a transaction, while its input goes on growing; each run with another number of
//! workers.

use std::time::Duration;

use crate::place::Place;
use crate::support::child::Job;
use crate::support::seed::Seeded;
use crate::support::wait;

const KILLS: u64 = 50;
const RECORDS: u64 = 200_000;
/// In which the records between two kills are written.
const SLICES: u64 = 4;
/// A start and a recovery take about so long on a machine that does other things as well.
const START_MS: u64 = 2_000;

/// When the job is killed, after its input has grown.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// So long after the start.
    After(Duration),
    /// So long after its next manifests: about when output becomes visible.
    Manifests(usize, Duration),
}

impl Moment {
    fn draw(seeded: &mut Seeded) -> Moment {
        match seeded.below(8) {
            0..=1 => Moment::After(Duration::from_millis(seeded.below(START_MS))),
            2 => Moment::After(Duration::from_millis(START_MS + seeded.below(1_000))),
            _ => {
                let delay = Duration::from_millis(seeded.below(40));
                Moment::Manifests(1 + seeded.below(2) as usize, delay)
            }
        }
    }
}

#[derive(Debug, Default)]
struct Tally {
    at_a_time: u32,
    after_a_manifest: u32,
    /// Of one process under the supervisor, before the kill of the supervisor.
    of_children: u32,
}

#[test]
fn fifty_kills_of_two_processes_leave_each_record_once() {
    let mut seeded = Seeded::announced();
    let mut place = Place::new("kills");
    let mut tally = Tally::default();
    for kill in 0..KILLS {
        let moment = Moment::draw(&mut seeded);
        let workers = seeded.pick(&[1, 2, 3]);
        let mut job = place.job().processes(2).workers(workers).start();
        let started = wait::Since::now();
        let before = place.manifests().pop();
        if seeded.one_in(4) {
            wait_for(Moment::draw(&mut seeded), started, &before, &mut place, &mut job);
            tally.of_children += u32::from(job.kill_a_child(&mut seeded));
        }
        for _ in 0..SLICES {
            place.feed(RECORDS / KILLS / SLICES);
        }
        wait_for(moment, started, &before, &mut place, &mut job);
        assert!(job.kill(), "kill {kill}: the job ended before: {}", job.errors());
        match moment {
            Moment::After(_) => tally.at_a_time += 1,
            Moment::Manifests(..) => tally.after_a_manifest += 1,
        }
        if kill % 10 == 9 {
            eprintln!("{} kills, {:?} for the last: {tally:?}", kill + 1, started.passed());
            place.check_so_far(&format!("after kill {}", kill + 1));
        }
    }
    place.job().processes(2).workers(2).ends_well();
    place.check();
    let Tally { at_a_time, after_a_manifest, of_children } = tally;
    assert!([at_a_time, after_a_manifest, of_children].iter().all(|n| *n > 0), "{tally:?}");
}

fn wait_for(
    moment: Moment,
    started: wait::Since,
    before: &Option<String>,
    place: &mut Place,
    job: &mut Job,
) {
    let came = wait::soon(|| {
        // Without more input there are no more checkpoints.
        place.feed(20);
        wait::pause(Duration::from_millis(10));
        job.ended().is_some()
            || match moment {
                Moment::After(span) => started.passed() >= span,
                Moment::Manifests(count, _) => {
                    let now = place.manifests();
                    now.iter().filter(|name| Some(*name) > before.as_ref()).count() >= count
                }
            }
    });
    assert!(came, "{moment:?} never comes; the job says: {}", job.errors());
    if let Moment::Manifests(_, delay) = moment {
        wait::pause(delay);
    }
}
