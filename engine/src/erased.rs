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
    fn has_more(&self, split: &manifest::Split) -> Result<bool>;
    fn observer(&self) -> Option<AnyObserver>;
    fn show(&self, position: &Value) -> String;
}

/// Is told the splits of a checkpoint that exists.
pub(crate) type AnyObserver = Box<dyn FnMut(&[manifest::Split])>;

pub(crate) struct ErasedSource<S>(pub(crate) Rc<S>);

impl<S: Source> AnySource for ErasedSource<S> {
    fn discover(&self, known: &[String]) -> Result<Discovery<Value>> {
        let found = self.0.discover(known)?;
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

    fn has_more(&self, split: &manifest::Split) -> Result<bool> {
        self.0.has_more(&decode_split(split)?)
    }

    fn observer(&self) -> Option<AnyObserver> {
        let mut observer = self.0.observer()?;
        Some(Box::new(move |splits| {
            match splits.iter().map(decode_split).collect::<Result<Vec<_>>>() {
                Ok(splits) => observer(&splits),
                Err(error) => tracing::warn!(%error, "a checkpoint is not made known"),
            }
        }))
    }

    fn show(&self, position: &Value) -> String {
        match serde_json::from_value(position.clone()) {
            Ok(known) => self.0.show(&known),
            Err(_) => position.to_string(),
        }
    }
}

fn decode_split<P: DeserializeOwned>(split: &manifest::Split) -> Result<Split<P>> {
    let position = serde_json::from_value(split.position.clone()).map_err(|error| {
        Error::corrupt(format!(
            "the position of split `{}` does not decode; another kind of source wrote it",
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
}

pub(crate) struct ErasedSink<S>(pub(crate) Rc<S>);

impl<S: Sink> AnySink for ErasedSink<S> {
    fn committer(&self, context: &SinkContext) -> Result<Box<dyn AnyCommitter>> {
        Ok(Box::new(ErasedCommitter { inner: self.0.committer(context)? }))
    }

    fn describe(&self, effect: &Value) -> String {
        match serde_json::from_value(effect.clone()) {
            Ok(effect) => S::describe(&effect),
            Err(_) => format!("written by another kind of sink: {effect}"),
        }
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
    fn commit(&mut self, effects: &[Value]) -> Result<()>;
}

struct ErasedCommitter<E> {
    inner: Box<dyn Committer<E>>,
}

impl<E: DeserializeOwned + Send + 'static> AnyCommitter for ErasedCommitter<E> {
    fn fence(&mut self, renamed_from: Option<&OperatorId>) -> Result<()> {
        self.inner.fence(renamed_from)
    }

    fn recover(&mut self, recovery: Recovery<Value>) -> Result<Vec<String>> {
        let Recovery { pending, from, renamed_from, is_new, history } = recovery;
        let pending = decode(pending)?;
        self.inner.recover(Recovery { pending, from, renamed_from, is_new, history })
    }

    fn history(&self) -> Option<String> {
        self.inner.history()
    }

    fn join(&mut self, history: Option<&str>) -> Result<()> {
        self.inner.join(history)
    }

    fn commit(&mut self, effects: &[Value]) -> Result<()> {
        self.inner.commit(&decode(effects.to_vec())?)
    }
}

fn decode<E: DeserializeOwned>(effects: Vec<Value>) -> Result<Vec<E>> {
    let decode = |effect| {
        serde_json::from_value(effect).map_err(|error| {
            Error::corrupt(
                "a pending effect of a sink does not decode; another kind of sink wrote it",
            )
            .with_source(error)
        })
    };
    effects.into_iter().map(decode).collect()
}
