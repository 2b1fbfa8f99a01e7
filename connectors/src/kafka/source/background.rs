//! What waits for answers, away from the worker's thread.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread;
use std::time::Duration;

use isochrone_engine::{Error, Result};

/// How long an end waits for clients to be closed.
pub(super) const CLOSING: Duration = Duration::from_millis(500);

/// One question, asked on a thread of its own.
pub(super) struct Inquiry<T>(Receiver<Result<T>>);

impl<T: Send + 'static> Inquiry<T> {
    pub(super) fn start(ask: impl FnOnce() -> Result<T> + Send + 'static) -> Result<Inquiry<T>> {
        let (sender, receiver) = channel();
        background(move || {
            // Whoever asked may have gone.
            let _ = sender.send(ask());
        })?;
        Ok(Inquiry(receiver))
    }

    /// The answer, once it is there.
    pub(super) fn answer(&self) -> Option<Result<T>> {
        match self.0.try_recv() {
            Ok(answer) => Some(answer),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                Some(Err(Error::internal("a question to Kafka was not asked to its end")))
            }
        }
    }
}

/// Does something at once and then every so often on a thread of its own, until this is dropped.
pub(super) struct Ticker {
    /// There until dropped.
    stop: Option<Sender<()>>,
    /// Disconnected once the thread has given up all it had.
    done: Receiver<()>,
}

impl Ticker {
    pub(super) fn start(
        every: Duration,
        mut tick: impl FnMut() + Send + 'static,
    ) -> Result<Ticker> {
        let (stop, stopped) = channel();
        let (doing, done) = channel();
        background(move || {
            loop {
                tick();
                match stopped.recv_timeout(every) {
                    Err(RecvTimeoutError::Timeout) => {}
                    Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
                }
            }
            drop(tick);
            drop::<Sender<()>>(doing);
        })?;
        Ok(Ticker { stop: Some(stop), done })
    }
}

impl Drop for Ticker {
    /// Waits a little, so that a process that ends has closed its clients. One whose broker does not
    /// answer is not waited for.
    fn drop(&mut self) {
        self.stop = None;
        let _ = self.done.recv_timeout(CLOSING);
    }
}

/// Does something that may take long, on a thread of its own.
pub(super) fn background(run: impl FnOnce() + Send + 'static) -> Result<()> {
    let spawned = thread::Builder::new().name("kafka-source".to_owned()).spawn(run);
    spawned.map(drop).map_err(|error| {
        Error::unavailable("a thread that asks Kafka could not be started").with_source(error)
    })
}
