//! What the tests of whole jobs share: seeds, generated logs, an oracle that knows the truth, child
//! processes, and looks into a store. Knows the facade only.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

pub mod child;
pub mod example;
pub mod oracle;
pub mod purchases;
pub mod seed;
pub mod stored;
pub mod wait;
