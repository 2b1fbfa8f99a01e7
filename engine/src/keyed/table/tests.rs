use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::keyed::{Context, Count, Filter, FlatMap, Map, Process, Processing};
use crate::record::hash_of;

fn run<T: Record, L: Logic<String, T>>(
    table: &mut Table<String, T, L>,
    records: impl IntoIterator<Item = (&'static str, T)>,
    times: &[EventTime],
) -> Outputs<L::Out> {
    let mut out = Outputs::default();
    let mut items: Vec<_> =
        records.into_iter().map(|(key, record)| (key.to_owned(), record)).collect();
    let hashes: Vec<_> = items.iter().map(|(key, _)| hash_of(key)).collect();
    table.apply(&mut items, |pair| pair, &hashes, times, &mut out);
    assert!(items.is_empty());
    out
}

#[test]
fn closures_see_the_state_of_their_key_in_the_order_of_records() {
    let records = [("a", 1_i64), ("b", 10), ("a", 2), ("b", 20), ("a", 3)];
    let mut sum = Table::new(
        8,
        Map::new(|sum: &mut i64, n: i64| {
            *sum += n;
            *sum
        }),
    );
    assert_eq!(run(&mut sum, records, &[]).items, [1, 10, 3, 30, 6]);

    let mut pairs = Table::new(
        8,
        FlatMap::new(|last: &mut i64, n: i64| {
            let before = std::mem::replace(last, n);
            (before != 0).then_some((before, n))
        }),
    );
    assert_eq!(run(&mut pairs, records, &[]).items, [(1, 2), (10, 20), (2, 3)]);

    let mut odd = Table::new(
        8,
        Filter::new(|seen: &mut u8, _: &i64| {
            *seen += 1;
            *seen % 2 == 1
        }),
    );
    assert_eq!(run(&mut odd, records, &[]).items, [1, 10, 3]);
    assert_eq!(run(&mut Table::new(8, Count), records, &[]).items[4], ("a".to_owned(), 3));
}

#[test]
fn outputs_carry_the_times_of_their_records_or_none() {
    let twice = || FlatMap::new(|_: &mut u8, n: i64| [n, n]);
    let times = [EventTime(5), EventTime(3)];
    let out = run(&mut Table::new(8, twice()), [("a", 1), ("b", 2)], &times);
    assert_eq!((out.items, out.times), (vec![1, 1, 2, 2], [5, 5, 3, 3].map(EventTime).to_vec()));
    assert!(run(&mut Table::new(8, twice()), [("a", 1)], &[]).times.is_empty());

    let mut mixed = Outputs::default();
    mixed.emit('a', None);
    mixed.emit('b', Some(EventTime(7)));
    mixed.emit('c', None);
    assert_eq!(mixed.times, [EventTime::MIN, EventTime(7), EventTime::MIN]);
}

#[test]
fn a_panic_in_a_closure_names_the_key() {
    let mut table = Table::new(8, Map::new(|_: &mut u8, n: i64| 10 / n));
    assert_eq!(table.failing_key(), None);
    let records = [("fine", 1), ("bad", 0), ("never reached", 1)];
    assert!(catch_unwind(AssertUnwindSafe(|| run(&mut table, records, &[]))).is_err());
    assert_eq!(table.failing_key().as_deref(), Some("\"bad\""));
}

#[test]
#[should_panic(expected = "routed by another key")]
fn a_key_that_differs_from_the_one_that_was_routed_by_is_refused() {
    let mut table = Table::<u64, u64, _>::new(8, Count);
    let hashes = [hash_of(&1_u64)];
    table.apply(&mut vec![1], |n| (n + 1, n), &hashes, &[], &mut Outputs::default());
}

#[test]
fn a_panic_in_a_timer_names_the_key() {
    struct Bomb;
    impl Process<String, i64> for Bomb {
        type State = u8;
        type Out = ();
        fn on_record(
            &self,
            mut cx: Context<'_, String, u8>,
            at: i64,
        ) -> impl IntoIterator<Item = ()> {
            cx.timer.set(EventTime(at));
            None
        }
        fn on_timer(&self, cx: Context<'_, String, u8>) -> impl IntoIterator<Item = ()> {
            assert!(cx.now.0 < 5);
            None
        }
    }
    let mut table = Table::new(8, Processing(Bomb));
    run(&mut table, [("fine", 4), ("bad", 6)], &[]);
    let advance = |table: &mut Table<_, _, _>| table.advance(EventTime(9), &mut Outputs::default());
    assert!(catch_unwind(AssertUnwindSafe(|| advance(&mut table))).is_err());
    assert_eq!(table.failing_key().as_deref(), Some("\"bad\""));
}

#[test]
fn a_state_that_does_not_encode_names_the_key() {
    #[derive(Default, PartialEq, serde::Deserialize)]
    struct Stubborn(bool);
    impl serde::Serialize for Stubborn {
        fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(serde::ser::Error::custom("will not"))
        }
    }
    impl crate::state::State for Stubborn {
        const VERSION: u16 = 1;
    }
    let mut table = Table::new(
        8,
        Map::new(|state: &mut Stubborn, n: i64| {
            state.0 = n > 1;
            n
        }),
    );
    run(&mut table, [("fine", 1), ("bad", 2)], &[]);
    table.freeze();
    assert!(catch_unwind(AssertUnwindSafe(|| table.snapshot_step(10))).is_err());
    assert_eq!(table.failing_key().as_deref(), Some("\"bad\""));
}
