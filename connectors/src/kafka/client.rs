//! What every client of Kafka has beside it: its log lines go into tracing, and its last errors are
//! remembered, so that a time-out can say why.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use isochrone_engine::time::{Clock, SystemClock};
use rdkafka::TopicPartitionList;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};

use super::trouble;

/// For how long brokers that are there have to turn a client away until it is believed: one that has
/// only just started may not know its users or show its certificate yet.
const TURNED_AWAY_MS: u64 = 8_000;

/// Takes what a client says of itself. Copies share what is remembered.
#[derive(Clone)]
pub(super) struct Context(Arc<Shared>);

struct Shared {
    addresses: String,
    /// Values that must not be shown.
    hidden: Vec<String>,
    /// The last one of each kind.
    troubles: Mutex<Vec<Trouble>>,
    clock: SystemClock,
    /// How many commits were answered.
    committed: AtomicU64,
}

/// An error that the client met by itself, such as a connection that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    pub(super) code: RDKafkaErrorCode,
    pub(super) reason: String,
    /// When the first one of its kind came, since things have worked.
    since_ms: u64,
}

impl Context {
    pub(super) fn new(addresses: &str, hidden: Vec<String>) -> Context {
        Context(Arc::new(Shared {
            addresses: addresses.to_owned(),
            hidden,
            troubles: Mutex::default(),
            clock: SystemClock::default(),
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
        self.is_hopeless_at(self.0.clock.monotonic_ms())
    }

    fn is_hopeless_at(&self, now_ms: u64) -> bool {
        self.troubles().iter().any(|Trouble { code, since_ms, .. }| {
            let lasts = || now_ms.saturating_sub(*since_ms) >= TURNED_AWAY_MS;
            trouble::is_hopeless(*code) || trouble::turns_away(*code) && lasts()
        })
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
        self.remember_at(code, reason, self.0.clock.monotonic_ms());
    }

    fn remember_at(&self, code: RDKafkaErrorCode, reason: &str, now_ms: u64) {
        let mut troubles = self.troubles();
        if is_gone(reason) {
            // What it said before it went does not count any more.
            let of_it = |other: &Trouble| broker_of(&other.reason) == broker_of(reason);
            troubles.retain(|other| !(trouble::turns_away(other.code) && of_it(other)));
        }
        let known = troubles.iter().position(|trouble| trouble.code == code);
        let known = known.map(|at| troubles.remove(at));
        let since_ms = known.map_or(now_ms, |known| known.since_ms);
        troubles.push(Trouble { code, reason: self.redacted(reason), since_ms });
    }

    fn troubles(&self) -> MutexGuard<'_, Vec<Trouble>> {
        self.0.troubles.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// The broker that the client speaks of, by its host and port, if it speaks of one.
fn broker_of(reason: &str) -> Option<&str> {
    let (name, _) = reason.split_once(": ")?;
    Some(name.rsplit_once('/').map_or(name, |(address, _)| address))
}

/// Whether nobody is there to connect to.
fn is_gone(reason: &str) -> bool {
    reason.contains(" in state CONNECT")
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

#[cfg(test)]
mod tests {
    use rdkafka::error::RDKafkaErrorCode as Code;

    use super::*;

    const AT: &str = "sasl_ssl://a:1/bootstrap";

    fn context() -> Context {
        Context::new("a:1", Vec::new())
    }

    /// A broker that is only just starting does not know its users yet, and then does.
    #[test]
    fn who_is_turned_away_asks_again_for_some_seconds() {
        for code in [Code::Authentication, Code::SSL, Code::UnsupportedSASLMechanism] {
            let context = context();
            let refused = format!("{AT}: not let in");
            context.remember_at(code, &refused, 1_000);
            assert!(!context.is_hopeless_at(1_000) && !context.is_hopeless_at(8_999), "{code}");
            context.remember_at(code, &refused, 5_000);
            // The client says the same thing only now and then.
            assert!(context.is_hopeless_at(9_000), "{code}: it has lasted since the first time");
            context.forget();
            context.remember_at(code, &refused, 9_500);
            assert!(!context.is_hopeless_at(10_000), "{code}: it had worked in between");
        }
        let context = context();
        context.remember_at(Code::TopicAuthorizationFailed, "no right", 1_000);
        assert!(context.is_hopeless_at(1_000), "an answer of a broker that knows who asks");
    }

    /// A connection that was cut when the broker went says nothing about the one that comes.
    #[test]
    fn a_broker_that_has_gone_has_not_turned_anybody_away() {
        let context = context();
        let refused = "Connect to ipv4#1.2.3.4:1 failed: Connection refused (after 0ms in state \
                       CONNECT)";
        context.remember_at(Code::SSL, &format!("{AT}: SSL handshake failed"), 1_000);
        context.remember_at(
            Code::BrokerTransportFailure,
            &format!("sasl_ssl://b:2/2: {refused}"),
            2_000,
        );
        assert!(context.is_hopeless_at(9_000), "another broker went");
        context.remember_at(Code::BrokerTransportFailure, &format!("{AT}: {refused}"), 3_000);
        assert!(!context.is_hopeless_at(9_000));
        let cause = context.cause().map(|cause| cause.code);
        assert_eq!(cause, Some(Code::BrokerTransportFailure));
        context.remember_at(Code::SSL, "sasl_ssl://a:1/1: SSL handshake failed", 6_000);
        assert!(!context.is_hopeless_at(13_999) && context.is_hopeless_at(14_000));
    }
}
