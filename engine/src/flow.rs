//! What a job's function is given: the place to start streams from, and the record of what it declares.
//!
//! The function runs once to learn the plan and once on every worker; the Rust code is the plan and
//! there is no second graph. It must declare the same operators in the same order each time.

use std::cell::RefCell;
use std::rc::Rc;

use isochrone_persistence::ids::{OperatorId, Worker};
use isochrone_persistence::restore::{DeclaredOperator, Kind, StateType};

use crate::connector::{Malformed, Sink, Source};
use crate::dataflow::{self, Edge, Scope, Site};
use crate::erased::{AnySink, AnySource, ErasedSink, ErasedSource};
use crate::id::Id;
use crate::protocol::Part;
use crate::record::Record;
use crate::stream::{Origins, Stream};
use crate::{Error, Result};

/// Hands out streams. Cheap to clone; lives only while the job's function runs.
///
/// ```
/// use isochrone_connectors::{Collected, generator::Generator};
/// use isochrone_engine::{Job, RunArgs};
///
/// let output = Collected::default();
/// let doubled = output.clone();
/// Job::new("double").run(RunArgs::default(), move |flow| {
///     let numbers = flow.source("numbers", Generator::counting(3, |n| n));
///     numbers.map(|n| n * 2).sink("doubled", doubled.clone());
///     Ok(())
/// })?;
/// assert_eq!(output.items(), [0, 2, 4]);
/// # Ok::<(), isochrone_engine::Error>(())
/// ```
#[derive(Clone)]
pub struct Flow<'s> {
    scope: Scope<'s>,
    pub(crate) site: Rc<Site>,
    declared: Rc<RefCell<Declarations>>,
    planning: bool,
}

#[derive(Default)]
struct Declarations {
    operators: Vec<Declared>,
    error: Option<Error>,
}

/// Something durable that the job declares.
pub(crate) struct Declared {
    pub(crate) id: OperatorId,
    pub(crate) renamed_from: Option<OperatorId>,
    pub(crate) role: Role,
}

/// What it is, with what the process needs of it outside the dataflow.
pub(crate) enum Role {
    Source(Rc<dyn AnySource>),
    State(StateType),
    Sink(Rc<dyn AnySink>),
}

/// Everything durable that a job declares, in order; an operator's index is its place here.
pub(crate) struct Plan {
    pub(crate) operators: Vec<Declared>,
}

impl<'s> Flow<'s> {
    pub(crate) fn new(scope: Scope<'s>, site: Site, planning: bool) -> Self {
        Flow { scope, site: Rc::new(site), declared: Rc::default(), planning }
    }

