//! A process that sleeps at a step of the protocol while two generations of successors go on, and
//! then wakes: it publishes nothing, says that it was overtaken, and its successor does not mind.

use isochrone::ErrorKind;

use crate::place::{Place, was_killed};
use crate::support::wait;

const STEPS: &[&str] = &[
    "kafka-fenced-first",
    "kafka-fenced",
    "kafka-opened",
    "kafka-kept@2",
    "manifest-due@2",
    "manifest-written@2",
    "kafka-begun@2",
    "kafka-sent@2",
    "kafka-flushed@2",
    "kafka-marked@2",
    "kafka-committed@2",
];

fn wakes_up_at(step: &str, name: &str) {
    let mut place = Place::new(name);
    place.feed(300);
    let mut zombie = place.job().workers(2).crash(&format!("{step}=stop")).start();
    let asleep = wait::soon(|| {
        if !zombie.is_stopped() {
            place.feed(60);
        }
        zombie.is_stopped() || zombie.ended().is_some()
    });
    assert!(asleep && zombie.is_stopped(), "{step} was not met: {}", zombie.errors());

    place.feed(300);
    let mut second = place.job().workers(1).crash("kafka-flushed@2").start();
    let end = place.feed_until_it_ends(&mut second);
    assert!(was_killed(end), "{step}: {end}: {}", second.errors());
    let mut third = place.job().workers(3).start();
    place.await_all(&third);

    let before = place.output.glance().records.len();
    zombie.signal("CONT");
    let end = zombie.end();
    let fenced = i32::from(ErrorKind::Fenced.exit_code());
    assert_eq!(end.code(), Some(fenced), "{step}: {}", zombie.errors());
    assert_eq!(place.output.glance().records.len(), before, "{step}: {}", zombie.errors());
    // The zombie may have fenced the lane before it asked. The third run takes it back.
    place.feed(300);
    place.await_all(&third);
    assert!(third.ended().is_none(), "{step}: {}", third.errors());
    assert!(third.kill());
    place.job().workers(2).ends_well();
    place.check();
}

#[test]
fn who_wakes_up_behind_two_successors_publishes_nothing_and_exits_as_fenced() {
    for (number, step) in STEPS.iter().enumerate() {
        wakes_up_at(step, &format!("zombie-{number}"));
    }
}
