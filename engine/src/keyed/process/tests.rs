use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::keyed::twins::Cluster;
use crate::state::codec::encode;

#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
enum Order {
    Set(i64),
    Cancel(i64),
    Add(i64),
}

/// Obeys orders; a timer says what it saw, and some set another one: later, or in the past.
struct Alarm;

fn follow_up(at: i64) -> Option<i64> {
    match at % 6 {
        0 => Some(at + 25),
        3 => Some(at - 7),
        _ => None,
    }
}

impl Process<String, Order> for Alarm {
    type State = i64;
    type Out = (i64, String, i64);

    fn on_record(
        &self,
        mut cx: Context<'_, String, i64>,
        order: Order,
    ) -> impl IntoIterator<Item = Self::Out> {
        match order {
            Order::Set(at) => cx.timer.set(EventTime(at)),
            Order::Cancel(at) => cx.timer.cancel(EventTime(at)),
            Order::Add(change) => *cx.state += change,
        }
        None
    }

    fn on_timer(&self, mut cx: Context<'_, String, i64>) -> impl IntoIterator<Item = Self::Out> {
        if let Some(next) = follow_up(cx.now.0) {
            cx.timer.set(EventTime(next));
        }
        vec![(cx.now.0, cx.key.clone(), std::mem::take(cx.state))]
    }
}

fn cluster(workers: u32) -> Cluster<String, Order, Processing<Alarm>> {
    Cluster::new(workers, || Processing(Alarm))
}

#[derive(Clone, Default)]
struct Twin(BTreeMap<String, (i64, BTreeSet<i64>)>);

impl Twin {
    fn order(&mut self, key: &str, order: Order) {
        let (state, timers) = self.0.entry(key.to_owned()).or_default();
        match order {
            Order::Set(at) => drop(timers.insert(at)),
            Order::Cancel(at) => drop(timers.remove(&at)),
            Order::Add(change) => *state += change,
        }
    }

    fn advance(&mut self, watermark: i64) -> Vec<(i64, String, i64)> {
        let mut due: Vec<(i64, Vec<u8>, String)> = Vec::new();
        for (key, (_, timers)) in &self.0 {
            for &at in timers.range(..=watermark) {
                due.push((at, encode(key).unwrap(), key.clone()));
            }
        }
        due.sort();
        let mut fired = Vec::new();
        for (at, _, key) in &due {
            let (state, timers) = self.0.get_mut(key).unwrap();
            timers.remove(at);
            fired.push((*at, key.clone(), std::mem::take(state)));
            timers.extend(follow_up(*at));
        }
        fired
    }

    fn alive(&self) -> usize {
        self.0.values().filter(|(state, timers)| *state != 0 || !timers.is_empty()).count()
    }
}

#[derive(Clone, Debug)]
enum Act {
    Order(u8, Order),
    Advance(i64, usize),
    Checkpoint,
    Restart(u32),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let order = prop_oneof![
        (0..300_i64).prop_map(Order::Set),
        (0..300_i64).prop_map(Order::Cancel),
        (-2..3_i64).prop_map(Order::Add),
    ];
    let act = prop_oneof![
        12 => (0..6_u8, order).prop_map(|(key, order)| Act::Order(key, order)),
        3 => (0..40_i64, 1..5_usize).prop_map(|(by, max)| Act::Advance(by, max)),
        1 => Just(Act::Checkpoint),
        1 => (1..5_u32).prop_map(Act::Restart),
    ];
    proptest::collection::vec(act, 0..300)
}

proptest! {
    /// Every timer fires once, in order, whatever the quantum; after a restart on another number
    /// of workers those of the last checkpoint fire again and no other.
    #[test]
    fn timers_fire_as_the_twin_says_across_restarts(acts in acts()) {
        let (mut cluster, mut twin) = (cluster(1), Twin::default());
        let (mut stored, mut now) = (Twin::default(), 0);
        for act in acts {
            match act {
                Act::Order(key, order) => {
                    let key = "k".repeat(usize::from(key));
                    twin.order(&key, order.clone());
                    cluster.apply(vec![(key, order)], Some(now));
                }
                Act::Advance(by, max) => {
                    now += by;
                    let (mut fired, mut expected) = (cluster.advance(now, max), twin.advance(now));
                    if cluster.workers.len() > 1 {
                        fired.sort();
                        expected.sort();
                    }
                    prop_assert_eq!(fired, expected);
                }
                Act::Checkpoint => {
                    cluster.freeze();
                    cluster.store();
                    stored = twin.clone();
                }
                Act::Restart(workers) => {
                    cluster.restart(workers);
                    twin = stored.clone();
                }
            }
            prop_assert_eq!(cluster.keys(), twin.alive());
        }
    }
}

#[test]
fn a_timer_set_in_the_past_fires_at_the_next_advance_and_not_in_this_one() {
    let mut cluster = cluster(1);
    cluster.apply(vec![("a".into(), Order::Set(9))], Some(0));
    assert_eq!(cluster.advance(100, 1), [(9, "a".into(), 0)]);
    assert_eq!(cluster.advance(100, 1), [(2, "a".into(), 0)]);
    assert!(cluster.advance(i64::MAX, 1).is_empty());
    cluster.apply(vec![("a".into(), Order::Set(50))], Some(0));
    assert_eq!(cluster.advance(100, 1), [(50, "a".into(), 0)]);
}

#[test]
fn a_key_with_a_timer_is_kept_and_one_without_is_not() {
    let mut cluster = cluster(1);
    cluster.apply(vec![("a".into(), Order::Set(9))], None);
    assert_eq!(cluster.keys(), 1);
    cluster.apply(vec![("a".into(), Order::Cancel(9))], None);
    assert_eq!(cluster.keys(), 0);
    assert!(cluster.advance(100, 1).is_empty());
}

#[test]
fn state_of_an_older_version_is_upgraded_and_keeps_its_timers() {
    #[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
    struct Two(String);
    impl State for Two {
        const VERSION: u16 = 2;
        fn upgrade(_: u16, bytes: &[u8]) -> Result<Self> {
            codec::decode::<i64>(bytes).map(|old| Two(old.to_string()))
        }
    }
    let mut rows = Rows::default();
    let mut old = Timed { state: 41_i64, timers: vec![EventTime(3)] };
    old.save(KeyGroup(0), &[0], &mut rows);
    let mut new = Timed::<Two>::default();
    new.load(StateVersion(1), &[], rows.iter().next().unwrap().2.unwrap()).unwrap();
    assert_eq!(new, Timed { state: Two("41".into()), timers: vec![EventTime(3)] });
}
