//! The decisions of a checkpoint: what a participant and the coordinator do on each event.
//!
//! Pure state machines over ids and numbers. They know no dataflow, no I/O, no clock and no
//! thread, so that every interleaving can be tested (`tests/protocol_exhaustive.rs`).

pub mod coordinator;
pub mod ledger;
pub mod participant;

pub(crate) use coordinator::{
    Action, Attempt, Cause, Coordinator, Event, Kind, Output, Part, Plan, Settings, Status,
};
pub(crate) use ledger::{Content, Ledger, Prepared, Run};
pub(crate) use participant::{Arrival, Mode, Participant, Step};
