//! A run: its threads, what they say to one another, and how it starts and ends. Knows no timely.
//!
//! ```text
//! workers --Handover--> uploader --Report--> conductor --Order--> control --> workers
//!                       |      |             |     |
//!                     store    |           store   `----Due----> committer --Report--> conductor
//!                              `------------Due---------------^  |
//!                                                              targets
//! ```
//!
//! Workers never wait for a store: the uploader of each process does, and the conductor of the job,
//! which decides when a checkpoint starts and when it exists. Nor does a store wait for the target
//! of a sink: that is for the committer of each process.

mod awaited;
pub(crate) mod committing;
mod company;
pub(crate) mod conductor;
pub(crate) mod control;
pub(crate) mod follow;
mod lane;
pub(crate) mod launch;
pub(crate) mod lead;
pub(crate) mod merge;
pub(crate) mod message;
pub(crate) mod pace;
pub(crate) mod process;
pub(crate) mod ready;
pub(crate) mod restored;
mod settle;
pub(crate) mod splits;
pub(crate) mod takeover;
pub(crate) mod tally;
pub(crate) mod under_way;
pub(crate) mod uploader;
pub(crate) mod wire;

pub(crate) use ready::Ready;
pub(crate) use settle::Settlement;
