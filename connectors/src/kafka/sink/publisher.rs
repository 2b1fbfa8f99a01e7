//! Publishing what a lane owes: in order, each piece in one transaction with the mark of how far it
//! goes.
//!
//! The rules (see the module for why):
//! - what became of a transaction is never taken from an answer or an error: after any doubt a new
//!   producer opens, which decides it, and the mark is read;
//! - after every opening, and before anything is sent, it is asked whether another run has taken
//!   over: the opening has fenced whoever had the lane, and only the newest run may do that;
//! - the mark is sent when everything else of its transaction has been acknowledged.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use isochrone_engine::connector::RunContext;
use isochrone_engine::ids::random_id;
use isochrone_engine::{Error, ErrorKind, Result};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use super::super::trouble::{code_of, is_hopeless};
use super::decide;
use super::effect::{KafkaEffect, Mark};
use super::producer::{Deadline, Producer, Reuse, Single, Unsent};
use super::progress::{Entry, Progress, Seen};
use super::record::Headers;
use super::view::{Marker, View};
use crate::crash_point;

/// A transaction takes no more than this, unless one piece alone does.
const RECORDS_MAX: u64 = 100_000;
const BYTES_MAX: u64 = 16 << 20;
const PAUSE: Duration = Duration::from_millis(100);
/// How long to wait for the proof that a producer may be used again: a new one takes less.
const PROOF_WITHIN: Duration = Duration::from_secs(1);

/// What publishes one lane.
pub(super) struct Publisher {
    pub(super) progress: Progress,
    pub(super) lane: u32,
    /// The transactional id.
    pub(super) id: String,
    pub(super) run: Arc<RunContext>,
    pub(super) producer: Option<Producer>,
    /// How far the lane had published when that was last known for sure.
    pub(super) known: Option<Mark>,
    /// In bytes, where a batch of the client's own size was too large for a topic.
    pub(super) batch_max: Option<usize>,
}

/// Why an attempt came to nothing.
enum Trouble {
    /// Something at the broker's, or at the store's: what became of the transaction has to be found out.
    There(Error),
    /// The broker refuses a record or a batch of them for its size.
    TooLarge(Error),
    /// It makes no sense to try again.
    Final(Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        match error.kind() {
            ErrorKind::Unavailable => Trouble::There(error),
            _ => Trouble::Final(error),
        }
    }
}

/// Pieces of parts that are published together.
struct Group {
    pieces: Vec<(usize, Range<usize>)>,
    /// Where the next one begins.
    next: (usize, usize),
}

impl Publisher {
    /// Publishes everything of these parts that is not yet. They are sorted by epoch and worker, and
    /// come after everything that the lane has published.
    ///
    /// Fails with `Fenced` if another run has taken over, `Unavailable` when nothing has worked for
    /// so long, `Invalid` if the broker refuses.
    pub(super) fn publish(&mut self, parts: &[KafkaEffect], patience: Duration) -> Result<()> {
        self.publish_after(parts, None, patience)
    }

    /// The same, where the lane has published up to a place, as was found out since it was fenced.
    pub(super) fn publish_after(
        &mut self,
        parts: &[KafkaEffect],
        published: Option<Mark>,
        patience: Duration,
    ) -> Result<()> {
        let mut deadline = Deadline::after(patience);
        let mut next = first_open(parts, published);
        while let Some(group) = group(parts, next) {
            match self.attempt(parts, &group, &deadline) {
                Ok(()) => {
                    next = group.next;
                    deadline.extend();
                }
                Err(Trouble::Final(error)) => return Err(error),
                Err(Trouble::TooLarge(error)) => {
                    if !self.batches_can_be_smaller(parts) {
                        return Err(error);
                    }
                    next = self.resume(parts, &deadline, error)?;
                }
                Err(Trouble::There(error)) => {
                    let lane = self.lane;
                    tracing::warn!(lane, "publishing again: {}", error.report());
                    next = self.resume(parts, &deadline, error)?;
                }
            }
        }
        Ok(())
    }

