//! A store that fails as planned, for crash tests: a decorator around any other.
//!
//! Knows the contract of a store and how to break it; not what is stored. Every fault is data in a
//! [`Plan`], so that a test can try the n-th operation for every n and replay what failed.
//!
//! ```
//! use isochrone_persistence::store::faulty::{Effect, FaultyStore, Plan};
//! use isochrone_persistence::store::memory::MemoryStore;
//! use isochrone_persistence::{Result, Store};
//!
//! // Under test: whoever sees "done" must find the data.
//! fn publish(store: &dyn Store) -> Result<()> {
//!     store.put("data", b"42")?;
//!     store.put("done", b"")
//! }
//!
//! let whole = FaultyStore::new(MemoryStore::new(), Plan::none());
//! publish(&whole)?;
//! for n in 1..=whole.operations() {
//!     for effect in [Effect::CrashBefore, Effect::CrashAfter] {
//!         let left = MemoryStore::new();
//!         assert!(publish(&FaultyStore::new(left.clone(), Plan::at_operation(n, effect))).is_err());
//!         assert!(left.get("done")?.is_none() || left.get("data")?.is_some());
//!     }
//! }
//! # Ok::<(), isochrone_persistence::Error>(())
//! ```

mod plan;

use std::fmt;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{Created, Error, Result, Store};

pub use plan::{Effect, Operation, Plan};

/// One call that reached the store, in the order of their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// What was asked.
    pub operation: Operation,
    /// Of which object; for a list, with which prefix.
    pub name: String,
    /// What the plan did to it.
    pub effect: Option<Effect>,
}

type Latency = Box<dyn Fn(&Call) + Send + Sync>;

/// A store whose operations fail by a [`Plan`]. Counts and notes every call. Thread-safe: calls get
/// their numbers one at a time and run side by side.
///
/// ```
/// use isochrone_persistence::store::faulty::{Effect, FaultyStore, Operation, Plan};
/// use isochrone_persistence::store::memory::MemoryStore;
/// use isochrone_persistence::{ErrorKind, Store};
///
/// let inner = MemoryStore::new();
/// let store = FaultyStore::new(inner.clone(), Plan::at_write(2, Effect::CrashAfter));
/// store.put("a", b"1")?;
/// assert_eq!(store.put("b", b"2").unwrap_err().kind(), ErrorKind::Unavailable);
/// assert!(store.is_crashed() && store.get("a").is_err());
/// assert_eq!(store.count(Operation::Put), 2);
/// assert_eq!(inner.list("")?, ["a", "b"]);
/// # Ok::<(), isochrone_persistence::Error>(())
/// ```
pub struct FaultyStore<S> {
    inner: S,
    plan: Plan,
    latency: Option<Latency>,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    calls: Vec<Call>,
    writes: u64,
    crashed: bool,
}

impl<S: Store> FaultyStore<S> {
    /// Wraps `inner`.
    pub fn new(inner: S, plan: Plan) -> Self {
        FaultyStore { inner, plan, latency: None, seen: Mutex::default() }
    }

    /// Runs `wait` before each call, on the caller's thread and outside every lock: to delay it, to
    /// hold it until the test lets it go, or to look at the store at that moment.
    ///
    /// ```
    /// use isochrone_persistence::Store;
    /// use isochrone_persistence::store::{faulty::{FaultyStore, Plan}, memory::MemoryStore};
    /// use std::sync::mpsc;
    ///
    /// let (sender, seen) = mpsc::channel();
    /// let store = FaultyStore::new(MemoryStore::new(), Plan::none())
    ///     .with_latency(move |call| sender.send(call.name.clone()).unwrap());
    /// store.get("a")?;
    /// assert_eq!(seen.recv().unwrap(), "a");
    /// # Ok::<(), isochrone_persistence::Error>(())
    /// ```
    #[must_use]
    pub fn with_latency(mut self, wait: impl Fn(&Call) + Send + Sync + 'static) -> Self {
        self.latency = Some(Box::new(wait));
        self
    }

    /// The wrapped store, without faults.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// Whether the plan's crash has happened: from then on every call fails.
    pub fn is_crashed(&self) -> bool {
        self.seen().crashed
    }

    /// All calls so far, those that failed included; none after the crash.
    ///
    /// ```
    /// use isochrone_persistence::Store;
    /// use isochrone_persistence::store::faulty::{FaultyStore, Operation, Plan};
    /// use isochrone_persistence::store::memory::MemoryStore;
    ///
    /// let store = FaultyStore::new(MemoryStore::new(), Plan::none());
    /// store.list("orders/m/")?;
    /// assert_eq!(store.calls()[0].operation, Operation::List);
    /// assert_eq!(store.calls()[0].name, "orders/m/");
    /// # Ok::<(), isochrone_persistence::Error>(())
    /// ```
    pub fn calls(&self) -> Vec<Call> {
        self.seen().calls.clone()
    }

