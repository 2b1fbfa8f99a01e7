//! One plain value per key and a closure that sees it: `map`, `flat_map`, `filter`.

use isochrone_persistence::ids::{KeyGroup, StateVersion};

use crate::Result;
use crate::keyed::logic::{Logic, Outputs, Step};
use crate::record::{Key, Record};
use crate::state::rows::Rows;
use crate::state::shape::Shape;
use crate::state::slot::Slot;
use crate::state::{State, codec, decode_state};

/// One value, one row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plain<S>(pub S);

impl<S: State> Slot for Plain<S> {
    const VERSION: u16 = S::VERSION;

    fn shape() -> Shape {
        Shape::of::<S>()
    }

    #[inline]
    fn is_vacant(&self) -> bool {
        self.0 == S::default()
    }

    fn save(&mut self, group: KeyGroup, key: &[u8], rows: &mut Rows) {
        if self.is_vacant() {
            return rows.push(group, key, None);
        }
        rows.push_with(group, key, |bytes| {
            codec::encode_into(&self.0, bytes).expect("state encodes");
        });
    }

    fn load(&mut self, from: StateVersion, _subkey: &[u8], value: &[u8]) -> Result<()> {
        self.0 = decode_state(from.0, value)?;
        Ok(())
    }
}

/// Emits one record for each: `Fn(&mut S, T) -> U`.
pub struct Map<S, F> {
    f: F,
    state: std::marker::PhantomData<fn(S)>,
}

impl<S, F> Map<S, F> {
    /// The operator of this closure.
    pub fn new(f: F) -> Self {
        Map { f, state: std::marker::PhantomData }
    }
}

impl<K: Key, T: Record, S: State, U: Record, F: Fn(&mut S, T) -> U + 'static> Logic<K, T>
    for Map<S, F>
{
    type Slot = Plain<S>;
    type Out = U;

    #[inline]
    fn on_record(
        &self,
        _: &K,
        slot: &mut Plain<S>,
        record: T,
        step: Step<'_>,
        out: &mut Outputs<U>,
    ) {
        out.emit((self.f)(&mut slot.0, record), step.time);
    }
}

/// Emits any number of records for each: `Fn(&mut S, T) -> impl IntoIterator<Item = U>`.
pub struct FlatMap<S, F> {
    f: F,
    state: std::marker::PhantomData<fn(S)>,
}

impl<S, F> FlatMap<S, F> {
    /// The operator of this closure.
    pub fn new(f: F) -> Self {
        FlatMap { f, state: std::marker::PhantomData }
    }
}

impl<K, T, S, I, F> Logic<K, T> for FlatMap<S, F>
where
    K: Key,
    T: Record,
    S: State,
    I: IntoIterator<Item: Record>,
    F: Fn(&mut S, T) -> I + 'static,
{
    type Slot = Plain<S>;
    type Out = I::Item;

    #[inline]
    fn on_record(
        &self,
        _: &K,
        slot: &mut Plain<S>,
        record: T,
        step: Step<'_>,
        out: &mut Outputs<I::Item>,
    ) {
        out.emit_all((self.f)(&mut slot.0, record), step.time);
    }
}

/// Lets a record pass or not: `Fn(&mut S, &T) -> bool`.
pub struct Filter<S, F> {
    f: F,
    state: std::marker::PhantomData<fn(S)>,
}

impl<S, F> Filter<S, F> {
    /// The operator of this closure.
    pub fn new(f: F) -> Self {
        Filter { f, state: std::marker::PhantomData }
    }
}

impl<K: Key, T: Record, S: State, F: Fn(&mut S, &T) -> bool + 'static> Logic<K, T>
    for Filter<S, F>
{
    type Slot = Plain<S>;
    type Out = T;

    #[inline]
    fn on_record(
        &self,
        _: &K,
        slot: &mut Plain<S>,
        record: T,
        step: Step<'_>,
        out: &mut Outputs<T>,
    ) {
        if (self.f)(&mut slot.0, &record) {
            out.emit(record, step.time);
        }
    }
}
