//! Compares what was found in a topic with what had to be there, key by key.
//!
//! The order across keys is free, as is the partition of a key; but a key that changes its
//! partition has no order any more, and that is counted too.

use std::collections::BTreeMap;
use std::fmt::Debug;

const EXAMPLES_MAX: usize = 8;

/// A record that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found<K, V> {
    pub partition: i32,
    pub key: K,
    pub value: V,
}

/// What is wrong, counted by kind; the first few in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    pub records: u64,
    /// Expected and not found.
    pub lost: u64,
    /// Found more often than expected.
    pub doubled: u64,
    /// Found after one that had to come later.
    pub out_of_order: u64,
    /// Found and never expected.
    pub foreign: u64,
    /// Keys that were found in more than one partition.
    pub moved: u64,
    pub examples: Vec<String>,
}

impl Verdict {
    pub fn is_exact(&self) -> bool {
        let Verdict { lost, doubled, out_of_order, foreign, moved, .. } = self;
        [lost, doubled, out_of_order, foreign, moved].into_iter().all(|count| *count == 0)
    }

    /// Fails with what is wrong.
    pub fn assert_exact(&self) {
        assert!(self.is_exact(), "{self:#?}");
    }

    fn note(&mut self, kind: fn(&mut Verdict) -> &mut u64, text: impl FnOnce() -> String) {
        *kind(self) += 1;
        if self.examples.len() < EXAMPLES_MAX {
            self.examples.push(text());
        }
    }
}

/// Expected are keys with values, those of one key in their order; found, those of one partition.
pub fn judge<K, V>(
    expected: impl IntoIterator<Item = (K, V)>,
    found: impl IntoIterator<Item = Found<K, V>>,
) -> Verdict
where
    K: Ord + Debug,
    V: Ord + Debug,
{
    let mut keys = BTreeMap::<K, Key<V>>::new();
    for (key, value) in expected {
        keys.entry(key).or_default().expect(value);
    }
    let mut verdict = Verdict::default();
    for Found { partition, key, value } in found {
        verdict.records += 1;
        match keys.get_mut(&key) {
            Some(known) => known.find(&key, partition, &value, &mut verdict),
            None => verdict.note(|v| &mut v.foreign, || format!("{key:?}: {value:?} is foreign")),
        }
    }
    for (key, known) in &keys {
        for (value, places) in &known.values {
            for place in &places.open {
                let text = || format!("{key:?}: {value:?}, number {place}, is lost");
                verdict.note(|v| &mut v.lost, text);
            }
        }
    }
    verdict
}

/// What is known of a key.
struct Key<V> {
    values: BTreeMap<V, Places>,
    count: usize,
    /// One more than the last place found.
    next: usize,
    partition: Option<i32>,
    has_moved: bool,
}

/// The places of a value among those of its key that have not been found yet, the first one last.
#[derive(Default)]
struct Places {
    open: Vec<usize>,
}

impl<V> Default for Key<V> {
    fn default() -> Key<V> {
        let values = BTreeMap::new();
        Key { values, count: 0, next: 0, partition: None, has_moved: false }
    }
}

impl<V: Ord + Debug> Key<V> {
    fn expect(&mut self, value: V) {
        self.values.entry(value).or_default().open.insert(0, self.count);
        self.count += 1;
    }

    fn find<K: Debug>(&mut self, key: &K, partition: i32, value: &V, verdict: &mut Verdict) {
        let at = || format!("{key:?}: {value:?} in partition {partition}");
        let before = *self.partition.get_or_insert(partition);
        if before != partition && !self.has_moved {
            self.has_moved = true;
            verdict.note(|v| &mut v.moved, || format!("{} and before in {before}", at()));
        }
        let Some(places) = self.values.get_mut(value) else {
            return verdict.note(|v| &mut v.foreign, || format!("{} is foreign", at()));
        };
        let Some(place) = places.open.pop() else {
            return verdict.note(|v| &mut v.doubled, || format!("{} is doubled", at()));
        };
        if place < self.next {
            verdict.note(|v| &mut v.out_of_order, || format!("{} comes late", at()));
        } else {
            self.next = place + 1;
        }
    }
}
