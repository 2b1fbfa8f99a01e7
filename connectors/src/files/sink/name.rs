//! The names of part files, finished and in progress. Knows no file.
//!
//! Neither a job's nor a sink's name holds a dot, so an in-progress name splits into its pieces
//! in one way only: `.<final name>.<job>.<sink>.<generation>.open`. The proof that it was published
//! ends in `.done` instead.

use isochrone_engine::connector::SinkContext;
use isochrone_engine::ids::{Epoch, Generation, JobName, OperatorId, Worker};

const EXTENSIONS: [&str; 3] = ["jsonl", "csv", "txt"];

/// Names for one run of one sink.
#[derive(Clone, Debug)]
pub(super) struct Names {
    job: JobName,
    sink: OperatorId,
    generation: Generation,
    extension: &'static str,
}

impl Names {
    pub(super) fn new(context: &SinkContext, extension: &'static str) -> Self {
        Names {
            job: context.job.clone(),
            sink: context.operator.clone(),
            generation: context.generation,
            extension,
        }
    }

    /// The name under which a part becomes visible; the same in every run.
    pub(super) fn finished(&self, epoch: Epoch, worker: Worker) -> String {
        format!("part-{:010}-{:04}.{}", epoch.0, worker.0, self.extension)
    }

    /// The name under which a part is written.
    pub(super) fn open(&self, finished: &str) -> String {
        format!(".{finished}.{}.{}.{}.open", self.job, self.sink, self.generation)
    }

    /// A file whose only purpose is to learn whether the folder takes files.
    pub(super) fn probe(&self) -> String {
        self.open(&format!("probe.{}", self.extension))
    }

    /// What the folder's owner file says of this sink, or of the id that it had before.
    pub(super) fn owner(&self, before: Option<&OperatorId>) -> String {
        format!("sink `{}` of job `{}`\n", before.unwrap_or(&self.sink), self.job)
    }

    /// The name that a finished part of a checkpoint that was given up gets.
    pub(super) fn superseded(&self, finished: &str) -> String {
        format!("{finished}{SUPERSEDED}{}", self.generation)
    }

    /// Whether `name` is a part that an earlier run of this sink was writing.
    pub(super) fn is_leftover(&self, name: &str) -> bool {
        self.hidden(name, "open").is_some_and(|(_, generation)| generation < self.generation)
    }

    /// The run of this sink that was writing the part `name`; `None` for any other name.
    pub(super) fn open_part(&self, name: &str) -> Option<Generation> {
        let (finished, generation) = self.hidden(name, "open")?;
        is_finished_part(finished).then_some(generation)
    }

    pub(super) fn generation(&self) -> Generation {
        self.generation
    }

    /// The epoch of the part of this sink whose publication `name` proves; `None` for any other
    /// name.
    pub(super) fn done_epoch(&self, name: &str) -> Option<Epoch> {
        epoch_of(self.hidden(name, "done")?.0)
    }

    /// The final name and the run in a hidden name of this sink.
    fn hidden<'a>(&self, name: &'a str, kind: &str) -> Option<(&'a str, Generation)> {
        let pieces: Vec<&str> = name.split('.').collect();
        let ["", stem, extension, job, sink, generation, end] = pieces[..] else { return None };
        let is_ours = EXTENSIONS.contains(&extension)
            && job == self.job.as_str()
            && sink == self.sink.as_str()
            && end == kind;
        let finished = &name[1..][..stem.len() + 1 + extension.len()];
        is_ours.then(|| Some((finished, Generation(generation.parse().ok()?)))).flatten()
    }
}

/// The name that proves that the part written as `open` was published.
pub(super) fn done(open: &str) -> String {
    format!("{}.done", open.strip_suffix(".open").unwrap_or(open))
}

/// Between the name of a part that was set aside and the generation that did so.
pub(super) const SUPERSEDED: &str = ".superseded-";

/// Whether `name` is that of a finished part, of whatever job.
pub(super) fn is_finished_part(name: &str) -> bool {
    epoch_of(name).is_some()
}

/// The epoch of a finished part, of whatever job; `None` for any other name.
pub(super) fn epoch_of(name: &str) -> Option<Epoch> {
    let digits = |s: &str, least| s.len() >= least && s.bytes().all(|b| b.is_ascii_digit());
    let (numbers, extension) = name.strip_prefix("part-")?.split_once('.')?;
    let (epoch, worker) = numbers.split_once('-')?;
    let is_ours = digits(epoch, 10) && digits(worker, 4) && EXTENSIONS.contains(&extension);
    is_ours.then(|| epoch.parse().ok().map(Epoch)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(job: &str, sink: &str, generation: u64) -> Names {
        Names {
            job: JobName::new(job).unwrap(),
            sink: OperatorId::new(sink).unwrap(),
            generation: Generation(generation),
            extension: "jsonl",
        }
    }

    #[test]
    fn names_sort_by_epoch_and_the_longest_fits_a_file_system() {
        let names = names(&"j".repeat(64), &"s".repeat(64), u64::MAX);
        let finished = |epoch, worker| names.finished(Epoch(epoch), Worker(worker));
        assert_eq!(finished(7, 3), "part-0000000007-0003.jsonl");
        assert!(finished(9, 0) < finished(10, 0));
        assert!(names.open(&finished(u64::MAX, u32::MAX)).len() <= 255);
    }

    #[test]
    fn only_older_generations_of_the_same_sink_are_leftovers() {
        let mine = names("job", "out", 5);
        let open = |job, sink, generation| {
            let names = names(job, sink, generation);
            names.open(&names.finished(Epoch(1), Worker(0)))
        };
        assert!(mine.is_leftover(&open("job", "out", 4)));
        assert!(mine.is_leftover(&names("job", "out", 4).probe()));
        assert!(!mine.is_leftover(&open("job", "out", 5)));
        assert!(!mine.is_leftover(&open("job", "out", 6)));
        assert!(!mine.is_leftover(&open("job2", "out", 4)));
        assert!(!mine.is_leftover(&open("job", "out2", 4)));
        assert!(!mine.is_leftover(".open"));
        assert!(!mine.is_leftover("part-0000000001-0000.jsonl"));
    }

    #[test]
    fn the_proof_of_a_part_is_known_by_its_epoch_and_matches_no_pattern() {
        let mine = names("job", "out", 5);
        let proof = done(&mine.open(&mine.finished(Epoch(7), Worker(3))));
        assert_eq!(proof, ".part-0000000007-0003.jsonl.job.out.5.done");
        assert_eq!(mine.done_epoch(&proof), Some(Epoch(7)));
        assert_eq!(names("job", "out2", 5).done_epoch(&proof), None);
        assert_eq!(mine.done_epoch(&mine.open(&mine.finished(Epoch(7), Worker(3)))), None);
        assert!(!mine.is_leftover(&proof));
        assert!(!is_finished_part(&proof));
    }

    #[test]
    fn finished_parts_are_told_from_other_files() {
        for part in ["part-0000000001-0000.jsonl", "part-12345678901-12345.csv"] {
            assert!(is_finished_part(part), "{part}");
        }
        for other in [
            "part-1-0.jsonl",
            "part-0000000001-0000.parquet",
            "part-0000000001.jsonl",
            "part-00000000x1-0000.jsonl",
            "notes.txt",
            ".part-0000000001-0000.jsonl.job.out.1.open",
        ] {
            assert!(!is_finished_part(other), "{other}");
        }
    }
}
