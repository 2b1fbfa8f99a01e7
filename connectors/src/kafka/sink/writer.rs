//! The writer: records become pieces of the write-ahead.
//!
//! A piece that is full is made durable at once, on a thread of the writer's own, and let go of, so
//! that an epoch's output need not fit into memory; the last piece of an epoch, which is the only one
//! where epochs are short, stays in memory until it is published.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TrySendError};
use isochrone_engine::connector::{Kept, Prepare, Readiness, SinkContext, Writer};
use isochrone_engine::ids::Epoch;
use isochrone_engine::{Error, Result};

use super::effect::{Chunk, KafkaEffect, Mark};
use super::encode::Encoder;
use super::record::MAGIC;
use crate::crash_point;

/// A piece is full from here on.
const BYTES_MAX: usize = 4 << 20;
const RECORDS_MAX: u64 = 25_000;
/// Full pieces that wait for the keeper.
const WAITING_MAX: usize = 2;
const AFTER_FAILURE: Duration = Duration::from_millis(500);

pub(super) struct PartWriter<T> {
    encoder: Encoder<T>,
    context: SinkContext,
    bytes: Vec<u8>,
    records: u64,
    pieces: Vec<Piece>,
    keeper: Keeper,
    /// What the keeper had no room for.
    stuck: Option<Job>,
    /// The end of what was prepared last.
    last: Option<Mark>,
}

/// A piece of the epoch that is being written.
enum Piece {
    Here {
        bytes: Arc<Vec<u8>>,
        records: u64,
    },
    /// On its way.
    There {
        answer: Receiver<Answer>,
        records: u64,
    },
    Durable(Chunk),
}

/// The bytes come back if they could not be kept.
type Answer = Result<Kept, (Error, Arc<Vec<u8>>)>;

struct Job {
    epoch: Epoch,
    bytes: Arc<Vec<u8>>,
    answer: Sender<Answer>,
}

/// Makes full pieces durable, on a thread that ends with the writer.
struct Keeper(Sender<Job>);

impl Keeper {
    fn start(context: SinkContext) -> Result<Keeper> {
        let (jobs, inbox) = crossbeam_channel::bounded::<Job>(WAITING_MAX);
        let work = move || {
            for Job { epoch, bytes, answer } in inbox {
                let kept = keep(&context, epoch, bytes.clone()).inspect(|kept| {
                    context.run.write_ahead.release(kept);
                });
                let has_failed = kept.is_err();
                // A writer that is gone wants no answer.
                let _ = answer.send(kept.map_err(|error| (error, bytes)));
                if has_failed {
                    // The writer is held back meanwhile: what it writes stays in memory.
                    std::thread::park_timeout(AFTER_FAILURE);
                }
            }
        };
        let thread = std::thread::Builder::new().name("isochrone-keeper".to_owned()).spawn(work);
        thread.map(|_| Keeper(jobs)).map_err(|error| {
            Error::unavailable("a thread for the write-ahead could not be started")
                .with_source(error)
        })
    }
}

fn keep(context: &SinkContext, epoch: Epoch, bytes: Arc<Vec<u8>>) -> Result<Kept> {
    context.run.write_ahead.keep(epoch, &context.operator, context.worker, bytes)
}

impl<T> PartWriter<T> {
    pub(super) fn new(encoder: Encoder<T>, context: &SinkContext) -> Result<Self> {
        Ok(PartWriter {
            encoder,
            context: context.clone(),
            bytes: Vec::new(),
            records: 0,
            pieces: Vec::new(),
            keeper: Keeper::start(context.clone())?,
            stuck: None,
            last: None,
        })
    }

    fn cut_piece(&mut self, epoch: Epoch) {
        let capacity = self.bytes.capacity().min(BYTES_MAX);
        let bytes = Arc::new(std::mem::replace(&mut self.bytes, Vec::with_capacity(capacity)));
        let records = std::mem::take(&mut self.records);
        let (answer, received) = crossbeam_channel::bounded(1);
        self.pieces.push(Piece::There { answer: received, records });
        self.stuck = Some(Job { epoch, bytes, answer });
    }

