//! What the last checkpoint holds, read back from its segments as any tool could.

use std::collections::{BTreeMap, BTreeSet};

use isochrone::Result;
use isochrone::ids::JobName;
use isochrone::persistence::lineage::read_newest;
use isochrone::persistence::manifest::{Manifest, Part};
use isochrone::persistence::restore;
use isochrone::persistence::segment::{Tombstones, newest_wins};
use isochrone::persistence::store::memory::MemoryStore;
use isochrone::state::codec::decode;

use crate::pipeline::{Counted, Sum};

/// Final state of the job's operators.
#[derive(Debug, Default)]
pub(crate) struct Left {
    pub(crate) sums: BTreeMap<u16, Sum>,
    pub(crate) counts: BTreeMap<Counted, u64>,
    pub(crate) windows: usize,
    /// Ids that are remembered: the end of input forgets none.
    pub(crate) ids: BTreeSet<u64>,
    /// Whether the checkpoint says that all input was read.
    pub(crate) finished: bool,
}

type Bytes = Vec<u8>;

impl Left {
    /// Fails if the last checkpoint names what is not there, or is damaged.
    pub(crate) fn read(store: &MemoryStore) -> Result<Left> {
        let job = JobName::new("simulated")?;
        let top = read_newest(store, &job)?.top.expect("a job that ended has a checkpoint");
        let manifest = top.manifest?;
        let rows = |id: &str| rows(store, &manifest, id);
        let sums = rows("sums")?
            .into_iter()
            .map(|(k, v)| (decode(key_of(&k)).unwrap(), decode(&v).unwrap()));
        let counts = rows("counts")?
            .into_iter()
            .map(|(k, v)| (decode(key_of(&k)).unwrap(), decode(&v).unwrap()));
        let ids = rows("ids")?.into_iter().map(|(k, _)| decode(key_of(&k)).unwrap());
        Ok(Left {
            sums: sums.collect(),
            counts: counts.collect(),
            windows: rows("windows")?.len(),
            ids: ids.collect(),
            finished: manifest.finished,
        })
    }
}

/// A row key is the length of the encoded key, the encoded key, and nothing for plain values.
fn key_of(row_key: &[u8]) -> &[u8] {
    assert_eq!(usize::from(row_key[0]), row_key.len() - 1);
    &row_key[1..]
}

fn rows(store: &MemoryStore, manifest: &Manifest, id: &str) -> Result<Vec<(Bytes, Bytes)>> {
    let operator = manifest.operators.iter().find(|operator| operator.id.as_str() == id).unwrap();
    let Part::State { segments, .. } = &operator.part else { panic!("`{id}` has no state") };
    let load = |segment| restore::load(store, &manifest.job, &operator.id, segment);
    let segments = segments.iter().map(load).collect::<Result<Vec<_>>>()?;
    let rows = newest_wins(&segments, 0..manifest.key_groups, Tombstones::Drop);
    Ok(rows.map(|row| (row.key.to_vec(), row.value.unwrap().to_vec())).collect())
}
