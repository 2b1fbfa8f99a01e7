//! State read back from a checkpoint: checked segments, of which each worker takes its key groups.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use isochrone_persistence::ids::{JobName, StateVersion};
use isochrone_persistence::manifest::{Manifest, Part, Split};
use isochrone_persistence::restore;
use isochrone_persistence::segment::{Row, SegmentBytes, Tombstones, newest_wins};
use isochrone_persistence::{Result, Store};

use crate::flow::Plan;
use crate::time::EventTime;

/// State, and watermarks of sources, by operator index.
#[derive(Default)]
pub(crate) struct Restored {
    states: BTreeMap<usize, State>,
    watermarks: BTreeMap<usize, EventTime>,
}

struct State {
    version: StateVersion,
    segments: Vec<SegmentBytes>,
}

impl Restored {
    /// Reads and checks all state that the job still declares.
    pub(crate) fn load(
        store: &dyn Store,
        job: &JobName,
        plan: &Plan,
        manifest: &Manifest,
    ) -> Result<Restored> {
        let mut restored = Restored::default();
        for operator in &manifest.operators {
            let Some(index) = plan.successor_of(&operator.id) else { continue };
            match &operator.part {
                Part::State { version, segments, .. } => {
                    let load = |segment| restore::load(store, job, &operator.id, segment);
                    let segments = segments.iter().map(load).collect::<Result<_>>()?;
                    restored.states.insert(index, State { version: *version, segments });
                }
                Part::Source { splits, .. } => {
                    restored.watermarks.insert(index, least_promise(splits));
                }
                Part::Sink { .. } => {}
            }
        }
        Ok(restored)
    }

    /// What some sources together had promised at the checkpoint.
    pub(crate) fn watermark(&self, sources: &BTreeSet<usize>) -> EventTime {
        let promise = |source| self.watermarks.get(source).copied().unwrap_or(EventTime::MIN);
        sources.iter().map(promise).min().unwrap_or(EventTime::MIN)
    }

    /// The rows of some key groups of an operator, and the version of the type that wrote them.
    pub(crate) fn rows(
        &self,
        operator: usize,
        groups: Range<u16>,
    ) -> impl Iterator<Item = (StateVersion, Row<'_>)> {
        self.states.get(&operator).into_iter().flat_map(move |state| {
            newest_wins(&state.segments, groups.clone(), Tombstones::Drop)
                .map(|row| (state.version, row))
        })
    }
}

/// The least promise of the splits still being read; if all were finished, of all, since they may
/// have grown.
fn least_promise(splits: &[Split]) -> EventTime {
    let mark = |split: &Split| split.watermark.map_or(EventTime::MIN, EventTime);
    let open = splits.iter().filter(|split| !split.finished).map(mark).min();
    open.or_else(|| splits.iter().map(mark).min()).unwrap_or(EventTime::MIN)
}
