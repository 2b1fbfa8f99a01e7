//! What every source must do, as checks that its tests call.

use std::fmt::Debug;

use isochrone_engine::connector::{Batch, Malformed, Poll, Reader, Source, Split};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// So many answers of "nothing now" in a row end a source that never finishes.
const IDLE_POLLS_MAX: usize = 3;
/// At most about so many positions of a split are tried.
const POSITIONS_MAX: usize = 200;

/// Checks the contract of sources; panics at the first breach, saying what was found where.
///
/// `make` describes the same source each time; what it reads stands still meanwhile. `expected` are
/// its records, split after split in the order of discovery.
///
/// - every discovery finds the same splits, and never one that is known already, whatever was asked
///   before: asking twice is asking once;
/// - the records are those expected, however many are asked for at a time;
/// - from every position, written as JSON and read back, come exactly the records behind it;
/// - what has finished stays finished, and has no more.
///
/// ```
/// use isochrone_connectors::conformance::check_source;
/// use isochrone_connectors::generator::Generator;
/// check_source(|| Generator::counting(4, |number| number).splits(3), &[0, 1, 2, 3]);
/// ```
pub fn check_source<S>(make: impl Fn() -> S, expected: &[S::Item])
where
    S: Source,
    S::Item: PartialEq + Debug,
{
    let splits = discovered(&make());
    check_discovery(&make, &splits);
    for max in [1, 2, 7, 10_000] {
        let source = make();
        let mut all = Vec::new();
        for split in &splits {
            all.extend(check_reading(&source, split, max).items);
        }
        assert_same(&all, expected, &format!("read by {max}"));
    }
    for split in &splits {
        check_positions(&make, split);
    }
}

fn discovered<S: Source>(source: &S) -> Vec<Split<S::Position>> {
    source.discover(&[]).expect("the source can be discovered").new
}

fn check_discovery<S: Source>(make: &impl Fn() -> S, splits: &[Split<S::Position>]) {
    let again: Vec<String> = discovered(&make()).iter().map(json).collect();
    let first: Vec<String> = splits.iter().map(json).collect();
    assert_eq!(first, again, "two discoveries of the same input differ");
    let ids: Vec<String> = splits.iter().map(|split| split.id.clone()).collect();
    // Asked again and again, with more that is known and then with less.
    let source = make();
    let counts = 0..=ids.len();
    for known in counts.clone().chain(counts.rev()) {
        let find =
            |source: &S| source.discover(&ids[..known]).expect("the source can be discovered");
        let fresh = find(&make()).new;
        for id in fresh.iter().map(|split| &split.id) {
            assert!(!ids[..known].contains(id), "split `{id}` is known and was found again");
        }
        let fresh: Vec<String> = fresh.iter().map(json).collect();
        for _ in 0..2 {
            let again: Vec<String> = find(&source).new.iter().map(json).collect();
            assert_eq!(fresh, again, "asked again, with {known} splits known, it finds others");
        }
    }
}

/// Reads a split to its end.
fn check_reading<S: Source>(source: &S, split: &Split<S::Position>, max: usize) -> Batch<S::Item> {
    let mut reader = source.open(split.clone()).expect("the split opens");
    let mut batch = Batch::default();
    if read_on(reader.as_mut(), &mut batch, max, |_, _| {}) {
        let size = (batch.items.len(), batch.malformed.len());
        let poll = reader.poll(&mut batch, max).expect("a finished split can be polled");
        assert_eq!(poll, Poll::Finished, "split `{}` finished and went on", split.id);
        let after = (batch.items.len(), batch.malformed.len());
        assert_eq!(size, after, "split `{}` finished and gave more", split.id);
        let end = Split { id: split.id.clone(), position: reader.position() };
        let more = source.has_more(&end).expect("a finished split can be asked for more");
        assert!(!more, "split `{}` finished and says that there is more", split.id);
    }
    batch
}

/// Reads from every position what is behind it.
fn check_positions<S>(make: &impl Fn() -> S, split: &Split<S::Position>)
where
    S: Source,
    S::Item: PartialEq + Debug,
{
    let source = make();
    let whole = check_reading(&source, split, 1);
    let mut reader = source.open(split.clone()).expect("the split opens");
    let mut positions = vec![(0, 0, copied(&reader.position()))];
    let mut batch = Batch::default();
    read_on(reader.as_mut(), &mut batch, 1, |batch, position| {
        positions.push((batch.items.len(), batch.malformed.len(), copied(&position)));
    });
    let step = positions.len().div_ceil(POSITIONS_MAX);
    for (items, malformed, position) in positions.into_iter().step_by(step) {
        let place = format!("split `{}` read from {}", split.id, json(&position));
        let rest = check_reading(&make(), &Split { id: split.id.clone(), position }, 3);
        assert_same(&rest.items, &whole.items[items..], &place);
        assert_same::<Malformed>(&rest.malformed, &whole.malformed[malformed..], &place);
    }
}

/// Polls until the split has finished (`true`) or has nothing for long.
fn read_on<T: 'static, P: 'static>(
    reader: &mut dyn Reader<T, P>,
    batch: &mut Batch<T>,
    max: usize,
    mut after: impl FnMut(&Batch<T>, P),
) -> bool {
    let mut idle = 0;
    while idle < IDLE_POLLS_MAX {
        let size = batch.items.len() + batch.malformed.len();
        let poll = reader.poll(batch, max).expect("the split can be read");
        after(batch, reader.position());
        let got = batch.items.len() + batch.malformed.len() - size;
        match poll {
            Poll::Finished => return true,
            Poll::Idle { .. } if got == 0 => idle += 1,
            Poll::Idle { .. } | Poll::Ready => idle = 0,
        }
    }
    false
}

fn assert_same<T: PartialEq + Debug>(found: &[T], expected: &[T], place: &str) {
    let differs = found.iter().zip(expected).position(|(found, expected)| found != expected);
    if let Some(at) = differs {
        panic!("{place}: number {at} is {:?}, expected {:?}", found[at], expected[at]);
    }
    assert_eq!(found.len(), expected.len(), "{place}: number of records");
}

fn json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("a position can be written as JSON")
}

fn copied<T: Serialize + DeserializeOwned>(value: &T) -> T {
    serde_json::from_str(&json(value)).expect("a position can be read back from JSON")
}
