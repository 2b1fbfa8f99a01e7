//! Requests to end a transaction that are lost, whose answer is lost, or that arrive late: in a run
//! and in a recovery, from a proxy that stands between the job and its broker.
//!
//! What a late one would do is KAFKA-17754: the client repeats the request on a new connection, and
//! the first one arrives when the next transaction of the same producer is open, and ends that.

use std::sync::LazyLock;

use crate::place::{Place, was_killed};
use crate::support::kafka::{Broker, Content, Fault, Proxy, Seen, Topic, Transaction, row};
use crate::support::seed::Seeded;
use crate::support::wait;

const FAULTS: [Fault; 4] = [Fault::AnswerLost, Fault::Lost, Fault::Swallowed, Fault::Late];
const EACH_IN_A_RUN: usize = 3;
/// Requests of a recovery whose lanes are two, and the first of the run after it: the end of the
/// progress is read, read again, what is owed is published.
const IN_RECOVERY: usize = 4;
/// What a broker says to the producer that has been replaced.
const INVALID_PRODUCER_EPOCH: i16 = 47;
/// Nobody tells a client that its request was swallowed: it gives up after so long.
const GIVES_UP: &str = "socket.timeout.ms=2000";

/// The tests of this file plan one after the other.
static BEHIND: LazyLock<std::sync::Mutex<(Proxy, Broker)>> =
    LazyLock::new(|| std::sync::Mutex::new(Proxy::before(Broker::options())));

fn behind() -> std::sync::MutexGuard<'static, (Proxy, Broker)> {
    BEHIND.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn texts(content: &Content) -> Vec<String> {
    content.records.iter().map(|record| record.text()).collect()
}

/// The broker took each late request for one of a producer that is no more.
fn assert_refused(seen: &Seen) {
    assert!(seen.late.iter().all(|code| *code == INVALID_PRODUCER_EPOCH), "{seen:?}");
    assert_eq!(seen.late.len() as u32, seen.count(Fault::Late), "{seen:?}");
}

/// Why a producer of ours is not simply used again. If this fails, brokers and client have learned
/// to tell such a request from that of the next transaction.
#[test]
fn a_client_that_goes_on_with_its_producer_has_its_next_transaction_ended_by_a_late_request() {
    let behind = behind();
    let (proxy, broker) = &*behind;
    let topic = Topic::create(broker, "late-control", 1);
    proxy.plan("late-control", [Fault::Late]);
    let mut transaction = Transaction::begin(broker, "late-control");
    transaction.write(&topic, [row("k", "committed")]);
    transaction.commit_and_begin();
    assert_eq!(texts(&topic.read()), ["committed"]);
    transaction.write(&topic, [row("k", "never committed")]);
    let seen = proxy.seen();
    assert_eq!((seen.count(Fault::Late), seen.count(Fault::None)), (1, 1), "it was not repeated");
    assert_eq!(seen.late, [0], "the broker did not carry it out");
    assert_eq!(texts(&topic.read()), ["committed", "never committed"]);
    let aborted = transaction.try_abort();
    assert_eq!(texts(&topic.read()), ["committed", "never committed"], "{aborted:?}");
}

#[test]
fn what_networks_do_to_the_end_of_a_transaction_does_not_show() {
    let mut seeded = Seeded::announced();
    let behind = behind();
    let (proxy, broker) = &*behind;
    let mut place = Place::on(broker, "late-run");
    let job = place.job().workers(2).flag("--kafka-set", GIVES_UP).start();
    place.feed(300);
    place.await_all(&job);

    let mut faults = FAULTS.repeat(EACH_IN_A_RUN);
    faults.resize(2 * faults.len(), Fault::None);
    seeded.shuffle(&mut faults);
    eprintln!("{faults:?}");
    proxy.plan("isochrone.late-run.", faults);
    let through = wait::soon(|| {
        place.feed(60);
        wait::pause(std::time::Duration::from_millis(20));
        proxy.is_through()
    });
    let seen = proxy.seen();
    assert!(through, "{seen:?}; the job says: {}", job.errors());
    for fault in FAULTS {
        assert_eq!(seen.count(fault) as usize, EACH_IN_A_RUN, "{fault:?}: {seen:?}");
    }
    assert_refused(&seen);
    place.await_all(&job);
    let mut job = job;
    assert!(job.ended().is_none() && job.kill(), "{}", job.errors());
    place.job().workers(1).ends_well();
    place.check();
}

