//! A source instance: polls the readers of its splits, and cuts between two polls.
//!
//! It alone holds a capability. At a trigger it notes the positions of its splits, hands them over
//! and lowers the capability to the cut: whatever it sends afterwards is behind the cut.

use std::rc::Rc;
use std::time::Duration;

use isochrone_persistence::ids::{Epoch, OperatorId};
use isochrone_persistence::manifest;
use timely::dataflow::operators::Capability;
use timely::dataflow::operators::generic::builder_rc::OperatorBuilder;
use timely::dataflow::operators::generic::{OutputBuilder, OutputBuilderSession};
use timely::scheduling::Activator;

use super::packet::{Body, Packet, Packets, Records, send};
use super::pressure::Position;
use super::worker::{Site, guarded};
use super::{Edge, Scope};
use crate::connector::{Batch, Malformed, OnMalformed, Poll, Reader, Source};
use crate::erased::decode_split;
use crate::protocol::Part;
use crate::runtime::message::{Handover, Snapshot};
use crate::runtime::pace::{Planted, planted};
use crate::time::EventTime;
use crate::watermark::{IDLE, SplitWatermark};
use crate::{Error, Result};

/// Records asked of a reader at a time: so many that they fit into the nearest caches on their way.
/// Larger allocations also make glibc's allocator tidy up all small ones whenever one is freed.
const BYTES_PER_POLL: usize = 32 * 1024;
const RECORDS_PER_POLL_MAX: usize = 2048;
const RECORDS_PER_POLL_MIN: usize = 64;
/// Polls in one activation before others get their turn: few, so that what was read is applied and
/// written while it is in the nearest caches.
const POLLS_PER_TURN: usize = 2;

/// Reads a source; the second stream carries malformed input, if somebody takes it.
pub(crate) fn source<'s, S: Source>(
    site: &Site,
    scope: Scope<'s>,
    source: Rc<S>,
    id: &OperatorId,
    part: Part,
    dead_letters: bool,
) -> (Edge<'s, S::Item>, Edge<'s, Malformed>) {
    let mut builder = OperatorBuilder::new(id.as_str().to_owned(), scope);
    let address = builder.operator_info().address;
    let activator = scope.activator_for(address.clone());
    site.control.register(scope.worker().sync_activator_for(address.to_vec()));
    site.pressure.wake(activator.clone());
    let (good, good_stream) = builder.new_output::<Packet<S::Item>>();
    let (bad, bad_stream) = builder.new_output::<Packet<Malformed>>();
    let mut good = OutputBuilder::<u64, Packets<S::Item>>::from(good);
    let mut bad = OutputBuilder::<u64, Packets<Malformed>>::from(bad);
    let mut operator = Reading::new(site, source, id, part, activator, dead_letters);
    let (control, place) = (site.control.clone(), format!("source `{id}`"));
    builder.build(move |capabilities| {
        let mut capabilities = Capabilities::new(capabilities, operator.site.start);
        move |_| {
            if control.is_over() {
                return;
            }
            guarded(&control, &place, || {
                operator.turn(&mut capabilities, &mut good.activate(), &mut bad.activate())
            });
        }
    });
    (good_stream, bad_stream)
}

struct Capabilities {
    good: Capability<u64>,
    bad: Capability<u64>,
}

impl Capabilities {
    fn new(mut both: Vec<Capability<u64>>, start: Epoch) -> Self {
        let bad = both.pop().expect("a source has two outputs");
        let good = both.pop().expect("a source has two outputs");
        let mut capabilities = Capabilities { good, bad };
        capabilities.lower(start);
        capabilities
    }

    fn epoch(&self) -> Epoch {
        Epoch(*self.good.time())
    }

    fn lower(&mut self, to: Epoch) {
        self.good.downgrade(&to.0);
        self.bad.downgrade(&to.0);
    }
}

struct Reading<S: Source> {
    site: Site,
    source: Rc<S>,
    id: OperatorId,
    part: Part,
    activator: Activator,
    position: Position,
    dead_letters: bool,
    open: Vec<OpenSplit<S>>,
    finished: Vec<manifest::Split>,
    splits_version: Option<u64>,
    next: usize,
    skipped: u64,
    mark: Option<EventTime>,
    /// Whether splits have been dealt, and if so, whether for good.
    dealt: Option<bool>,
    ended: bool,
}

struct OpenSplit<S: Source> {
    id: String,
    reader: Box<dyn Reader<S::Item, S::Position>>,
    watermark: SplitWatermark,
    timed: bool,
    idle_until_us: u64,
}

