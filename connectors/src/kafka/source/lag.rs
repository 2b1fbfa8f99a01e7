//! Tells a consumer group how far checkpoints have come, for those who watch its lag.

use std::sync::mpsc::channel;
use std::time::Duration;

use isochrone_engine::Result;
use isochrone_engine::connector::{Observer, Split};
use rdkafka::TopicPartitionList;
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::topic_partition_list::Offset;

use super::background::{CLOSING, background};
use super::position::KafkaPosition;
use super::settings::Settings;
use crate::kafka::client::Context;
use crate::kafka::cluster::Own;
use crate::kafka::topics::partition_of;
use crate::kafka::trouble::explain;

/// How long the end of a job waits for the last answer: so many times so long.
const LAST_WORDS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(50);

/// An observer of checkpoints, if there is a group to tell. What fails is logged, and no more.
pub(super) fn observer(settings: &Settings) -> Option<Observer<KafkaPosition>> {
    let group = settings.lag_group.clone()?;
    let settings = settings.clone();
    let mut member: Option<Group> = None;
    Some(Box::new(move |splits| {
        let told = match &mut member {
            Some(member) => member.tell(splits),
            None => {
                Group::connect(&settings, &group).and_then(|new| member.insert(new).tell(splits))
            }
        };
        if let Err(error) = told {
            tracing::warn!(group, %error, "the lag group could not be told what has been read");
        }
    }))
}

struct Group {
    /// There until dropped.
    consumer: Option<BaseConsumer<Context>>,
    context: Context,
    topic: String,
    told: TopicPartitionList,
    commits: u64,
}

impl Group {
    fn connect(settings: &Settings, group: &str) -> Result<Group> {
        let (mut config, context) = settings.kafka.client(&[
            ("enable.auto.commit", "false", Own::Fixed("checkpoints say what was read")),
            ("group.protocol", "classic", Own::Fixed("nobody joins the lag group")),
        ])?;
        config.set("group.id", group);
        let made = BaseConsumer::from_config_and_context(&config, context.clone());
        let consumer = made.map_err(|error| explain("make a client", &error, &context))?;
        let told = TopicPartitionList::new();
        let (consumer, topic) = (Some(consumer), settings.topic.clone());
        Ok(Group { consumer, context, topic, told, commits: 0 })
    }

    fn tell(&mut self, splits: &[Split<KafkaPosition>]) -> Result<()> {
        let Some(consumer) = &self.consumer else { return Ok(()) };
        // Answers to earlier calls.
        while consumer.poll(Duration::ZERO).is_some() {}
        let mut next = TopicPartitionList::new();
        for split in splits {
            let partition = partition_of(&split.id, &self.topic)?;
            let offset = Offset::Offset(split.position.next);
            let added = next.add_partition_offset(&self.topic, partition, offset);
            added.map_err(|error| explain("name an offset", &error, &self.context))?;
        }
        if next == self.told {
            return Ok(());
        }
        let committed = consumer.commit(&next, CommitMode::Async);
        committed.map_err(|error| explain("commit to the lag group", &error, &self.context))?;
        self.told = next;
        self.commits += 1;
        Ok(())
    }
}

impl Drop for Group {
    /// What was said last is heard if the broker answers soon.
    fn drop(&mut self) {
        let Some(consumer) = self.consumer.take() else { return };
        for _ in 0..LAST_WORDS {
            if self.context.commits_answered() >= self.commits {
                break;
            }
            consumer.poll(PAUSE);
        }
        // Closing waits for answers, however long. If no thread can be had, it is closed here.
        let (closing, closed) = channel::<()>();
        let close = move || {
            drop(consumer);
            drop(closing);
        };
        match background(close) {
            Ok(()) => drop(closed.recv_timeout(CLOSING)),
            Err(error) => tracing::debug!(%error, "the lag group's client was closed at once"),
        }
    }
}
