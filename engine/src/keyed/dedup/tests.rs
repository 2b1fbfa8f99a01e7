use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::keyed::twins::Cluster;

const TTL: Duration = Duration::from_millis(100);

fn cluster(workers: u32) -> Cluster<String, u32, Dedup> {
    Cluster::new(workers, || Dedup::new(TTL))
}

/// First sights, kept for ever and judged by the clause in the module's page.
#[derive(Default)]
struct Twin {
    first: BTreeMap<String, i64>,
    watermark: Option<i64>,
}

impl Twin {
    fn passes(&mut self, key: &str, time: i64) -> bool {
        let lasts = |first: i64, watermark: Option<i64>| {
            time < first + 100 && watermark.is_none_or(|watermark| watermark < first + 100)
        };
        if self.first.get(key).is_some_and(|&first| lasts(first, self.watermark)) {
            return false;
        }
        self.first.insert(key.to_owned(), time);
        true
    }

    fn alive(&self) -> usize {
        let gone = |first: i64| self.watermark.is_some_and(|watermark| first + 100 <= watermark);
        self.first.values().filter(|first| !gone(**first)).count()
    }
}

proptest! {
    #[test]
    fn a_record_passes_exactly_when_the_twin_says_so_across_restarts(
        acts in proptest::collection::vec((0..12_u8, 0..10_u8, -150..150_i64), 0..300),
        workers in 1..4_u32,
    ) {
        let (mut cluster, mut twin) = (cluster(workers), Twin::default());
        let mut now = 0;
        for (key, act, jitter) in acts {
            match act {
                0 => {
                    now += jitter.abs();
                    twin.watermark = Some(now);
                    cluster.advance(now, 3);
                }
                1 => {
                    cluster.freeze();
                    cluster.step(2);
                    cluster.store();
                    cluster.restart(1 + u32::from(key) % 5);
                    cluster.advance(twin.watermark.unwrap_or(i64::MIN), 3);
                }
                _ => {
                    let (key, time) = (format!("key {key}"), now + jitter);
                    let passed = !cluster.apply(vec![(key.clone(), 1)], Some(time)).is_empty();
                    prop_assert_eq!(passed, twin.passes(&key, time), "{} at {}", key, time);
                }
            }
            // Memory may lag behind by the grain, here 1 ms: buckets end after the time.
            prop_assert!(cluster.keys() >= twin.alive());
        }
        cluster.advance(now + 1000, usize::MAX);
        prop_assert_eq!(cluster.keys(), 0);
        cluster.freeze();
        cluster.store();
        prop_assert!(cluster.stored.is_empty());
    }
}

#[test]
fn a_sight_is_forgotten_when_the_watermark_passes_it_and_leaves_a_tombstone() {
    let mut cluster = cluster(1);
    assert_eq!(cluster.apply(vec![("a".into(), 1), ("a".into(), 2)], Some(10)), [1]);
    cluster.freeze();
    cluster.store();
    assert_eq!((cluster.keys(), cluster.stored.len()), (1, 1));
    cluster.advance(109, 10);
    assert_eq!(cluster.keys(), 1);
    cluster.advance(111, 10);
    assert_eq!(cluster.keys(), 0);
    cluster.freeze();
    cluster.store();
    assert_eq!((cluster.stored.len(), cluster.written), (0, 1));
}

#[test]
fn without_event_time_a_sight_lasts_for_ever() {
    let mut cluster = cluster(1);
    assert_eq!(cluster.apply(vec![("a".into(), 1), ("a".into(), 2)], None), [1]);
    cluster.advance(i64::MAX, 10);
    assert!(cluster.apply(vec![("a".into(), 3)], None).is_empty());
    cluster.freeze();
    cluster.store();
    cluster.restart(2);
    assert!(cluster.apply(vec![("a".into(), 4)], None).is_empty());
}

/// A run that had read all its input forgot every id, and a later run on grown input took them again.
#[test]
fn the_end_of_input_forgets_nothing() {
    let mut cluster = cluster(1);
    assert_eq!(cluster.apply(vec![("a".into(), 1)], Some(5)), [1]);
    cluster.advance(i64::MAX, usize::MAX);
    assert_eq!(cluster.keys(), 1);
    cluster.freeze();
    cluster.store();
    cluster.restart(2);
    assert!(cluster.apply(vec![("a".into(), 2)], Some(6)).is_empty());
}
