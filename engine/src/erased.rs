//! Sources and sinks without their types, for what happens outside the dataflow: finding splits,
//! and making prepared output visible. Positions and effects are JSON here.

use std::rc::Rc;

use isochrone_persistence::ids::OperatorId;
use isochrone_persistence::manifest;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::connector::{Committer, Discovery, Recovery, Sink, SinkContext, Source, Split};
use crate::{Error, Result};

/// A source, to find splits.
pub(crate) trait AnySource {
    fn discover(&self, known: &[String]) -> Result<Discovery<Value>>;
    fn remarks(&self, known: &[String]) -> Vec<String>;
    fn has_more(&self, split: &manifest::Split) -> Result<bool>;
    fn observer(&self) -> Option<AnyObserver>;
    fn show(&self, position: &Value) -> String;
}

/// Is told the splits of a checkpoint that exists.
pub(crate) type AnyObserver = Box<dyn FnMut(&[manifest::Split])>;

pub(crate) struct ErasedSource<S> {
    pub(crate) id: OperatorId,
    pub(crate) inner: Rc<S>,
}

impl<S: Source> AnySource for ErasedSource<S> {
    fn discover(&self, known: &[String]) -> Result<Discovery<Value>> {
        let found = self.inner.discover(known).map_err(|error| self.of_source(error))?;
        let erase = |split: Split<S::Position>| -> Result<Split<Value>> {
            let position = serde_json::to_value(&split.position).map_err(|error| {
                Error::internal(format!("the position of split `{}` does not encode", split.id))
                    .with_source(error)
            })?;
            Ok(Split { id: split.id, position })
        };
        let new = found.new.into_iter().map(erase).collect::<Result<_>>()?;
        Ok(Discovery { new, complete: found.complete })
    }

    fn remarks(&self, known: &[String]) -> Vec<String> {
        let of_source = |remark| format!("source `{}`: {remark}", self.id);
        self.inner.remarks(known).into_iter().map(of_source).collect()
    }

    fn has_more(&self, split: &manifest::Split) -> Result<bool> {
        let split = decode_split(&self.id, split)?;
        self.inner.has_more(&split).map_err(|error| self.of_source(error))
    }

    fn observer(&self) -> Option<AnyObserver> {
        let mut observer = self.inner.observer()?;
        let id = self.id.clone();
        Some(Box::new(move |splits| {
            let decode = |split| decode_split(&id, split);
            match splits.iter().map(decode).collect::<Result<Vec<_>>>() {
                Ok(splits) => observer(&splits),
                Err(error) => tracing::warn!(%error, "a checkpoint is not made known"),
            }
        }))
    }

    fn show(&self, position: &Value) -> String {
        match serde_json::from_value(position.clone()) {
            Ok(known) => self.inner.show(&known),
            Err(_) => position.to_string(),
        }
    }
}

impl<S> ErasedSource<S> {
    fn of_source(&self, error: Error) -> Error {
        error.within(&format!("source `{}`", self.id))
    }
}

/// A split as its source knows it. What the store gives back is what was written, so that a position
/// that does not decode is one of another kind of source.
pub(crate) fn decode_split<P: DeserializeOwned>(
    source: &OperatorId,
    split: &manifest::Split,
) -> Result<Split<P>> {
    let position = serde_json::from_value(split.position.clone()).map_err(|error| {
        Error::incompatible(format!(
            "the checkpoint says of split `{}` of source `{source}` what this kind of source does not \
             understand: another kind, or another release of it, has read it; read what was read \
             before, or give the source another id and `--drop {source}`",
            split.id
        ))
        .with_source(error)
    })?;
    Ok(Split { id: split.id.clone(), position })
}

/// A sink, to commit what was prepared.
pub(crate) trait AnySink {
    fn committer(&self, context: &SinkContext) -> Result<Box<dyn AnyCommitter>>;
    fn describe(&self, effect: &Value) -> String;
    /// See [`Sink::target`].
    fn target(&self) -> Option<String>;
}

pub(crate) struct ErasedSink<S> {
    pub(crate) id: OperatorId,
    pub(crate) inner: Rc<S>,
}

impl<S: Sink> AnySink for ErasedSink<S> {
    fn committer(&self, context: &SinkContext) -> Result<Box<dyn AnyCommitter>> {
        Ok(Box::new(ErasedCommitter { id: self.id.clone(), inner: self.inner.committer(context)? }))
    }

    fn describe(&self, effect: &Value) -> String {
        match serde_json::from_value(effect.clone()) {
            Ok(effect) => S::describe(&effect),
            Err(_) => format!("written by another kind of sink: {effect}"),
        }
    }

    fn target(&self) -> Option<String> {
        self.inner.target()
    }
}

/// A committer whose effects are JSON.
pub(crate) trait AnyCommitter: Send {
    fn fence(&mut self, renamed_from: Option<&OperatorId>) -> Result<()>;
    fn recover(&mut self, recovery: Recovery<Value>) -> Result<Vec<String>>;
    fn history(&self) -> Option<String>;
    fn join(&mut self, _history: Option<&str>) -> Result<()> {
        Ok(())
    }

    /// See [`Committer::outcomes`].
    fn outcomes(&self) -> Vec<String> {
        Vec::new()
    }
    fn commit(&mut self, effects: &[Value]) -> Result<()>;
}

struct ErasedCommitter<E> {
    id: OperatorId,
    inner: Box<dyn Committer<E>>,
}

impl<E: DeserializeOwned + Send + 'static> AnyCommitter for ErasedCommitter<E> {
    fn fence(&mut self, renamed_from: Option<&OperatorId>) -> Result<()> {
        self.inner.fence(renamed_from)
    }

    fn recover(&mut self, recovery: Recovery<Value>) -> Result<Vec<String>> {
        let Recovery { pending, from, renamed_from, is_new, history } = recovery;
        let pending = decode(&self.id, pending)?;
        self.inner.recover(Recovery { pending, from, renamed_from, is_new, history })
    }

    fn history(&self) -> Option<String> {
        self.inner.history()
    }

    fn join(&mut self, history: Option<&str>) -> Result<()> {
        self.inner.join(history)
    }

    fn outcomes(&self) -> Vec<String> {
        self.inner.outcomes()
    }

    fn commit(&mut self, effects: &[Value]) -> Result<()> {
        self.inner.commit(&decode(&self.id, effects.to_vec())?)
    }
}

fn decode<E: DeserializeOwned>(sink: &OperatorId, effects: Vec<Value>) -> Result<Vec<E>> {
    let decode = |effect| {
        serde_json::from_value(effect).map_err(|error| {
            Error::incompatible(format!(
                "the checkpoint owes output of sink `{sink}` that another kind of sink has prepared; \
                 run the job once more with the sink as it was, or give this one another id and the \
                 output up (`--drop {sink}`)"
            ))
            .with_source(error)
        })
    };
    effects.into_iter().map(decode).collect()
}
