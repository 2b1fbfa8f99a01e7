//! The only folder that names timely: operators as timely sees them.
//!
//! One file an operator. What an operator *decides* is elsewhere: `protocol` says when to apply,
//! stash and freeze; `keyed` says what a record does to a key's state. Here both are driven by
//! messages and frontiers, and capabilities are held and lowered.
//!
//! Rules that timely leaves to its users and that hold here:
//! - messages are read with `for_each` only, which keeps each sender's order;
//! - packets are sent whole, never mixed with records given one by one;
//! - an operator's initial capabilities are dropped at once, sources excepted, so that nothing but
//!   a message or a source holds a cut back.

pub(crate) mod builders;
mod gate;
mod keyed;
mod merge;
mod packet;
mod pressure;
mod route;
mod sink;
mod source;
mod stateless;
mod worker;

pub(crate) use keyed::keyed;
pub(crate) use merge::merge;
pub(crate) use packet::{Packet, Records};
pub(crate) use sink::sink;
pub(crate) use source::source;
pub(crate) use stateless::{each, fallible};
pub(crate) use worker::{PEER_GONE, Run, Site, panicked, plan, run_workers};

/// What wakes an operator from another thread.
pub(crate) use timely::scheduling::SyncActivator;

/// timely's stream of packets; the timestamp is an epoch.
pub(crate) type Edge<'s, T> = timely::dataflow::Stream<'s, u64, Packet<T>>;
/// timely's scope.
pub(crate) type Scope<'s> = timely::dataflow::Scope<'s, u64>;