    /// Whether another attempt, with batches no larger than the topics take, may go better: a batch may
    /// be too large though each of its records was found to fit.
    fn batches_can_be_smaller(&mut self, parts: &[KafkaEffect]) -> bool {
        let can = self.batch_max.is_none();
        if can {
            let topics: BTreeSet<&str> = parts.iter().map(|part| part.topic.as_str()).collect();
            let limit = |topic| super::record_max(&self.progress.kafka, topic).unwrap_or(1);
            self.batch_max = topics.into_iter().map(limit).min();
            tracing::debug!(lane = self.lane, batch_max = ?self.batch_max, "smaller batches");
        }
        can
    }

    /// Opens a new producer, which decides what became of the last transaction, and finds out.
    fn resume(
        &mut self,
        parts: &[KafkaEffect],
        deadline: &Deadline,
        mut trouble: Error,
    ) -> Result<(usize, usize)> {
        loop {
            self.producer = None;
            if deadline.has_passed() {
                let lane = self.lane;
                let what = format!("lane {lane} of {} does not get on", self.progress.sink);
                return Err(Error::unavailable(what).with_source(trouble));
            }
            match self.find_published(parts, deadline) {
                Ok(published) => return Ok(first_open(parts, published)),
                Err(error) if error.kind() == ErrorKind::Unavailable => {
                    tracing::warn!(lane = self.lane, "trying again: {}", error.report());
                    trouble = error;
                    std::thread::park_timeout(PAUSE);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// How far this run's lane has published. Refuses (`Invalid`) what neither this run can have
    /// written nor one before it, and marks that are gone.
    fn find_published(
        &mut self,
        parts: &[KafkaEffect],
        deadline: &Deadline,
    ) -> Result<Option<Mark>> {
        let (view, _) = self.read(deadline, Seen::Committed)?;
        let marker = view.markers.get(&self.lane);
        decide::check_lane(
            &self.progress.owner(),
            &self.progress.topic,
            &decide::Lane { own: &self.run.origin, parts, known: self.known, marker },
        )?;
        self.known = marker.map(|marker| marker.mark);
        Ok(self.known)
    }

    /// Writes an entry of this lane in a transaction of its own, again where it is not known whether
    /// it was committed: entries may be there twice.
    pub(super) fn tell(&mut self, entry: &Entry, deadline: &Deadline) -> Result<()> {
        self.tell_all(&[(self.lane, entry.clone())], deadline)
    }

    /// The same for entries of several lanes, of which nobody may publish meanwhile: all are told, or
    /// none.
    pub(super) fn tell_all(&mut self, entries: &[(u32, Entry)], deadline: &Deadline) -> Result<()> {
        loop {
            let attempted = self.begin(deadline).and_then(|()| {
                for (lane, entry) in entries {
                    self.mark(*lane, entry, deadline)?;
                }
                self.commit(deadline)
            });
            let Err(trouble) = attempted else { return Ok(()) };
            self.producer = None;
            let error = match trouble {
                Trouble::There(error) => error,
                Trouble::TooLarge(error) | Trouble::Final(error) => return Err(error),
            };
            // Whoever was fenced learns it from the store: what the client meets says less.
            self.run.fence.check()?;
            if deadline.has_passed() {
                return Err(error);
            }
            tracing::warn!(lane = self.lane, "trying again: {}", error.report());
            std::thread::park_timeout(PAUSE);
        }
    }

    /// Writes an entry to be met, and reads everything before it.
    pub(super) fn read(&mut self, deadline: &Deadline, seen: Seen) -> Result<(View, String)> {
        let nonce = random_id()?;
        self.tell(&Entry::Read { nonce: nonce.clone() }, deadline)?;
        Ok((self.progress.read_to(&nonce, seen)?, nonce))
    }

    /// Opens a producer unless one is open that may be used, and only if this run is the newest.
    pub(super) fn ready(&mut self, deadline: &Deadline) -> Result<()> {
        let proof = Deadline::after(PROOF_WITHIN);
        while let Some(producer) = &self.producer {
            producer.listen();
            match producer.reuse() {
                Reuse::Proven => return Ok(()),
                Reuse::NotYet if !proof.has_passed() => {
                    std::thread::park_timeout(Duration::from_millis(2));
                }
                Reuse::NotYet | Reuse::Never => self.producer = None,
            }
        }
        // A run that knows that it was overtaken does not take the lane away even for a moment.
        self.run.fence.check()?;
        let producer =
            Producer::open(&self.progress.kafka, Some(&self.id), self.batch_max, deadline)?;
        crash_point("kafka-opened");
        // IMPORTANT: opening has fenced whoever had the lane. If that was a newer run, it has claimed
        // the job before, and this one must not send anything.
        self.run.fence.check()?;
        self.producer = Some(producer);
        Ok(())
    }

    /// Work for idle moments: listens, and gets a producer ready for the next transaction. Answers
    /// whether that is done.
    pub(super) fn idle(&mut self) -> bool {
        let reuse = self.producer.as_ref().map(|producer| {
            producer.listen();
            producer.reuse()
        });
        if matches!(reuse, None | Some(Reuse::Never)) {
            // What fails here fails again when it matters, and is told then.
            if let Err(error) = self.ready(&Deadline::after(PAUSE)) {
                tracing::debug!(lane = self.lane, "no producer yet: {}", error.report());
                return false;
            }
        }
        true
    }

    fn attempt(
        &mut self,
        parts: &[KafkaEffect],
        group: &Group,
        deadline: &Deadline,
    ) -> Result<(), Trouble> {
        self.begin(deadline)?;
        crash_point("kafka-begun");
        let mut last = None;
        for (at, chunks) in &group.pieces {
            self.send(&parts[*at], chunks.clone(), deadline)?;
            last = Some((&parts[*at], chunks.end));
            crash_point("kafka-sent");
        }
        let Some((part, chunks)) = last else { return Ok(()) };
        self.on_producer("publish", |producer| producer.flush(deadline))?;
        crash_point("kafka-flushed");
        let marker = Marker {
            origin: self.run.origin.clone(),
            generation: part.generation,
            run: part.run.clone(),
            mark: part.mark(chunks),
        };
        self.mark(self.lane, &Entry::Published(marker), deadline)?;
        crash_point("kafka-marked");
        self.commit(deadline)?;
        self.known = Some(part.mark(chunks));
        crash_point("kafka-committed");
        Ok(())
    }

    fn begin(&mut self, deadline: &Deadline) -> Result<(), Trouble> {
        self.ready(deadline)?;
        self.on_producer("begin a transaction", |producer| producer.begin())
    }

    fn mark(&mut self, lane: u32, entry: &Entry, deadline: &Deadline) -> Result<(), Trouble> {
        let (key, value) = self.progress.encode(lane, entry);
        let topic = self.progress.topic.clone();
        self.on_producer("write the progress", |producer| {
            let record = Single {
                topic: &topic,
                partition: 0,
                key: Some(key.as_bytes()),
                value: Some(&value),
                time_ms: None,
                headers: Headers(&[]),
            };
            producer.send(&record, deadline)?;
            producer.flush(deadline)
        })
    }

    fn commit(&mut self, deadline: &Deadline) -> Result<(), Trouble> {
        self.on_producer("commit a transaction", |producer| producer.commit(deadline))
    }

    fn send(
        &mut self,
        part: &KafkaEffect,
        chunks: Range<usize>,
        deadline: &Deadline,
    ) -> Result<(), Trouble> {
        for chunk in &part.chunks[chunks] {
            let bytes = self.run.write_ahead.read(&chunk.kept)?;
            let producer = self.producer.as_mut().expect("a producer is ready before it is used");
            match producer.send_piece(&part.topic, &bytes, deadline) {
                Ok(()) => {}
                Err(Unsent::Piece(error)) => {
                    let what = format!("`{}` in the write-ahead is ruined", chunk.kept.name);
                    return Err(Trouble::Final(Error::corrupt(what).with_source(error)));
                }
                Err(Unsent::Client(error)) => {
                    let doing = format!("write to topic `{}`", part.topic);
                    return Err(trouble(producer, &doing, &error));
                }
            }
        }
        Ok(())
    }

    fn on_producer(
        &mut self,
        doing: &str,
        work: impl FnOnce(&mut Producer) -> Result<(), KafkaError>,
    ) -> Result<(), Trouble> {
        let producer = self.producer.as_mut().expect("a producer is ready before it is used");
        work(producer).map_err(|error| trouble(producer, doing, &error))
    }
}

fn trouble(producer: &Producer, doing: &str, error: &KafkaError) -> Trouble {
    let mut explained = producer.explain(doing, error);
    if code_of(error) == Some(RDKafkaErrorCode::UnknownPartition) {
        explained = Error::unavailable(format!(
            "cannot {doing}: the topic has fewer partitions than when this output was written; add \
             the missing ones"
        ))
        .with_source(explained);
    }
    match code_of(error) {
        Some(RDKafkaErrorCode::MessageSizeTooLarge) => Trouble::TooLarge(explained),
        Some(code) if is_final(code) => Trouble::Final(explained),
        _ => Trouble::There(explained),
    }
}

/// Whether another attempt would end in the same way. A topic may be missing for a moment while
/// brokers start, and who is fenced may be so by its own time-out.
fn is_final(code: RDKafkaErrorCode) -> bool {
    let passing = matches!(
        code,
        RDKafkaErrorCode::UnknownTopicOrPartition
            | RDKafkaErrorCode::UnknownTopic
            | RDKafkaErrorCode::UnknownPartition
            | RDKafkaErrorCode::InvalidTransactionalState
    );
    is_hopeless(code) && !passing
}

/// The first piece that is not published: its part, and its place there.
fn first_open(parts: &[KafkaEffect], published: Option<Mark>) -> (usize, usize) {
    let is_open = |part: &KafkaEffect| part.done(published) < part.chunks.len();
    let at = parts.iter().position(is_open).unwrap_or(parts.len());
    (at, parts.get(at).map_or(0, |part| part.done(published)))
}

/// The pieces from `next` on that go into one transaction; `None` if there are none left.
fn group(parts: &[KafkaEffect], (mut at, mut chunk): (usize, usize)) -> Option<Group> {
    let (mut records, mut bytes) = (0, 0);
    let mut pieces: Vec<(usize, Range<usize>)> = Vec::new();
    'parts: while let Some(part) = parts.get(at) {
        while let Some(next) = part.chunks.get(chunk) {
            (records, bytes) = (records + next.records, bytes + next.kept.bytes);
            if !pieces.is_empty() && (records > RECORDS_MAX || bytes > BYTES_MAX) {
                break 'parts;
            }
            match pieces.last_mut() {
                Some((last, chunks)) if *last == at => chunks.end = chunk + 1,
                _ => pieces.push((at, chunk..chunk + 1)),
            }
            chunk += 1;
        }
        (at, chunk) = (at + 1, 0);
    }
    (!pieces.is_empty()).then_some(Group { pieces, next: (at, chunk) })
}

#[cfg(test)]
mod tests {
    use super::super::effect::tests::effect;
    use super::*;

    #[test]
    fn a_transaction_takes_what_fits_and_at_least_one_piece() {
        let mut large = effect(2, 0, 3);
        large.chunks.iter_mut().for_each(|chunk| chunk.records = 60_000);
        let parts = [effect(1, 0, 2), effect(1, 1, 1), large];
        let mut next = (0, 0);
        let mut taken = Vec::new();
        while let Some(group) = group(&parts, next) {
            next = group.next;
            taken.push(group.pieces);
        }
        assert_eq!(
            taken,
            [vec![(0, 0..2), (1, 0..1), (2, 0..1)], vec![(2, 1..2)], vec![(2, 2..3)],]
        );
        assert!(group(&[], (0, 0)).is_none());
    }
}
