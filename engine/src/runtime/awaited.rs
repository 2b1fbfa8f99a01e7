//! What a job is waiting for, in words.

use std::collections::BTreeMap;

use isochrone_persistence::Error;

use super::conductor::Conductor;
use super::under_way::UnderWay;
use crate::protocol::{Attempt, Output, Part, Status};

/// After how long a job that is ending says for the first time what it waits for; each further time
/// after twice as long.
const ENDING_TOLD_AFTER_MS: u64 = 5_000;

/// When a job that is ending says again what it waits for.
#[derive(Default)]
pub(crate) struct Ending(Option<(u64, u64)>);

impl Ending {
    /// Whether it is to be said now.
    fn is_due(&mut self, now_ms: u64) -> bool {
        let (since_ms, due_ms) = self.0.get_or_insert((now_ms, now_ms + ENDING_TOLD_AFTER_MS));
        let is_due = now_ms >= *due_ms;
        if is_due {
            *due_ms = now_ms + (now_ms - *since_ms);
        }
        is_due
    }
}

impl Conductor {
    /// What the job is waiting for, for people.
    pub(super) fn awaited(&self) -> String {
        let Status { running, output, .. } = self.coordinator.status();
        let running = running.map(|running| self.checkpoint_awaited(&running));
        let output = output.map(|output| self.output_awaited(&output));
        let all: Vec<String> = [running, output].into_iter().flatten().collect();
        if all.is_empty() { "nothing".to_owned() } else { all.join("; and for ") }
    }

    fn checkpoint_awaited(&self, running: &Attempt) -> String {
        let epoch = running.epoch;
        if running.missing.is_empty() {
            return format!("the manifest of checkpoint {epoch}");
        }
        let name = |part: &Part| format!("`{}` on worker {}", self.ids[part.operator], part.worker);
        let missing: Vec<String> = running.missing.iter().map(name).collect();
        format!("checkpoint {epoch}, begun {} ms ago: {}", running.age_ms, missing.join(", "))
    }

    fn output_awaited(&self, output: &Output) -> String {
        let Output { epoch, age_ms, missing } = output;
        let who = self.who_commits(missing);
        format!(
            "the output of checkpoint {epoch} to become visible, for {}: {who}",
            seconds(*age_ms)
        )
    }

    /// Sinks and processes whose output is not visible, and what they are doing.
    fn who_commits(&self, missing: &[Part]) -> String {
        let mut by_process = BTreeMap::<u32, Vec<usize>>::new();
        for part in missing {
            let sinks = by_process.entry(part.worker.0 / self.workers_each).or_default();
            if !sinks.contains(&part.operator) {
                sinks.push(part.operator);
            }
        }
        let one = |(process, sinks): (u32, Vec<usize>)| {
            let sink = |sink: &usize| format!("sink `{}`", self.ids[*sink]);
            match self.tally.under_way(process as usize) {
                Some(UnderWay { operator, epoch, for_ms }) => format!(
                    "{} in process {process}, which began {} ago to commit what it has up to \
                     checkpoint {epoch}",
                    sink(operator),
                    seconds(*for_ms)
                ),
                None => {
                    let sinks: Vec<String> = sinks.iter().map(sink).collect();
                    format!("{} in process {process}", sinks.join(", "))
                }
            }
        };
        by_process.into_iter().map(one).collect::<Vec<_>>().join("; ")
    }

    /// Output is overdue: says so, and answers the error with which the job ends if it gives up.
    pub(super) fn overdue(&self, output: &Output, gives_up: bool) -> Result<(), Error> {
        let Output { epoch, age_ms, missing } = output;
        let (who, waited) = (self.who_commits(missing), seconds(*age_ms));
        if !gives_up {
            tracing::warn!(
                epoch = epoch.0,
                "output is still not visible after {waited}, and checkpoints wait for it: {who}"
            );
            return Ok(());
        }
        Err(Error::unavailable(format!(
            "the output of checkpoint {epoch} has not become visible in {waited}: {who}; the checkpoint \
             exists, nothing is lost: see that the target of the sink answers and start the job again, \
             which makes the output visible first"
        )))
    }

    /// Whoever has asked a job to end, or sees its input end, is told why it goes on.
    pub(super) fn tell_if_ending(&mut self, now_ms: u64, status: &Status) {
        if status.ending && self.ending.is_due(now_ms) {
            tracing::warn!("the job is ending and waits for {}", self.awaited());
        }
    }
}

fn seconds(ms: u64) -> String {
    format!("{}.{} s", ms / 1_000, ms % 1_000 / 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_is_ending_says_why_at_growing_distances() {
        let mut ending = Ending::default();
        let told: Vec<u64> = (0..=50).map(|s| 1_000 * s).filter(|ms| ending.is_due(*ms)).collect();
        assert_eq!(told, [5_000, 10_000, 20_000, 40_000]);
    }
}
