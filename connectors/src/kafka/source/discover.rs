//! Which partitions there are, and where each is begun.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use isochrone_engine::connector::{Discovery, Split};
use isochrone_engine::{Error, Result};

use super::background::Ticker;
use super::loss::is_other_topic;
use super::position::KafkaPosition;
use super::settings::{Settings, Start};
use crate::OnDataLoss;
use crate::kafka::batch::Described;
use crate::kafka::topics::{Topics, View, partition_of, split_id};

/// Finds partitions: at first by asking, later by what was found in the background.
#[derive(Default)]
pub(super) struct Discoverer {
    watch: Option<Watch>,
}

struct Watch {
    /// Found at first or since, and not known to the job when it asked last.
    added: Arc<Mutex<Vec<Split<KafkaPosition>>>>,
    _ticker: Ticker,
}

impl Discoverer {
    pub(super) fn discover(
        &mut self,
        settings: &Settings,
        known: &[String],
    ) -> Result<Discovery<KafkaPosition>> {
        let complete = settings.until_end;
        if let Some(watch) = &self.watch {
            let mut added = watch.added.lock().unwrap_or_else(PoisonError::into_inner);
            // IMPORTANT: whoever asked before need not have taken what it was told.
            added.retain(|split| !known.contains(&split.id));
            return Ok(Discovery { new: added.clone(), complete });
        }
        let topics = Topics::connect(&settings.kafka, View::All)?;
        let found = topics.describe(&settings.topic)?;
        let new = first_splits(settings, &topics, &found, known)?;
        if !complete {
            self.watch = Some(Watch::start(settings, topics, found.partitions, new.clone())?);
        }
        Ok(Discovery { new, complete })
    }
}

impl Watch {
    fn start(
        settings: &Settings,
        topics: Topics,
        mut partitions: i32,
        first: Vec<Split<KafkaPosition>>,
    ) -> Result<Watch> {
        let added = Arc::new(Mutex::new(first));
        let (list, topic) = (Arc::clone(&added), settings.topic.clone());
        let _ticker = Ticker::start(settings.look_every, move || {
            match added_since(&topics, &topic, &mut partitions) {
                Ok(splits) => list.lock().unwrap_or_else(PoisonError::into_inner).extend(splits),
                // A topic that is gone is noticed by its readers; a broker that is away comes back.
                Err(error) => tracing::debug!(%error, "new partitions could not be looked for"),
            }
        })?;
        Ok(Watch { added, _ticker })
    }
}

/// The partitions added since; they begin at their beginning, whatever was said of the others.
fn added_since(
    topics: &Topics,
    topic: &str,
    partitions: &mut i32,
) -> Result<Vec<Split<KafkaPosition>>> {
    let Some(found) = topics.find(topic)? else { return Ok(Vec::new()) };
    let mut splits = Vec::new();
    while *partitions < found.partitions {
        let partition = *partitions;
        let low = topics.offsets(topic, partition)?.low;
        tracing::info!(topic, partition, "a partition was added");
        let position = KafkaPosition::at(low, None, found.id.clone());
        splits.push(Split { id: split_id(topic, partition), position });
        *partitions += 1;
    }
    Ok(splits)
}

fn first_splits(
    settings: &Settings,
    topics: &Topics,
    found: &Described,
    known: &[String],
) -> Result<Vec<Split<KafkaPosition>>> {
    let topic = &settings.topic;
    let mut before = BTreeSet::new();
    for id in known {
        before.insert(partition_of(id, topic)?);
    }
    if let Some(&last) = before.last()
        && last >= found.partitions
        && settings.on_data_loss == OnDataLoss::Stop
    {
        return Err(Error::invalid(format!(
            "topic `{topic}` has {} partitions, and the checkpoint has read {}: it was deleted and \
             created again since, and what was not read is lost; restore a checkpoint of before, or \
             let the source continue from the earliest record (`OnDataLoss::ContinueFromEarliest`)",
            found.partitions,
            last + 1
        )));
    }
    // A partition that was added since is read from its beginning, or records would be missed.
    let start = if before.is_empty() { settings.start } else { Start::Earliest };
    let partitions: Vec<i32> = (0..found.partitions).filter(|p| !before.contains(p)).collect();
    let starts = Starts::resolve(settings, topics, found.partitions, start)?;
    let mut splits = Vec::new();
    for partition in partitions {
        let offsets = topics.offsets(topic, partition)?;
        let end = settings.until_end.then_some(offsets.high);
        let next = starts.of(partition).unwrap_or(offsets.low);
        let position = KafkaPosition::at(next.max(offsets.low), end, found.id.clone());
        splits.push(Split { id: split_id(topic, partition), position });
    }
    Ok(splits)
}

/// Where partitions begin, if not with their oldest record.
struct Starts(Vec<i64>);

impl Starts {
    fn resolve(
        settings: &Settings,
        topics: &Topics,
        partitions: i32,
        start: Start,
    ) -> Result<Starts> {
        let topic = &settings.topic;
        // Records of a transaction that is open become visible later: they are of the latest.
        let ends = |settings: &Settings| -> Result<Vec<i64>> {
            let topics = Topics::connect(&settings.kafka, View::Committed)?;
            (0..partitions).map(|partition| Ok(topics.offsets(topic, partition)?.high)).collect()
        };
        Ok(Starts(match start {
            Start::Earliest => Vec::new(),
            Start::Latest => ends(settings)?,
            Start::TimestampMs(ms) => {
                // IMPORTANT: the ends first. What is written between the two questions is found by
                // its time, or lies behind the end.
                let ends = ends(settings)?;
                let found = topics.offsets_at(topic, partitions, ms)?;
                ends.iter().zip(found).map(|(end, found)| found.unwrap_or(*end)).collect()
            }
        }))
    }

    fn of(&self, partition: i32) -> Option<i64> {
        usize::try_from(partition).ok().and_then(|index| self.0.get(index)).copied()
    }
}

/// Whether a partition that was read to its end is to be read on.
pub(super) fn has_more(settings: &Settings, split: &Split<KafkaPosition>) -> Result<bool> {
    let partition = partition_of(&split.id, &settings.topic)?;
    if !settings.until_end {
        return Ok(true);
    }
    let topics = Topics::connect(&settings.kafka, View::All)?;
    let found = topics.describe(&settings.topic)?;
    // Its reader says what is to be said about another topic.
    if is_other_topic(&split.position, &found) || partition >= found.partitions {
        return Ok(true);
    }
    Ok(topics.offsets(&settings.topic, partition)?.high != split.position.next)
}
