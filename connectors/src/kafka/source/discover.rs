//! Which partitions there are, and where each is begun.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use isochrone_engine::connector::{Discovery, Split};
use isochrone_engine::{Error, Result};

use super::background::Ticker;
use super::loss::{is_other_topic, is_same_topic};
use super::position::KafkaPosition;
use super::seen::{Seen, splits};
use super::settings::{Settings, Start};
use crate::OnDataLoss;
use crate::kafka::batch::Described;
use crate::kafka::topics::{Topics, View, partition_of};

/// Finds partitions: at first by asking, later by what was found in the background.
#[derive(Default)]
pub(super) struct Discoverer {
    watch: Option<Watch>,
}

struct Watch {
    seen: Arc<Mutex<Seen>>,
    _ticker: Ticker,
}

impl Discoverer {
    /// All partitions that are not known. An answer may be dropped: asking twice is asking once.
    pub(super) fn discover(
        &mut self,
        settings: &Settings,
        known: &[String],
    ) -> Result<Discovery<KafkaPosition>> {
        let complete = settings.until_end;
        let known = known.iter().map(|id| partition_of(id, &settings.topic));
        let known: BTreeSet<i32> = known.collect::<Result<_>>()?;
        if let Some(watch) = &self.watch
            && let Some(new) = watch.seen().answer(settings, &known)?
        {
            return Ok(Discovery { new, complete });
        }
        let topics = Topics::connect(&settings.kafka, View::All)?;
        let found = topics.describe(&settings.topic)?;
        let begins = first_begins(settings, &topics, &found, &known)?;
        let new = splits(&settings.topic, &begins);
        if !complete {
            let seen = Seen::new(&found, &known, begins);
            self.watch = Some(Watch::start(settings, topics, seen)?);
        }
        Ok(Discovery { new, complete })
    }
}

impl Watch {
    fn start(settings: &Settings, topics: Topics, seen: Seen) -> Result<Watch> {
        let seen = Arc::new(Mutex::new(seen));
        let (looked, topic) = (Arc::clone(&seen), settings.topic.clone());
        let _ticker = Ticker::start(settings.look_every, move || match topics.find(&topic) {
            Ok(None) => {}
            Ok(Some(found)) => {
                for partition in lock(&looked).saw(&found) {
                    tracing::info!(topic, partition, "a partition was added");
                }
            }
            // A topic that is gone is noticed by its readers; a broker that is away comes back.
            Err(error) => tracing::debug!(%error, "new partitions could not be looked for"),
        })?;
        Ok(Watch { seen, _ticker })
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        lock(&self.seen)
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where partitions begin that are not known.
fn first_begins(
    settings: &Settings,
    topics: &Topics,
    found: &Described,
    known: &BTreeSet<i32>,
) -> Result<BTreeMap<i32, KafkaPosition>> {
    let topic = &settings.topic;
    if let Some(&last) = known.last()
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
    let starts = match known.is_empty() {
        true => Starts::resolve(settings, topics, found.partitions, settings.start)?,
        false => Starts::AtZero,
    };
    let mut begins = BTreeMap::new();
    for partition in (0..found.partitions).filter(|partition| !known.contains(partition)) {
        let offsets = topics.offsets(topic, partition)?;
        let end = settings.until_end.then_some(offsets.high);
        let next = starts.of(partition, offsets.low);
        begins.insert(partition, KafkaPosition::at(next, end, found.id.clone()));
    }
    Ok(begins)
}

/// Where partitions begin.
enum Starts {
    /// Those of a job that has no checkpoint: with their oldest records.
    Oldest,
    /// The same: at these offsets, or with their oldest records if those are gone.
    At(Vec<i64>),
    /// Those added since: with their very first records, or records would be missed. If they are gone
    /// by now, that is a loss like any other.
    AtZero,
}

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
        Ok(match start {
            Start::Earliest => Starts::Oldest,
            Start::Latest => Starts::At(ends(settings)?),
            Start::TimestampMs(ms) => {
                // IMPORTANT: the ends first. What is written between the two questions is found by
                // its time, or lies behind the end.
                let ends = ends(settings)?;
                let found = topics.offsets_at(topic, partitions, ms)?;
                let at = ends.iter().zip(found).map(|(end, found)| found.unwrap_or(*end));
                Starts::At(at.collect())
            }
        })
    }

    fn of(&self, partition: i32, low: i64) -> i64 {
        match self {
            Starts::Oldest => low,
            Starts::AtZero => 0,
            Starts::At(offsets) => {
                let index = usize::try_from(partition).ok();
                index.and_then(|index| offsets.get(index)).map_or(low, |next| low.max(*next))
            }
        }
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
    if is_other_topic(&split.position, &found) {
        return Ok(true);
    }
    if partition >= found.partitions {
        return Ok(!is_same_topic(&split.position, &found));
    }
    Ok(topics.offsets(&settings.topic, partition)?.high != split.position.next)
}
