//! What sinks share that act at once: there is nothing to commit and nothing to recover.

use isochrone_engine::Result;
use isochrone_engine::connector::{Committer, Prepare, Recovery};
use serde::{Deserialize, Serialize};

/// The effect of sinks that act when they are written to: never made, since nothing is left to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NothingToCommit {}

pub(crate) struct Nothing;

impl Committer<NothingToCommit> for Nothing {
    fn recover(&mut self, _recovery: Recovery<NothingToCommit>) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn commit(&mut self, _effects: &[NothingToCommit]) -> Result<()> {
        Ok(())
    }
}

pub(crate) fn nothing_to_prepare() -> Prepare<NothingToCommit> {
    Box::new(|| Ok(None))
}
