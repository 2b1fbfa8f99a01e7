//! Counting what a run does, for its progress line and its summary. Decides nothing.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::{IsTerminal, Write};

use isochrone_persistence::ids::{Epoch, OperatorId, Worker};

use super::message::Progress;
use super::under_way::UnderWay;
use crate::protocol::{Content, Part, Status};
use crate::summary::{CheckpointStats, Loaded, RestoreReport};

/// How often the progress line is drawn, in milliseconds.
const SHOW_EVERY_MS: u64 = 250;
/// From when on it names output that is not visible.
const OUTPUT_SHOWN_AFTER_MS: u64 = 3_000;

/// Counters of a run.
pub(crate) struct Tally {
    line: bool,
    shown_ms: u64,
    shown_read: u64,
    processes: BTreeMap<usize, Progress>,
    bytes: BTreeMap<Epoch, u64>,
    alignment_us: BTreeMap<Epoch, u64>,
    skipped: BTreeMap<Part, u64>,
    pub(crate) checkpoints: CheckpointStats,
    pub(crate) restore: RestoreReport,
    /// Keyed instances that have not said yet what they loaded.
    loading: usize,
    quiet: bool,
    published_ms: u64,
}

impl Tally {
    /// Unless `quiet`, the restore report is printed once `loading` instances have loaded their
    /// state, and progress is drawn if standard error is a terminal.
    pub(crate) fn new(quiet: bool, restore: RestoreReport, loading: usize, now_ms: u64) -> Self {
        let tally = Tally {
            line: !quiet && std::io::stderr().is_terminal(),
            quiet,
            restore,
            loading,
            shown_ms: now_ms,
            shown_read: 0,
            processes: BTreeMap::new(),
            bytes: BTreeMap::new(),
            alignment_us: BTreeMap::new(),
            skipped: BTreeMap::new(),
            checkpoints: CheckpointStats::default(),
            published_ms: now_ms,
        };
        tally.report_if_loaded();
        tally
    }

    pub(crate) fn progress(&mut self, progress: Progress) {
        let longest = &mut self.checkpoints.pause_us_max;
        *longest = (*longest).max(progress.pause_us);
        for (&epoch, &us) in &progress.alignment_us {
            let longest = self.alignment_us.entry(epoch).or_default();
            *longest = us.max(*longest);
        }
        match self.processes.entry(progress.process) {
            Entry::Vacant(first) => drop(first.insert(progress)),
            Entry::Occupied(mut known) => known.get_mut().update(progress),
        }
    }

    pub(crate) fn loaded(&mut self, id: &OperatorId, worker: Worker, rows: u64, bytes: u64) {
        let (operator, worker) = (id.to_string(), worker.0);
        self.restore.loaded.push(Loaded { operator, worker, rows, bytes });
        self.loading = self.loading.saturating_sub(1);
        self.restore.loaded.sort_by_key(|loaded| (loaded.operator.clone(), loaded.worker));
        self.report_if_loaded();
    }

    fn report_if_loaded(&self) {
        if self.loading == 0 && !self.quiet && self.restore.epoch.is_some() {
            eprintln!("{}", self.restore);
        }
    }

    /// The sink of a process that is making output visible.
    pub(crate) fn under_way(&self, process: usize) -> Option<&UnderWay> {
        self.processes.get(&process)?.under_way.as_ref()
    }

    pub(crate) fn acknowledged(&mut self, part: Part, epoch: Epoch, content: &Content) {
        match content {
            Content::State { segment: Some(segment) } => {
                *self.bytes.entry(epoch).or_default() += segment.bytes;
            }
            Content::Source { skipped, .. } => {
                self.skipped.insert(part, *skipped);
            }
            _ => {}
        }
    }

    pub(crate) fn bytes_of(&self, epoch: Epoch) -> u64 {
        self.bytes.range(..=epoch).map(|(_, bytes)| bytes).sum()
    }

    pub(crate) fn published(&mut self, epoch: Epoch, duration_ms: u64, bytes: u64, now_ms: u64) {
        self.bytes = self.bytes.split_off(&epoch.next());
        let later = self.alignment_us.split_off(&epoch.next());
        let alignment_us = self.alignment_us.remove(&epoch).unwrap_or_default();
        self.alignment_us = later;
        // Aligned: what is in flight at a cut is applied before the state is frozen, none is logged.
        let in_flight_bytes = 0;
        tracing::debug!(
            epoch = epoch.0,
            duration_ms,
            alignment_us,
            state_bytes = bytes,
            in_flight_bytes,
            "checkpoint"
        );
        let stats = &mut self.checkpoints;
        stats.published += 1;
        stats.last_epoch = epoch.0;
        stats.duration_ms_max = stats.duration_ms_max.max(duration_ms);
        stats.duration_ms_total += duration_ms;
        stats.alignment_us_max = stats.alignment_us_max.max(alignment_us);
        stats.bytes_total += bytes;
        stats.bytes_max = stats.bytes_max.max(bytes);
        self.published_ms = now_ms;
    }

    pub(crate) fn abandoned(&mut self, epoch: Epoch, why: &str) {
        tracing::warn!(epoch = epoch.0, why, "a checkpoint was dropped; the next one covers it");
        self.checkpoints.failed += 1;
        self.checkpoints.last_failure = Some(format!("checkpoint {epoch}: {why}"));
    }

    pub(crate) fn read(&self) -> u64 {
        self.processes.values().map(|process| process.read).sum()
    }

    pub(crate) fn dead_letters(&self) -> u64 {
        self.processes.values().map(|process| process.dead_letters).sum()
    }

    pub(crate) fn written(&self) -> u64 {
        self.processes.values().flat_map(|process| process.written.values()).sum()
    }

    /// Records by sink.
    pub(crate) fn written_by(&self) -> BTreeMap<usize, u64> {
        let mut by_sink = BTreeMap::new();
        for (sink, count) in self.processes.values().flat_map(|process| &process.written) {
            *by_sink.entry(*sink).or_default() += count;
        }
        by_sink
    }

    pub(crate) fn skipped(&self) -> u64 {
        self.skipped.values().sum()
    }

    /// Draws the progress line when it is due.
    pub(crate) fn show(&mut self, now_ms: u64, status: &Status) {
        if !self.line || now_ms < self.shown_ms + SHOW_EVERY_MS {
            return;
        }
        let rate = (self.read() - self.shown_read) * 1000 / (now_ms - self.shown_ms).max(1);
        let age = (now_ms - self.published_ms) as f64 / 1000.0;
        let busy = if status.running.is_some() { ", taking one" } else { "" };
        let late = status.output.as_ref().filter(|output| output.age_ms >= OUTPUT_SHOWN_AFTER_MS);
        let late = late.map_or_else(String::new, |output| {
            let (epoch, age_s) = (output.epoch, output.age_ms / 1_000);
            format!(", output of {epoch} not visible for {age_s} s")
        });
        // Progress is a courtesy: a closed terminal is no reason to stop.
        let _ = write!(
            std::io::stderr(),
            "\r{rate} records/s, {} read, {} written, checkpoint {age:.1} s old{busy}{late}\x1b[K",
            self.read(),
            self.written(),
        );
        self.shown_ms = now_ms;
        self.shown_read = self.read();
    }

    /// Takes the progress line away.
    pub(crate) fn clear_line(&self) {
        if self.line {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
