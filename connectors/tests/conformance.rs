//! The suite for sources finds each breach of the contract.

use std::cell::Cell;

use isochrone_connectors::conformance::check_source;
use isochrone_engine::Result;
use isochrone_engine::connector::{Batch, Discovery, Poll, Reader, Source, Split};

/// What a source of the numbers below 10 does wrong.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    PositionTooEarly,
    PositionTooLate,
    GoesOnAfterTheEnd,
    KnownAgain,
    NamesChange,
    AnswersOnce,
    SaysThereIsMore,
    LosesTheLast,
}

/// The fault, and whether it was asked for its splits.
struct Numbers(Fault, Cell<bool>);

thread_local!(static NAMES: Cell<u32> = const { Cell::new(0) });

impl Source for Numbers {
    type Item = u32;
    type Position = u32;

    fn discover(&self, known: &[String]) -> Result<Discovery<u32>> {
        let name = if self.0 == Fault::NamesChange { NAMES.replace(NAMES.get() + 1) } else { 0 };
        let split = Split { id: name.to_string(), position: 0 };
        let is_new = match self.0 {
            Fault::KnownAgain => true,
            Fault::AnswersOnce if self.1.replace(true) => false,
            _ => !known.contains(&split.id),
        };
        Ok(Discovery { new: is_new.then_some(split).into_iter().collect(), complete: true })
    }

    fn has_more(&self, _split: &Split<u32>) -> Result<bool> {
        Ok(self.0 == Fault::SaysThereIsMore)
    }

    fn open(&self, split: Split<u32>) -> Result<Box<dyn Reader<u32, u32>>> {
        Ok(Box::new(NumbersReader { fault: self.0, next: split.position, ended: false }))
    }
}

struct NumbersReader {
    fault: Fault,
    next: u32,
    ended: bool,
}

impl Reader<u32, u32> for NumbersReader {
    fn poll(&mut self, batch: &mut Batch<u32>, max: usize) -> Result<Poll> {
        let end = if self.fault == Fault::LosesTheLast { 9 } else { 10 };
        let until = end.min(self.next.saturating_add(max as u32));
        batch.items.extend(self.next..until);
        if self.ended && self.fault == Fault::GoesOnAfterTheEnd {
            batch.items.push(10);
        }
        self.next = until.max(self.next);
        self.ended = self.next >= end;
        Ok(if self.ended { Poll::Finished } else { Poll::Ready })
    }

    fn position(&self) -> u32 {
        match self.fault {
            Fault::PositionTooEarly => self.next.saturating_sub(1),
            Fault::PositionTooLate if self.next == 4 => 5,
            _ => self.next,
        }
    }
}

fn check(fault: Fault) {
    check_source(|| Numbers(fault, Cell::new(false)), &Vec::from_iter(0..10));
}

#[test]
fn a_correct_source_passes() {
    check(Fault::None);
}

#[test]
#[should_panic(expected = "read from 0: number 0 is 0, expected 1")]
fn a_position_before_a_record_handed_out_is_found() {
    check(Fault::PositionTooEarly);
}

#[test]
#[should_panic(expected = "read from 5: number 0 is 5, expected 4")]
fn a_position_behind_a_record_not_handed_out_is_found() {
    check(Fault::PositionTooLate);
}

#[test]
#[should_panic(expected = "finished and gave more")]
fn records_after_the_end_are_found() {
    check(Fault::GoesOnAfterTheEnd);
}

#[test]
#[should_panic(expected = "is known and was found again")]
fn a_known_split_found_again_is_found() {
    check(Fault::KnownAgain);
}

#[test]
#[should_panic(expected = "two discoveries of the same input differ")]
fn names_that_change_are_found() {
    check(Fault::NamesChange);
}

#[test]
#[should_panic(expected = "asked again, with 0 splits known, it finds others")]
fn an_answer_that_is_given_only_once_is_found() {
    check(Fault::AnswersOnce);
}

#[test]
#[should_panic(expected = "finished and says that there is more")]
fn an_end_that_claims_more_is_found() {
    check(Fault::SaysThereIsMore);
}

#[test]
#[should_panic(expected = "read by 1: number of records")]
fn a_lost_record_is_found() {
    check(Fault::LosesTheLast);
}