    /// How many calls there were of one kind.
    pub fn count(&self, operation: Operation) -> u64 {
        let seen = self.seen();
        seen.calls.iter().filter(|call| call.operation == operation).count() as u64
    }

    /// How many calls there were: the last n worth trying with [`Plan::at_operation`].
    pub fn operations(&self) -> u64 {
        self.seen().calls.len() as u64
    }

    /// How many of them were writes: the last n worth trying with [`Plan::at_write`].
    pub fn writes(&self) -> u64 {
        self.seen().writes
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the call its number and its fate.
    fn enter(&self, operation: Operation, name: &str) -> Result<Call> {
        let call = {
            let mut seen = self.seen();
            if seen.crashed {
                return Err(dead(operation, name));
            }
            seen.writes += u64::from(operation.is_write());
            let number = seen.calls.len() as u64 + 1;
            let write = operation.is_write().then_some(seen.writes);
            let effect = self.plan.effect(number, write);
            let call = Call { operation, name: name.to_owned(), effect };
            seen.calls.push(call.clone());
            seen.crashed = effect == Some(Effect::CrashBefore);
            call
        };
        if let Some(wait) = &self.latency {
            wait(&call);
        }
        match call.effect {
            Some(Effect::FailBefore) => Err(planned(&call, "before it was applied")),
            Some(Effect::CrashBefore) => Err(dead(operation, name)),
            _ => Ok(call),
        }
    }

    /// Turns the answer of an applied call into what the caller is told.
    fn leave<T>(&self, call: &Call, answer: Result<T>) -> Result<T> {
        let mut seen = self.seen();
        seen.crashed |= call.effect == Some(Effect::CrashAfter);
        if seen.crashed {
            // Also for calls that were under way when another one crashed the process.
            return Err(dead(call.operation, &call.name));
        }
        match call.effect {
            Some(Effect::FailAfter) => Err(planned(call, "after it was applied")),
            _ => answer,
        }
    }

    fn run<T>(
        &self,
        operation: Operation,
        name: &str,
        apply: impl FnOnce(&S, &Call) -> Result<T>,
    ) -> Result<T> {
        let call = self.enter(operation, name)?;
        let answer = apply(&self.inner, &call);
        self.leave(&call, answer)
    }
}

impl<S: Store> Store for FaultyStore<S> {
    fn get(&self, name: &str) -> Result<Option<Vec<u8>>> {
        self.run(Operation::Get, name, |inner, call| {
            Ok(inner.get(name)?.map(|bytes| call.torn(&bytes).to_vec()))
        })
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Option<Vec<u8>>> {
        self.run(Operation::GetRange, name, |inner, call| {
            Ok(inner.get_range(name, range)?.map(|bytes| call.torn(&bytes).to_vec()))
        })
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<()> {
        self.run(Operation::Put, name, |inner, call| inner.put(name, call.torn(bytes)))
    }

    fn put_if_absent(&self, name: &str, bytes: &[u8]) -> Result<Created> {
        self.run(Operation::PutIfAbsent, name, |inner, call| {
            let created = inner.put_if_absent(name, call.torn(bytes))?;
            Ok(if call.effect == Some(Effect::Exists) { Created::Exists } else { created })
        })
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>> {
        self.run(Operation::List, prefix, |inner, _| inner.list(prefix))
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.run(Operation::Delete, name, |inner, _| inner.delete(name))
    }

    fn describe(&self) -> String {
        format!("faulty {}", self.inner.describe())
    }
}

impl Call {
    fn torn<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        match self.effect {
            Some(Effect::Tear { keep }) => &bytes[..keep.min(bytes.len())],
            _ => bytes,
        }
    }
}

fn planned(call: &Call, when: &str) -> Error {
    let Call { operation, name, .. } = call;
    Error::unavailable(format!("planned fault: {operation} {name} failed {when}"))
}

fn dead(operation: Operation, name: &str) -> Error {
    Error::unavailable(format!("planned crash: the process is dead, so {operation} {name} failed"))
}

impl<S: fmt::Debug> fmt::Debug for FaultyStore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let mut fields = f.debug_struct("FaultyStore");
        fields.field("inner", &self.inner).field("plan", &self.plan).field("seen", &*seen);
        fields.finish_non_exhaustive()
    }
}
