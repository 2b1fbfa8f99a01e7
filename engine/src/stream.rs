//! Streams, and what can be done with their records without remembering anything.
//!
//! Closures are `Fn`: a closure that changes what it has captured does not compile, so state lives
//! where checkpoints see it, in [`Keyed`] operators.

use std::collections::BTreeSet;
use std::rc::Rc;

use crate::connector::Sink;
use crate::dataflow::{self, Edge, Records};
use crate::flow::Flow;
use crate::id::Id;
use crate::keyed_stream::Keyed;
use crate::record::{Key, Record};
use crate::time::EventTime;
use crate::{Result, dataflow::each};

/// Indices of the sources that records come from.
pub(crate) type Origins = Rc<BTreeSet<usize>>;

/// Records of one type on their way.
///
/// A stream is described once and may be used any number of times: each use sees all records.
#[must_use = "a stream does nothing until it reaches a sink or a keyed operator"]
pub struct Stream<'s, T: Record> {
    edge: Edge<'s, T>,
    flow: Flow<'s>,
    origins: Origins,
}

impl<T: Record> Clone for Stream<'_, T> {
    fn clone(&self) -> Self {
        Stream { edge: self.edge.clone(), flow: self.flow.clone(), origins: self.origins.clone() }
    }
}

impl<'s, T: Record> Stream<'s, T> {
    pub(crate) fn new(edge: Edge<'s, T>, flow: Flow<'s>, origins: Origins) -> Self {
        Stream { edge, flow, origins }
    }

