//! What every client of Kafka has beside it: its log lines go into tracing, and its last errors are
//! remembered, so that a time-out can say why.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use rdkafka::TopicPartitionList;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};

use super::trouble;

/// Takes what a client says of itself. Copies share what is remembered.
#[derive(Clone)]
pub(super) struct Context(Arc<Shared>);

struct Shared {
    addresses: String,
    /// Values that must not be shown.
    hidden: Vec<String>,
    /// The last one of each kind.
    troubles: Mutex<Vec<Trouble>>,
    /// How many commits were answered.
    committed: AtomicU64,
}

/// An error that the client met by itself, such as a connection that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    pub(super) code: RDKafkaErrorCode,
    pub(super) reason: String,
}

impl Context {
    pub(super) fn new(addresses: &str, hidden: Vec<String>) -> Context {
        Context(Arc::new(Shared {
            addresses: addresses.to_owned(),
            hidden,
            troubles: Mutex::default(),
            committed: AtomicU64::new(0),
        }))
    }

    /// The brokers that the client was given.
    pub(super) fn addresses(&self) -> &str {
        &self.0.addresses
    }

    /// The text without secrets.
    pub(super) fn redacted(&self, text: &str) -> String {
        self.0.hidden.iter().fold(text.to_owned(), |text, hidden| text.replace(hidden, "***"))
    }

    /// The error that says most about why nothing works, of those remembered.
    pub(super) fn cause(&self) -> Option<Trouble> {
        let troubles = self.troubles();
        // The latest of the worst kind.
        troubles.iter().max_by_key(|trouble| trouble::weight(trouble.code)).cloned()
    }

    /// Whether the client has met something that will not pass by itself.
    pub(super) fn is_hopeless(&self) -> bool {
        self.cause().is_some_and(|cause| trouble::is_hopeless(cause.code))
    }

    /// How many commits to a group have been answered.
    pub(super) fn commits_answered(&self) -> u64 {
        self.0.committed.load(Ordering::Acquire)
    }

    /// Things work now.
    pub(super) fn forget(&self) {
        self.troubles().clear();
    }

    pub(super) fn remember(&self, code: RDKafkaErrorCode, reason: &str) {
        let mut troubles = self.troubles();
        troubles.retain(|trouble| trouble.code != code);
        troubles.push(Trouble { code, reason: self.redacted(reason) });
    }

    fn troubles(&self) -> MutexGuard<'_, Vec<Trouble>> {
        self.0.troubles.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        let message = self.redacted(message);
        // A coordinator that is about to be there is waited for.
        if facility == "GETPID" {
            return tracing::debug!(facility, "librdkafka: {message}");
        }
        match level {
            RDKafkaLogLevel::Emerg
            | RDKafkaLogLevel::Alert
            | RDKafkaLogLevel::Critical
            | RDKafkaLogLevel::Error
            | RDKafkaLogLevel::Warning => tracing::warn!(facility, "librdkafka: {message}"),
            RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info => {
                tracing::debug!(facility, "librdkafka: {message}");
            }
            RDKafkaLogLevel::Debug => tracing::trace!(facility, "librdkafka: {message}"),
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let Some(code) = error.rdkafka_error_code() else { return };
        if trouble::is_worth_remembering(code) {
            self.remember(code, reason);
        }
        tracing::debug!(%code, "librdkafka: {}", self.redacted(reason));
    }

    fn stats_raw(&self, _statistics: &[u8]) {}
}

impl ConsumerContext for Context {
    fn commit_callback(&self, result: KafkaResult<()>, _offsets: &TopicPartitionList) {
        self.0.committed.fetch_add(1, Ordering::Release);
        if let Err(error) = result {
            tracing::warn!(%error, "the lag group could not be told what has been read");
        }
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("addresses", &self.0.addresses).finish_non_exhaustive()
    }
}
