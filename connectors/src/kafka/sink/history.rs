//! Which line of checkpoints the marks of a progress topic belong to, as checkpoints keep it. Knows
//! no broker.

use std::fmt;

use isochrone_engine::{Error, Result};
use serde::{Deserialize, Serialize};

use super::effect::Mark;

/// A progress topic, told from another one of the same name: of another cluster, or made anew.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Home {
    pub(super) topic: String,
    /// The id that the cluster gave it. None from brokers before 2.8.
    pub(super) id: Option<String>,
}

/// Where the marks of a checkpoint's output lie, and of which of the histories there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct History {
    #[serde(flatten)]
    pub(super) home: Home,
    /// The name of the turn that it began with; none for the first.
    pub(super) turn: Option<String>,
    /// The run that took the checkpoint; see `RunContext`.
    pub(super) run: String,
    /// How far each lane had published when that run began.
    pub(super) published: Vec<(u32, Mark)>,
}

impl Home {
    /// Whether what was written to the other one is read here.
    pub(super) fn is(&self, other: &Home) -> bool {
        self.topic == other.topic
            && (self.id == other.id || self.id.is_none() || other.id.is_none())
    }
}

impl fmt::Display for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.id {
            Some(id) => write!(f, "`{}` (id {id})", self.topic),
            None => write!(f, "`{}`", self.topic),
        }
    }
}

impl History {
    pub(super) fn published_by(&self, lane: u32) -> Option<Mark> {
        self.published.iter().find(|(of, _)| *of == lane).map(|(_, mark)| *mark)
    }

    pub(super) fn encode(&self) -> String {
        serde_json::to_string(self).expect("a history is plain data")
    }

    /// Fails with `Corrupt` if this version did not write it.
    pub(super) fn decode(text: &str) -> Result<History> {
        serde_json::from_str(text).map_err(|error| {
            Error::corrupt(format!(
                "the checkpoint says `{text}` of the history of a Kafka sink, which this version \
                 does not write"
            ))
            .with_source(error)
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::kafka::sink) fn home(topic: &str, id: &str) -> Home {
        Home { topic: topic.to_owned(), id: Some(id.to_owned()).filter(|id| !id.is_empty()) }
    }

    #[test]
    fn a_topic_is_told_by_name_and_by_id_where_there_is_one() {
        let first = home("p", "1");
        for (other, is) in [
            (home("p", "1"), true),
            (home("p", ""), true),
            (home("p", "2"), false),
            (home("q", "1"), false),
            (home("q", ""), false),
        ] {
            assert_eq!((first.is(&other), other.is(&first)), (is, is), "{other}");
        }
    }

    #[test]
    fn what_a_checkpoint_keeps_is_read_again() {
        for turn in [None, Some("t".to_owned())] {
            let history = History {
                home: home("p", "1"),
                turn,
                run: "r".to_owned(),
                published: vec![(1, Mark::default())],
            };
            assert_eq!(History::decode(&history.encode()).expect("own text"), history);
        }
        let error = History::decode("elsewhere").expect_err("no history");
        assert!(error.to_string().contains("`elsewhere`"), "{error}");
    }
}
