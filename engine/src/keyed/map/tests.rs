use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::keyed::twins::Cluster;

#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
enum Act {
    Insert(u8, i64),
    Add(u8, i64),
    Remove(u8),
    Clear,
}

type Twin = BTreeMap<u16, BTreeMap<u8, i64>>;
type Closure = fn(&mut MapState<u8, i64>, Act) -> Option<i64>;

fn on_map(state: &mut MapState<u8, i64>, act: Act) -> Option<i64> {
    match act {
        Act::Insert(key, value) => state.insert(key, value),
        Act::Remove(key) => state.remove(&key),
        Act::Add(key, change) => {
            let value = state.get_mut(&key)?;
            *value += change;
            Some(*value)
        }
        Act::Clear => {
            let keys: Vec<u8> = state.iter().map(|(key, _)| *key).collect();
            keys.iter().filter_map(|key| state.remove(key)).last()
        }
    }
}

fn on_twin(twin: &mut Twin, key: u16, act: Act) -> Option<i64> {
    let state = twin.entry(key).or_default();
    let result = match act {
        Act::Insert(key, value) => state.insert(key, value),
        Act::Remove(key) => state.remove(&key),
        Act::Add(key, change) => state.get_mut(&key).map(|value| {
            *value += change;
            *value
        }),
        Act::Clear => std::mem::take(state).into_values().last(),
    };
    twin.retain(|_, state| !state.is_empty());
    result
}

fn cluster(workers: u32) -> Cluster<u16, Act, StateMap<u8, i64, Closure>> {
    Cluster::new(workers, || StateMap::new(on_map as Closure))
}

fn assert_same(cluster: &Cluster<u16, Act, StateMap<u8, i64, Closure>>, twin: &Twin) {
    assert_eq!(cluster.keys(), twin.len());
    for (key, state) in twin {
        let map = &cluster.slot(key).unwrap().0;
        assert_eq!(map.iter().collect::<Vec<_>>(), state.iter().collect::<Vec<_>>());
        assert_eq!(map.len(), state.len());
    }
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (0..6_u8, 0..9_i64).prop_map(|(key, value)| Act::Insert(key, value)),
        4 => (0..6_u8, 0..9_i64).prop_map(|(key, change)| Act::Add(key, change)),
        4 => (0..6_u8).prop_map(Act::Remove),
        1 => Just(Act::Clear),
    ]
}

#[derive(Clone, Debug)]
enum Move {
    Apply(u16, Act),
    Step(usize),
    Checkpoint,
    Restart(u32),
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        12 => (250..258_u16, act()).prop_map(|(key, act)| Move::Apply(key, act)),
        3 => (0..3_usize).prop_map(Move::Step),
        1 => Just(Move::Checkpoint),
        1 => (1..5_u32).prop_map(Move::Restart),
    ];
    proptest::collection::vec(one, 0..300)
}

proptest! {
    /// A checkpoint is frozen, then completed a while later; a restart goes back to the last
    /// complete one.
    #[test]
    fn maps_equal_the_twin_and_a_restart_gives_the_last_checkpoint(moves in moves()) {
        let mut cluster = cluster(2);
        let (mut twin, mut frozen, mut stored) = (Twin::new(), None, Twin::new());
        for one in moves {
            match one {
                Move::Apply(key, act) => {
                    let expected: Vec<i64> =
                        on_twin(&mut twin, key, act.clone()).into_iter().collect();
                    prop_assert_eq!(cluster.apply(vec![(key, act)], None), expected);
                }
                Move::Step(max) => cluster.step(max),
                Move::Checkpoint => match frozen.take() {
                    None => {
                        cluster.freeze();
                        frozen = Some(twin.clone());
                    }
                    Some(complete) => {
                        cluster.store();
                        stored = complete;
                    }
                },
                Move::Restart(workers) => {
                    cluster.restart(workers);
                    (frozen, twin) = (None, stored.clone());
                }
            }
            assert_same(&cluster, &twin);
        }
    }
}

#[test]
fn only_changed_entries_are_written() {
    let mut cluster = cluster(1);
    let insert = |key| (7, Act::Insert(key, 1));
    cluster.apply((0..100).map(insert).collect(), None);
    cluster.freeze();
    cluster.store();
    assert_eq!(cluster.written, 100);
    // One changed twice, one removed, one that came and went.
    let acts =
        [Act::Add(3, 1), Act::Add(3, 1), Act::Remove(4), Act::Insert(200, 1), Act::Remove(200)];
    cluster.apply(acts.into_iter().map(|act| (7, act)).collect(), None);
    cluster.freeze();
    cluster.store();
    assert_eq!((cluster.written, cluster.stored.len()), (2, 99));
    cluster.restart(3);
    cluster.apply(vec![(7, Act::Add(3, 1))], None);
    cluster.freeze();
    cluster.store();
    assert_eq!(cluster.written, 1);
}

#[test]
fn clearing_a_slot_writes_tombstones_of_its_stored_entries() {
    let mut slot = Entries::<u8, i64>::default();
    slot.0.insert(1, 5);
    let mut rows = Rows::default();
    slot.save(KeyGroup(0), &[1, 9], &mut rows);
    slot.0.insert(2, 5);
    slot.clear();
    assert!(slot.is_vacant());
    let mut rows = Rows::default();
    slot.save(KeyGroup(0), &[1, 9], &mut rows);
    let row =
        rows.iter().next().map(|(group, key, value)| (group.0, key.to_vec(), value.is_none()));
    assert_eq!((rows.len(), row), (1, Some((0, vec![1, 9, 1], true))));
}
