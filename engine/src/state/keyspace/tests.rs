use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::keyed::Plain;
use crate::record::hash_of;

type Space<S = Packed> = Keyspace<String, Plain<i64>, S>;
/// What a store would hold: the newest row of each key, live ones only.
type Stored = BTreeMap<(KeyGroup, Vec<u8>), Vec<u8>>;

const GROUPS: u16 = 8;

fn add<S: Kept<String>>(space: &mut Space<S>, key: &str, change: i64) {
    space.update(hash_of(key), &key.to_owned(), |value| value.0 += change);
}

fn apply(rows: &Rows, stored: &mut Stored) {
    for (group, key, value) in rows.iter() {
        match value {
            Some(value) => stored.insert((group, key.to_vec()), value.to_vec()),
            None => stored.remove(&(group, key.to_vec())),
        };
    }
}

fn restore<S: Kept<String>>(stored: &Stored) -> Space<S> {
    let mut space = Keyspace::new(GROUPS);
    for ((group, key), value) in stored {
        space.load(StateVersion(1), *group, key, value).unwrap();
    }
    space
}

fn assert_holds<S: Kept<String>>(space: &Space<S>, twin: &BTreeMap<String, i64>) {
    assert_eq!(space.len(), twin.len());
    for (key, value) in twin {
        assert_eq!(space.get(hash_of(key), key), Some(&Plain(*value)), "{key}");
    }
}

#[derive(Clone, Debug)]
enum Act {
    Add(u8, i64),
    Step(usize),
    Freeze,
    Take,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        8 => (0..24_u8, -2..3_i64).prop_map(|(key, change)| Act::Add(key, change)),
        3 => (0..4_usize).prop_map(Act::Step),
        1 => Just(Act::Freeze),
        1 => Just(Act::Take),
    ];
    proptest::collection::vec(act, 0..400)
}

proptest! {
    #[test]
    fn snapshots_replayed_give_the_state_at_each_freeze(acts in acts()) {
        replays::<Packed>(&acts);
        replays::<Whole<String>>(&acts);
    }
}

/// The rows taken so far give the state at the last freeze whose snapshot was taken whole,
/// whatever changed meanwhile, and a space restored from them goes on like the first.
fn replays<S: Kept<String>>(acts: &[Act]) {
    let mut space = Space::<S>::new(GROUPS);
    let (mut twin, mut frozen) = (BTreeMap::<String, i64>::new(), BTreeMap::new());
    let mut stored = Stored::new();
    let mut complete = true;
    for act in acts {
        match *act {
            Act::Add(key, change) => {
                let key = format!("key {key}");
                add(&mut space, &key, change);
                let value = twin.entry(key.clone()).or_default();
                *value += change;
                if *value == 0 {
                    twin.remove(&key);
                }
            }
            Act::Freeze => {
                space.freeze();
                frozen = twin.clone();
                complete = false;
            }
            Act::Step(max) => complete = space.snapshot_step(max),
            Act::Take if !complete => {}
            Act::Take => {
                apply(&space.take_rows(), &mut stored);
                assert_holds(&restore::<S>(&stored), &frozen);
            }
        }
        assert_holds(&space, &twin);
    }
    space.freeze();
    assert!(space.snapshot_step(usize::MAX));
    apply(&space.take_rows(), &mut stored);
    assert_holds(&restore::<S>(&stored), &twin);
    assert_eq!(space.counts.entries, twin.len());
}

fn snapshot(space: &mut Space) -> Rows {
    space.freeze();
    assert!(space.snapshot_step(usize::MAX));
    space.take_rows()
}

#[test]
fn a_snapshot_holds_only_keys_changed_since_the_last() {
    let mut space = Space::<Packed>::new(GROUPS);
    (0..100).for_each(|key| add(&mut space, &key.to_string(), 1));
    assert_eq!(snapshot(&mut space).len(), 100);
    assert!(snapshot(&mut space).is_empty());
    add(&mut space, "7", 1);
    add(&mut space, "7", 1);
    assert_eq!(snapshot(&mut space).len(), 1);
}

#[test]
fn a_key_that_came_and_went_between_snapshots_leaves_no_row() {
    let mut space = Space::<Packed>::new(GROUPS);
    add(&mut space, "a", 1);
    add(&mut space, "a", -1);
    assert_eq!((space.len(), space.counts.entries), (0, 0));
    assert!(snapshot(&mut space).is_empty());
}

#[test]
fn a_stored_key_that_returns_to_its_default_leaves_one_tombstone_and_no_memory() {
    let mut space = Space::<Packed>::new(GROUPS);
    add(&mut space, "a", 1);
    snapshot(&mut space);
    add(&mut space, "a", -1);
    assert!(space.is_empty());
    let rows = snapshot(&mut space);
    let (_, _, value) = rows.iter().next().unwrap();
    assert_eq!((rows.len(), value), (1, None));
    assert_eq!(space.counts.entries, 0);
    assert!(snapshot(&mut space).is_empty());
}

