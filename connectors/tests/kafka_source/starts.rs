//! Where a job begins, when it dies before its first checkpoint and after; and a topic that goes away.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use isochrone_connectors::kafka::Start;
use isochrone_engine::ErrorKind;

use crate::jobs::*;
use crate::support::*;

#[test]
fn the_latest_is_found_once_and_is_in_the_first_checkpoint() {
    let topic = Topic::new("latest", 2);
    topic.send(0, &["old", "old"]);
    let store = tempfile::tempdir().unwrap();
    let out = Out::default();
    let source = || topic.source().start(Start::Latest);
    // It dies before its first checkpoint: it has not begun, and is to begin where the latest is then.
    let died = AtomicBool::new(false);
    let killed = std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            // Sent again and again, since it is not seen from outside when the job has begun.
            for _ in 0..600 {
                topic.send(0, &["poison"]);
                std::thread::park_timeout(Duration::from_millis(100));
                if died.load(Ordering::SeqCst) {
                    break;
                }
            }
        });
        let dies = failing_at(source(), &out, "poison");
        let killed = job_without_checkpoints(store.path()).run(args(2), dies);
        died.store(true, Ordering::SeqCst);
        sender.join().unwrap();
        killed
    });
    assert_eq!(killed.unwrap_err().kind(), ErrorKind::User);
    // A run that reads nothing, and whose checkpoint knows where it would have.
    let idle = run_beside(job(store.path()), 2, reading(source(), &out), |handle| {
        handle.checkpoint(None).unwrap();
    });
    assert_eq!(idle.unwrap().read, 0);
    // While nobody runs; for a partition too that never had a record.
    topic.send(0, &["a"]);
    topic.send(1, &["b"]);
    read_until(job(store.path()), source(), &out, 2).unwrap();
    assert_eq!(sorted(&out), pairs(&[(0, "a"), (1, "b")]));
}

#[test]
fn a_time_is_made_into_offsets_once() {
    let topic = Topic::new("since", 1);
    let send = |records: &[(&str, i64)]| {
        let sent = records.iter().map(|(value, ms)| Sent {
            value: Some(value),
            timestamp_ms: Some(*ms),
            ..Sent::default()
        });
        topic.send_records(0, sent);
    };
    send(&[("before", 1000), ("a", 5000), ("b", 6000), ("poison", 7000)]);
    let store = tempfile::tempdir().unwrap();
    let out = Out::default();
    let source = || topic.source().start(Start::TimestampMs(5000));
    let dies = failing_at(source(), &out, "poison");
    let killed = job_without_checkpoints(store.path()).run(args(1), dies);
    assert_eq!(killed.unwrap_err().kind(), ErrorKind::User);
    read_until(job(store.path()), source(), &out, 3).unwrap();
    // Its time is before the start; its offset is not.
    send(&[("c", 3000)]);
    read_until(job(store.path()), source(), &out, 4).unwrap();
    assert_eq!(sorted(&out), pairs(&[(0, "a"), (0, "b"), (0, "c"), (0, "poison")]));
}

#[test]
fn a_topic_that_is_deleted_ends_the_job_that_reads_it() {
    let topic = Topic::new("deleted", 2);
    topic.send(0, &["a"]);
    let store = tempfile::tempdir().unwrap();
    let out = Out::default();
    let seen = out.clone();
    let source = topic.source().look_every(Duration::from_millis(100));
    let ended = run_until_it_ends(job(store.path()), 2, reading(source, &out), || {
        eventually("the record is out", || seen.items().len() == 1);
        admin().delete(&topic.name).unwrap();
    });
    let error = ended.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let text = error.to_string();
    assert!(text.contains("there is no such topic") && text.contains(&topic.name), "{text}");
    // What was read before is out, and in the checkpoint.
    assert_eq!(sorted(&out), pairs(&[(0, "a")]));
}
