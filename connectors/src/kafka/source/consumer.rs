//! The client that reads all partitions of one source on one worker.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use isochrone_engine::time::{Clock, SystemClock};
use isochrone_engine::{Error, Result};
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::BaseConsumer;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

use super::background::Inquiry;
use super::identity::Identity;
use super::loss::Found;
use super::settings::Settings;
use crate::kafka::batch::PartitionQueue;
use crate::kafka::client::Context;
use crate::kafka::cluster::{Kafka, Own};
use crate::kafka::topics::{Topics, View};
use crate::kafka::trouble::explain;

/// How often what the client has to say is listened to.
const LISTEN_EVERY_MS: u64 = 20;
/// How much of that at a time.
const EVENTS_MAX: usize = 64;

/// How long a topic that is being read has to be missing to be gone.
pub(super) const MISSING: Duration = Duration::from_secs(10);

/// A client, shared by the readers of a worker.
pub(super) struct Shared {
    pub(super) settings: Settings,
    // IMPORTANT: given up before `identity`, whose thread closes it.
    consumer: Arc<BaseConsumer<Context>>,
    pub(super) identity: Identity,
    context: Context,
    clock: SystemClock,
    listened_ms: Cell<u64>,
    pub(super) look_every_ms: u64,
    /// Whether it was said that no broker answers.
    down: Cell<bool>,
}

impl Shared {
    /// Connects in the background.
    pub(super) fn connect(settings: &Settings) -> Result<Shared> {
        let consumer = consumer(&settings.kafka, &settings.topic)?;
        let context = consumer.1;
        let consumer = Arc::new(consumer.0);
        Ok(Shared {
            settings: settings.clone(),
            identity: Identity::watch(settings, &consumer)?,
            consumer,
            context,
            clock: SystemClock::default(),
            listened_ms: Cell::new(0),
            look_every_ms: u64::try_from(settings.look_every.as_millis()).unwrap_or(u64::MAX),
            down: Cell::new(false),
        })
    }

    /// Begins to fetch a partition.
    pub(super) fn assign(
        &self,
        partition: i32,
        next: i64,
        leader_epoch: Option<i32>,
    ) -> Result<PartitionQueue> {
        let topic = &self.settings.topic;
        PartitionQueue::assign(&self.consumer, topic, partition, next, leader_epoch).map_err(
            |error| {
                let doing = format!("read topic `{topic}`, partition {partition}, from {next} on");
                explain(&doing, &error, &self.context)
            },
        )
    }

    /// Asks what there is of a partition.
    pub(super) fn inquire(&self, partition: i32) -> Result<Inquiry<Found>> {
        let (kafka, topic) = (self.settings.kafka.clone(), self.settings.topic.clone());
        Inquiry::start(move || {
            // A broker that comes back may not know its topics for a while.
            let topics = Topics::connect(&kafka, View::All)?.expecting(MISSING);
            let described = topics.describe(&topic)?;
            let is_there = partition < described.partitions;
            let offsets = is_there.then(|| topics.offsets(&topic, partition)).transpose()?;
            Ok(Found { topic: described, offsets })
        })
    }

    /// Listens to what the client has to say, now and then. Does not wait. Answers the time.
    pub(super) fn listen(&self) -> Result<u64> {
        let now_ms = self.clock.monotonic_ms();
        if now_ms < self.listened_ms.get() + LISTEN_EVERY_MS {
            return Ok(now_ms);
        }
        self.listened_ms.set(now_ms);
        for _ in 0..EVENTS_MAX {
            match self.consumer.poll(Duration::ZERO) {
                None => break,
                Some(Err(KafkaError::MessageConsumptionFatal(code))) => {
                    return Err(Error::internal(format!(
                        "the client of Kafka that reads topic `{}` has failed: {code}",
                        self.settings.topic
                    )));
                }
                Some(Err(error)) => self.note(&error),
                Some(Ok(_)) => {
                    return Err(Error::internal("a record came outside of its partition's queue"));
                }
            }
        }
        Ok(now_ms)
    }

    /// Something was read.
    #[inline]
    pub(super) fn works(&self) {
        if self.down.replace(false) {
            tracing::info!(topic = self.settings.topic, "Kafka answers again");
        }
    }

    /// Says once that there is nobody to read from; the readers wait.
    fn note(&self, error: &KafkaError) {
        let waits = matches!(
            error.rdkafka_error_code(),
            Some(Code::AllBrokersDown | Code::Authentication | Code::SaslAuthenticationFailed)
        );
        if waits && !self.down.replace(true) {
            let doing = format!("read topic `{}`", self.settings.topic);
            let error = explain(&doing, error, &self.context);
            tracing::warn!(%error, "waiting for Kafka");
        }
    }
}

/// A client for reading. Its queues are bounded: what is not taken from them is not fetched.
fn consumer(kafka: &Kafka, topic: &str) -> Result<(BaseConsumer<Context>, Context)> {
    let by_us = "the source itself decides where to read";
    let group = format!("isochrone.{topic}");
    let (config, context) = kafka.client(&[
        // Never joined. librdkafka assigns partitions only to members of some group.
        ("group.id", &group, Own::Default),
        ("enable.auto.commit", "false", Own::Fixed("positions are in the checkpoints")),
        ("enable.auto.offset.store", "false", Own::Fixed("positions are in the checkpoints")),
        ("auto.offset.reset", "error", Own::Fixed(by_us)),
        ("enable.partition.eof", "true", Own::Fixed(by_us)),
        (
            "isolation.level",
            "read_committed",
            Own::Fixed("a record of a transaction may be taken back until it is committed"),
        ),
        ("check.crcs", "true", Own::Fixed("what was damaged on its way is not a record")),
        ("allow.auto.create.topics", "false", Own::Fixed("a source creates no topics")),
        ("group.protocol", "classic", Own::Fixed(by_us)),
        // What comes in a trickle is taken a few milliseconds' worth at a time: half the work for this
        // side, and a quarter less for the broker.
        ("fetch.min.bytes", "65536", Own::Default),
        ("fetch.wait.max.ms", "10", Own::Default),
        ("fetch.queue.backoff.ms", "10", Own::Default),
        ("reconnect.backoff.max.ms", "1000", Own::Default),
        // For each partition. A record that waits costs some hundred bytes beside its own.
        ("queued.min.messages", "6000", Own::Default),
        ("queued.max.messages.kbytes", "2048", Own::Default),
        ("fetch.message.max.bytes", "524288", Own::Default),
    ])?;
    let made = BaseConsumer::from_config_and_context(&config, context.clone());
    let consumer = made.map_err(|error| explain("make a client", &error, &context))?;
    Ok((consumer, context))
}
