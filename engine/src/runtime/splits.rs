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
        let mut hands: Vec<Vec<manifest::Split>> = vec![Vec::new(); workers as usize];
        for split in splits {
            hands[self.given % workers as usize].push(split);
            self.given += 1;
        }
        let operator = self.operator;
        let assign = |(worker, splits)| Order::Assign {
            part: Part { operator, worker: Worker(worker) },
            splits,
        };
        let mut orders: Vec<Order> =
            (0..).zip(hands).filter(|(_, splits)| !splits.is_empty()).map(assign).collect();
        orders.push(Order::Dealt { operator, complete: self.complete });
        orders
    }
}