type Good<'a, S> = OutputBuilderSession<'a, u64, Packets<<S as Source>::Item>>;
type Bad<'a> = OutputBuilderSession<'a, u64, Packets<Malformed>>;

impl<S: Source> Reading<S> {
    fn new(
        site: &Site,
        source: Rc<S>,
        id: &OperatorId,
        part: Part,
        activator: Activator,
        dead_letters: bool,
    ) -> Self {
        Reading {
            site: site.clone(),
            source,
            id: id.clone(),
            part,
            activator,
            position: site.pressure.position(),
            dead_letters,
            open: Vec::new(),
            finished: Vec::new(),
            splits_version: None,
            next: 0,
            skipped: 0,
            mark: None,
            dealt: None,
            ended: false,
        }
    }

    fn turn(
        &mut self,
        caps: &mut Capabilities,
        good: &mut Good<'_, S>,
        bad: &mut Bad<'_>,
    ) -> Result<()> {
        if planted(&*self.site.pace, Planted::PositionsLate) {
            self.cut_late(caps, good, bad)?;
        }
        self.cut(caps)?;
        self.take_splits()?;
        self.send_mark(caps, good);
        for _ in 0..POLLS_PER_TURN {
            if self.site.pressure.blocks(self.position) {
                return Ok(());
            }
            match self.poll(caps, good, bad)? {
                Poll::Ready => {}
                Poll::Idle { retry_after } => {
                    self.site.activate_after(&self.activator, retry_after);
                    return Ok(());
                }
                Poll::Finished => {
                    self.end();
                    return Ok(());
                }
            }
        }
        self.activator.activate();
        Ok(())
    }

    /// Takes part in the newest cut that was asked for, if it has not yet.
    fn cut(&mut self, caps: &mut Capabilities) -> Result<()> {
        let epoch = self.site.control.triggered();
        if epoch <= caps.epoch() {
            return Ok(());
        }
        // IMPORTANT: splits that were given before the cut was asked for belong into it, read or not.
        // Left out, they would come back after a restart as new ones, behind the watermark.
        self.take_splits()?;
        self.hand_over_positions(epoch)?;
        caps.lower(epoch);
        Ok(())
    }

    /// The planted bug: what is read between the cut and the noting of positions is lost.
    fn cut_late(
        &mut self,
        caps: &mut Capabilities,
        good: &mut Good<'_, S>,
        bad: &mut Bad<'_>,
    ) -> Result<()> {
        let epoch = self.site.control.triggered();
        if epoch > caps.epoch() {
            caps.lower(epoch);
            self.poll(caps, good, bad)?;
            self.hand_over_positions(epoch)?;
        }
        Ok(())
    }

    fn hand_over_positions(&mut self, epoch: Epoch) -> Result<()> {
        let mut splits = std::mem::take(&mut self.finished);
        for split in &self.open {
            splits.push(split.describe(false)?);
        }
        let snapshot = Snapshot::Source { splits, skipped: self.skipped };
        self.site.control.hand_over(Handover::Part { part: self.part, epoch, snapshot });
        Ok(())
    }

    fn take_splits(&mut self) -> Result<()> {
        let version = self.site.control.splits_version();
        if self.splits_version == Some(version) {
            return Ok(());
        }
        self.splits_version = Some(version);
        self.dealt = self.site.control.dealt(self.part.operator);
        for given in self.site.control.take_splits(self.part) {
            self.open.push(self.open_split(given)?);
        }
        Ok(())
    }

    fn open_split(&self, given: manifest::Split) -> Result<OpenSplit<S>> {
        let split = decode_split(&self.id, &given)?;
        let restored = given.watermark.map(EventTime);
        Ok(OpenSplit {
            id: given.id,
            reader: self.source.open(split)?,
            timed: restored.is_some(),
            watermark: SplitWatermark::new(restored, self.source.out_of_order()),
            idle_until_us: 0,
        })
    }

