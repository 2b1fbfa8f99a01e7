use super::*;
use Step::{Closed, Complete, Drain, Freeze};

const fn e(n: u64) -> Epoch {
    Epoch(n)
}

fn steps(machine: &mut Participant) -> Vec<Step> {
    std::iter::from_fn(|| machine.next()).collect()
}

#[test]
fn freezes_only_when_every_input_has_reached_the_cut() {
    let mut m = Participant::new(e(0), 2);
    m.on_trigger(e(1), Mode::Aligned);
    assert_eq!(m.on_message(0, e(1)), Arrival::Stash);
    assert_eq!(m.on_message(1, e(0)), Arrival::Apply);
    m.on_frontier(0, Some(e(1)));
    assert_eq!(steps(&mut m), []);
    assert!(m.draining());
    m.on_frontier(1, Some(e(1)));
    assert_eq!(steps(&mut m), [Freeze(e(1)), Drain(e(1))]);
    assert!(!m.draining());
    assert_eq!(m.on_message(0, e(1)), Arrival::Apply);
}

#[test]
fn a_frontier_alone_announces_a_cut() {
    let mut m = Participant::new(e(3), 1);
    m.on_frontier(0, Some(e(5)));
    assert_eq!(steps(&mut m), [Freeze(e(5)), Drain(e(5))]);
    m.on_trigger(e(5), Mode::Unaligned);
    assert_eq!(steps(&mut m), [], "a late trigger of a frozen cut changes nothing");
    assert_eq!(m.logging(), None);
}

#[test]
fn a_frontier_that_jumps_over_cuts_freezes_each_in_order() {
    let mut m = Participant::new(e(0), 1);
    m.on_trigger(e(1), Mode::Aligned);
    assert_eq!(m.on_message(0, e(2)), Arrival::Stash);
    assert_eq!(m.on_message(0, e(1)), Arrival::Stash);
    m.on_frontier(0, Some(e(4)));
    let all = [1, 2, 4].map(|n| [Freeze(e(n)), Drain(e(n))]).concat();
    assert_eq!(steps(&mut m), all);
}

#[test]
fn what_comes_up_before_the_stash_is_drained_waits_behind_it() {
    let mut m = Participant::new(e(0), 1);
    assert_eq!(m.on_message(0, e(1)), Arrival::Stash);
    m.on_frontier(0, Some(e(1)));
    assert_eq!(m.next(), Some(Freeze(e(1))));
    assert_eq!(m.on_message(0, e(1)), Arrival::Stash);
    assert_eq!(m.next(), Some(Drain(e(1))));
    assert_eq!(m.on_message(0, e(1)), Arrival::Apply);
}

#[test]
fn closed_comes_once_and_after_everything_is_drained() {
    let mut m = Participant::new(e(0), 2);
    assert_eq!(m.on_message(0, e(1)), Arrival::Stash);
    m.on_frontier(0, None);
    assert_eq!(steps(&mut m), []);
    m.on_frontier(1, None);
    assert_eq!(steps(&mut m), [Freeze(e(1)), Drain(e(1)), Closed]);
    m.on_trigger(e(2), Mode::Aligned);
    assert_eq!(steps(&mut m), [Freeze(e(2)), Drain(e(2))]);
}

#[test]
fn unaligned_freezes_at_the_trigger_and_logs_what_was_in_flight() {
    let mut m = Participant::new(e(0), 2);
    m.on_trigger(e(1), Mode::Unaligned);
    assert_eq!(steps(&mut m), [Freeze(e(1)), Drain(e(1))]);
    assert_eq!(m.logging(), Some(e(1)));
    assert_eq!(m.on_message(0, e(0)), Arrival::Log { restamp: e(1) });
    assert_eq!(m.on_message(0, e(1)), Arrival::Apply);
    m.on_frontier(0, Some(e(1)));
    assert_eq!(steps(&mut m), []);
    assert_eq!(m.on_message(1, e(0)), Arrival::Log { restamp: e(1) });
    m.on_frontier(1, Some(e(1)));
    assert_eq!(steps(&mut m), [Complete(e(1))]);
    assert_eq!(m.logging(), None);
}

#[test]
fn a_second_trigger_ends_the_wait_for_alignment() {
    let mut m = Participant::new(e(0), 1);
    m.on_trigger(e(1), Mode::Aligned);
    assert_eq!(m.on_message(0, e(1)), Arrival::Stash);
    assert_eq!(steps(&mut m), []);
    m.on_trigger(e(1), Mode::Unaligned);
    assert_eq!(steps(&mut m), [Freeze(e(1)), Drain(e(1))]);
    assert_eq!(m.on_message(0, e(0)), Arrival::Log { restamp: e(1) });
}

#[test]
fn a_later_unaligned_cut_ends_the_log_of_an_abandoned_one() {
    let mut m = Participant::new(e(0), 1);
    m.on_trigger(e(1), Mode::Unaligned);
    assert_eq!(steps(&mut m), [Freeze(e(1)), Drain(e(1))]);
    m.on_trigger(e(3), Mode::Unaligned);
    assert_eq!(m.on_message(0, e(2)), Arrival::Stash);
    let want =
        [Complete(e(1)), Freeze(e(2)), Drain(e(2)), Complete(e(2)), Freeze(e(3)), Drain(e(3))];
    assert_eq!(steps(&mut m), want);
    assert_eq!(m.on_message(0, e(0)), Arrival::Log { restamp: e(3) });
    m.on_frontier(0, Some(e(3)));
    assert_eq!(steps(&mut m), [Complete(e(3))]);
}

#[test]
fn an_aligned_cut_after_an_abandoned_unaligned_one_waits() {
    let mut m = Participant::new(e(0), 1);
    m.on_trigger(e(1), Mode::Unaligned);
    assert_eq!(steps(&mut m), [Freeze(e(1)), Drain(e(1))]);
    m.on_trigger(e(2), Mode::Aligned);
    assert_eq!(steps(&mut m), []);
    assert_eq!(m.on_message(0, e(0)), Arrival::Log { restamp: e(1) });
    m.on_frontier(0, Some(e(2)));
    assert_eq!(steps(&mut m), [Complete(e(1)), Freeze(e(2)), Drain(e(2))]);
}

#[test]
fn a_source_freezes_at_each_trigger() {
    let mut m = Participant::new(e(0), 0);
    assert_eq!(steps(&mut m), []);
    m.on_trigger(e(1), Mode::Aligned);
    assert_eq!(steps(&mut m), [Freeze(e(1)), Drain(e(1))]);
    m.on_trigger(e(2), Mode::Unaligned);
    assert_eq!(steps(&mut m), [Freeze(e(2)), Drain(e(2))]);
    assert_eq!(m.logging(), None);
}

#[test]
fn a_frontier_never_goes_back() {
    let mut m = Participant::new(e(5), 1);
    m.on_frontier(0, Some(e(0)));
    assert_eq!(steps(&mut m), []);
    m.on_frontier(0, Some(e(6)));
    m.on_frontier(0, Some(e(5)));
    assert_eq!(steps(&mut m), [Freeze(e(6)), Drain(e(6))]);
}

#[test]
#[should_panic(expected = "after cut 1 was passed")]
fn a_batch_from_before_a_passed_cut_is_refused() {
    let mut m = Participant::new(e(0), 1);
    m.on_frontier(0, Some(e(1)));
    steps(&mut m);
    m.on_message(0, e(0));
}
