//! Whether the topic that is being read is still the one it was. librdkafka does not tell: it reads
//! on from the same offsets of another topic.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use isochrone_engine::time::{Clock, SystemClock};
use isochrone_engine::{Error, ErrorKind, Result};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;

use super::background::Ticker;
use super::consumer::MISSING;
use super::settings::Settings;
use crate::kafka::batch::{self, Described};
use crate::kafka::client::Context;
use crate::kafka::topics::is_missing;
use crate::kafka::trouble::explain;

/// How long the first look may fail.
const FIRST_LOOK_MS: u64 = 20_000;
/// How long the readers of a worker may take to go, all in all.
const CLOSING_PAUSES_MAX: u32 = 1000;
const CLOSING_PAUSE: Duration = Duration::from_millis(10);
const REQUEST: Duration = Duration::from_secs(5);

/// What is known of the topic, looked at again and again in the background.
pub(super) struct Identity {
    seen: Arc<Seen>,
    _ticker: Ticker,
}

#[derive(Default)]
struct Seen {
    /// Rises with every change.
    version: AtomicU64,
    last: Mutex<Option<Result<Described, (ErrorKind, String)>>>,
}

impl Identity {
    pub(super) fn watch(
        settings: &Settings,
        consumer: &Arc<BaseConsumer<Context>>,
    ) -> Result<Identity> {
        let seen = Arc::new(Seen::default());
        let mut look = Look {
            seen: Arc::clone(&seen),
            consumer: Arc::clone(consumer),
            topic: settings.topic.clone(),
            clock: SystemClock::default(),
            last_seen_ms: None,
            missing_since_ms: None,
        };
        let _ticker = Ticker::start(settings.look_every, move || look.again())?;
        Ok(Identity { seen, _ticker })
    }

    /// Rises when [`Identity::topic`] changes.
    #[inline]
    pub(super) fn version(&self) -> u64 {
        self.seen.version.load(Ordering::Acquire)
    }

    /// The topic as it was last seen, if it was; an error if it is gone, or was never found.
    pub(super) fn topic(&self) -> Result<Option<Described>> {
        let last = self.seen.last.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            None => Ok(None),
            Some(Ok(topic)) => Ok(Some(topic.clone())),
            Some(Err((kind, text))) => Err(Error::new(*kind, text.clone())),
        }
    }
}

struct Look {
    seen: Arc<Seen>,
    consumer: Arc<BaseConsumer<Context>>,
    topic: String,
    clock: SystemClock,
    last_seen_ms: Option<u64>,
    missing_since_ms: Option<u64>,
}

impl Drop for Look {
    /// Whoever gives the client up last closes it, which takes as long as a broker does not answer.
    /// That is not to be a worker.
    fn drop(&mut self) {
        for _ in 0..CLOSING_PAUSES_MAX {
            if Arc::strong_count(&self.consumer) == 1 {
                break;
            }
            thread::park_timeout(CLOSING_PAUSE);
        }
    }
}

impl Look {
    fn again(&mut self) {
        let answer = batch::describe(self.consumer.client(), &self.topic, REQUEST);
        let now_ms = self.clock.monotonic_ms();
        match answer {
            Ok(topic) => {
                self.last_seen_ms = Some(now_ms);
                self.missing_since_ms = None;
                self.consumer.context().forget();
                self.note(Ok(topic));
            }
            Err(error) if is_missing(&error) => {
                let since_ms = *self.missing_since_ms.get_or_insert(now_ms);
                if Duration::from_millis(now_ms - since_ms) >= MISSING {
                    self.note_error(&error);
                }
            }
            // The broker may be away for a while; readers wait for it.
            Err(error) => {
                tracing::debug!(topic = self.topic, %error, "the topic could not be looked at");
                if self.last_seen_ms.is_none() && now_ms >= FIRST_LOOK_MS {
                    self.note_error(&error);
                }
            }
        }
    }

    fn note_error(&self, error: &KafkaError) {
        let doing = format!("read topic `{}`", self.topic);
        let error = explain(&doing, error, self.consumer.context());
        self.note(Err((error.kind(), error.to_string())));
    }

    fn note(&self, found: Result<Described, (ErrorKind, String)>) {
        let mut last = self.seen.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.as_ref() != Some(&found) {
            *last = Some(found);
            self.seen.version.fetch_add(1, Ordering::Release);
        }
    }
}
