//! A transaction is open and partly written when a broker dies that has a part in it: the leader of
//! a partition of the output, that of the progress, the coordinator of the transaction. The job is
//! held at a step meanwhile, and goes on by itself.

use crate::place::{PARTITIONS_OUT, Place};
use crate::support::child::Job;
use crate::support::kafka::Broker;
use crate::support::wait;

/// One transaction takes them all. When the last one has been handed to the client, the first ones are
/// there: it has no more than so many on their way (`queue.buffering.max.messages`).
const RECORDS: i64 = 60_000;
const ON_THEIR_WAY_MAX: i64 = 50_000;
/// Each time it is two to one that they are different ones.
const TRIES: u32 = 20;

/// Who dies.
#[derive(Clone, Copy, Debug)]
enum Who {
    LeaderOfOutput,
    LeaderOfProgress,
    Coordinator,
}

/// The broker that coordinates the open transaction of the place's job.
fn coordinator(broker: &Broker, place: &Place) -> u32 {
    let ids = format!("isochrone.{}.", place.name);
    let open = wait::until(wait::SOON, || {
        let listed = broker.tool(&["transactions", "list"]);
        let line = listed.lines().find(|line| line.starts_with(&ids))?;
        // Id, coordinator, producer, state.
        let words: Vec<&str> = line.split_whitespace().collect();
        (words[3] == "Ongoing").then(|| words[1].parse().unwrap())
    });
    open.unwrap_or_else(|| panic!("no transaction of {ids} is open"))
}

/// A job that is held in the midst of its only transaction, where not the coordinator of that leads
/// the progress as well, unless it may: each of them dies alone.
fn held_apart(broker: &Broker, step: &str, may_lead_both: bool) -> (Place, Job, u32) {
    let name = step.split('@').next().expect("there is a first part");
    for time in 0..TRIES {
        let mut place = Place::on(broker, &format!("{name}-{time}"));
        let mut job = held_at(&mut place, step);
        let coordinator = coordinator(broker, &place);
        if may_lead_both || place.progress().leader(0) != coordinator {
            return (place, job, coordinator);
        }
        eprintln!("broker {coordinator} coordinates and leads the progress");
        assert!(job.kill());
    }
    panic!("of three brokers it is always the same one, {TRIES} times");
}

/// A job that is held in the midst of its only transaction.
fn held_at(place: &mut Place, step: &str) -> Job {
    let rows = place.rows(RECORDS as u64, 0);
    place.input.write(rows);
    let run = place.job().workers(2).flag("--checkpoint-every", "1h").until_end();
    let mut job = run.crash(&format!("{step}=stop")).start();
    let asleep = wait::soon(|| job.is_stopped() || job.ended().is_some());
    assert!(asleep && job.is_stopped(), "{step} was not met: {}", job.errors());
    let open = place.output.glance();
    assert_eq!(open.records.len(), 0, "{step}");
    let there: i64 = open.hanging.iter().map(|partition| partition.high_watermark).sum();
    let least = if step == "kafka-sent@2" { RECORDS - ON_THEIR_WAY_MAX } else { RECORDS };
    assert!((least..=RECORDS).contains(&there), "{step}: {:?}", open.hanging);
    job
}

fn dies_in_a_transaction(who: Who) {
    let broker = Broker::options().three().start();
    // Some records are still to be sent; all are there, and the mark is to come; the mark is there.
    for step in ["kafka-sent@2", "kafka-flushed", "kafka-marked"] {
        let may_lead_both = matches!(who, Who::LeaderOfOutput);
        let (place, mut job, coordinator) = held_apart(&broker, step, may_lead_both);
        let lost = match who {
            Who::Coordinator => coordinator,
            Who::LeaderOfProgress => place.progress().leader(0),
            Who::LeaderOfOutput => {
                let mut leaders = (0..PARTITIONS_OUT as i32).map(|p| place.output.leader(p));
                let other = leaders.find(|leader| *leader != coordinator);
                other.expect("four partitions are led by more than one broker")
            }
        };
        eprintln!("{who:?} at {step}: broker {lost}, and {coordinator} coordinates");
        broker.kill9_one(lost);
        job.signal("CONT");
        let end = wait::until(2 * wait::SOON, || job.ended());
        assert!(end.is_some_and(|end| end.success()), "{step}: {end:?}: {}", job.errors());
        eprintln!("{}", job.errors());
        place.check();
        broker.restart_one(lost);
    }
}

#[test]
fn the_leader_of_an_output_partition_dies_in_a_transaction() {
    dies_in_a_transaction(Who::LeaderOfOutput);
}

#[test]
fn the_leader_of_the_progress_dies_in_a_transaction() {
    dies_in_a_transaction(Who::LeaderOfProgress);
}

#[test]
fn the_coordinator_dies_in_its_transaction() {
    dies_in_a_transaction(Who::Coordinator);
}