#[test]
fn a_frozen_key_is_written_as_it_was_at_the_freeze() {
    let mut space = Space::<Packed>::new(GROUPS);
    add(&mut space, "a", 5);
    space.freeze();
    add(&mut space, "a", 1);
    assert!(space.snapshot_step(10));
    let mut stored = Stored::new();
    apply(&space.take_rows(), &mut stored);
    assert_holds(&restore::<Packed>(&stored), &BTreeMap::from([("a".to_owned(), 5)]));
}

#[test]
fn a_freeze_finishes_the_snapshot_before_and_keeps_its_rows() {
    let mut space = Space::<Packed>::new(GROUPS);
    add(&mut space, "a", 1);
    space.freeze();
    add(&mut space, "b", 2);
    space.freeze();
    assert!(space.snapshot_step(10));
    let mut stored = Stored::new();
    apply(&space.take_rows(), &mut stored);
    assert_holds(
        &restore::<Packed>(&stored),
        &BTreeMap::from([("a".to_owned(), 1), ("b".to_owned(), 2)]),
    );
}

#[test]
#[should_panic(expected = "not complete")]
fn rows_of_an_incomplete_snapshot_cannot_be_taken() {
    let mut space = Space::<Packed>::new(GROUPS);
    add(&mut space, "a", 1);
    space.freeze();
    space.take_rows();
}

#[test]
fn keys_that_flicker_within_an_epoch_do_not_grow_the_list_of_changes() {
    let mut space = Space::<Packed>::new(GROUPS);
    (0..10).for_each(|key| add(&mut space, &key.to_string(), 1));
    for _ in 0..100_000 {
        add(&mut space, "flicker", 1);
        add(&mut space, "flicker", -1);
    }
    let noted: usize = space.groups.iter().map(|group| group.dirty.len()).sum();
    assert!(noted < 2 * DIRTY_MIN, "{noted}");
    assert_eq!(snapshot(&mut space).len(), 10);
}

#[test]
fn rows_that_do_not_belong_are_refused() {
    let mut space = Space::<Packed>::new(GROUPS);
    add(&mut space, "a", 1);
    let rows = snapshot(&mut space);
    let (group, key, value) = rows.iter().next().unwrap();
    let (key, value) = (key.to_vec(), value.unwrap().to_vec());
    let mut space = Space::<Packed>::new(GROUPS);
    let mut load = |group, key: &[u8], value: &[u8]| {
        space.load(StateVersion(1), group, key, value).map(|_| ()).map_err(|error| error.kind())
    };
    use crate::ErrorKind::Corrupt;
    assert_eq!(load(KeyGroup((group.0 + 1) % GROUPS), &key, &value), Err(Corrupt));
    assert_eq!(load(group, &key[..1], &value), Err(Corrupt));
    assert_eq!(load(group, &key, &[&value[..], &[0]].concat()), Err(Corrupt));
    assert_eq!(load(group, &key, &value), Ok(()));
}

#[test]
fn an_older_version_without_an_upgrade_is_refused_and_with_one_is_rewritten() {
    #[derive(Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
    struct Two(i64);
    impl crate::state::State for Two {
        const VERSION: u16 = 2;
        fn upgrade(from: u16, bytes: &[u8]) -> Result<Self> {
            match from {
                1 => codec::decode::<i64>(bytes).map(|old| Two(2 * old)),
                other => Err(crate::state::no_upgrade::<Self>(other)),
            }
        }
    }
    let mut space = Space::<Packed>::new(GROUPS);
    add(&mut space, "a", 4);
    let rows = snapshot(&mut space);
    let (group, key, value) = rows.iter().next().unwrap();
    let mut later = Keyspace::<String, Plain<Two>>::new(GROUPS);
    let refused = later.load(StateVersion(7), group, key, value.unwrap()).map(|_| ()).unwrap_err();
    assert_eq!(refused.kind(), crate::ErrorKind::Incompatible);
    later.load(StateVersion(1), group, key, value.unwrap()).unwrap();
    assert_eq!(later.get(hash_of("a"), &"a".to_owned()), Some(&Plain(Two(8))));
    later.freeze();
    later.snapshot_step(usize::MAX);
    assert_eq!(later.take_rows().len(), 1);
}

/// `(u64, (u64, i64))`: the state of a million accounts, as the design counts it.
#[test]
fn a_million_keys_take_under_100_bytes_each_and_their_snapshot_under_40_mb() {
    let mut space = Keyspace::<u64, Plain<(u64, i64)>>::new(128);
    for key in 0..1_000_000_u64 {
        space.update(hash_of(&key), &key, |value| value.0 = (key, -1));
    }
    space.freeze();
    assert!(space.bytes_estimate() < 100_000_000, "{}", space.bytes_estimate());
    assert!(space.snapshot_step(usize::MAX));
    let rows = space.take_rows();
    assert_eq!(rows.len(), 1_000_000);
    assert!(rows.bytes() < 40_000_000, "{}", rows.bytes());
}
