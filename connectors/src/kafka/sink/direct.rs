//! At least once: records go to the topic as they are written, and an epoch ends when the brokers
//! have acknowledged all of it. What was sent after the checkpoint that a run goes on from is there
//! twice after a restart.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use isochrone_engine::connector::{Committer, Prepare, Readiness, Recovery, Writer};
use isochrone_engine::ids::Epoch;
use isochrone_engine::{Error, Result};

use super::super::cluster::Kafka;
use super::effect::KafkaEffect;
use super::encode::Encoder;
use super::producer::{Deadline, Producer, Unsent};
use super::record::MAGIC;

/// Values that may be held for records in flight, in bytes.
const HELD_MAX: usize = 32 << 20;
/// What waits to be sent when the writer is full.
const WAITING_MAX: usize = 4;
/// How long sending goes on while no broker answers.
const PATIENCE: Duration = Duration::from_secs(120);
const LISTEN_EVERY: Duration = Duration::from_millis(100);

pub(super) struct DirectWriter<T> {
    encoder: Encoder<T>,
    bytes: Vec<u8>,
    /// Without a bound of its own: when the sender has ended, orders that wait are dropped with it,
    /// and whoever waits for an answer to one hears of it.
    orders: Sender<Order>,
    failed: Receiver<Error>,
}

enum Order {
    Send(Arc<Vec<u8>>),
    /// Answer when everything before has been acknowledged.
    Flush(Sender<Result<()>>),
}

impl<T> DirectWriter<T> {
    pub(super) fn new(encoder: Encoder<T>, kafka: &Kafka) -> Result<Self> {
        let producer =
            Producer::open(kafka, None, Some(encoder.record_max), &Deadline::after(PATIENCE))?;
        let (orders, inbox) = crossbeam_channel::unbounded();
        let (failing, failed) = crossbeam_channel::bounded(1);
        let topic = encoder.topic.clone();
        let work = move || send(producer, &topic, &inbox, &failing);
        let thread = std::thread::Builder::new().name("isochrone-sender".to_owned()).spawn(work);
        thread.map_err(|error| {
            Error::unavailable("a thread to send output could not be started").with_source(error)
        })?;
        Ok(DirectWriter { encoder, bytes: Vec::new(), orders, failed })
    }

    /// Hands over everything written so far. Never waits, so that orders keep the order of records.
    fn hand_over(&mut self) -> Result<()> {
        let bytes = std::mem::take(&mut self.bytes);
        if bytes.is_empty() {
            return Ok(());
        }
        self.orders.send(Order::Send(Arc::new(bytes))).map_err(|_| gone())
    }
}

impl<T: 'static> Writer<T, KafkaEffect> for DirectWriter<T> {
    fn write(&mut self, batch: &mut Vec<T>, _epoch: Epoch) -> Result<Readiness> {
        for item in batch.drain(..) {
            if self.bytes.is_empty() {
                self.bytes.extend(MAGIC);
            }
            self.encoder.encode(&item, &mut self.bytes)?;
        }
        self.readiness()
    }

    fn readiness(&mut self) -> Result<Readiness> {
        if let Ok(error) = self.failed.try_recv() {
            return Err(error);
        }
        if self.orders.len() >= WAITING_MAX {
            return Ok(Readiness::Full);
        }
        self.hand_over()?;
        Ok(Readiness::Ready)
    }

    fn prepare(&mut self, _epoch: Epoch) -> Result<Prepare<KafkaEffect>> {
        // IMPORTANT: all of the epoch is in line before anything of the next one is.
        self.hand_over()?;
        let (answer, answered) = crossbeam_channel::bounded(1);
        self.orders.send(Order::Flush(answer)).map_err(|_| gone())?;
        // Asked again after it failed, there is nobody left to answer.
        Ok(Box::new(move || answered.recv().map_err(|_| gone())?.map(|()| None)))
    }
}

fn gone() -> Error {
    Error::unavailable("the thread that sends a Kafka sink's output has ended after an error")
}

/// Sends until the writer is gone, or something has failed: then nothing may be acknowledged any
/// more.
fn send(mut producer: Producer, topic: &str, inbox: &Receiver<Order>, failing: &Sender<Error>) {
    loop {
        let order = match inbox.recv_timeout(LISTEN_EVERY) {
            Ok(order) => order,
            Err(RecvTimeoutError::Timeout) => {
                producer.listen();
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let deadline = Deadline::after(PATIENCE);
        let (done, answer) = match order {
            Order::Send(bytes) => {
                let mut sent = producer.send_piece(topic, &bytes, &deadline);
                if sent.is_ok() && producer.held_bytes() > HELD_MAX {
                    sent = producer.flush(&deadline).map_err(Unsent::Client);
                }
                (sent, None)
            }
            Order::Flush(answer) => {
                (producer.flush(&deadline).map_err(Unsent::Client), Some(answer))
            }
        };
        let doing = format!("write to topic `{topic}`");
        let done = done.map_err(|unsent| match unsent {
            Unsent::Piece(error) => error,
            Unsent::Client(error) => producer.explain(&doing, &error),
        });
        let has_failed = done.is_err();
        match (answer, done) {
            // Who asked may have gone.
            (Some(answer), done) => drop(answer.send(done)),
            (None, Err(error)) => drop(failing.try_send(error)),
            (None, Ok(())) => {}
        }
        if has_failed {
            return;
        }
    }
}

/// Has nothing to do: what is acknowledged is visible.
pub(super) struct NothingOwed;

impl Committer<KafkaEffect> for NothingOwed {
    fn recover(&mut self, recovery: Recovery<KafkaEffect>) -> Result<Vec<String>> {
        if recovery.pending.is_empty() {
            return Ok(Vec::new());
        }
        Err(Error::invalid(
            "the checkpoint names output that an exactly-once Kafka sink has still to publish: run \
             the job once more with that sink, or settle it (`Job::commit_pending`), before it \
             becomes an at-least-once one",
        ))
    }

    fn commit(&mut self, _effects: &[KafkaEffect]) -> Result<()> {
        Ok(())
    }
}
