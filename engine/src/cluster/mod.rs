//! Several processes of one job: who they are, how they find each other, and who restarts them.
//!
//! This folder knows sockets, processes and secrets. It knows nothing of streams, state or
//! checkpoints: what the control frames mean is the caller's business.
//!
//! - [`Hub`] and [`Link`]: process 0 is the hub; every other process keeps one control connection
//!   to it, with heartbeats in both directions.
//! - [`mesh`]: the data connections between each two processes, ready to be handed to timely.
//! - [`supervise`]: starts the processes of one machine, and all of them again when one dies.
//! - [`orders`]: what a supervised process hears from its supervisor, and that it is gone.
//! - [`signals`]: what a person or an orchestrator asks of a process.
//!
//! Every connection begins with the same mutual proof of a shared [`Secret`] (`handshake.rs`). It
//! keeps strangers, stale processes and other jobs out. It does not encrypt: on a network that others
//! can read or write, tunnel the ports.

mod acceptor;
mod assignment;
mod children;
mod claim;
mod deadline;
mod dial;
mod frame;
mod handshake;
mod hub;
mod last_words;
mod link;
mod member;
pub mod mesh;
pub mod orders;
mod restart;
mod secret;
pub mod signals;
mod supervisor;

pub use assignment::{Assignment, env};
pub use children::Exit;
pub use hub::Hub;
pub(crate) use last_words::leave;
pub use link::{Link, LinkEvent, LostReason, MESSAGE_BYTES_MAX};
pub use member::{Fingerprint, Member};
pub use restart::{Next, RestartPolicy, Restarts};
pub use secret::Secret;
pub use supervisor::{SupervisorEvent, supervise};
