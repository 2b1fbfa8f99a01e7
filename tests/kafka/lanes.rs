//! Several processes publish, each on a lane of its own, and die when some lanes are done and others
//! are not, in a run and in its recovery.

use std::collections::BTreeSet;

use crate::job::Settle;
use crate::place::{Place, Run, killed_processes, was_killed};
use crate::support::wait;

const RECORDS: u64 = 600;

/// A job whose output is of one epoch, in which all lanes have a part.
fn one_epoch(place: &Place, processes: u32) -> Run<'_> {
    let run = place.job().processes(processes).workers(1).flag("--checkpoint-every", "1h");
    // A process that sleeps is not given up.
    run.flag("--restarts", "0").flag("--heartbeat-timeout", "120s").told().until_end()
}

/// The lanes that say that they have published.
fn done(place: &Place) -> BTreeSet<u32> {
    let records = place.progress().glance().records;
    let lane = |key: &str| key.strip_prefix("assessments/published/")?.parse().ok();
    records.iter().filter_map(|record| lane(&record.key_text())).collect()
}

/// The lanes of the lines of a restore report that say so of output.
fn reported(said: &str, what: &str) -> BTreeSet<u32> {
    let end = format!(": {what}");
    let lane = |line: &str| -> Option<u32> {
        let line = line.trim_end().strip_suffix(&end)?;
        line.rsplit_once("lane ")?.1.parse().ok()
    };
    said.lines().filter_map(lane).collect()
}

/// Goes on to the end in one process, and answers which lanes it found published and which it
/// published.
fn goes_on(place: &Place) -> (BTreeSet<u32>, BTreeSet<u32>) {
    let mut next = place.job().workers(2).told().until_end().start();
    let (end, said) = (next.end(), next.errors());
    assert!(end.success(), "{end}: {said}");
    place.check();
    (reported(&said, "was published already"), reported(&said, "published now"))
}

#[test]
fn lanes_that_were_done_are_left_alone_and_the_others_are_published() {
    let cases: [(u32, &[u32]); 3] = [(2, &[1]), (3, &[1]), (3, &[1, 2])];
    for (number, (processes, behind)) in cases.into_iter().enumerate() {
        let mut place = Place::new(&format!("lanes-{number}"));
        place.feed(RECORDS);
        let stops: Vec<_> = behind.iter().map(|lane| (0, *lane, "kafka-begun=stop")).collect();
        let mut job = one_epoch(&place, processes).crashes(&stops).start();
        let behind: BTreeSet<u32> = behind.iter().copied().collect();
        let others: BTreeSet<u32> = (0..processes).filter(|lane| !behind.contains(lane)).collect();
        let are_done = wait::soon(|| {
            wait::pause(std::time::Duration::from_millis(50));
            job.ended().is_some() || done(&place) == others
        });
        assert!(job.ended().is_none() && are_done, "{:?}: {}", done(&place), job.errors());
        assert_eq!(job.kill_all(), processes as usize);
        let so_far = place.check_so_far("some lanes are done");
        assert!(0 < so_far && so_far < RECORDS, "{so_far}");
        assert_eq!(place.job().settle(Settle::List).len(), processes as usize);
        assert_eq!(goes_on(&place), (others, behind), "already, and now");
    }
}

/// One process dies by itself, in the midst of its transaction; the others end because it is gone,
/// when their lanes are done, or before.
#[test]
fn a_process_that_dies_in_its_transaction_takes_no_other_lane_along() {
    for (number, step) in ["kafka-sent", "kafka-marked", "kafka-committed"].iter().enumerate() {
        let mut place = Place::new(&format!("lane-dies-{number}"));
        place.feed(RECORDS);
        let mut job = one_epoch(&place, 3).crashes(&[(0, 1, step)]).start();
        let (end, said) = (job.end(), job.errors());
        assert_eq!((end.code(), killed_processes(&said)), (Some(4), 1), "{step}: {said}");
        place.check_so_far(step);
        let (already, now) = goes_on(&place);
        assert_eq!(already.contains(&1), *step == "kafka-committed", "{step}: {already:?}");
        let both: BTreeSet<u32> = already.union(&now).copied().collect();
        assert_eq!(both, BTreeSet::from([0, 1, 2]), "{step}");
        assert!(already.is_disjoint(&now), "{step}: {already:?} and {now:?}");
    }
}

/// Nothing of three lanes was published when the first run died. Its recoveries die as well: up to a
/// step nothing is published, from then on at least one lane is.
#[test]
fn recoveries_of_three_lanes_die_one_after_the_other() {
    const DEATHS: &[(&str, bool)] = &[
        ("kafka-opened@3", false),
        ("kafka-fenced", false),
        ("kafka-begun", false),
        ("kafka-sent", false),
        ("kafka-flushed", false),
        ("kafka-marked", false),
        ("kafka-committed", true),
        ("kafka-opened@3", true),
        ("kafka-fenced", true),
    ];
    let mut place = Place::new("lanes-again");
    place.feed(RECORDS);
    let mut job = one_epoch(&place, 3).crash("manifest-written").start();
    let (end, said) = (job.end(), job.errors());
    assert_eq!((end.code(), killed_processes(&said)), (Some(4), 1), "{said}");
    assert_eq!(done(&place), BTreeSet::new());
    for (number, (step, is_done)) in DEATHS.iter().enumerate() {
        let processes = 1 + number as u32 % 3;
        let mut job = one_epoch(&place, processes).crash(step).start();
        let (end, said) = (job.end(), job.errors());
        let died = if processes == 1 { was_killed(end) } else { killed_processes(&said) == 1 };
        assert!(died, "{step}: {end}: {said}");
        place.check_so_far(step);
        assert_eq!(done(&place).is_empty(), !*is_done, "{step}: {:?}", done(&place));
    }
    let before = done(&place);
    let (already, now) = goes_on(&place);
    assert!(already.is_superset(&before), "{already:?} and {before:?}");
    assert_eq!(already.len() + now.len(), 3, "{already:?} and {now:?}");
}

/// In each start another process dies, at another step.
#[test]
fn processes_that_die_in_turn_under_their_supervisor_leave_each_record_once() {
    let crashes = [
        (0, 1, "kafka-marked@2"),
        (1, 0, "kafka-fenced"),
        (2, 2, "kafka-begun"),
        (3, 1, "kafka-committed@2"),
    ];
    let mut place = Place::new("lanes-in-turn");
    let mut job = place.job().processes(3).workers(1).told().crashes(&crashes).start();
    let last = format!("(attempt {})", crashes.len());
    let came = wait::soon(|| {
        place.feed(60);
        wait::pause(std::time::Duration::from_millis(40));
        job.ended().is_some() || job.errors().contains(&last)
    });
    assert!(job.ended().is_none() && came, "{}", job.errors());
    place.check_so_far("all have died");
    place.feed(RECORDS);
    place.await_all(&job);
    let said = job.errors();
    assert_eq!(killed_processes(&said), crashes.len(), "{said}");
    assert_eq!(job.kill_all(), 3);
    place.job().workers(2).ends_well();
    place.check();
}
