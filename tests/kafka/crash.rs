//! `kill -9` at each step of the protocol in a run, and at each step of the recovery from it, at
//! changing numbers of workers: see the table in `docs/kafka.md`.

use crate::place::{Place, killed_processes, was_killed};
use crate::support::wait;

/// Steps of a run, in their order: writer, manifest, publishing.
const IN_RUN: &[&str] = &[
    "kafka-kept",
    "manifest-due",
    "manifest-written",
    "kafka-begun",
    "kafka-sent",
    "kafka-flushed",
    "kafka-marked",
    // The end of the transaction is under way.
    "kafka-marked+1ms",
    "kafka-marked+4ms",
    "kafka-committed",
];

/// Steps of a recovery with output to publish; without, the run comes to them later.
const IN_RECOVERY: &[&str] = &[
    "kafka-opened",
    "kafka-fenced-first",
    "kafka-fenced",
    "kafka-begun",
    "kafka-sent",
    "kafka-flushed",
    "kafka-marked",
    "kafka-marked+2ms",
    "kafka-committed",
    "kafka-kept",
];

/// A step that is met at a later time: what a recovery publishes before comes to it as well.
fn later(step: &str) -> String {
    match step.split_once('+') {
        Some((point, delay)) => format!("{point}@4+{delay}"),
        None => format!("{step}@4"),
    }
}

/// One job dies at a step of a run, then at one of the recovery, and so on with all steps of a
/// recovery in turn; then it goes on to the end. The first run of all dies the first time that it
/// comes to its step.
fn dies_in_turn(name: &str, in_run: &str, first: usize) {
    let mut place = Place::new(name);
    place.feed(300);
    for turn in 0..IN_RECOVERY.len() {
        let in_recovery = IN_RECOVERY[(first + turn) % IN_RECOVERY.len()];
        let row = format!("{in_run}, then {in_recovery}");
        let in_run = if turn == 0 { in_run.to_owned() } else { later(in_run) };
        for (point, workers) in [(in_run.as_str(), 2), (in_recovery, 3)] {
            let mut job = place.job().workers(workers).crash(point).start();
            let end = place.feed_until_it_ends(&mut job);
            assert!(was_killed(end), "{row}: {point} was not met: {end}: {}", job.errors());
        }
        place.check_so_far(&row);
    }
    place.job().workers(1).ends_well();
    place.check();
}

/// Rows of the table: steps of a run, each with all steps of a recovery.
fn table(steps: std::ops::Range<usize>) {
    for number in steps {
        dies_in_turn(&format!("crash-{number}"), IN_RUN[number], number);
    }
}

#[test]
fn killed_at_the_steps_up_to_sending_and_at_each_step_of_the_recovery() {
    table(0..IN_RUN.len() / 2);
}

#[test]
fn killed_at_the_steps_from_then_on_and_at_each_step_of_the_recovery() {
    table(IN_RUN.len() / 2..IN_RUN.len());
}

/// An epoch's output that does not fit into one transaction: what is published is a prefix.
#[test]
fn killed_between_the_transactions_of_one_epoch() {
    const NOTE: usize = 100_000;
    let steps = ["kafka-committed", "kafka-sent@2", "kafka-marked@2", "kafka-committed@2"];
    for (number, step) in steps.iter().enumerate() {
        let mut place = Place::new(&format!("crash-between-{number}"));
        let rows = place.rows(250, NOTE);
        place.input.write(rows);
        let run = place.job().workers(1).flag("--checkpoint-every", "1h");
        let mut job = run.until_end().crash(step).start();
        let end = job.end();
        assert!(was_killed(end), "{step}: {end}: {}", job.errors());
        place.check_so_far(step);
        // The marks of what was committed may still be on their way.
        let mut before = 0;
        let as_expected = wait::soon(|| {
            let content = place.output.glance();
            before = content.records.len();
            match *step {
                "kafka-committed" => content.hanging.is_empty() && 0 < before && before < 250,
                "kafka-committed@2" => content.hanging.is_empty() && before == 250,
                _ => 0 < before && before < 250,
            }
        });
        assert!(as_expected, "{step}: {before}");
        let mut job = place.job().workers(3).crash("kafka-flushed").start();
        let end = place.feed_until_it_ends(&mut job);
        assert!(was_killed(end), "{step}: {end}: {}", job.errors());
        place.job().workers(2).ends_well();
        place.check();
    }
}

/// Two processes publish on a lane each. Those that die at a step are started again by their
/// supervisor, and die there again, until it gives up.
#[test]
fn killed_at_each_step_in_processes_that_are_supervised() {
    for (number, step) in IN_RUN.iter().enumerate() {
        let mut place = Place::new(&format!("crash-supervised-{number}"));
        place.feed(300);
        let run = place.job().processes(2).workers(1).flag("--restarts", "1").told();
        let mut job = run.crash(step).start();
        let end = place.feed_until_it_ends(&mut job);
        let said = job.errors();
        assert_eq!(end.code(), Some(4), "{step}: {said}");
        assert!(said.contains("gave up after 1 restarts"), "{step}: {said}");
        assert!(killed_processes(&said) >= 2, "{step} was not met in each start: {said}");
        place.check_so_far(step);
        place.job().workers(3).ends_well();
        place.check();
    }
}
