//! The job of the model: records, keys and splits; what a manifest holds, in short form.

use std::hash::{Hash, Hasher};

use isochrone_engine::protocol::participant::Mode;
use isochrone_persistence::ids::Epoch;
use isochrone_persistence::manifest;

/// A set of records, one bit each.
pub(crate) type Records = u16;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Alignment {
    Always(Mode),
    /// Aligned, until somebody loses patience.
    UntilTimeout,
}

/// A mistake built into the harness of the model, to see that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Bug {
    /// The state instance acknowledges at the trigger what it has by then.
    AckBeforeFreeze,
    /// The frontier of the fastest input is taken for that of all.
    FirstFrontierOfTwo,
    /// Stashed records are applied when they come.
    NoStash,
    /// Unaligned: acknowledged before the log is complete.
    AckBeforeLogComplete,
    /// Unaligned: the log is not restored.
    LogNotRestored,
    /// One state instance's acknowledgement counts for all.
    OneAckMissing,
    /// Sinks publish when all have acknowledged.
    CommitBeforePublish,
    /// What was acknowledged for an abandoned epoch is not named by the next manifest.
    AbandonedForgotten,
    /// A source goes on under the old timestamp after it noted its positions.
    OldCapability,
    /// The final checkpoint is unaligned.
    FinalUnaligned,
    /// A manifest is written without the condition that it is the next one.
    PublishUnfenced,
    /// A source reads on, however much stands on the edge.
    NoCredits,
    /// The watermark of a split begins anew after a restore.
    WatermarkNotRestored,
}

pub(crate) type Splits = &'static [&'static [u32]];

#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) workers: u32,
    /// Worker counts to restart with.
    pub(crate) restarts: &'static [u32],
    /// Keys of the records of each split; split `s` feeds input `s % 2`.
    pub(crate) splits: Splits,
    pub(crate) alignment: Alignment,
    /// Messages that fit an edge.
    pub(crate) credits: usize,
    /// Sinks take each message at once. In aligned mode that leaves out only waits for credits; in
    /// unaligned mode also logs of sinks, which worlds of one worker have.
    pub(crate) prompt_sinks: bool,
    pub(crate) requests: u8,
    pub(crate) abandons: u8,
    pub(crate) crashes: u8,
    pub(crate) rivals: u8,
    /// How often the target of a sink does not answer until the job gives up.
    pub(crate) hangs: u8,
    pub(crate) bug: Option<Bug>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) id: u8,
    pub(crate) split: usize,
    pub(crate) key: u32,
    /// Event time, the same for all records of one place in a split.
    pub(crate) time: i64,
}

impl Setup {
    pub(crate) fn records(&self) -> impl Iterator<Item = Record> + '_ {
        let of = |(split, keys): (usize, &'static &'static [u32])| {
            keys.iter().zip(1..).map(move |(key, place)| (split, *key, place * 10))
        };
        let all = self.splits.iter().enumerate().flat_map(of);
        all.zip(0..).map(|((split, key, time), id)| Record { id, split, key, time })
    }

    pub(crate) fn record(&self, id: u8) -> Record {
        self.records().nth(usize::from(id)).expect("record ids count from 0")
    }

    pub(crate) fn all(&self) -> Records {
        self.records().map(|r| bit(r.id)).sum()
    }

    /// Records of the keys that worker `w` of `workers` owns.
    pub(crate) fn owned(&self, w: u32, workers: u32) -> Records {
        self.records().filter(|r| r.key % workers == w).map(|r| bit(r.id)).sum()
    }

    /// The records of a split from `position` on.
    pub(crate) fn at(&self, split: usize, position: usize) -> Option<Record> {
        self.records().filter(|r| r.split == split).nth(position)
    }

    /// The records before these positions.
    pub(crate) fn before(&self, positions: &[usize]) -> Records {
        positions.iter().enumerate().map(|(split, end)| self.before_in(split, *end)).sum()
    }

    /// The records of a split before `position`.
    pub(crate) fn before_in(&self, split: usize, position: usize) -> Records {
        self.records().filter(|r| r.split == split).take(position).map(|r| bit(r.id)).sum()
    }

    /// The watermark of a split read up to `position`: the time of its last record.
    pub(crate) fn mark(&self, position: usize) -> Option<i64> {
        (position > 0).then_some(position as i64 * 10)
    }

    /// `record` is to be applied where `applied` were: once, and after its predecessors of the
    /// same split and key.
    pub(crate) fn check_turn(&self, id: u8, applied: Records) -> Result<(), String> {
        let record = self.record(id);
        let same = |r: &Record| r.split == record.split && r.key == record.key && r.id < id;
        let earlier: Records = self.records().filter(same).map(|r| bit(r.id)).sum();
        if applied & bit(id) != 0 {
            return Err(format!("{record:?} is applied twice"));
        }
        if earlier & !applied != 0 {
            return Err(format!("{record:?} is applied before its predecessor"));
        }
        Ok(())
    }
}

pub(crate) fn bit(id: u8) -> Records {
    1 << id
}

/// Output of one sink instance for one epoch of one generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Effect {
    pub(crate) generation: u64,
    pub(crate) epoch: Epoch,
    pub(crate) worker: u32,
    pub(crate) records: Records,
}

/// What a manifest means.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Summary {
    pub(crate) epoch: Epoch,
    pub(crate) finished: bool,
    pub(crate) positions: Vec<usize>,
    pub(crate) marks: Vec<Option<i64>>,
    pub(crate) state: Records,
    /// Written by sinks, visible or pending.
    pub(crate) sunk: Records,
    pub(crate) pending: Vec<Effect>,
    /// Logs of records on their way into the state and into the sinks.
    pub(crate) to_state: Vec<u8>,
    pub(crate) to_sink: Vec<u8>,
}

/// A manifest as the ledger made it, and what it means.
#[derive(Clone, Debug)]
pub(crate) struct Manifest {
    pub(crate) summary: Summary,
    pub(crate) operators: Vec<manifest::Operator>,
}

impl Hash for Manifest {
    /// Names of segments and how the state is spread over them do not matter for what follows.
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.summary.hash(hasher);
    }
}
