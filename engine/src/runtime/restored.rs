//! State read back from a checkpoint: checked segments, of which each worker takes its key groups.

use std::collections::BTreeMap;
use std::ops::Range;

use isochrone_persistence::ids::{JobName, StateVersion};
use isochrone_persistence::manifest::{Manifest, Part};
use isochrone_persistence::restore;
use isochrone_persistence::segment::{Row, SegmentBytes, Tombstones, newest_wins};
use isochrone_persistence::{Result, Store};

use crate::flow::Plan;

/// State by operator index.
#[derive(Default)]
pub(crate) struct Restored {
    states: BTreeMap<usize, State>,
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
            let Part::State { version, segments, .. } = &operator.part else { continue };
            let Some(index) = plan.successor_of(&operator.id) else { continue };
            let load = |segment| restore::load(store, job, &operator.id, segment);
            let segments = segments.iter().map(load).collect::<Result<_>>()?;
            restored.states.insert(index, State { version: *version, segments });
        }
        Ok(restored)
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
