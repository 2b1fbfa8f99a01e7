//! A transaction that is open for longer than it may be: the broker aborts it, whoever reads committed
//! records goes on, and the job publishes the same again.

use std::sync::LazyLock;
use std::time::Duration;

use crate::place::{Place, Run, was_killed};
use crate::support::kafka::Broker;
use crate::support::wait;

/// Long enough for a look at what is open before it is over, on a busy machine.
const TIME_OUT: Duration = Duration::from_secs(15);
const SETTING: &str = "transaction.timeout.ms=15000";
/// Of a job that sleeps.
const ASLEEP: Duration = Duration::from_secs(18);
/// How much longer than its time-out a transaction may hide what comes behind it, on a busy machine.
const SLACK: Duration = Duration::from_secs(30);
/// How long nobody starts again when it is over.
const NOBODY: Duration = Duration::from_secs(5);

/// Looks twice in a second for transactions whose time is over, instead of every ten seconds.
static BROKER: LazyLock<Broker> = LazyLock::new(|| {
    let every = "transaction.abort.timed.out.transaction.cleanup.interval.ms";
    Broker::options().set(every, "500").start()
});

fn run<'p>(place: &'p Place) -> Run<'p> {
    place.job().workers(2).flag("--kafka-set", SETTING)
}

/// Waits until nothing hides what is committed, which is at most the time-out from now.
fn assert_time_runs_out(place: &Place, what: &str) {
    let since = wait::Since::now();
    let mut hanging = place.output.glance().hanging;
    assert!(!hanging.is_empty(), "{what}: no transaction is open");
    while !hanging.is_empty() {
        let passed = since.passed();
        assert!(passed < TIME_OUT + SLACK, "{what}: {hanging:?} after {passed:?}");
        wait::pause(Duration::from_millis(100));
        hanging = place.output.glance().hanging;
    }
}

#[test]
fn a_job_whose_transaction_has_timed_out_while_it_slept_goes_on_and_is_exact() {
    // Of these, the first has nothing at the broker yet, or only a part.
    let asleep = ["kafka-sent", "kafka-flushed", "kafka-marked"].map(|step| {
        let mut place = Place::on(&BROKER, &format!("slept-{step}"));
        place.feed(300);
        let job = run(&place).crash(&format!("{step}@2=stop")).start();
        let is_asleep = wait::soon(|| {
            if !job.is_stopped() {
                place.feed(60);
            }
            job.is_stopped()
        });
        assert!(is_asleep, "{step} was not met: {}", job.errors());
        let hanging = place.output.glance().hanging;
        assert!(step == "kafka-sent" || !hanging.is_empty(), "{step}: no transaction is open");
        (step, place, job, wait::Since::now())
    });
    for (step, mut place, mut job, since) in asleep {
        wait::pause(ASLEEP.saturating_sub(since.passed()));
        let is_over = || place.output.glance().hanging.is_empty().then_some(());
        assert!(wait::until(SLACK, is_over).is_some(), "{step}: it is still open");
        place.check_so_far(step);
        job.signal("CONT");
        place.feed(300);
        place.await_all(&job);
        let said = job.errors();
        assert!(job.ended().is_none(), "{step}: {said}");
        assert!(step == "kafka-sent" || said.contains("publishing again"), "{step}: {said}");
        assert!(job.kill());
        run(&place).ends_well();
        place.check();
    }
}

/// When nobody starts again, whoever reads what others have committed waits for the time-out, and for
/// no longer.
#[test]
fn a_job_that_died_in_a_transaction_holds_readers_up_to_its_time_out_and_starts_again_after_it() {
    for step in ["kafka-flushed@2", "kafka-marked@2"] {
        let mut place = Place::on(&BROKER, &format!("died-{}", &step[..step.len() - 2]));
        place.feed(300);
        let mut job = run(&place).crash(step).start();
        let end = place.feed_until_it_ends(&mut job);
        assert!(was_killed(end), "{step}: {end}: {}", job.errors());
        assert_time_runs_out(&place, step);
        assert!(place.progress().glance().hanging.is_empty(), "{step}");
        place.check_so_far(step);
        wait::pause(NOBODY);
        place.feed(300);
        let mut next = run(&place).told().until_end().start();
        let (end, said) = (next.end(), next.errors());
        assert!(end.success() && said.contains("published now"), "{step}: {end}: {said}");
        place.check();
    }
}
