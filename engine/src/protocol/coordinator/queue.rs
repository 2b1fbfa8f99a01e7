//! Requests for checkpoints that have not been served yet.

use std::collections::VecDeque;

use super::Action;

/// A user waits for a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Waiting {
    pub(super) id: u64,
    pub(super) savepoint: Option<String>,
}

impl Waiting {
    pub(super) fn refuse(self, why: &str) -> Action {
        Action::Answer { id: self.id, result: Err(why.to_owned()) }
    }
}

/// In order of arrival.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Queue(VecDeque<Waiting>);

impl Queue {
    pub(super) fn push(&mut self, request: Waiting) {
        self.0.push_back(request);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether one checkpoint, which carries one label, cannot serve all.
    pub(super) fn needs_several(&self) -> bool {
        let first = self.label();
        self.0.iter().any(|w| w.savepoint.is_some() && w.savepoint.as_ref() != first)
    }

    /// Takes all requests that one checkpoint can serve, and its label.
    pub(super) fn take_batch(&mut self) -> (Option<String>, Vec<Waiting>) {
        let label = self.label().cloned();
        let served = |w: &Waiting| w.savepoint.is_none() || w.savepoint == label;
        let (batch, rest) = self.0.drain(..).partition::<Vec<_>, _>(served);
        self.0.extend(rest);
        (label, batch)
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = Waiting> + '_ {
        self.0.drain(..)
    }

    fn label(&self) -> Option<&String> {
        self.0.iter().find_map(|w| w.savepoint.as_ref())
    }
}