#[test]
fn nor_does_it_in_a_recovery() {
    let behind = behind();
    let (proxy, broker) = &*behind;
    let mut place = Place::on(broker, "late-recovery");
    place.feed(300);
    // From now on there are two lanes.
    place.job().processes(2).workers(1).ends_well();
    for fault in FAULTS {
        for before in 0..IN_RECOVERY {
            let row = format!("{fault:?} after {before}");
            let mut job = place.job().workers(2).crash("manifest-written@2").start();
            let end = place.feed_until_it_ends(&mut job);
            assert!(was_killed(end), "{row}: {end}: {}", job.errors());

            let mut faults = vec![Fault::None; before];
            faults.push(fault);
            proxy.plan("isochrone.late-recovery.", faults);
            let mut job = place.job().workers(3).flag("--kafka-set", GIVES_UP).start();
            let through = wait::soon(|| {
                place.feed(60);
                wait::pause(std::time::Duration::from_millis(20));
                proxy.is_through()
            });
            let seen = proxy.seen();
            assert!(through && seen.count(fault) == 1, "{row}: {seen:?}: {}", job.errors());
            assert_refused(&seen);
            place.await_all(&job);
            assert!(job.ended().is_none() && job.kill(), "{row}: {}", job.errors());
            place.check_so_far(&row);
        }
    }
    proxy.plan("", []);
    place.job().workers(1).ends_well();
    place.check();
}

/// Its coordinator has logged that the transaction will be committed, or has never heard of it: the
/// job cannot know which. What it does next is the same, and what comes of it is what happened.
#[test]
fn a_job_killed_before_the_answer_to_the_end_of_a_transaction_finds_out_what_became_of_it() {
    let behind = behind();
    let (proxy, broker) = &*behind;
    let cases = [
        ("late-logged", Fault::Unanswered, "was published already"),
        ("late-unheard", Fault::Swallowed, "published now"),
    ];
    for (name, fault, says) in cases {
        let mut place = Place::on(broker, name);
        let mut job = place.job().workers(2).start();
        place.feed(300);
        place.await_all(&job);
        // Until the job knows as well.
        wait::pause(std::time::Duration::from_secs(4));

        proxy.plan(&format!("isochrone.{name}."), [fault]);
        place.feed(60);
        let met = wait::soon(|| {
            let seen = proxy.seen();
            seen.count(fault) == 1 && (fault != Fault::Unanswered || seen.unanswered == [0])
        });
        assert!(job.ended().is_none() && job.kill(), "{name}: {}", job.errors());
        assert!(met, "{name}: {:?}: {}", proxy.seen(), job.errors());
        proxy.plan("", []);
        // Whether it is committed does not depend on who comes next.
        let content = match fault {
            Fault::Unanswered => place.output.read(),
            _ => place.output.glance(),
        };
        assert_eq!(content.hanging.is_empty(), fault == Fault::Unanswered, "{name}: {content:?}");
        assert_eq!(content.records.len() > 300, fault == Fault::Unanswered, "{name}");

        let mut next = place.job().workers(3).told().until_end().start();
        let (end, said) = (next.end(), next.errors());
        assert!(end.success() && said.contains(says), "{name}: {end}: {said}");
        let is_certain = fault == Fault::Unanswered || !said.contains("already");
        assert!(is_certain, "{name}: {said}");
        place.check();
    }
}
