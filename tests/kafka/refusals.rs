//! What can be wrong around a job: each mistake is told within 30 seconds, by what was found and
//! what to do, and when it is mended nothing has been lost or doubled.

use crate::place::{Place, verdict, was_killed};
use crate::support::kafka::{Broker, Topic};

fn says(said: &str, words: &[&str]) {
    for word in words {
        assert!(said.contains(word), "`{word}` is missing in: {said}");
    }
}

#[test]
fn an_output_topic_that_is_missing_is_named() {
    let mut place = Place::new("output-missing");
    place.feed(300);
    place.output.delete();
    let said = place.job().fails_with(2);
    says(&said, &["output-missing-out", "there is no such topic", "create it"]);
    place.output = Topic::create(Broker::shared(), &place.output.name, 4);
    place.job().ends_well();
    place.check();
}

#[test]
fn a_wrong_port_is_told_from_a_missing_topic() {
    let mut place = Place::new("wrong-port");
    place.feed(300);
    // No broker listens at port 1.
    let said = place.job().flag("--output", "kafka://127.0.0.1:1/wrong-port-out").fails_with(4);
    says(&said, &["127.0.0.1:1", "no broker answers", "check that it runs"]);
    let said = place.job().flag("--input", "kafka://127.0.0.1:1/wrong-port-in").fails_with(4);
    says(&said, &["127.0.0.1:1", "no broker answers", "Connection refused"]);
    place.job().ends_well();
    place.check();
}

#[test]
fn a_transaction_may_not_be_open_for_longer_than_the_broker_allows() {
    let mut place = Place::new("patient");
    place.feed(300);
    let hours = ["--kafka-set", "transaction.timeout.ms=86400000"];
    let said = place.job().flag(hours[0], hours[1]).fails_with(2);
    says(&said, &["time-out of a transaction", "transaction.max.timeout.ms"]);
    let said = place.job().flag(hours[0], "enable.idempotence=false").fails_with(2);
    says(&said, &["enable.idempotence", "has to be `true`", "remove it"]);
    place.job().ends_well();
    place.check();
}

#[test]
fn a_broker_that_is_dead_is_told_at_the_start_and_waited_for_in_a_run() {
    let broker = Broker::start();
    let mut place = Place::on(&broker, "dead");
    place.feed(300);
    let mut job = place.job().workers(2).crash("manifest-written@2").start();
    assert!(was_killed(place.feed_until_it_ends(&mut job)), "{}", job.errors());
    broker.kill9();
    let said = place.job().fails_with(4);
    says(&said, &[&place.address, "no broker answers", "check that it runs"]);
    broker.restart();
    place.job().ends_well();
    place.check();
}

#[test]
fn a_record_that_is_too_large_for_the_topic_is_named_and_published_when_it_fits() {
    let mut place = Place::new("too-large");
    place.output.set(&[("max.message.bytes", "2000")]);
    place.feed(300);
    let large = place.rows(1, 5_000);
    place.input.write(large);
    let said = place.job().workers(2).fails_with(2);
    says(&said, &["too-large-out", "max.message.bytes"]);
    place.check_so_far("too large");
    place.output.set(&[("max.message.bytes", "100000")]);
    place.job().workers(1).ends_well();
    place.check();
}

/// Brokers measure the batch, and the client would make large ones.
#[test]
fn a_topic_that_takes_small_batches_only_gets_those() {
    let mut place = Place::new("small-batches");
    place.output.set(&[("max.message.bytes", "20000")]);
    for promise in ["exactly", "at-least"] {
        let rows = place.rows(600, 5_000);
        place.input.write(rows);
        place.job().workers(2).flag("--promise", promise).ends_well();
    }
    verdict(&place.expected, &place.output.read()).assert_exact();
}

/// The topic takes less than it did when the record was written down to be published.
#[test]
fn a_record_that_has_become_too_large_is_named_and_published_when_it_fits() {
    let mut place = Place::new("shrunk");
    let rows = place.rows(300, 5_000);
    place.input.write(rows);
    let mut job = place.job().workers(2).crash("manifest-written").start();
    assert!(was_killed(job.end()), "{}", job.errors());
    place.output.set(&[("max.message.bytes", "2000")]);
    let said = place.job().workers(2).fails_with(2);
    says(&said, &["shrunk-out", "max.message.bytes"]);
    place.output.set(&[("max.message.bytes", "1000000")]);
    place.job().workers(1).ends_well();
    place.check();
}
