//! What a checkpoint says of output that is to be published, and in which order that happens.

use std::fmt;

use isochrone_engine::connector::Kept;
use serde::{Deserialize, Serialize};

/// Output of one writer for one epoch, durable in the write-ahead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KafkaEffect {
    pub(super) topic: String,
    /// Who publishes it: see the module.
    pub(super) lane: u32,
    pub(super) generation: u64,
    /// What tells the run from every other; see `RunContext`.
    #[serde(default)]
    pub(super) run: String,
    pub(super) epoch: u64,
    pub(super) worker: u32,
    /// Pieces that are published whole, one after the other.
    pub(super) chunks: Vec<Chunk>,
    /// The end of what the same writer wrote before in its run: published, or pending with this.
    #[serde(default)]
    pub(super) after: Option<Mark>,
}

/// A piece that is small enough for one transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Chunk {
    pub(super) kept: Kept,
    /// How many records are in it.
    pub(super) records: u64,
}

/// A place in a lane's output. What is published is everything up to a place, in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Mark {
    pub(super) epoch: u64,
    pub(super) worker: u32,
    /// Chunks of that part that are done.
    pub(super) chunks: u32,
}

impl KafkaEffect {
    /// The place behind so many of its chunks.
    pub(super) fn mark(&self, chunks: usize) -> Mark {
        let chunks = u32::try_from(chunks).expect("a part has fewer than 2^32 chunks");
        Mark { epoch: self.epoch, worker: self.worker, chunks }
    }

    /// How many of its chunks are within what is published.
    pub(super) fn done(&self, published: Option<Mark>) -> usize {
        let within = |chunks: &usize| Some(self.mark(*chunks)) <= published;
        (1..=self.chunks.len()).take_while(within).count()
    }

    pub(super) fn end(&self) -> Mark {
        self.mark(self.chunks.len())
    }

    pub(super) fn records(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.records).sum()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.kept.bytes).sum()
    }
}

impl fmt::Display for KafkaEffect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (records, bytes) = (self.records(), self.bytes());
        write!(f, "{records} records ({bytes} bytes) for topic {}, lane {}", self.topic, self.lane)
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epoch {}, worker {}, chunk {}", self.epoch, self.worker, self.chunks)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::kafka::sink) fn effect(epoch: u64, worker: u32, chunks: usize) -> KafkaEffect {
        let kept =
            |n| Kept { name: format!("{epoch}-{worker}-{n}"), bytes: 8, digest: String::new() };
        let chunk = |n: usize| Chunk { kept: kept(n), records: 1 };
        KafkaEffect {
            topic: "out".to_owned(),
            lane: 0,
            generation: 1,
            run: "run 1".to_owned(),
            epoch,
            worker,
            chunks: (1..=chunks).map(chunk).collect(),
            after: None,
        }
    }

    #[test]
    fn what_is_published_is_everything_up_to_a_place() {
        let part = effect(7, 1, 3);
        let at = |epoch, worker, chunks| Some(Mark { epoch, worker, chunks });
        for (published, done) in [
            (None, 0),
            (at(6, 9, 9), 0),
            (at(7, 0, 9), 0),
            (at(7, 1, 0), 0),
            (at(7, 1, 2), 2),
            (at(7, 1, 3), 3),
            (at(7, 2, 0), 3),
            (at(8, 0, 0), 3),
        ] {
            assert_eq!(part.done(published), done, "{published:?}");
        }
    }
}
