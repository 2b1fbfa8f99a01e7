//! Output between its manifest and its transaction, settled by an operator without a run.

use crate::job::Settle;
use crate::place::{Place, killed_processes, verdict, was_killed};

const RECORDS: u64 = 300;

/// A job that has published some output and died when more was durable, that of one epoch, of which
/// nothing was published. So many processes have written it, and publish on lanes of their own.
fn owing(name: &str, processes: u32) -> Place {
    let mut place = Place::new(name);
    place.feed(RECORDS);
    place.job().processes(processes).workers(1).ends_well();
    place.feed(RECORDS);
    let run = place.job().processes(processes).workers(1).flag("--checkpoint-every", "1h");
    // One process alone comes to this step.
    let run = run.flag("--restarts", "0").told().until_end().crash("manifest-written");
    let mut job = run.start();
    let (end, said) = (job.end(), job.errors());
    if processes == 1 {
        assert!(was_killed(end), "{end}: {said}");
    } else {
        assert_eq!((end.code(), killed_processes(&said)), (Some(4), 1), "{said}");
    }
    assert_eq!(published(&place), RECORDS);
    place
}

fn published(place: &Place) -> u64 {
    verdict(&place.expected, &place.output.read()).records
}

/// All that is pending, and one line for each lane.
fn assert_all_is_listed(listed: &[String], topic: &str, processes: u32) {
    assert_eq!(listed.len(), processes as usize, "{listed:?}");
    let records = |line: &String| -> u64 {
        let (before, _) = line.split_once(" records (").unwrap();
        before.rsplit(' ').next().unwrap().parse().unwrap()
    };
    assert_eq!(listed.iter().map(records).sum::<u64>(), RECORDS, "{listed:?}");
    for (lane, line) in listed.iter().enumerate() {
        let what = format!("for topic {topic}, lane {lane}");
        assert!(line.contains("`assessments`, epoch") && line.contains(&what), "{line}");
    }
}

#[test]
fn pending_output_is_listed_and_published_without_a_run() {
    for processes in [1, 3] {
        let place = owing(&format!("pending-commit-{processes}"), processes);
        let listed = place.job().settle(Settle::List);
        assert_all_is_listed(&listed, &place.output.name, processes);
        assert_eq!(published(&place), RECORDS, "to list changes nothing");
        assert_eq!(place.job().settle(Settle::Commit), listed);
        // All input was read, so that this is all output.
        place.check();
        assert!(place.job().settle(Settle::List).is_empty());
        place.job().workers(3).ends_well();
        place.check();
    }
}

#[test]
fn output_that_an_operator_gives_up_is_lost_and_nothing_else_is() {
    for processes in [1, 3] {
        let mut place = owing(&format!("pending-abort-{processes}"), processes);
        let given_up = place.job().settle(Settle::Abort);
        assert_all_is_listed(&given_up, &place.output.name, processes);
        assert!(place.job().settle(Settle::List).is_empty());
        place.feed(RECORDS);
        place.job().workers(3).ends_well();
        let found = verdict(&place.expected, &place.output.read());
        let others = [found.doubled, found.out_of_order, found.foreign, found.moved];
        assert_eq!((found.lost, others), (RECORDS, [0; 4]), "{found:#?}");
    }
}
