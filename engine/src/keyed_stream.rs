//! What can be done with keyed records: everything here remembers something per key, under an id.
//!
//! The id names the state in every checkpoint; the type of the state has a version and a recorded
//! shape. State moves with its key when the number of workers changes.

use std::marker::PhantomData;
use std::rc::Rc;
use std::time::Duration;

use isochrone_persistence::ids::{StateVersion, Worker};
use isochrone_persistence::restore::StateType;
use isochrone_persistence::{ErrorKind, Result};

use crate::dataflow;
use crate::flow::{Flow, Role};
use crate::id::Id;
use crate::keyed::{
    Count, Dedup, Filter, FlatMap, Logic, Map, MapState, Process, Processing, StateMap, Table,
};
use crate::protocol::Part;
use crate::record::{Key, Record, groups_of};
use crate::runtime::message::Handover;
use crate::state::State;
use crate::state::codec::CODEC;
use crate::state::keyspace::Kept;
use crate::state::shape::Shape;
use crate::state::slot::Slot;
use crate::stream::Stream;

/// Records with a key, made by [`Stream::key_by`].
#[must_use = "keyed records do nothing until an operator takes them"]
pub struct Keyed<'s, K, T: Record, F> {
    stream: Stream<'s, T>,
    key: Rc<F>,
    keys: PhantomData<fn() -> K>,
}

