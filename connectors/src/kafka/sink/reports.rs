//! What a publishing producer is told: records that were not delivered, and how often it asked for
//! the end of a transaction.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{NoCustomPartitioner, ProducerContext};
use serde::Deserialize;

use super::super::client::Context;

/// The context of a publishing producer.
pub(super) struct Reports {
    context: Context,
    failed: Mutex<Option<RDKafkaErrorCode>>,
    statistics: AtomicU64,
    ends: AtomicU64,
}

/// What the statistics say at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counted {
    /// How many statistics there have been.
    pub(super) statistics: u64,
    /// How many requests to end a transaction have been sent, repeated ones counted too.
    pub(super) ends: u64,
}

impl Reports {
    pub(super) fn new(context: Context) -> Reports {
        Reports {
            context,
            failed: Mutex::new(None),
            statistics: AtomicU64::new(0),
            ends: AtomicU64::new(0),
        }
    }

    pub(super) fn context(&self) -> &Context {
        &self.context
    }

    /// Why a record was not delivered, of the last that was not.
    pub(super) fn failure(&self) -> Option<RDKafkaErrorCode> {
        *self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn counted(&self) -> Counted {
        Counted {
            statistics: self.statistics.load(Ordering::Acquire),
            ends: self.ends.load(Ordering::Acquire),
        }
    }
}

impl ClientContext for Reports {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.context.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.context.error(error, reason);
    }

    fn stats_raw(&self, statistics: &[u8]) {
        match serde_json::from_slice::<Statistics>(statistics) {
            Ok(found) => {
                let sent = |broker: &Broker| broker.req.get("EndTxn").copied().unwrap_or(0);
                self.ends.store(found.brokers.values().map(sent).sum(), Ordering::Release);
                self.statistics.fetch_add(1, Ordering::AcqRel);
            }
            // Nothing is proven then, which costs time only.
            Err(error) => tracing::debug!(%error, "statistics of librdkafka are not understood"),
        }
    }
}

impl ProducerContext<NoCustomPartitioner> for Reports {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if let Err((error, _)) = result {
            let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail);
            *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(code);
        }
    }
}

/// What matters here of librdkafka's statistics (STATISTICS.md of librdkafka).
#[derive(Deserialize)]
struct Statistics {
    brokers: HashMap<String, Broker>,
}

#[derive(Deserialize)]
struct Broker {
    #[serde(default)]
    req: HashMap<String, u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_to_end_a_transaction_are_counted_over_all_brokers() {
        let reports = Reports::new(Context::new("a:1", Vec::new()));
        assert_eq!(reports.counted(), Counted { statistics: 0, ends: 0 });
        reports.stats_raw(
            br#"{"name":"x","brokers":{"a:1/1":{"req":{"EndTxn":3,"Produce":9}},
                "a:2/2":{"req":{"EndTxn":1}},"a:3/3":{}},"topics":{}}"#,
        );
        assert_eq!(reports.counted(), Counted { statistics: 1, ends: 4 });
        reports.stats_raw(b"{}");
        assert_eq!(reports.counted().statistics, 1);
    }
}
