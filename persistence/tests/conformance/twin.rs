//! A directory and a plain map answer every sequence of calls alike.

use isochrone_persistence::store::local::LocalStore;
use isochrone_persistence::{Created, Store};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Range;

/// None is the folder of another; the order of bytes is not that of folders.
const NAMES: [&str; 6] = ["a/m-1", "a/m.1", "a/m/1", "a/m/10", "a0", "b/c/d/e"];
const PREFIXES: [&str; 7] = ["", "a", "a/", "a/m", "a/m/", "b/c", "z/"];

#[derive(Clone, Debug)]
enum Step {
    Get(usize),
    GetRange(usize, Range<u64>),
    Put(usize, Vec<u8>),
    Create(usize, Vec<u8>),
    List(usize),
    Delete(usize),
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let name = || 0..NAMES.len();
    let bytes = || prop::collection::vec(any::<u8>(), 0..20);
    prop_oneof![
        name().prop_map(Step::Get),
        (name(), 0..25_u64, 0..25_u64).prop_map(|(name, from, to)| Step::GetRange(name, from..to)),
        (name(), bytes()).prop_map(|(name, bytes)| Step::Put(name, bytes)),
        (name(), bytes()).prop_map(|(name, bytes)| Step::Create(name, bytes)),
        (0..PREFIXES.len()).prop_map(Step::List),
        name().prop_map(Step::Delete),
        Just(Step::Reopen),
    ]
}

/// The bytes at the positions of `range`, one by one.
fn positions(bytes: &[u8], range: &Range<u64>) -> Vec<u8> {
    let within = |(position, _): &(usize, &u8)| range.contains(&(*position as u64));
    bytes.iter().enumerate().filter(within).map(|(_, byte)| *byte).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) })]

    #[test]
    fn a_directory_answers_like_a_map(steps in prop::collection::vec(step(), 1..40)) {
        let folder = tempfile::tempdir().unwrap();
        let mut store = LocalStore::open(folder.path()).unwrap();
        let mut map: BTreeMap<&str, Vec<u8>> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Get(name) => {
                    let name = NAMES[name];
                    prop_assert_eq!(store.get(name).unwrap(), map.get(name).cloned());
                }
                Step::GetRange(name, range) => {
                    let name = NAMES[name];
                    let expected = map.get(name).map(|bytes| positions(bytes, &range));
                    prop_assert_eq!(store.get_range(name, range).unwrap(), expected);
                }
                Step::Put(name, bytes) => {
                    store.put(NAMES[name], &bytes).unwrap();
                    map.insert(NAMES[name], bytes);
                }
                Step::Create(name, bytes) => {
                    let name = NAMES[name];
                    let taken = map.contains_key(name);
                    let expected = if taken { Created::Exists } else { Created::Yes };
                    prop_assert_eq!(store.put_if_absent(name, &bytes).unwrap(), expected);
                    map.entry(name).or_insert(bytes);
                }
                Step::List(prefix) => {
                    let prefix = PREFIXES[prefix];
                    let names = map.keys().filter(|name| name.starts_with(prefix));
                    let expected: Vec<String> = names.map(|name| (*name).to_owned()).collect();
                    prop_assert_eq!(store.list(prefix).unwrap(), expected);
                }
                Step::Delete(name) => {
                    store.delete(NAMES[name]).unwrap();
                    map.remove(NAMES[name]);
                }
                Step::Reopen => store = LocalStore::open(folder.path()).unwrap(),
            }
        }
    }
}
