//! Brokers that die and come back while a job publishes: the job goes on by itself.

use std::time::Duration;

use crate::place::Place;
use crate::support::child::Job;
use crate::support::kafka::Broker;
use crate::support::wait;

/// At least so long, and so often: a start takes its time.
const SOAK: Duration = Duration::from_secs(120);
const RESTARTS_MIN: u32 = 5;
/// One that is late makes the next one no later.
const RESTART_EVERY: Duration = Duration::from_secs(20);

/// It has gone on all the time; its last run, to the end, leaves nothing out.
fn ends_exact(place: &Place, mut job: Job) {
    assert!(job.ended().is_none(), "{}", job.errors());
    place.await_all(&job);
    assert!(job.kill());
    place.job().workers(3).ends_well();
    place.check();
}

#[test]
fn a_broker_killed_at_each_step_of_publishing_comes_back_and_all_is_published_once() {
    let broker = Broker::start();
    for step in ["kafka-begun", "kafka-sent", "kafka-flushed", "kafka-marked"] {
        let mut place = Place::on(&broker, step);
        place.feed(300);
        let job = place.job().workers(2).crash(&format!("{step}@2=stop")).start();
        let asleep = wait::soon(|| {
            if !job.is_stopped() {
                place.feed(60);
            }
            job.is_stopped()
        });
        assert!(asleep, "{step} was not met: {}", job.errors());
        broker.kill9();
        job.signal("CONT");
        // It finds that nobody is there.
        wait::pause(Duration::from_millis(500));
        broker.restart();
        place.feed(300);
        ends_exact(&place, job);
    }
}

#[test]
fn a_broker_that_is_restarted_all_the_time_only_costs_time() {
    let broker = Broker::start();
    let mut place = Place::on(&broker, "soak");
    let job = place.job().workers(2).start();
    let started = wait::Since::now();
    let mut restarts = 0;
    while started.passed() < SOAK || restarts < RESTARTS_MIN {
        place.feed(200);
        wait::pause(Duration::from_millis(100));
        if started.passed() > RESTART_EVERY * (restarts + 1) {
            if restarts % 2 == 0 {
                broker.kill9();
            }
            broker.restart();
            restarts += 1;
        }
    }
    eprintln!("{restarts} restarts, {} records", place.expected.len());
    ends_exact(&place, job);
}

/// Each broker leads some partitions, of the output, of the progress and of the coordinators.
#[test]
fn of_three_brokers_each_is_lost_once_with_all_that_it_leads() {
    let broker = Broker::options().three().start();
    let mut place = Place::on(&broker, "three");
    let job = place.job().workers(2).start();
    for lost in 1..=3 {
        place.feed(600);
        place.await_all(&job);
        broker.kill9_one(lost);
        for _ in 0..10 {
            place.feed(60);
            wait::pause(Duration::from_millis(200));
        }
        place.await_all(&job);
        broker.restart_one(lost);
    }
    ends_exact(&place, job);
}
