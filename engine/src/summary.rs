//! What a run did, for people and tests.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::protocol::Cause;

/// The end of a run.
///
/// ```
/// use isochrone_connectors::{Collected, generator::Generator};
/// use isochrone_engine::{Job, Outcome, RunArgs};
///
/// let summary = Job::new("copy").run(RunArgs::default(), |flow| {
///     let numbers = flow.source("in", Generator::counting(2, |n| n));
///     numbers.sink("out", Collected::default());
///     Ok(())
/// })?;
/// assert_eq!(summary.outcome, Outcome::InputEnded);
/// assert_eq!((summary.read, summary.written), (2, 2));
/// # Ok::<(), isochrone_engine::Error>(())
/// ```
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Summary {
    /// Why it ended.
    pub outcome: Outcome,
    /// The run's generation.
    pub generation: u64,
    /// Records that this run read, those it read again after a restore included.
    pub read: u64,
    /// Records that this run handed to sinks.
    pub written: u64,
    /// The same by sink.
    pub sinks: Vec<Written>,
    /// Pieces of malformed input that this run skipped.
    pub skipped: u64,
    /// Pieces of malformed input that this run handed on as dead letters.
    pub dead_letters: u64,
    /// Its checkpoints.
    pub checkpoints: CheckpointStats,
    /// What it restored.
    pub restore: RestoreReport,
    /// How long it took, in milliseconds.
    pub elapsed_ms: u64,
}

/// Records that a run handed to one sink.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// The sink's id.
    pub sink: String,
    /// How many.
    pub records: u64,
}

/// Why a run ended well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// All input has been read and all output is visible.
    #[default]
    InputEnded,
    /// It was asked to stop: what was read is checkpointed and its output visible.
    Stopped,
    /// There was nothing to do: an earlier run had finished, and no input has come since.
    NothingToDo,
    /// This process has done its share of a run of several; process 0 has the summary.
    ShareDone,
}

impl From<Cause> for Outcome {
    fn from(cause: Cause) -> Self {
        match cause {
            Cause::Stopped => Outcome::Stopped,
            _ => Outcome::InputEnded,
        }
    }
}

/// The checkpoints of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CheckpointStats {
    /// How many were completed.
    pub published: u64,
    /// How many were dropped.
    pub failed: u64,
    /// Why the last of those was.
    pub last_failure: Option<String>,
    /// The newest one.
    pub last_epoch: u64,
    /// Longest time from trigger to last acknowledgement, in milliseconds.
    pub duration_ms_max: u64,
    /// Sum of those times, in milliseconds.
    pub duration_ms_total: u64,
    /// Longest wait of an operator instance for a cut, in microseconds: from the first sign of it until
    /// everything before it had been applied. All are aligned, so nothing in flight is ever written.
    pub alignment_us_max: u64,
    /// Longest stop of an operator for a snapshot, in microseconds: no record is applied meanwhile.
    pub pause_us_max: u64,
    /// Bytes of the largest one.
    pub bytes_max: u64,
    /// Bytes of all.
    pub bytes_total: u64,
}

/// What a run found and took over at its start.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RestoreReport {
    /// The checkpoint, if there was one.
    pub epoch: Option<u64>,
    /// One line for each operator: what became of it.
    pub operators: Vec<String>,
    /// Rows and bytes by operator and worker.
    pub loaded: Vec<Loaded>,
    /// Positions of sources, as they stand in the checkpoint.
    pub positions: Vec<String>,
    /// Newer checkpoints that were passed over because they are damaged.
    pub passed_over: Vec<String>,
    /// What sources say of splits that they would not find now.
    pub remarks: Vec<String>,
    /// Output that the checkpoint named and that may not have been visible, and what became of it: it
    /// is visible now.
    pub pending: Vec<String>,
    /// What sinks found and did: output taken out of sight because it will be written again,
    /// output that a consumer has taken already.
    pub set_aside: Vec<String>,
}

/// State that one worker took over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loaded {
    /// The operator's id.
    pub operator: String,
    /// The worker.
    pub worker: u32,
    /// Rows: one per key, or per entry of a map.
    pub rows: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
}

impl fmt::Display for RestoreReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(epoch) = self.epoch else { return write!(f, "fresh start") };
        write!(f, "restored checkpoint {epoch}")?;
        for line in &self.passed_over {
            write!(f, "\n  PASSED OVER {line}")?;
        }
        for line in &self.set_aside {
            write!(f, "\n  {line}")?;
        }
        for line in &self.pending {
            write!(f, "\n  pending output: {line}")?;
        }
        for line in &self.operators {
            write!(f, "\n  {line}")?;
        }
        for Loaded { operator, worker, rows, bytes } in &self.loaded {
            write!(f, "\n  `{operator}` on worker {worker}: {rows} rows, {bytes} bytes")?;
        }
        for line in self.positions.iter().chain(&self.remarks) {
            write!(f, "\n  {line}")?;
        }
        Ok(())
    }
}

/// So many positions are shown where nothing is done.
const DONE_SHOWN: usize = 5;

impl RestoreReport {
    /// Why there is nothing to do: somebody may have meant other input, or other output.
    fn tell_what_is_done(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(epoch) = self.epoch else { return Ok(()) };
        write!(f, "; output is where earlier runs have written it; checkpoint {epoch} has read:")?;
        for line in self.positions.iter().take(DONE_SHOWN) {
            write!(f, "\n  {line}")?;
        }
        if let more @ 1.. = self.positions.len().saturating_sub(DONE_SHOWN) {
            write!(f, "\n  and {more} more")?;
        }
        self.remarks.iter().try_for_each(|line| write!(f, "\n  {line}"))
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.elapsed_ms as f64 / 1000.0;
        match self.outcome {
            Outcome::NothingToDo => {
                write!(f, "all input is done: nothing was read, nothing was changed")?;
                return self.restore.tell_what_is_done(f);
            }
            Outcome::ShareDone => {
                return write!(f, "done: process 0 tells what was read and written");
            }
            Outcome::InputEnded => write!(f, "all input read")?,
            Outcome::Stopped => write!(f, "stopped")?,
        }
        let CheckpointStats { published, failed, bytes_total, .. } = self.checkpoints;
        write!(f, ": {} records", self.read)?;
        // They are not counted as records, and written all the same.
        if self.dead_letters > 0 {
            write!(f, " and {} read", malformed(self.dead_letters))?;
        } else {
            write!(f, " read")?;
        }
        write!(f, ", {} written", self.written)?;
        // What is output and what are dead letters, say.
        if self.sinks.len() > 1 {
            let of = |Written { sink, records }: &Written| format!("{records} to `{sink}`");
            let sinks: Vec<String> = self.sinks.iter().map(of).collect();
            write!(f, " ({})", sinks.join(", "))?;
        }
        write!(
            f,
            " in {seconds:.2} s; {}, {bytes_total} bytes of state written",
            number_of(published, "checkpoint")
        )?;
        if self.skipped > 0 {
            write!(f, "; {} skipped", malformed(self.skipped))?;
        }
        if failed > 0 {
            write!(f, "; {} dropped", number_of(failed, "checkpoint"))?;
        }
        Ok(())
    }
}

fn malformed(pieces: u64) -> String {
    number_of(pieces, "malformed piece")
}

fn number_of(number: u64, what: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{number} {what}{s}")
}
