//! A source and a sink of one's own, in full: meters are read, and a book in one file gets each
//! meter's total after every reading, exactly once.
//!
//! The source shows positions, the sink an effect that can be committed again and again. The main
//! thing about the sink is that the entries and the mark of who entered them when change in one step,
//! here the renaming of a file. With a database it would be a transaction.
//!
//! ```sh
//! cargo run --release --example custom_source -- --book book.json --store meters-state
//! ```

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use isochrone::connector::{
    Batch, Committer, Discovery, Poll, Prepare, Reader, Readiness, Recovery, Sink, SinkContext,
    Source, Split, Writer,
};
use isochrone::ids::Epoch;
use isochrone::prelude::*;

/// Keeps a book of what meters have read.
#[derive(Parser)]
struct Args {
    /// The book, a JSON file
    #[arg(long, value_name = "FILE")]
    book: PathBuf,
    /// Meters to read
    #[arg(long, value_name = "N", default_value = "4")]
    meters: u32,
    /// Readings that each meter has
    #[arg(long, value_name = "N", default_value = "1000")]
    readings: u64,
    #[command(flatten)]
    run: RunArgs,
}

fn main() -> ExitCode {
    isochrone::main(|| {
        let args = Args::parse();
        Job::new("meters").run(args.run.clone(), move |flow| {
            let meters = Meters { meters: args.meters, readings: args.readings };
            flow.source("meters", meters)
                .key_by(|reading| reading.meter)
                .state::<u64>("totals")
                .map(|total, Reading { meter, number, watt_hours }| {
                    *total += watt_hours;
                    Entry { meter, number, total: *total }
                })
                .sink("book", Book { path: args.book.clone() });
            Ok(())
        })
    })
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Reading {
    meter: u32,
    number: u64,
    watt_hours: u64,
}

// --- The source -----------------------------------------------------------------------------------

/// Meters that can be asked for any reading they have taken, by its number. A real one would be
/// asked over a network, on a thread of its own: a reader never waits.
struct Meters {
    meters: u32,
    readings: u64,
}

/// The next reading of a meter.
#[derive(Clone, Serialize, Deserialize)]
struct MeterPosition {
    meter: u32,
    next: u64,
}

impl Source for Meters {
    type Item = Reading;
    type Position = MeterPosition;

    fn discover(&self, known: &[String]) -> Result<Discovery<MeterPosition>> {
        let split = |meter| Split {
            id: format!("meter {meter}"),
            position: MeterPosition { meter, next: 0 },
        };
        let new = (0..self.meters).map(split).filter(|split| !known.contains(&split.id)).collect();
        Ok(Discovery { new, complete: true })
    }

    fn has_more(&self, split: &Split<MeterPosition>) -> Result<bool> {
        Ok(split.position.next < self.readings)
    }

    fn open(&self, split: Split<MeterPosition>) -> Result<Box<dyn Reader<Reading, MeterPosition>>> {
        Ok(Box::new(MeterReader { position: split.position, readings: self.readings }))
    }
}

struct MeterReader {
    position: MeterPosition,
    readings: u64,
}

impl Reader<Reading, MeterPosition> for MeterReader {
    fn poll(&mut self, batch: &mut Batch<Reading>, max: usize) -> Result<Poll> {
        let MeterPosition { meter, next } = self.position;
        let end = self.readings.min(next + max as u64);
        let read = |number| Reading { meter, number, watt_hours: 1 + (number * 7) % 13 };
        batch.items.extend((next..end).map(read));
        // A reading and the position behind it belong to the same call.
        self.position.next = end.max(next);
        Ok(if end < self.readings { Poll::Ready } else { Poll::Finished })
    }

    fn position(&self) -> MeterPosition {
        self.position.clone()
    }
}

// --- The sink -------------------------------------------------------------------------------------

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Entry {
    meter: u32,
    number: u64,
    total: u64,
}

/// A file that holds all entries, by who entered them when.
#[derive(Clone)]
struct Book {
    path: PathBuf,
}

/// What one worker wrote in one epoch. It lies in the checkpoint until it has been entered, which
/// is right for little output; much of it belongs in a place of its own, made durable by `prepare`.
#[derive(Clone, Serialize, Deserialize)]
struct Page {
    epoch: u64,
    worker: u32,
    entries: Vec<Entry>,
}

#[derive(Default, Serialize, Deserialize)]
struct Content {
    /// The newest run that has opened the book; none before it may add a page any more.
    generation: u64,
    pages: Vec<Page>,
}

impl Sink for Book {
    type Item = Entry;
    type Effect = Page;

    fn writer(&self, context: &SinkContext) -> Result<Box<dyn Writer<Entry, Page>>> {
        Ok(Box::new(BookWriter { worker: context.worker.0, entries: Vec::new() }))
    }

    fn committer(&self, context: &SinkContext) -> Result<Box<dyn Committer<Page>>> {
        Ok(Box::new(BookKeeper { book: self.clone(), generation: context.generation.0 }))
    }
}

struct BookWriter {
    worker: u32,
    entries: Vec<Entry>,
}

impl Writer<Entry, Page> for BookWriter {
    fn write(&mut self, batch: &mut Vec<Entry>, _epoch: Epoch) -> Result<Readiness> {
        self.entries.append(batch);
        Ok(Readiness::Ready)
    }

    fn prepare(&mut self, epoch: Epoch) -> Result<Prepare<Page>> {
        let entries = std::mem::take(&mut self.entries);
        let page = Page { epoch: epoch.0, worker: self.worker, entries };
        Ok(Box::new(move || Ok((!page.entries.is_empty()).then(|| page.clone()))))
    }
}

struct BookKeeper {
    book: Book,
    generation: u64,
}

impl Committer<Page> for BookKeeper {
    fn recover(&mut self, recovery: Recovery<Page>) -> Result<Vec<String>> {
        let Recovery { pending, from, .. } = recovery;
        let mut notes = Vec::new();
        self.book.change(|content| {
            self.not_overtaken(content)?;
            if from.is_none() && !content.pages.is_empty() {
                return Err(Error::invalid(format!(
                    "book `{}` has entries, and the job has no checkpoint that explains them; take \
                     another book, or the store that belongs to it",
                    self.book.path.display()
                )));
            }
            content.generation = self.generation;
            // What an older checkpoint does not know of will be written again.
            let before = content.pages.len();
            content.pages.retain(|page| from.is_some_and(|cut| page.epoch < cut.0));
            let taken_back = before - content.pages.len();
            if taken_back > 0 {
                notes.push(format!("{taken_back} pages were taken back; they will come again"));
            }
            pending.iter().try_for_each(|page| self.enter(content, page))
        })?;
        Ok(notes)
    }

    fn commit(&mut self, pages: &[Page]) -> Result<()> {
        if pages.is_empty() {
            return Ok(());
        }
        self.book.change(|content| pages.iter().try_for_each(|page| self.enter(content, page)))
    }
}

impl BookKeeper {
    /// Takes in a page, unless it is there: an effect may be handed in again, also by an older run.
    fn enter(&self, content: &mut Content, page: &Page) -> Result<()> {
        let is_there = |other: &Page| (other.epoch, other.worker) == (page.epoch, page.worker);
        if content.pages.iter().any(is_there) {
            return Ok(());
        }
        self.not_overtaken(content)?;
        content.pages.push(page.clone());
        Ok(())
    }

    fn not_overtaken(&self, content: &Content) -> Result<()> {
        if content.generation <= self.generation {
            return Ok(());
        }
        let book = self.book.path.display();
        Err(Error::fenced(format!(
            "book `{book}` is kept by a newer run of the job; stop this one"
        )))
    }
}

impl Book {
    /// Changes the content in one step, or not at all.
    fn change(&self, change: impl FnOnce(&mut Content) -> Result<()>) -> Result<()> {
        // Processes of one job, or a run that was thought dead, may want to write at the same time.
        // The lock ends with the process.
        let lock = File::create(self.beside("lock")).map_err(|e| self.failed(e))?;
        lock.lock().map_err(|e| self.failed(e))?;
        let mut content = self.read()?;
        change(&mut content)?;
        self.replace(&content)
    }

    fn read(&self) -> Result<Content> {
        match fs::read(&self.path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| {
                let path = self.path.display();
                Error::corrupt(format!("book `{path}` is not a book")).with_source(error)
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Content::default()),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// All of it or nothing, also in a power cut.
    fn replace(&self, content: &Content) -> Result<()> {
        let draft = self.beside("draft");
        let bytes = serde_json::to_vec(content).expect("a book is plain data");
        let write = || {
            fs::write(&draft, bytes)?;
            File::open(&draft)?.sync_all()?;
            fs::rename(&draft, &self.path)?;
            let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
            File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
        };
        write().map_err(|error| self.failed(error))
    }

    fn beside(&self, extension: &str) -> PathBuf {
        self.path.with_extension(extension)
    }

    fn failed(&self, error: std::io::Error) -> Error {
        Error::unavailable(format!("book `{}` cannot be written", self.path.display()))
            .with_source(error)
    }
}

#[cfg(test)]
mod tests {
    use isochrone::connectors::check_sink;
    use isochrone::connectors::conformance::check_source;

    use super::*;

    #[test]
    fn the_source_keeps_its_contract() {
        let meter = |meter| {
            Meters { meters: 2, readings: 5 }
                .open(Split { id: "all".into(), position: MeterPosition { meter, next: 0 } })
        };
        let mut all = Batch::default();
        for number in 0..2 {
            meter(number).unwrap().poll(&mut all, 100).unwrap();
        }
        assert_eq!(all.items.len(), 10);
        check_source(|| Meters { meters: 2, readings: 5 }, &all.items);
    }

    #[test]
    fn the_sink_keeps_its_contract() {
        let folder = tempfile::tempdir().unwrap();
        let book = Book { path: folder.path().join("book.json") };
        let entries = || {
            let mut pages = book.read().unwrap().pages;
            pages.sort_by_key(|page| (page.epoch, page.worker));
            pages.into_iter().flat_map(|page| page.entries).collect()
        };
        check_sink(|| book.clone(), entries, |number| Entry { meter: 0, number, total: 0 });
    }

    #[test]
    fn a_run_that_was_overtaken_adds_no_page() {
        let folder = tempfile::tempdir().unwrap();
        let book = Book { path: folder.path().join("book.json") };
        let open = |generation, from| {
            let mut keeper = BookKeeper { book: book.clone(), generation };
            keeper
                .recover(Recovery {
                    pending: vec![],
                    from,
                    renamed_from: None,
                    is_new: false,
                    history: None,
                })
                .unwrap();
            keeper
        };
        let page = |epoch| Page { epoch, worker: 0, entries: vec![] };
        let mut old = open(1, None);
        old.commit(&[page(6), page(7)]).unwrap();
        open(2, Some(Epoch(7)));
        old.commit(&[page(6)]).unwrap();
        let error = old.commit(&[page(7)]).unwrap_err();
        assert_eq!(error.kind(), isochrone::ErrorKind::Fenced);
        assert_eq!(book.read().unwrap().pages.len(), 1);
    }
}
