//! The operator for those who need the key or timers.

use isochrone_persistence::ids::{KeyGroup, StateVersion};

use crate::Result;
use crate::keyed::logic::{Logic, Outputs, Step};
use crate::keyed::schedule::Schedule;
use crate::record::{Key, KeyBuffer, Record};
use crate::state::rows::Rows;
use crate::state::shape::Shape;
use crate::state::slot::Slot;
use crate::state::{State, codec, decode_state};
use crate::time::EventTime;

/// A keyed operator written as a type: state, key and event-time timers at hand.
///
/// ```
/// use isochrone_engine::keyed::{Context, Process};
/// use isochrone_engine::time::EventTime;
///
/// /// Says how many clicks a user made, a second after the last one.
/// struct Bursts;
///
/// impl Process<u64, ()> for Bursts {
///     type State = (u64, i64);
///     type Out = (u64, u64);
///
///     fn on_record(
///         &self,
///         mut cx: Context<'_, u64, (u64, i64)>,
///         _: (),
///     ) -> impl IntoIterator<Item = (u64, u64)> {
///         let (clicks, end) = cx.state;
///         cx.timer.cancel(EventTime(*end));
///         (*clicks, *end) = (*clicks + 1, cx.now.0 + 1000);
///         cx.timer.set(EventTime(*end));
///         None
///     }
///
///     fn on_timer(
///         &self,
///         cx: Context<'_, u64, (u64, i64)>,
///     ) -> impl IntoIterator<Item = (u64, u64)> {
///         let (clicks, _) = std::mem::take(cx.state);
///         Some((*cx.key, clicks))
///     }
/// }
/// ```
pub trait Process<K: Key, T: Record>: 'static {
    /// What is kept per key.
    type State: State;
    /// What is emitted.
    type Out: Record;

    /// A record of the key has come.
    fn on_record(
        &self,
        cx: Context<'_, K, Self::State>,
        record: T,
    ) -> impl IntoIterator<Item = Self::Out>;

    /// A timer of the key is due: `cx.now` is the time that it was set for. When all input has ended, the
    /// timers that are left fire, in order; input that comes in a later run does not take that back.
    fn on_timer(&self, cx: Context<'_, K, Self::State>) -> impl IntoIterator<Item = Self::Out>;
}

/// What a [`Process`] has at hand; the fields can be borrowed side by side.
pub struct Context<'a, K, S> {
    /// The key.
    pub key: &'a K,
    /// The state of the key.
    pub state: &'a mut S,
    /// The event time of the record, or the time of the timer; the watermark for a record without.
    pub now: EventTime,
    /// The timers of the key.
    pub timer: Timers<'a>,
}

/// The timers of one key. They are part of its state: saved with it, moved with it.
pub struct Timers<'a> {
    set: &'a mut Vec<EventTime>,
    schedule: &'a mut Schedule,
    key: &'a dyn EncodeKey,
}

impl Timers<'_> {
    /// Sets a timer. It fires once, when the watermark reaches `at`; if it has already, at the
    /// next advance of the watermark. Setting it twice is setting it once.
    pub fn set(&mut self, at: EventTime) {
        if let Err(place) = self.set.binary_search(&at) {
            self.set.insert(place, at);
            let mut buffer = KeyBuffer::default();
            self.key.encode(&mut buffer);
            self.schedule.set(at, buffer.bytes());
        }
    }

    /// Takes back a timer, if it is set.
    pub fn cancel(&mut self, at: EventTime) {
        if let Ok(place) = self.set.binary_search(&at) {
            self.set.remove(place);
            let mut buffer = KeyBuffer::default();
            self.key.encode(&mut buffer);
            self.schedule.cancel(at, buffer.bytes());
        }
    }
}

/// A key of any type, to be encoded only if a timer is set.
trait EncodeKey {
    fn encode(&self, buffer: &mut KeyBuffer);
}

impl<K: Key> EncodeKey for K {
    fn encode(&self, buffer: &mut KeyBuffer) {
        buffer.encode(self);
    }
}

/// The slot of a process: one row, `timers | state`, so that a key with timers is not vacant.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timed<S> {
    /// The user's value.
    pub state: S,
    /// In order, each once.
    timers: Vec<EventTime>,
}

impl<S: State> Slot for Timed<S> {
    const VERSION: u16 = S::VERSION;

    fn shape() -> Shape {
        Shape::of::<S>()
    }

    fn is_vacant(&self) -> bool {
        self.timers.is_empty() && self.state == S::default()
    }

    fn save(&mut self, group: KeyGroup, key: &[u8], rows: &mut Rows) {
        if self.is_vacant() {
            return rows.push(group, key, None);
        }
        rows.push_with(group, key, |bytes| {
            codec::encode_into(&self.timers, bytes).expect("times encode");
            codec::encode_into(&self.state, bytes).expect("state encodes");
        });
    }

    fn load(&mut self, from: StateVersion, _subkey: &[u8], value: &[u8]) -> Result<()> {
        let (timers, state) = codec::decode_prefix(value)?;
        self.timers = timers;
        self.state = decode_state(from.0, state)?;
        Ok(())
    }

    fn timers(&self) -> &[EventTime] {
        &self.timers
    }
}

/// A [`Process`] as the table drives it.
pub struct Processing<P>(pub P);

impl<K: Key, T: Record, P: Process<K, T>> Logic<K, T> for Processing<P> {
    type Slot = Timed<P::State>;
    type Out = P::Out;

    fn on_record(
        &self,
        key: &K,
        slot: &mut Timed<P::State>,
        record: T,
        step: Step<'_>,
        out: &mut Outputs<P::Out>,
    ) {
        let Step { time, schedule, .. } = step;
        let now = time.unwrap_or(schedule.watermark());
        let timer = Timers { set: &mut slot.timers, schedule, key };
        let cx = Context { key, state: &mut slot.state, now, timer };
        out.emit_all(self.0.on_record(cx, record), time);
    }

    fn on_timer(
        &self,
        key: &K,
        slot: &mut Timed<P::State>,
        step: Step<'_>,
        out: &mut Outputs<P::Out>,
    ) {
        let Step { time, schedule, .. } = step;
        let now = time.expect("a timer has a time");
        slot.timers.retain(|&at| at != now);
        let timer = Timers { set: &mut slot.timers, schedule, key };
        let cx = Context { key, state: &mut slot.state, now, timer };
        out.emit_all(self.0.on_timer(cx), time);
    }
}

#[cfg(test)]
mod tests;
