//! Names and numbers that must not be swapped for one another.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// The longest legal name, in bytes.
pub const NAME_BYTES_MAX: usize = 64;

/// Sixteen random bytes in hex: the identity of something that nothing else may be taken for. Fails
/// with `Internal` if the system has no randomness to give.
pub fn random_id() -> Result<String> {
    crate::paths::random_hex::<16>()
}

fn checked(what: &str, name: &str) -> Result<String> {
    let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-';
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(legal) {
        return Err(Error::invalid(format!(
            "{what} `{name}` is not a legal name; use 1 to {NAME_BYTES_MAX} of a-z, 0-9, _ and -"
        )));
    }
    Ok(name.to_owned())
}

macro_rules! name {
    ($type:ident, $what:literal, $doc:literal) => {
        #[doc = $doc]
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(String);

        impl $type {
            /// Checks and takes a name. Fails with `Invalid` unless it matches `[a-z0-9_-]{1,64}`.
            pub fn new(name: &str) -> Result<Self> {
                checked($what, name).map($type)
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $type {
            type Error = Error;
            fn try_from(name: String) -> Result<Self> {
                $type::new(&name)
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> String {
                name.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name!(JobName, "job", "The name of a job: its identity in a store.");
name!(OperatorId, "operator id", "The user's name of something durable: source, state or sink.");

macro_rules! number {
    ($type:ident, $inner:ty, $doc:literal) => {
        #[doc = $doc]
        #[derive(
            Clone,
            Copy,
            Debug,
            Default,
            PartialEq,
            Eq,
            PartialOrd,
            Ord,
            Hash,
            Serialize,
            Deserialize,
        )]
        #[serde(transparent)]
        pub struct $type(pub $inner);

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

number!(Epoch, u64, "Everything read between one cut and the next; names the cut after it.");
number!(Generation, u64, "Number of a run of a job; a newer one fences all older ones.");
number!(Sequence, u64, "Number of a manifest: consecutive, never used again.");
number!(KeyGroup, u16, "One of a fixed number of buckets between key and worker.");
number!(StateVersion, u16, "Version of a state type, given by its author.");
number!(Worker, u32, "Index of a worker among all workers of all processes, from 0.");

impl Epoch {
    /// The epoch after this one.
    #[must_use]
    pub fn next(self) -> Epoch {
        Epoch(self.0 + 1)
    }
}

impl Generation {
    /// The generation after this one.
    #[must_use]
    pub fn next(self) -> Generation {
        Generation(self.0 + 1)
    }
}

impl Sequence {
    /// The sequence number after this one.
    #[must_use]
    pub fn next(self) -> Sequence {
        Sequence(self.0 + 1)
    }
}