impl<'s, K: Key, T: Record, F: Fn(&T) -> K + 'static> Keyed<'s, K, T, F> {
    pub(crate) fn new(stream: Stream<'s, T>, key: F) -> Self {
        Keyed { stream, key: Rc::new(key), keys: PhantomData }
    }

    /// Keeps one value per key, handed to the closure of `map`, `flat_map` or `filter`. A value that
    /// equals its default is not stored.
    ///
    /// ```
    /// # use isochrone_connectors::{Collected, generator::Generator};
    /// # use isochrone_engine::{Job, RunArgs};
    /// # let output = Collected::default();
    /// # let sink = output.clone();
    /// # Job::new("example").run(RunArgs::default(), move |flow| {
    /// let numbers = flow.source("numbers", Generator::counting(4, |n| n));
    /// numbers
    ///     .key_by(|n| n % 2)
    ///     .state::<u64>("sums")
    ///     .map(|sum, n| {
    ///         *sum += n;
    ///         *sum
    ///     })
    ///     .sink("out", sink.clone());
    /// # Ok(())
    /// # })?;
    /// assert_eq!(output.items(), [0, 1, 2, 4]);
    /// # Ok::<(), isochrone_engine::Error>(())
    /// ```
    pub fn state<S: State>(&self, id: impl Into<Id>) -> Stateful<'s, K, T, S, F> {
        Stateful { keyed: self.again(), id: id.into(), state: PhantomData }
    }

    /// Keeps a map per key whose entries are stored one by one: only those that changed are written
    /// to a checkpoint.
    ///
    /// ```
    /// # use isochrone_connectors::{Collected, generator::Generator};
    /// # use isochrone_engine::{Job, RunArgs};
    /// # let output = Collected::default();
    /// # let sink = output.clone();
    /// # Job::new("example").run(RunArgs::default(), move |flow| {
    /// let numbers = flow.source("numbers", Generator::counting(4, |n| n));
    /// numbers
    ///     .key_by(|n| n % 2)
    ///     .state_map("squares", |squares, n| {
    ///         squares.insert(n, n * n);
    ///         Some(squares.len())
    ///     })
    ///     .sink("out", sink.clone());
    /// # Ok(())
    /// # })?;
    /// assert_eq!(output.items(), [1, 1, 2, 2]);
    /// # Ok::<(), isochrone_engine::Error>(())
    /// ```
    pub fn state_map<K2, V, I>(
        &self,
        id: impl Into<Id>,
        f: impl Fn(&mut MapState<K2, V>, T) -> I + 'static,
    ) -> Stream<'s, I::Item>
    where
        K2: Key + Ord,
        V: State,
        I: IntoIterator<Item: Record>,
    {
        self.operator(&id.into(), StateMap::new(f))
    }

    /// Lets the first record of each key pass. It is remembered for `ttl` of event time after the
    /// first sight, or for ever if the records have no event time.
    ///
    /// ```
    /// # use isochrone_connectors::{Collected, generator::Generator};
    /// # use isochrone_engine::{Job, RunArgs};
    /// # use std::time::Duration;
    /// # let output = Collected::default();
    /// # let sink = output.clone();
    /// # Job::new("example").run(RunArgs::default(), move |flow| {
    /// let numbers = flow.source("numbers", Generator::counting(4, |n| n));
    /// numbers
    ///     .key_by(|n| n % 2)
    ///     .dedup("seen", Duration::from_secs(60))
    ///     .sink("out", sink.clone());
    /// # Ok(())
    /// # })?;
    /// assert_eq!(output.items(), [0, 1]);
    /// # Ok::<(), isochrone_engine::Error>(())
    /// ```
    pub fn dedup(&self, id: impl Into<Id>, ttl: Duration) -> Stream<'s, T> {
        self.operator(&id.into(), Dedup::new(ttl))
    }

    /// Counts the records of each key; each record becomes its key and the count so far.
    ///
    /// ```
    /// # use isochrone_connectors::{Collected, generator::Generator};
    /// # use isochrone_engine::{Job, RunArgs};
    /// # let output = Collected::default();
    /// # let sink = output.clone();
    /// # Job::new("example").run(RunArgs::default(), move |flow| {
    /// let numbers = flow.source("numbers", Generator::counting(4, |n| n));
    /// numbers.key_by(|n| n % 3).count("counts").sink("out", sink.clone());
    /// # Ok(())
    /// # })?;
    /// assert_eq!(output.items(), [(0, 1), (1, 1), (2, 1), (0, 2)]);
    /// # Ok::<(), isochrone_engine::Error>(())
    /// ```
    pub fn count(&self, id: impl Into<Id>) -> Stream<'s, (K, u64)> {
        self.operator(&id.into(), Count)
    }

    /// Runs an operator with state, its key and timers.
    ///
    /// ```
    /// # use isochrone_connectors::{Collected, generator::Generator};
    /// # use isochrone_engine::{Job, RunArgs};
    /// use isochrone_engine::keyed::{Context, Process};
    /// /// The record of the same key that came before.
    /// struct Previous;
    /// impl Process<u64, u64> for Previous {
    ///     type State = (bool, u64);
    ///     type Out = u64;
    ///
    ///     fn on_record(
    ///         &self,
    ///         cx: Context<'_, u64, (bool, u64)>,
    ///         n: u64,
    ///     ) -> impl IntoIterator<Item = u64> {
    ///         let (seen, before) = std::mem::replace(cx.state, (true, n));
    ///         seen.then_some(before)
    ///     }
    ///
    ///     fn on_timer(&self, _: Context<'_, u64, (bool, u64)>) -> impl IntoIterator<Item = u64> {
    ///         None
    ///     }
    /// }
    /// # let output = Collected::default();
    /// # let sink = output.clone();
    /// # Job::new("example").run(RunArgs::default(), move |flow| {
    /// let numbers = flow.source("numbers", Generator::counting(4, |n| n));
    /// numbers.key_by(|n| n % 2).process("previous", Previous).sink("out", sink.clone());
    /// # Ok(())
    /// # })?;
    /// assert_eq!(output.items(), [0, 1]);
    /// # Ok::<(), isochrone_engine::Error>(())
    /// ```
    pub fn process<P: Process<K, T>>(&self, id: impl Into<Id>, process: P) -> Stream<'s, P::Out> {
        self.operator(&id.into(), Processing(process))
    }

    fn again(&self) -> Keyed<'s, K, T, F> {
        Keyed { stream: self.stream.clone(), key: self.key.clone(), keys: PhantomData }
    }

    fn operator<L: Logic<K, T>>(&self, id: &Id, logic: L) -> Stream<'s, L::Out> {
        let groups = self.stream.flow().site.groups;
        if const { std::mem::needs_drop::<K>() } {
            self.with_table(id, Table::packed(groups, logic))
        } else {
            self.with_table(id, Table::new(groups, logic))
        }
    }

    fn with_table<L, S>(&self, id: &Id, mut table: Table<K, T, L, S>) -> Stream<'s, L::Out>
    where
        L: Logic<K, T>,
        S: Kept<K>,
    {
        let flow = self.stream.flow();
        let state = state_type::<K, L::Slot>();
        let (id, part) = flow.declare(id, Role::State(state));
        load(flow, &mut table, part).unwrap_or_else(|error| flow.fail(error));
        let origins = self.stream.origins();
        let mark = flow.site.restored.watermark(origins);
        let (edge, key) = (self.stream.edge(), self.key.clone());
        let edge = dataflow::keyed(&flow.site, edge, key, table, mark, id.as_str(), part);
        flow.stream(edge, origins.clone())
    }
}