    /// Reads a source. `id` names its positions in every checkpoint.
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
    pub fn source<S: Source>(&self, id: impl Into<Id>, source: S) -> Stream<'s, S::Item> {
        self.read(id.into(), source, false).0
    }

    /// Reads a source; what is not a record comes out of the second stream, to be sunk like any
    /// other: a dead letter is published exactly once where its sink is.
    ///
    /// ```
    /// # use isochrone_connectors::{Collected, Files};
    /// # use isochrone_engine::{Job, RunArgs};
    /// let folder = tempfile::tempdir().expect("a folder");
    /// let path = folder.path().join("numbers.jsonl");
    /// std::fs::write(&path, "1\ntwo\n3\n").expect("written");
    /// # let (good, bad) = (Collected::default(), Collected::default());
    /// # let (good_sink, bad_sink) = (good.clone(), bad.clone());
    /// # Job::new("example").run(RunArgs::default(), move |flow| {
    /// let source = Files::at(&path).json::<u64>();
    /// let (numbers, dead_letters) = flow.source_with_dead_letters("numbers", source);
    /// numbers.sink("good", good_sink.clone());
    /// dead_letters.map(|letter| letter.raw).sink("bad", bad_sink.clone());
    /// # Ok(())
    /// # })?;
    /// assert_eq!(good.items(), [1, 3]);
    /// assert_eq!(bad.items(), [b"two"]);
    /// # Ok::<(), isochrone_engine::Error>(())
    /// ```
    pub fn source_with_dead_letters<S: Source>(
        &self,
        id: impl Into<Id>,
        source: S,
    ) -> (Stream<'s, S::Item>, Stream<'s, Malformed>) {
        self.read(id.into(), source, true)
    }

    fn read<S: Source>(
        &self,
        id: Id,
        source: S,
        dead_letters: bool,
    ) -> (Stream<'s, S::Item>, Stream<'s, Malformed>) {
        let source = Rc::new(source);
        let erased = Rc::new(ErasedSource { id: self.checked(&id.id), inner: source.clone() });
        let (id, part) = self.declare(&id, Role::Source(erased));
        let (good, bad) = dataflow::source(&self.site, self.scope, source, &id, part, dead_letters);
        let origins: Origins = Rc::new([part.operator].into());
        (self.stream(good, origins.clone()), self.stream(bad, origins))
    }

    pub(crate) fn stream<T: Record>(&self, edge: Edge<'s, T>, origins: Origins) -> Stream<'s, T> {
        Stream::new(edge, self.clone(), origins)
    }

    pub(crate) fn sink<T: Record, S: Sink<Item = T>>(&self, id: &Id, edge: Edge<'s, T>, sink: S) {
        let sink = Rc::new(sink);
        let erased = Rc::new(ErasedSink { id: self.checked(&id.id), inner: sink.clone() });
        let (id, part) = self.declare(id, Role::Sink(erased));
        if !self.planning {
            let opened = dataflow::sink(&self.site, edge, &*sink, &id, part);
            opened.unwrap_or_else(|error| self.fail(error));
        }
    }

    /// Takes a declaration; a bad or repeated id fails the whole plan and gets a stand-in here.
    pub(crate) fn declare(&self, id: &Id, role: Role) -> (OperatorId, Part) {
        let renamed_from = id.renamed_from.as_ref().map(|from| self.checked(from));
        let id = self.checked(&id.id);
        let mut declared = self.declared.borrow_mut();
        let part = Part { operator: declared.operators.len(), worker: Worker(self.site.worker) };
        if declared.operators.iter().any(|other| other.id == id) {
            declared.error.get_or_insert(Error::invalid(format!(
                "operator id `{id}` is declared twice; every durable operator needs its own"
            )));
        }
        declared.operators.push(Declared { id: id.clone(), renamed_from, role });
        (id, part)
    }

    fn checked(&self, id: &str) -> OperatorId {
        OperatorId::new(id).unwrap_or_else(|error| {
            self.fail(error);
            OperatorId::new("invalid").expect("a legal name")
        })
    }

    pub(crate) fn fail(&self, error: Error) {
        self.declared.borrow_mut().error.get_or_insert(error);
    }

    pub(crate) fn into_plan(self) -> Result<Plan> {
        let declared = self.declared.take();
        match declared.error {
            Some(error) => Err(error),
            None => Ok(Plan { operators: declared.operators }),
        }
    }
}

impl Plan {
    pub(crate) fn declared(&self) -> Vec<DeclaredOperator> {
        let declare = |operator: &Declared| DeclaredOperator {
            id: operator.id.clone(),
            renamed_from: operator.renamed_from.clone(),
            kind: match &operator.role {
                Role::Source(_) => Kind::Source,
                Role::State(state) => Kind::State(state.clone()),
                Role::Sink(_) => Kind::Sink,
            },
        };
        self.operators.iter().map(declare).collect()
    }

    pub(crate) fn index_of(&self, id: &OperatorId) -> Option<usize> {
        self.operators.iter().position(|operator| operator.id == *id)
    }

    pub(crate) fn sources(&self) -> impl Iterator<Item = (usize, &OperatorId, &Rc<dyn AnySource>)> {
        self.operators.iter().enumerate().filter_map(|(index, operator)| match &operator.role {
            Role::Source(source) => Some((index, &operator.id, source)),
            _ => None,
        })
    }

    /// Where the output of a sink goes, if it is one and says so.
    pub(crate) fn target_of(&self, operator: usize) -> Option<String> {
        match &self.operators[operator].role {
            Role::Sink(sink) => sink.target(),
            _ => None,
        }
    }

    pub(crate) fn sinks(&self) -> impl Iterator<Item = (usize, &OperatorId, &Rc<dyn AnySink>)> {
        self.operators.iter().enumerate().filter_map(|(index, operator)| match &operator.role {
            Role::Sink(sink) => Some((index, &operator.id, sink)),
            _ => None,
        })
    }
}

impl Plan {
    /// The sink that goes on with what `id` left.
    pub(crate) fn sink_of(&self, id: &OperatorId) -> Option<&Rc<dyn AnySink>> {
        match &self.operators[self.successor_of(id)?].role {
            Role::Sink(sink) => Some(sink),
            _ => None,
        }
    }

    /// The operator that goes on with what `id` left: it has that id, or replaces it.
    pub(crate) fn successor_of(&self, id: &OperatorId) -> Option<usize> {
        self.index_of(id).or_else(|| {
            self.operators.iter().position(|operator| operator.renamed_from.as_ref() == Some(id))
        })
    }
}