    pub(crate) fn edge(&self) -> Edge<'s, T> {
        self.edge.clone()
    }

    /// The sources that its records come from.
    pub(crate) fn origins(&self) -> &Origins {
        &self.origins
    }

    pub(crate) fn flow(&self) -> &Flow<'s> {
        &self.flow
    }

    /// Each record becomes another.
    ///
    /// ```
    /// # use isochrone_connectors::{Collected, generator::Generator};
    /// # use isochrone_engine::{Job, RunArgs};
    /// # let output = Collected::default();
    /// # let sink = output.clone();
    /// # Job::new("example").run(RunArgs::default(), move |flow| {
    /// let numbers = flow.source("numbers", Generator::counting(4, |n| n));
    /// numbers.map(|n| n * 10).sink("out", sink.clone());
    /// # Ok(())
    /// # })?;
    /// assert_eq!(output.items(), [0, 10, 20, 30]);
    /// # Ok::<(), isochrone_engine::Error>(())
    /// ```
    pub fn map<U: Record>(&self, f: impl Fn(T) -> U + 'static) -> Stream<'s, U> {
        self.each("map", move |records| Records {
            items: records.items.into_iter().map(&f).collect(),
            times: records.times,
            hashes: Vec::new(),
        })
    }

    /// Keeps the records for which `f` holds.
    ///
    /// ```
    /// # use isochrone_connectors::{Collected, generator::Generator};
    /// # use isochrone_engine::{Job, RunArgs};
    /// # let output = Collected::default();
    /// # let sink = output.clone();
    /// # Job::new("example").run(RunArgs::default(), move |flow| {
    /// let numbers = flow.source("numbers", Generator::counting(4, |n| n));
    /// numbers.filter(|n| n % 2 == 0).sink("out", sink.clone());
    /// # Ok(())
    /// # })?;
    /// assert_eq!(output.items(), [0, 2]);
    /// # Ok::<(), isochrone_engine::Error>(())
    /// ```
    pub fn filter(&self, f: impl Fn(&T) -> bool + 'static) -> Stream<'s, T> {
        self.each("filter", move |records| keep(records, &f))
    }

    /// Each record becomes any number of others: `None`, `Some(one)`, a vector.
    ///
    /// ```
    /// # use isochrone_connectors::{Collected, generator::Generator};
    /// # use isochrone_engine::{Job, RunArgs};
    /// # let output = Collected::default();
    /// # let sink = output.clone();
    /// # Job::new("example").run(RunArgs::default(), move |flow| {
    /// let numbers = flow.source("numbers", Generator::counting(4, |n| n));
    /// numbers.flat_map(|n| vec![n; n as usize]).sink("out", sink.clone());
    /// # Ok(())
    /// # })?;
    /// assert_eq!(output.items(), [1, 2, 2, 3, 3, 3]);
    /// # Ok::<(), isochrone_engine::Error>(())
    /// ```
    pub fn flat_map<U: Record, I: IntoIterator<Item = U>>(
        &self,
        f: impl Fn(T) -> I + 'static,
    ) -> Stream<'s, U> {
        self.each("flat_map", move |records| {
            expand(records, |item, out| {
                out.extend(f(item));
                Ok(())
            })
            .expect("nothing in here fails")
        })
    }

    /// Each record becomes another, or stops the job. The error keeps its kind; the checkpoint
    /// before the record stays, so a corrected program goes on from there.
    ///
    /// ```
    /// # use isochrone_connectors::{Collected, generator::Generator};
    /// # use isochrone_engine::{Error, ErrorKind, Job, RunArgs};
    /// # let end = Job::new("example").run(RunArgs::default(), |flow| {
    /// let numbers = flow.source("numbers", Generator::counting(4, |n| n));
    /// let halves = numbers.try_map(|n| match n % 2 {
    ///     0 => Ok(n / 2),
    ///     _ => Err(Error::user(format!("{n} has no half"))),
    /// });
    /// halves.sink("out", Collected::default());
    /// # Ok(())
    /// # });
    /// assert_eq!(end.unwrap_err().kind(), ErrorKind::User);
    /// ```
    pub fn try_map<U: Record>(&self, f: impl Fn(T) -> Result<U> + 'static) -> Stream<'s, U> {
        let edge = dataflow::fallible(&self.flow.site, "try_map", self.edge(), move |records| {
            let items = records.items.into_iter().map(&f).collect::<Result<_>>()?;
            Ok(Records { items, times: records.times, hashes: Vec::new() })
        });
        self.flow.stream(edge, self.origins.clone())
    }

    /// Looks at each record. After a crash some are seen again: what `f` does is not exactly once.
    ///
    /// ```
    /// # use isochrone_connectors::{Collected, generator::Generator};
    /// # use isochrone_engine::{Job, RunArgs};
    /// # let output = Collected::default();
    /// # let sink = output.clone();
    /// # Job::new("example").run(RunArgs::default(), move |flow| {
    /// let numbers = flow.source("numbers", Generator::counting(4, |n| n));
    /// numbers.inspect(|n| println!("{n}")).sink("out", sink.clone());
    /// # Ok(())
    /// # })?;
    /// assert_eq!(output.items(), [0, 1, 2, 3]);
    /// # Ok::<(), isochrone_engine::Error>(())
    /// ```
    pub fn inspect(&self, f: impl Fn(&T) + 'static) -> Stream<'s, T> {
        self.each("inspect", move |records| {
            records.items.iter().for_each(&f);
            records
        })
    }

    /// This stream and another of the same type as one. Each keeps its order; among them there is
    /// none, and the watermark is the lesser of the two.
    ///
    /// ```
    /// # use isochrone_connectors::{Collected, generator::Generator};
    /// # use isochrone_engine::{Job, RunArgs};
    /// # let output = Collected::default();
    /// # let sink = output.clone();
    /// # Job::new("example").run(RunArgs::default(), move |flow| {
    /// let numbers = flow.source("numbers", Generator::counting(4, |n| n));
    /// let more = flow.source("more", Generator::counting(2, |n| 100 + n));
    /// numbers.merge(&more).sink("out", sink.clone());
    /// # Ok(())
    /// # })?;
    /// assert_eq!(output.items().len(), 6);
    /// # Ok::<(), isochrone_engine::Error>(())
    /// ```
    pub fn merge(&self, other: &Stream<'s, T>) -> Stream<'s, T> {
        let edge = dataflow::merge(&self.flow.site, vec![self.edge(), other.edge()]);
        let origins = self.origins.union(&other.origins).copied().collect();
        self.flow.stream(edge, Rc::new(origins))
    }

    /// The records for which `f` holds, and the others.
    ///
    /// ```
    /// # use isochrone_connectors::{Collected, generator::Generator};
    /// # use isochrone_engine::{Job, RunArgs};
    /// # let output = Collected::default();
    /// # let sink = output.clone();
    /// # Job::new("example").run(RunArgs::default(), move |flow| {
    /// let numbers = flow.source("numbers", Generator::counting(4, |n| n));
    /// let (small, large) = numbers.split(|n| *n < 2);
    /// small.map(|n| format!("{n} is small")).sink("small", sink.clone());
    /// large.sink("large", Collected::default());
    /// # Ok(())
    /// # })?;
    /// assert_eq!(output.items(), ["0 is small", "1 is small"]);
    /// # Ok::<(), isochrone_engine::Error>(())
    /// ```
    pub fn split(&self, f: impl Fn(&T) -> bool + 'static) -> (Stream<'s, T>, Stream<'s, T>) {
        let f = Rc::new(f);
        let g = f.clone();
        (self.filter(move |item| f(item)), self.filter(move |item| !g(item)))
    }

    /// Brings records with equal keys together, on one worker and in the order of their split.
    /// `key` depends on the record alone: it is asked on both ends of the way.
    ///
    /// ```
    /// # use isochrone_connectors::{Collected, generator::Generator};
    /// # use isochrone_engine::{Job, RunArgs};
    /// # let output = Collected::default();
    /// # let sink = output.clone();
    /// # Job::new("example").run(RunArgs::default(), move |flow| {
    /// let numbers = flow.source("numbers", Generator::counting(4, |n| n));
    /// numbers.key_by(|n| n % 2).count("parity").sink("out", sink.clone());
    /// # Ok(())
    /// # })?;
    /// assert_eq!(output.items(), [(0, 1), (1, 1), (0, 2), (1, 2)]);
    /// # Ok::<(), isochrone_engine::Error>(())
    /// ```
    pub fn key_by<K: Key, F: Fn(&T) -> K + 'static>(&self, key: F) -> Keyed<'s, K, T, F> {
        Keyed::new(self.clone(), key)
    }

    /// Writes to a sink. `id` names its pending output in every checkpoint.
    ///
    /// ```
    /// # use isochrone_connectors::{Collected, generator::Generator};
    /// # use isochrone_engine::{Job, RunArgs};
    /// # let output = Collected::default();
    /// # let sink = output.clone();
    /// # Job::new("example").run(RunArgs::default(), move |flow| {
    /// let numbers = flow.source("numbers", Generator::counting(4, |n| n));
    /// numbers.sink("out", sink.clone());
    /// # Ok(())
    /// # })?;
    /// assert_eq!(output.items(), [0, 1, 2, 3]);
    /// # Ok::<(), isochrone_engine::Error>(())
    /// ```
    pub fn sink<S: Sink<Item = T>>(&self, id: impl Into<Id>, sink: S) {
        self.flow.sink(&id.into(), self.edge(), sink);
    }

    fn each<U: Record>(
        &self,
        name: &'static str,
        f: impl Fn(Records<T>) -> Records<U> + 'static,
    ) -> Stream<'s, U> {
        let edge = each(&self.flow.site, name, self.edge(), f);
        self.flow.stream(edge, self.origins.clone())
    }
}

fn keep<T>(mut records: Records<T>, f: impl Fn(&T) -> bool) -> Records<T> {
    if records.times.is_empty() {
        records.items.retain(f);
        return records;
    }
    let times = records.times.into_iter();
    let (items, times) = records.items.into_iter().zip(times).filter(|(item, _)| f(item)).unzip();
    Records { items, times, hashes: Vec::new() }
}

fn expand<T, U>(
    records: Records<T>,
    f: impl Fn(T, &mut Vec<U>) -> Result<()>,
) -> Result<Records<U>> {
    let mut out = Records::default();
    out.items.reserve(records.items.len());
    let mut times: std::vec::IntoIter<EventTime> = records.times.into_iter();
    for item in records.items {
        f(item, &mut out.items)?;
        if let Some(time) = times.next() {
            out.times.resize(out.items.len(), time);
        }
    }
    Ok(out)
}