/// Records with a key and one value per key, made by [`Keyed::state`].
#[must_use = "state does nothing until `map`, `flat_map` or `filter` uses it"]
pub struct Stateful<'s, K, T: Record, S, F> {
    keyed: Keyed<'s, K, T, F>,
    id: Id,
    state: PhantomData<fn() -> S>,
}

impl<'s, K: Key, T: Record, S: State, F: Fn(&T) -> K + 'static> Stateful<'s, K, T, S, F> {
    /// The id that this operator had in older checkpoints. Keep it until none of them is needed.
    ///
    /// ```
    /// # use isochrone_connectors::{Collected, generator::Generator};
    /// # use isochrone_engine::{Job, RunArgs};
    /// # let output = Collected::default();
    /// # let sink = output.clone();
    /// # Job::new("example").run(RunArgs::default(), move |flow| {
    /// let numbers = flow.source("numbers", Generator::counting(4, |n| n));
    /// numbers
    ///     .key_by(|n| n % 2)
    ///     .state::<u64>("sums")
    ///     .renamed_from("totals")
    ///     .map(|sum, n| {
    ///         *sum += n;
    ///         *sum
    ///     })
    ///     .sink("out", sink.clone());
    /// # Ok(())
    /// # })?;
    /// assert_eq!(output.items(), [0, 1, 2, 4]);
    /// # Ok::<(), isochrone_engine::Error>(())
    /// ```
    pub fn renamed_from(mut self, id: &str) -> Self {
        self.id = self.id.renamed_from(id);
        self
    }

    /// Each record becomes another, with its key's value at hand.
    ///
    /// ```
    /// # use isochrone_connectors::{Collected, generator::Generator};
    /// # use isochrone_engine::{Job, RunArgs};
    /// # let output = Collected::default();
    /// # let sink = output.clone();
    /// # Job::new("example").run(RunArgs::default(), move |flow| {
    /// let numbers = flow.source("numbers", Generator::counting(4, |n| n));
    /// numbers
    ///     .key_by(|n| n % 2)
    ///     .state::<u64>("last")
    ///     .map(|last, n| n - std::mem::replace(last, n))
    ///     .sink("out", sink.clone());
    /// # Ok(())
    /// # })?;
    /// assert_eq!(output.items(), [0, 1, 2, 2]);
    /// # Ok::<(), isochrone_engine::Error>(())
    /// ```
    pub fn map<U: Record>(self, f: impl Fn(&mut S, T) -> U + 'static) -> Stream<'s, U> {
        self.operator(Map::<S, _>::new(f))
    }

    /// Each record becomes any number of others, with its key's value at hand.
    ///
    /// ```
    /// # use isochrone_connectors::{Collected, generator::Generator};
    /// # use isochrone_engine::{Job, RunArgs};
    /// # let output = Collected::default();
    /// # let sink = output.clone();
    /// # Job::new("example").run(RunArgs::default(), move |flow| {
    /// let numbers = flow.source("numbers", Generator::counting(4, |n| n));
    /// numbers
    ///     .key_by(|n| n % 2)
    ///     .state::<u64>("sums")
    ///     .flat_map(|sum, n| {
    ///         *sum += n;
    ///         (*sum > 1).then_some(*sum)
    ///     })
    ///     .sink("out", sink.clone());
    /// # Ok(())
    /// # })?;
    /// assert_eq!(output.items(), [2, 4]);
    /// # Ok::<(), isochrone_engine::Error>(())
    /// ```
    pub fn flat_map<I: IntoIterator<Item: Record>>(
        self,
        f: impl Fn(&mut S, T) -> I + 'static,
    ) -> Stream<'s, I::Item> {
        self.operator(FlatMap::<S, _>::new(f))
    }

    /// Keeps the records for which `f` holds, with their key's value at hand.
    ///
    /// ```
    /// # use isochrone_connectors::{Collected, generator::Generator};
    /// # use isochrone_engine::{Job, RunArgs};
    /// # let output = Collected::default();
    /// # let sink = output.clone();
    /// # Job::new("example").run(RunArgs::default(), move |flow| {
    /// let numbers = flow.source("numbers", Generator::counting(4, |n| n));
    /// numbers
    ///     .key_by(|_| ())
    ///     .state::<u64>("seen")
    ///     .filter(|seen, _| {
    ///         *seen += 1;
    ///         *seen % 2 == 0
    ///     })
    ///     .sink("every-second", sink.clone());
    /// # Ok(())
    /// # })?;
    /// assert_eq!(output.items(), [1, 3]);
    /// # Ok::<(), isochrone_engine::Error>(())
    /// ```
    pub fn filter(self, f: impl Fn(&mut S, &T) -> bool + 'static) -> Stream<'s, T> {
        self.operator(Filter::<S, _>::new(f))
    }

    fn operator<L: Logic<K, T>>(self, logic: L) -> Stream<'s, L::Out> {
        self.keyed.operator(&self.id, logic)
    }
}

