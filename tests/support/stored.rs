//! Looks into a store of checkpoints, through the library that wrote them.

use std::collections::BTreeMap;
use std::path::Path;

use isochrone::ids::{JobName, OperatorId};
use isochrone::persistence::Store;
use isochrone::persistence::lineage::read_newest;
use isochrone::persistence::manifest::{Manifest, Part, decode as decode_manifest};
use isochrone::persistence::restore;
use isochrone::persistence::segment::{KEY_GROUPS_MAX, Tombstones, newest_wins};
use isochrone::state::codec::decode;
use isochrone::state::slot::split_row_key;
use serde::de::DeserializeOwned;

/// The newest manifest of a job.
pub fn newest(store: &dyn Store, job: &str) -> Option<Manifest> {
    let top = read_newest(store, &JobName::new(job).unwrap()).unwrap().top?;
    Some(top.manifest.unwrap())
}

/// All keys and values of an operator with one plain value per key.
pub fn state<K: DeserializeOwned + Ord, V: DeserializeOwned>(
    store: &dyn Store,
    manifest: &Manifest,
    id: &str,
) -> BTreeMap<K, V> {
    let id = OperatorId::new(id).unwrap();
    let operator = manifest.operators.iter().find(|operator| operator.id == id).unwrap();
    let Part::State { segments, .. } = &operator.part else { panic!("`{id}` keeps no state") };
    let load = |segment| restore::load(store, &manifest.job, &id, segment).unwrap();
    let segments: Vec<_> = segments.iter().map(load).collect();
    newest_wins(&segments, 0..KEY_GROUPS_MAX, Tombstones::Drop)
        .map(|row| {
            let (key, _) = split_row_key(row.key).unwrap();
            (decode(key).unwrap(), decode(row.value.unwrap()).unwrap())
        })
        .collect()
}

/// How many manifests of a job stand in a directory; looks at names only, so it may be called
/// while the job writes.
pub fn manifests(directory: &Path, job: &str) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(directory.join(job).join("m")) else { return Vec::new() };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".json")).collect();
    names.sort();
    names
}

/// One of these manifests; `None` if it has been collected meanwhile.
pub fn manifest(directory: &Path, job: &str, name: &str) -> Option<Manifest> {
    let name = format!("{job}/m/{name}");
    let bytes = std::fs::read(directory.join(&name)).ok()?;
    Some(decode_manifest(&name, &bytes).unwrap())
}
