//! Who reads what: splits found, remembered and given to workers. Knows no source's types.

use std::collections::BTreeSet;
use std::rc::Rc;

use isochrone_persistence::Result;
use isochrone_persistence::ids::Worker;
use isochrone_persistence::manifest;

use super::conductor::Orders;
use super::message::Order;
use crate::erased::{AnyObserver, AnySource};
use crate::protocol::Part;

/// How often sources that may get more splits are asked for them, in milliseconds.
const DISCOVER_EVERY_MS: u64 = 200;

/// Splits in one order.
const SPLITS_MAX: usize = 1_000;

/// The splits of all sources.
pub(crate) struct Splits {
    sources: Vec<Known>,
    workers: u32,
    next_ms: u64,
}

struct Known {
    operator: usize,
    source: Rc<dyn AnySource>,
    observer: Option<AnyObserver>,
    ids: BTreeSet<String>,
    complete: bool,
    given: usize,
}

impl Splits {
    pub(crate) fn new(workers: u32) -> Self {
        Splits { sources: Vec::new(), workers, next_ms: 0 }
    }

    /// Takes a source with the splits that the checkpoint knows; answers what is to be read first.
    ///
    /// Finished splits are given out only if they have grown. Which worker gets which depends on
    /// nothing but their order.
    pub(crate) fn add(
        &mut self,
        operator: usize,
        source: Rc<dyn AnySource>,
        restored: Vec<manifest::Split>,
    ) -> Result<Vec<Order>> {
        let mut due = Vec::new();
        let ids = restored.iter().map(|split| split.id.clone()).collect();
        for mut split in restored {
            if split.finished && source.has_more(&split)? {
                split.finished = false;
            }
            if !split.finished {
                due.push(split);
            }
        }
        let observer = source.observer();
        let mut known = Known { operator, source, observer, ids, complete: false, given: operator };
        due.extend(known.discover()?);
        let orders = known.give(due, self.workers);
        self.sources.push(known);
        Ok(orders)
    }

    /// The sources that have no split at all so far, and whether they look on.
    pub(crate) fn without_input(&self) -> impl Iterator<Item = (usize, bool)> {
        let empty = self.sources.iter().filter(|known| known.ids.is_empty());
        empty.map(|known| (known.operator, !known.complete))
    }

    /// What observers are to be told once this checkpoint exists, by their number.
    pub(crate) fn observed(
        &self,
        operators: &[manifest::Operator],
    ) -> Vec<(usize, Vec<manifest::Split>)> {
        let of = |known: &Known| match &operators.get(known.operator)?.part {
            manifest::Part::Source { splits, .. } => Some(splits.clone()),
            _ => None,
        };
        let sources = self.sources.iter().enumerate();
        let observed = sources.filter(|(_, known)| known.observer.is_some());
        observed.filter_map(|(number, known)| Some((number, of(known)?))).collect()
    }

    /// The checkpoint exists.
    pub(crate) fn tell(&mut self, observed: Vec<(usize, Vec<manifest::Split>)>) {
        for (number, splits) in observed {
            if let Some(observer) = &mut self.sources[number].observer {
                observer(&splits);
            }
        }
    }

    pub(crate) fn discover_if_due(&mut self, now_ms: u64, orders: &Orders) -> Result<()> {
        if now_ms < self.next_ms {
            return Ok(());
        }
        self.next_ms = now_ms + DISCOVER_EVERY_MS;
        for known in self.sources.iter_mut().filter(|known| !known.complete) {
            let found = known.discover()?;
            if found.is_empty() && !known.complete {
                continue;
            }
            known.give(found, self.workers).iter().for_each(|order| orders(order));
        }
        Ok(())
    }
}

impl Known {
    fn discover(&mut self) -> Result<Vec<manifest::Split>> {
        let ids: Vec<String> = self.ids.iter().cloned().collect();
        let found = self.source.discover(&ids)?;
        self.complete = found.complete;
        let fresh = found.new.into_iter().filter(|split| self.ids.insert(split.id.clone()));
        Ok(fresh
            .map(|split| manifest::Split {
                id: split.id,
                position: split.position,
                watermark: None,
                finished: false,
            })
            .collect())
    }

    /// Deals splits to workers in turn, beginning where the last deal ended.
    fn give(&mut self, splits: Vec<manifest::Split>, workers: u32) -> Vec<Order> {
        let (operator, given) = (self.operator, self.given);
        self.given += splits.len();
        let assign = |(worker, splits)| Order::Assign { part: Part { operator, worker }, splits };
        let mut orders: Vec<Order> = deal(splits, given, workers).map(assign).collect();
        orders.push(Order::Dealt { operator, complete: self.complete });
        orders
    }
}

/// What each worker gets, in pieces that fit into a message.
fn deal(
    splits: Vec<manifest::Split>,
    given: usize,
    workers: u32,
) -> impl Iterator<Item = (Worker, Vec<manifest::Split>)> {
    let mut hands: Vec<Vec<manifest::Split>> = vec![Vec::new(); workers as usize];
    for (turn, split) in (given..).zip(splits) {
        hands[turn % workers as usize].push(split);
    }
    (0..).map(Worker).zip(hands).flat_map(|(worker, mut hand)| {
        let pieces = hand.len().div_ceil(SPLITS_MAX);
        (0..pieces).map(move |_| {
            let rest = hand.split_off(hand.len().min(SPLITS_MAX));
            (worker, std::mem::replace(&mut hand, rest))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_splits_are_dealt_in_turn_and_in_pieces() {
        let split = |n: usize| manifest::Split {
            id: n.to_string(),
            position: serde_json::Value::Null,
            watermark: None,
            finished: false,
        };
        let count = 2 * SPLITS_MAX + 5;
        let dealt: Vec<_> = deal((0..count).map(split).collect(), 1, 2).collect();
        let sizes: Vec<_> = dealt.iter().map(|(worker, splits)| (worker.0, splits.len())).collect();
        assert_eq!(sizes, [(0, SPLITS_MAX), (0, 2), (1, SPLITS_MAX), (1, 3)]);
        for (worker, splits) in dealt {
            let turns: Vec<usize> =
                splits.iter().map(|split| split.id.parse().unwrap_or(0)).collect();
            assert!(turns.iter().all(|n| (n + 1) % 2 == worker.0 as usize), "{turns:?}");
            assert!(turns.is_sorted());
        }
        assert_eq!(deal(Vec::new(), 0, 2).count(), 0);
    }
}
