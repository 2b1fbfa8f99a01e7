//! Keyed operators: what happens to a record that meets the state of its key.
//!
//! A [`Table`] is one operator on one worker: keyspace, logic and timers. It is driven from
//! outside, batch by batch. Knows neither timely nor threads nor clocks.

mod count;
mod dedup;
mod logic;
mod map;
mod plain;
mod process;
mod schedule;
mod table;
#[cfg(test)]
mod twins;

pub use count::Count;
pub use dedup::{Dedup, Seen};
pub use logic::{Logic, Outputs, Step};
pub use map::{Entries, MapState, StateMap};
pub use plain::{Filter, FlatMap, Map, Plain};
pub use process::{Context, Process, Processing, Timed, Timers};
pub use schedule::Schedule;
pub use table::Table;
