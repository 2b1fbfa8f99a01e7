//! Which partitions a run has seen. Facts in, verdict out: nothing is asked here.

use std::collections::{BTreeMap, BTreeSet};

use isochrone_engine::connector::Split;
use isochrone_engine::{Error, Result};

use super::position::KafkaPosition;
use super::settings::Settings;
use crate::OnDataLoss;
use crate::kafka::batch::Described;
use crate::kafka::topics::split_id;

/// The partitions of a topic, as far as a run has seen them.
pub(super) struct Seen {
    /// Where those begin that were not known at first. Kept, since an answer may be dropped.
    begins: BTreeMap<i32, KafkaPosition>,
    /// The identity of the topic when it was last looked at.
    id: Option<String>,
    /// Behind the last partition that there ever was.
    peak: i32,
    /// From here on they were gone at some time: the topic was created again with fewer.
    gone_from: Option<i32>,
    /// Which of those have come back, behind the last.
    regained_to: Option<i32>,
}

impl Seen {
    pub(super) fn new(
        found: &Described,
        known: &BTreeSet<i32>,
        begins: BTreeMap<i32, KafkaPosition>,
    ) -> Seen {
        let peak = known.last().map_or(0, |last| last + 1).max(found.partitions);
        let gone_from = (found.partitions < peak).then_some(found.partitions);
        Seen { begins, id: found.id.clone(), peak, gone_from, regained_to: None }
    }

    /// Takes another look in; answers which partitions were added. They begin at their very
    /// beginning, whatever was said of the others.
    pub(super) fn saw(&mut self, found: &Described) -> Vec<i32> {
        let is_same = self.id.is_some() && self.id == found.id;
        self.id.clone_from(&found.id);
        // A broker that has not heard of the newest ones yet is no reason.
        if found.partitions < self.peak && !is_same {
            let gone_from = self.gone_from.unwrap_or(i32::MAX);
            self.gone_from = Some(gone_from.min(found.partitions));
        }
        if self.gone_from.is_some_and(|gone_from| found.partitions > gone_from) {
            self.regained_to = Some(found.partitions.min(self.peak));
        }
        let added = self.peak..found.partitions;
        for partition in added.clone() {
            self.begins.insert(partition, KafkaPosition::at(0, None, found.id.clone()));
        }
        self.peak = self.peak.max(found.partitions);
        added.collect()
    }

    /// The partitions that are not known; `None` if that cannot be told without asking.
    pub(super) fn answer(
        &self,
        settings: &Settings,
        known: &BTreeSet<i32>,
    ) -> Result<Option<Vec<Split<KafkaPosition>>>> {
        let topic = &settings.topic;
        if let (Some(from), Some(to)) = (self.gone_from, self.regained_to)
            && settings.on_data_loss == OnDataLoss::ContinueFromEarliest
        {
            return Err(Error::unavailable(format!(
                "topic `{topic}` has partitions {from} to {} again, which were gone when it was \
                 deleted and created again with fewer; start the job again: it reads them from \
                 their beginning",
                to - 1
            )));
        }
        let is_told =
            |partition| known.contains(&partition) || self.begins.contains_key(&partition);
        if !(0..self.peak).all(is_told) {
            return Ok(None);
        }
        let new = self.begins.iter().filter(|(partition, _)| !known.contains(partition));
        Ok(Some(splits(topic, new)))
    }
}

/// Partitions as splits.
pub(super) fn splits<'a>(
    topic: &str,
    begins: impl IntoIterator<Item = (&'a i32, &'a KafkaPosition)>,
) -> Vec<Split<KafkaPosition>> {
    let split = |(partition, position): (&i32, &KafkaPosition)| Split {
        id: split_id(topic, *partition),
        position: position.clone(),
    };
    begins.into_iter().map(split).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::Kafka;

    fn topic(id: &str, partitions: i32) -> Described {
        Described { id: Some(id.to_owned()), partitions }
    }

    /// A run that knows so many partitions and finds so many.
    fn begun(known: i32, found: i32) -> Seen {
        let begins = (known..found).map(|new| (new, KafkaPosition::at(0, None, None)));
        Seen::new(&topic("a", found), &(0..known).collect(), begins.collect())
    }

    fn answer(seen: &Seen, policy: OnDataLoss, known: i32) -> Result<Option<Vec<String>>> {
        let kafka = Kafka::at("127.0.0.1:1").unwrap();
        let source = kafka.source("t").on_data_loss(policy);
        let splits = seen.answer(source.settings(), &(0..known).collect())?;
        Ok(splits.map(|splits| splits.into_iter().map(|split| split.id).collect()))
    }

    fn new(seen: &Seen, known: i32) -> Option<Vec<String>> {
        answer(seen, OnDataLoss::ContinueFromEarliest, known).unwrap()
    }

    #[test]
    fn what_is_not_known_is_answered_each_time() {
        let ids = |range: std::ops::Range<i32>| Some(range.map(|p| format!("t/{p}")).collect());
        let mut seen = begun(2, 4);
        for _ in 0..2 {
            assert_eq!(new(&seen, 2), ids(2..4));
        }
        assert_eq!(seen.saw(&topic("a", 6)), [4, 5]);
        assert_eq!(new(&seen, 2), ids(2..6));
        assert_eq!(new(&seen, 5), ids(5..6));
        assert_eq!(new(&seen, 6), ids(6..6));
        assert_eq!(seen.saw(&topic("a", 6)), [0; 0]);
        assert_eq!(new(&seen, 6), ids(6..6));
        // Who knew more at first has to be asked for it.
        assert_eq!(new(&seen, 1), None);
    }

    #[test]
    fn partitions_that_were_gone_and_are_there_again_are_said() {
        let regained = |seen: &Seen| {
            let stops = answer(seen, OnDataLoss::Stop, 4).unwrap();
            assert_eq!(stops, Some(vec![]), "its readers say what is to be said");
            answer(seen, OnDataLoss::ContinueFromEarliest, 4).err().map(|error| error.to_string())
        };
        let mut seen = begun(4, 4);
        seen.saw(&topic("b", 2));
        assert_eq!(regained(&seen), None);
        seen.saw(&topic("b", 2));
        assert_eq!(regained(&seen), None);
        seen.saw(&topic("b", 3));
        assert!(regained(&seen).unwrap().contains("has partitions 2 to 2 again"));
        // They were gone before the run began.
        let mut seen = begun(4, 2);
        assert_eq!(regained(&seen), None);
        assert_eq!(seen.saw(&topic("a", 6)), [4, 5]);
        let said = answer(&seen, OnDataLoss::ContinueFromEarliest, 6).unwrap_err().to_string();
        assert!(said.contains("has partitions 2 to 3 again"), "{said}");
        // A broker that has not heard of the newest yet.
        let mut seen = begun(4, 4);
        seen.saw(&topic("a", 3));
        seen.saw(&topic("a", 4));
        assert_eq!(regained(&seen), None);
    }
}
