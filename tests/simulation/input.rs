//! What the simulated job reads: drawn from the seed, never late, with repetitions.

use std::time::Duration;

use isochrone::connector::SourceExt;
use isochrone::connectors::Collected;
use isochrone::testing::{Random, Script};
use isochrone::time::EventTime;
use serde::{Deserialize, Serialize};

/// Milliseconds by which records may be out of order.
pub(crate) const OUT_OF_ORDER: Duration = Duration::from_millis(20);

/// Where a record stands in the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Origin {
    pub(crate) source: u8,
    pub(crate) split: u32,
    pub(crate) number: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Event {
    pub(crate) origin: Origin,
    pub(crate) id: u64,
    pub(crate) account: u16,
    pub(crate) amount: u64,
    pub(crate) at: i64,
}

/// Splits of two sources.
#[derive(Clone, Debug)]
pub(crate) struct Input {
    pub(crate) seed: u64,
    pub(crate) first: Vec<Vec<Event>>,
    pub(crate) second: Vec<Vec<Event>>,
}

impl Input {
    pub(crate) fn draw(seed: u64) -> Input {
        let mut random = Random::new(seed ^ 0x1_0000_0000);
        let first = draw_splits(&mut random, 0, 3, 30);
        let second = draw_splits(&mut random, 1, 2, 20);
        Input { seed, first, second }
    }
}

fn draw_splits(random: &mut Random, source: u8, splits: u64, records: u64) -> Vec<Vec<Event>> {
    let accounts = 1 + random.below(6);
    (0..1 + random.below(splits) as u32)
        .map(|split| {
            let mut newest = 1_000;
            let mut events: Vec<Event> = Vec::new();
            for number in 0..random.below(records) as u32 {
                newest += random.below(15) as i64;
                let origin = Origin { source, split, number };
                let late = random.below(1 + OUT_OF_ORDER.as_millis() as u64) as i64;
                let at = if random.one_in(3) { newest - late } else { newest };
                newest = newest.max(at);
                let back = events.len() as u64;
                // A repetition has the id of an earlier record of its split, and its account.
                let again = (back > 0 && random.one_in(5)).then(|| random.below(back) as usize);
                let own = u64::from(source) << 48 | u64::from(split) << 32 | u64::from(number);
                let (id, account) = match again {
                    Some(index) => (events[index].id, events[index].account),
                    None => (own, random.below(accounts) as u16),
                };
                events.push(Event { origin, id, account, amount: random.below(100), at });
            }
            events
        })
        .collect()
}

pub(crate) fn source(
    seed: u64,
    splits: &[Vec<Event>],
) -> impl isochrone::connector::Source<Item = Event> {
    Script::new(seed, splits.to_vec()).event_time(|event| EventTime(event.at), OUT_OF_ORDER)
}

/// Output that outlives every simulated machine.
#[derive(Clone, Default)]
pub(crate) struct Output {
    pub(crate) effects: Collected<crate::pipeline::Effect>,
    pub(crate) counts: Collected<(crate::pipeline::Counted, u64)>,
}
