//! Generated records: the same for the same seed, at the pace asked for.
#![expect(clippy::unwrap_used, reason = "a failure fails the test")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::read;
use isochrone_connectors::generator::Generator;
use isochrone_engine::connector::{Batch, Poll, Source};
use isochrone_engine::time::ManualClock;

#[test]
fn the_seed_decides_and_the_number_of_splits_does_not() {
    let items = |seed, splits| {
        read(&Generator::new(1_000, seed, |random| random % 100).splits(splits)).unwrap().items
    };
    assert_eq!(items(1, 1), items(1, 1));
    assert_eq!(items(1, 1), items(1, 7));
    assert_eq!(items(1, 1), items(1, 2_000));
    assert_ne!(items(1, 1), items(2, 1));
    let mut seen = [0; 100];
    items(1, 1).into_iter().for_each(|item| seen[item as usize] += 1);
    assert!(seen.iter().all(|count| (1..30).contains(count)), "{seen:?}");
}

#[test]
fn records_come_at_the_pace_asked_for_and_no_faster() {
    let clock = Arc::new(ManualClock::default());
    let source = Generator::counting(25, |number| number).per_second(10, clock.clone());
    let split = source.discover(&[]).unwrap().new.remove(0);
    let mut reader = source.open(split).unwrap();
    let mut batch = Batch::default();
    let idle = Poll::Idle { retry_after: Duration::from_millis(100) };
    assert_eq!(reader.poll(&mut batch, 100).unwrap(), idle);
    assert_eq!(batch.items.len(), 0);
    clock.advance_ms(1_000);
    assert_eq!(reader.poll(&mut batch, 4).unwrap(), Poll::Ready);
    assert_eq!(reader.poll(&mut batch, 100).unwrap(), idle);
    assert_eq!(batch.items.len(), 10);
    clock.advance_ms(10_000);
    assert_eq!(reader.poll(&mut batch, 100).unwrap(), Poll::Finished);
    assert_eq!(batch.items, Vec::from_iter(0..25));
}
