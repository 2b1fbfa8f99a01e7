//! Partitions that are added, or come back: none is left unread, in whole jobs.

use std::time::Duration;

use isochrone_connectors::kafka::{KafkaTopic, OnDataLoss, Start};
use isochrone_connectors::scripted::{Script, Step};
use isochrone_engine::{ErrorKind, Flow, Outcome};

use crate::jobs::*;
use crate::support::*;

fn watching(topic: &Topic) -> KafkaTopic {
    topic.source().look_every(Duration::from_millis(100))
}

fn send_to_each(topic: &Topic, partitions: std::ops::Range<i32>, value: &str) {
    for partition in partitions {
        topic.send(partition, &[value]);
    }
}

/// Whether a finished job has anything to do was asked of the source that was asked again when the run
/// began, and then it did not tell the new partitions any more: they were not read until a restart.
#[test]
fn partitions_added_to_the_topic_of_a_finished_job_are_read_by_the_next_run() {
    let topic = Topic::new("grown", 6);
    send_to_each(&topic, 0..6, "old");
    let store = tempfile::tempdir().unwrap();
    let out = Out::default();
    let first = job(store.path()).run(args(2), reading(watching(&topic).until_end(true), &out));
    assert_eq!(first.unwrap().outcome, Outcome::InputEnded);
    assert_eq!(out.items().len(), 6);
    topic.grow(8);
    send_to_each(&topic, 0..8, "new");
    read_until(job(store.path()), watching(&topic), &out, 14).unwrap();
    let mut expected: Vec<(i32, &str)> = (0..6).flat_map(|p| [(p, "new"), (p, "old")]).collect();
    expected.extend([(6, "new"), (7, "new")]);
    assert_eq!(sorted(&out), pairs(&expected));
}

/// The same of a source that the finished job did not have: nothing of it was read.
#[test]
fn a_topic_that_is_added_to_a_finished_job_is_read() {
    let topic = Topic::new("joined", 2);
    send_to_each(&topic, 0..2, "a");
    let store = tempfile::tempdir().unwrap();
    let out = Out::default();
    let script = Script::new([Step::Item((9, "script".to_owned()))]);
    let both = |with_topic: bool| {
        let (script, source, out) = (script.clone(), watching(&topic), out.clone());
        move |flow: &Flow<'_>| {
            flow.source("script", script.clone()).sink("script-out", out.clone());
            match with_topic {
                true => reading(source.clone(), &out)(flow),
                false => Ok(()),
            }
        }
    };
    let first = job(store.path()).run(args(1), both(false));
    assert_eq!(first.unwrap().outcome, Outcome::InputEnded);
    run_until(job(store.path()), both(true), &out, 3).unwrap();
    assert_eq!(sorted(&out), pairs(&[(0, "a"), (1, "a"), (9, "script")]));
}

#[test]
fn a_partition_found_by_a_run_that_died_is_read_from_its_beginning() {
    let topic = Topic::new("found", 1);
    topic.send(0, &["a"]);
    let store = tempfile::tempdir().unwrap();
    let out = Out::default();
    let source = || watching(&topic).start(Start::Latest);
    // Its first checkpoint has read nothing, and knows where it is.
    let first = run_beside(job(store.path()), 1, reading(source(), &out), |handle| {
        handle.checkpoint(None).unwrap();
    });
    assert_eq!(first.unwrap().read, 0);
    topic.grow(2);
    topic.send(1, &["b", "c"]);
    topic.send(0, &["d"]);
    let killed =
        job_without_checkpoints(store.path()).run(args(1), failing_at(source(), &out, "c"));
    assert_eq!(killed.unwrap_err().kind(), ErrorKind::User);
    read_until(job(store.path()), source(), &out, 3).unwrap();
    assert_eq!(sorted(&out), pairs(&[(0, "d"), (1, "b"), (1, "c")]));
}

/// What retention took in the meantime was not read, and nobody said so.
#[test]
fn what_is_deleted_of_a_partition_before_it_is_in_a_checkpoint_is_a_loss_like_any_other() {
    let topic = Topic::new("found-lost", 1);
    topic.send(0, &["a"]);
    let store = tempfile::tempdir().unwrap();
    let out = Out::default();
    read_until(job(store.path()), watching(&topic), &out, 1).unwrap();
    topic.grow(2);
    topic.send(1, &["b", "c"]);
    let dies = failing_at(watching(&topic), &out, "b");
    let killed = job_without_checkpoints(store.path()).run(args(1), dies);
    assert_eq!(killed.unwrap_err().kind(), ErrorKind::User);
    topic.delete_records(1, 1);
    let stopped = job(store.path()).run(args(1), reading(watching(&topic), &out)).unwrap_err();
    let expected = format!(
        "topic {}, partition 1: offset 0 is to be read next, and the oldest record there is has \
         offset 1: up to 1 records were deleted before they were read",
        topic.name
    );
    assert!(stopped.to_string().contains(&expected), "{stopped}");
    let continuing = || watching(&topic).on_data_loss(OnDataLoss::ContinueFromEarliest);
    read_until(job(store.path()), continuing(), &out, 2).unwrap();
    assert_eq!(sorted(&out), pairs(&[(0, "a"), (1, "c")]));
    topic.send(1, &["d"]);
    let summary = read_until(job(store.path()), continuing(), &out, 3).unwrap();
    let lost: Vec<&String> = summary
        .restore
        .positions
        .iter()
        .filter(|at| at.contains("1 or more records lost before"))
        .collect();
    assert_eq!(lost.len(), 1, "the checkpoint has it: {:?}", summary.restore.positions);
}

/// Their readers had ended, and nobody read them until a restart that nobody asked for.
#[test]
fn partitions_that_a_topic_regains_are_read() {
    let topic = Topic::new("regained", 3);
    send_to_each(&topic, 0..3, "old");
    let store = tempfile::tempdir().unwrap();
    let out = Out::default();
    let source = || watching(&topic).on_data_loss(OnDataLoss::ContinueFromEarliest);
    let seen = out.clone();
    let ended = run_until_it_ends(job(store.path()), 2, reading(source(), &out), || {
        eventually("the records are out", || seen.items().len() == 3);
        topic.recreate(1);
        topic.send(0, &["new"]);
        eventually("the new topic is read", || seen.items().len() == 4);
        // Longer than a reader waits for a partition that is gone.
        std::thread::park_timeout(Duration::from_secs(13));
        topic.grow(3);
        send_to_each(&topic, 1..3, "new");
    });
    let error = ended.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("has partitions 1 to 2 again"), "{error}");
    read_until(job(store.path()), source(), &out, 6).unwrap();
    let expected = (0..3).flat_map(|partition| [(partition, "new"), (partition, "old")]);
    assert_eq!(sorted(&out), pairs(&expected.collect::<Vec<_>>()));
}

#[test]
fn a_reader_waits_a_while_for_a_partition_that_is_gone() {
    let topic = Topic::new("back", 2);
    send_to_each(&topic, 0..2, "old");
    let source = watching(&topic).on_data_loss(OnDataLoss::ContinueFromEarliest).text();
    let mut reading = Reading::open(&source, &discover(&source)[1]);
    reading.until_count(1).unwrap();
    topic.recreate(1);
    reading.until("the partition is gone", |_, position| position.losses == 1).unwrap();
    assert_eq!(reading.position().next, 0);
    topic.grow(2);
    topic.send(1, &["new"]);
    reading.until_count(2).unwrap();
    assert_eq!(reading.batch.items, ["old", "new"]);
    assert_eq!(reading.position().losses, 1, "told once");
}
