//! What the tests of whole jobs share: seeds, generated logs, an oracle that knows the truth, child
//! processes, looks into a store, and Kafka brokers. Knows the facade only, and of Kafka a client
//! that is not ours.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

pub mod child;
pub mod example;
#[cfg(feature = "kafka")]
pub mod kafka;
pub mod oracle;
pub mod purchases;
pub mod rights;
pub mod seed;
pub mod stored;
pub mod wait;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, Ordering};

/// An address at which nobody listens, and where nobody comes to listen by chance: of the loopback
/// network the part of this process, and a port that the system gives to nobody by itself.
pub fn free_address() -> SocketAddr {
    static PORT: AtomicU16 = AtomicU16::new(20_000);
    let [.., high, low] = std::process::id().to_be_bytes();
    SocketAddr::from(([127, 100, high, low], PORT.fetch_add(1, Ordering::Relaxed)))
}
