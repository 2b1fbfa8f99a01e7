//! Which operation fails, and how.

use std::fmt;

/// A method of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// [`crate::Store::get`].
    Get,
    /// [`crate::Store::get_range`].
    GetRange,
    /// [`crate::Store::put`].
    Put,
    /// [`crate::Store::put_if_absent`].
    PutIfAbsent,
    /// [`crate::Store::list`].
    List,
    /// [`crate::Store::delete`].
    Delete,
}

impl Operation {
    /// Whether it can change the store; deleting is a write.
    pub fn is_write(self) -> bool {
        matches!(self, Operation::Put | Operation::PutIfAbsent | Operation::Delete)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operation::Get => "get",
            Operation::GetRange => "get_range",
            Operation::Put => "put",
            Operation::PutIfAbsent => "put_if_absent",
            Operation::List => "list",
            Operation::Delete => "delete",
        })
    }
}

/// What happens to an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Not applied; `Unavailable`.
    FailBefore,
    /// Applied, but the answer is `Unavailable`.
    FailAfter,
    /// A conditional write is applied, but the answer is `Exists`, as from a client that repeats
    /// its own write after a lost answer. Nothing happens to other operations.
    Exists,
    /// A write leaves, or a read gives, only the first `keep` bytes, and the answer is a success.
    /// Breaks the contract of a store on purpose: digests must catch it. Nothing happens to lists
    /// and deletes.
    Tear {
        /// How many bytes are left at most.
        keep: usize,
    },
    /// Not applied, and every call from then on fails: the process is dead.
    CrashBefore,
    /// Applied, and every call from then on fails.
    CrashAfter,
}

/// Which operations fail, and how. Counting starts at 1.
///
/// ```
/// use isochrone_persistence::store::faulty::{Effect, Plan};
/// let plan = Plan::at_operation(3, Effect::FailAfter).and_at_write(5, Effect::CrashBefore);
/// assert_ne!(plan, Plan::none());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    faults: Vec<(Point, Effect)>,
    random: Option<Random>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Point {
    Operation(u64),
    Write(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Random {
    seed: u64,
    one_in: u64,
}

impl Plan {
    /// Nothing fails.
    pub fn none() -> Plan {
        Plan::default()
    }

    /// The n-th operation of any kind has this effect.
    pub fn at_operation(n: u64, effect: Effect) -> Plan {
        Plan::none().and_at_operation(n, effect)
    }

    /// The n-th write has this effect.
    pub fn at_write(n: u64, effect: Effect) -> Plan {
        Plan::none().and_at_write(n, effect)
    }

    /// About one operation in `one_in` fails before, fails after, or is told `Exists`. The fate of
    /// the n-th operation depends on `seed` and n alone, so a seed replays whatever the threads do.
    /// With `one_in` 0 nothing fails.
    ///
    /// ```
    /// use isochrone_persistence::Store;
    /// use isochrone_persistence::store::{faulty::{FaultyStore, Plan}, memory::MemoryStore};
    ///
    /// let fates = |seed| {
    ///     let store = FaultyStore::new(MemoryStore::new(), Plan::random(seed, 3));
    ///     (0..100).map(|_| store.put("a", b"1").is_ok()).collect::<Vec<bool>>()
    /// };
    /// assert_eq!(fates(7), fates(7));
    /// assert_ne!(fates(7), fates(8));
    /// ```
    pub fn random(seed: u64, one_in: u64) -> Plan {
        Plan { faults: Vec::new(), random: Some(Random { seed, one_in }) }
    }

    /// This plan, and the n-th operation of any kind has this effect.
    #[must_use]
    pub fn and_at_operation(mut self, n: u64, effect: Effect) -> Plan {
        self.faults.push((Point::Operation(n), effect));
        self
    }

    /// This plan, and the n-th write has this effect.
    #[must_use]
    pub fn and_at_write(mut self, n: u64, effect: Effect) -> Plan {
        self.faults.push((Point::Write(n), effect));
        self
    }

    /// The fate of operation number `operation`, which is write number `write` if it is one. What
    /// was planned first comes before what was planned later, and that before chance.
    pub(super) fn effect(&self, operation: u64, write: Option<u64>) -> Option<Effect> {
        let here = |point: &Point| match *point {
            Point::Operation(n) => n == operation,
            Point::Write(n) => Some(n) == write,
        };
        let planned = self.faults.iter().find(|(point, _)| here(point));
        planned.map(|(_, effect)| *effect).or_else(|| self.random?.effect(operation))
    }
}

impl Random {
    fn effect(self, operation: u64) -> Option<Effect> {
        let drawn = mixed(self.seed ^ mixed(operation));
        if self.one_in == 0 || !drawn.is_multiple_of(self.one_in) {
            return None;
        }
        Some(match mixed(drawn) % 3 {
            0 => Effect::FailBefore,
            1 => Effect::FailAfter,
            _ => Effect::Exists,
        })
    }
}

/// The finalizer of splitmix64.
fn mixed(seed: u64) -> u64 {
    let z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
