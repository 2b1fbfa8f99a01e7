//! A lane's thread: publishes when told, and keeps a producer ready in between.

use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{RecvTimeoutError, Sender};
use isochrone_engine::{Error, Result};

use super::effect::KafkaEffect;
use super::publisher::Publisher;

/// How often a lane without work listens to its producer.
const LISTEN_EVERY: Duration = Duration::from_millis(10);
const AFTER_FAILURE: Duration = Duration::from_secs(1);
/// How long publishing goes on trying while nothing works: a broker may start again meanwhile.
const PATIENCE: Duration = Duration::from_secs(120);

pub(super) struct Lane {
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<()>>,
}

struct Order {
    parts: Vec<KafkaEffect>,
    done: Sender<Result<()>>,
}

impl Lane {
    pub(super) fn start(mut publisher: Publisher) -> Result<Lane> {
        let (orders, inbox) = crossbeam_channel::unbounded::<Order>();
        let work = move || {
            let mut wait = LISTEN_EVERY;
            loop {
                match inbox.recv_timeout(wait) {
                    Ok(Order { parts, done }) => {
                        // Who gave the order waits.
                        let _ = done.send(publisher.publish(&parts, PATIENCE));
                    }
                    Err(RecvTimeoutError::Timeout) => {
                        wait = if publisher.idle() { LISTEN_EVERY } else { AFTER_FAILURE };
                    }
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        };
        let thread = std::thread::Builder::new().name("isochrone-lane".to_owned()).spawn(work);
        let thread = thread.map_err(|error| {
            Error::unavailable("a thread to publish output could not be started").with_source(error)
        })?;
        Ok(Lane { orders: Some(orders), thread: Some(thread) })
    }

    /// Publishes these parts, sorted by epoch and worker, and waits until they are.
    pub(super) fn publish(&self, parts: Vec<KafkaEffect>) -> Result<()> {
        let gone = || Error::internal("the thread that publishes a Kafka sink's output is gone");
        let (done, answered) = crossbeam_channel::bounded(1);
        let orders = self.orders.as_ref().ok_or_else(gone)?;
        orders.send(Order { parts, done }).map_err(|_| gone())?;
        answered.recv().map_err(|_| gone())?
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            // A panic of it has been seen as an answer that never came.
            let _ = thread.join();
        }
    }
}