    /// Hands over what is stuck, if there is room.
    fn unstick(&mut self) -> Result<Readiness> {
        let Some(job) = self.stuck.take() else { return Ok(Readiness::Ready) };
        match self.keeper.0.try_send(job) {
            Ok(()) => Ok(Readiness::Ready),
            Err(TrySendError::Full(job)) => {
                self.stuck = Some(job);
                Ok(Readiness::Full)
            }
            Err(TrySendError::Disconnected(_)) => {
                Err(Error::internal("the thread of a Kafka sink's write-ahead is gone"))
            }
        }
    }

    /// The piece that the keeper had no room for goes the way of the last one.
    fn take_back_stuck(&mut self) {
        if let (Some(job), Some(piece)) = (self.stuck.take(), self.pieces.last_mut()) {
            let Piece::There { records, .. } = *piece else { return };
            *piece = Piece::Here { bytes: job.bytes, records };
        }
    }
}

impl<T: 'static> Writer<T, KafkaEffect> for PartWriter<T> {
    fn write(&mut self, batch: &mut Vec<T>, epoch: Epoch) -> Result<Readiness> {
        for item in batch.drain(..) {
            if self.bytes.is_empty() {
                self.bytes.extend(MAGIC);
            }
            self.encoder.encode(&item, &mut self.bytes)?;
            self.records += 1;
            if self.bytes.len() >= BYTES_MAX || self.records >= RECORDS_MAX {
                // The engine may hand in more than fits: then it waits here in memory.
                if self.unstick()? == Readiness::Full {
                    continue;
                }
                self.cut_piece(epoch);
                self.unstick()?;
            }
        }
        self.readiness()
    }

    fn readiness(&mut self) -> Result<Readiness> {
        self.unstick()
    }

    fn prepare(&mut self, epoch: Epoch) -> Result<Prepare<KafkaEffect>> {
        self.take_back_stuck();
        let mut pieces = std::mem::take(&mut self.pieces);
        if self.records > 0 {
            let bytes = Arc::new(std::mem::take(&mut self.bytes));
            pieces.push(Piece::Here { bytes, records: std::mem::take(&mut self.records) });
        }
        let (context, topic) = (self.context.clone(), self.encoder.topic.clone());
        let mut effect = KafkaEffect {
            topic,
            lane: context.run.process,
            generation: context.generation.0,
            run: context.run.run.clone(),
            epoch: epoch.0,
            worker: context.worker.0,
            chunks: Vec::new(),
            after: self.last,
        };
        if !pieces.is_empty() {
            self.last = Some(effect.mark(pieces.len()));
        }
        Ok(Box::new(move || {
            for piece in &mut pieces {
                make_durable(piece, epoch, &context)?;
            }
            crash_point("kafka-kept");
            let chunks = pieces.iter().filter_map(|piece| match piece {
                Piece::Durable(chunk) => Some(chunk.clone()),
                _ => None,
            });
            effect.chunks = chunks.collect();
            Ok(Some(effect.clone()).filter(|effect| !effect.chunks.is_empty()))
        }))
    }
}

/// May be called again after it failed.
fn make_durable(piece: &mut Piece, epoch: Epoch, context: &SinkContext) -> Result<()> {
    if let Piece::There { answer, records } = piece {
        let records = *records;
        let gone = || Error::internal("the thread of a Kafka sink's write-ahead is gone");
        *piece = match answer.recv().map_err(|_| gone())? {
            Ok(kept) => Piece::Durable(Chunk { kept, records }),
            Err((error, bytes)) => {
                tracing::debug!(%error, "output will be kept with the last of its epoch");
                Piece::Here { bytes, records }
            }
        };
    }
    if let Piece::Here { bytes, records } = piece {
        let kept = keep(context, epoch, bytes.clone())?;
        *piece = Piece::Durable(Chunk { kept, records: *records });
    }
    Ok(())
}