/// What a manifest says about keys `K` with slots `V`.
fn state_type<K: Key, V: Slot>() -> StateType {
    StateType {
        version: StateVersion(V::VERSION),
        shape: format!("{}/{}", Shape::of::<K>().digest, V::shape().digest),
        codec: CODEC.to_owned(),
        can_upgrade: can_upgrade::<V>,
    }
}

/// An upgrade that does not know a version says `Incompatible`; one that does takes the bytes, or
/// says that these are not such bytes.
fn can_upgrade<V: Slot>(from: StateVersion) -> bool {
    match V::default().load(from, &[], &[]) {
        Ok(()) => true,
        Err(error) => error.kind() != ErrorKind::Incompatible,
    }
}

/// Reads this worker's share of the restored state.
fn load<K: Key, T: Record, L: Logic<K, T>, S: Kept<K>>(
    flow: &Flow<'_>,
    table: &mut Table<K, T, L, S>,
    part: Part,
) -> Result<()> {
    let site = &flow.site;
    let (mut rows, mut bytes) = (0, 0);
    let groups = groups_of(Worker(site.worker), site.groups, site.peers);
    for (version, row) in site.restored.rows(part.operator, groups) {
        let value = row.value.expect("a restore asks for rows without tombstones");
        table.load(version, row.group, row.key, value)?;
        rows += 1;
        bytes += (row.key.len() + value.len()) as u64;
    }
    site.control.hand_over(Handover::Loaded { part, rows, bytes });
    Ok(())
}