    /// Polls one of the splits that are not resting: the one furthest behind in event time, so that
    /// little has to be remembered for those behind, or else the next; the answer is about all.
    fn poll(
        &mut self,
        caps: &Capabilities,
        good: &mut Good<'_, S>,
        bad: &mut Bad<'_>,
    ) -> Result<Poll> {
        let now = self.site.control.clock().monotonic_us();
        let resting = |split: &OpenSplit<S>| split.idle_until_us.saturating_sub(now);
        let count = self.open.len();
        let ready = (0..count)
            .map(|step| (self.next + step) % count)
            .filter(|&index| resting(&self.open[index]) == 0)
            .min_by_key(|&index| self.open[index].watermark.mark());
        let Some(index) = ready else {
            let soonest = self.open.iter().map(resting).min();
            return Ok(soonest.map_or(Poll::Finished, |us| Poll::Idle {
                retry_after: Duration::from_micros(us.max(1)),
            }));
        };
        let mut batch = Batch::default();
        let records_max = (BYTES_PER_POLL / size_of::<S::Item>().max(1))
            .clamp(RECORDS_PER_POLL_MIN, RECORDS_PER_POLL_MAX);
        batch.items.reserve_exact(records_max);
        let split = &mut self.open[index];
        let answer = split.reader.poll(&mut batch, records_max)?;
        self.site.control.count_read(batch.items.len() as u64);
        let times = split.times(&*self.source, &batch.items);
        match answer {
            Poll::Ready => self.next = index + 1,
            Poll::Idle { retry_after } => {
                let us = u64::try_from(retry_after.as_micros()).unwrap_or(u64::MAX);
                split.idle_until_us = now.saturating_add(us.max(1));
                self.next = index + 1;
            }
            Poll::Finished => {
                let split = self.open.remove(index);
                self.finished.push(split.describe(true)?);
                self.next = index;
            }
        }
        let records = Records { items: batch.items, times, hashes: Vec::new() };
        send(good, &caps.good, Packet::local(self.site.worker, Body::Records(records)));
        self.handle_malformed(batch.malformed, caps, bad)?;
        self.send_mark(caps, good);
        Ok(Poll::Ready)
    }

    fn handle_malformed(
        &mut self,
        malformed: Vec<Malformed>,
        caps: &Capabilities,
        bad: &mut Bad<'_>,
    ) -> Result<()> {
        let Some(first) = malformed.first() else { return Ok(()) };
        if self.dead_letters {
            self.site.control.count_dead_letters(malformed.len() as u64);
            let records = Records { items: malformed, ..Records::default() };
            send(bad, &caps.bad, Packet::local(self.site.worker, Body::Records(records)));
            return Ok(());
        }
        match self.source.on_malformed() {
            OnMalformed::Skip => self.skipped += malformed.len() as u64,
            OnMalformed::Fail => {
                return Err(Error::invalid(format!(
                    "source `{}`: {}: {}; {}; correct the input, or skip what is malformed \
                     (`OnMalformed::Skip`), or hand it to a sink (`source_with_dead_letters`)",
                    self.id,
                    first.place,
                    first.reason,
                    first.beginning()
                )));
            }
        }
        Ok(())
    }

    /// Passes the least promise of all open splits on, if it has changed. Without any split this
    /// instance is idle, or has ended if none will come. Before the first deal there is no promise:
    /// the splits of this instance may be on their way.
    fn send_mark(&mut self, caps: &Capabilities, good: &mut Good<'_, S>) {
        if self.dealt.is_none() || self.open.iter().any(|split| !split.timed) {
            return;
        }
        let least = self.open.iter().map(|split| split.watermark.mark()).min();
        let none = if self.dealt == Some(true) { EventTime::MAX } else { IDLE };
        let mark = least.unwrap_or(none);
        if self.mark != Some(mark) {
            self.mark = Some(mark);
            send(good, &caps.good, Packet::local(self.site.worker, Body::Mark(mark)));
        }
    }

    fn end(&mut self) {
        if self.dealt == Some(true) && !self.ended {
            self.ended = true;
            self.site.control.hand_over(Handover::Ended { part: self.part });
        }
    }
}

impl<S: Source> OpenSplit<S> {
    fn times(&mut self, source: &S, items: &[S::Item]) -> Vec<EventTime> {
        let Some(first) = items.first().and_then(|item| source.event_time(item)) else {
            return Vec::new();
        };
        let times: Vec<EventTime> =
            items.iter().map(|item| source.event_time(item).unwrap_or(first)).collect();
        self.timed = true;
        self.watermark.saw(times.iter().copied().max().unwrap_or(first));
        times
    }

    fn describe(&self, finished: bool) -> Result<manifest::Split> {
        let position = serde_json::to_value(self.reader.position()).map_err(|error| {
            Error::internal(format!("the position of split `{}` does not encode", self.id))
                .with_source(error)
        })?;
        let watermark = self.timed.then(|| self.watermark.mark().0);
        Ok(manifest::Split { id: self.id.clone(), position, watermark, finished })
    }
}
