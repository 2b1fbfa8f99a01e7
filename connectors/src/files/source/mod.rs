//! Files as a source: which files, in which pieces, from where on.
//!
//! Knows nothing of checkpoints: a position is data that the engine keeps and hands back.

mod apart;
mod blocks;
mod discover;
mod header;
mod identity;
mod loss;
mod plan;
mod position;
mod proof;
mod reader;
mod record;
mod stamp;
mod watch;

use std::path::Path;
use std::time::Duration;

use isochrone_engine::connector::{Discovery, Reader, Source, Split};
use isochrone_engine::record::Record;
use isochrone_engine::{Error, Result};

use crate::OnDataLoss;
use crate::format::{ByExtension, Csv, Format, Json, Text};
use discover::Input;
pub use identity::FileIdentity;
use loss::{Ended, Standing};
pub use position::FilePosition;
use reader::FileReader;

/// Files to read: one, those of a directory, or those that match a pattern.
///
/// Of a directory, all regular files are read in the order of their names, but those that are
/// hidden or still being written (`*.open`); directories in it are not entered. `*`, `?` and
/// `[..]` make a pattern, unless a file or directory has that very name.
///
/// ```
/// use isochrone_connectors::files::Files;
/// use isochrone_engine::connector::{Batch, Poll, Reader, Source};
///
/// let folder = tempfile::tempdir().expect("a folder");
/// let path = folder.path().join("names.txt");
/// std::fs::write(&path, "Ada\nGrace\n").expect("written");
///
/// let source = Files::at(&path).text();
/// let split = source.discover(&[])?.new.remove(0);
/// let mut batch = Batch::default();
/// let poll = source.open(split)?.poll(&mut batch, 100)?;
/// assert_eq!(batch.items, ["Ada", "Grace"]);
/// assert_eq!(poll, Poll::Finished);
/// # Ok::<(), isochrone_engine::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Files {
    settings: Settings,
}

/// What a source of files was told, whatever the format.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    path: String,
    follow: bool,
    split_bytes: u64,
    record_bytes_max: usize,
    retry_after: Duration,
    on_data_loss: OnDataLoss,
}

/// Bytes read at a time.
const BLOCK_BYTES: usize = 512 * 1024;
/// Longest piece of malformed input handed on.
const RAW_BYTES_MAX: usize = 4096;
const SPLIT_BYTES: u64 = 32 * 1024 * 1024;
const RECORD_BYTES_MAX: usize = 1024 * 1024;
const RETRY_AFTER: Duration = Duration::from_millis(100);

impl Files {
    /// Files by a path or a pattern. Nothing is looked at yet.
    ///
    /// ```
    /// use isochrone_connectors::files::Files;
    /// use isochrone_engine::connector::Source;
    /// let error = Files::at("no/such/*.csv").text().discover(&[]).unwrap_err();
    /// assert!(error.to_string().ends_with("/no/such/*.csv`"), "{error}");
    /// ```
    pub fn at(path: impl AsRef<Path>) -> Files {
        Files {
            settings: Settings {
                // A path that is not UTF-8 is refused where it is found missing.
                path: path.as_ref().to_string_lossy().into_owned(),
                follow: false,
                split_bytes: SPLIT_BYTES,
                record_bytes_max: RECORD_BYTES_MAX,
                retry_after: RETRY_AFTER,
                on_data_loss: OnDataLoss::default(),
            },
        }
    }

    /// Whether to wait for more: for lines appended to a file, for files that appear in a directory
    /// or come to match a pattern. A last line waits for its line feed. Files may only grow. One of
    /// several that was read to its end may be deleted, and its name is not used again; if the only one
    /// is, that is told, and the job waits until it is stopped. Without this, a file
    /// is read to the end that it has when the reader comes there.
    ///
    /// What is followed is known again by its first bytes and the last that were read. Without this,
    /// all bytes are compared at the end if the file was written to meanwhile.
    ///
    /// ```
    /// use isochrone_connectors::files::Files;
    /// let log = Files::at("/var/log/app.jsonl").follow(true).json::<(u64, String)>();
    /// # let _ = log;
    /// ```
    #[must_use]
    pub fn follow(mut self, follow: bool) -> Files {
        self.settings.follow = follow;
        self
    }

    /// About how many bytes of a large file make a split, so that all workers read it; 32 MiB
    /// unless told. A file that is followed is one split.
    ///
    /// ```
    /// use isochrone_connectors::files::Files;
    /// let lines = Files::at("large.txt").split_bytes(256 * 1024 * 1024).text();
    /// # let _ = lines;
    /// ```
    #[must_use]
    pub fn split_bytes(mut self, bytes: u64) -> Files {
        self.settings.split_bytes = bytes.max(1);
        self
    }

    /// Longest record; 1 MiB unless told. A longer one is malformed and is not held in memory.
    ///
    /// ```
    /// use isochrone_connectors::files::Files;
    /// let lines = Files::at("long.txt").record_bytes_max(64 * 1024 * 1024).text();
    /// # let _ = lines;
    /// ```
    #[must_use]
    pub fn record_bytes_max(mut self, bytes: usize) -> Files {
        self.settings.record_bytes_max = bytes;
        self
    }

    /// What to do about a file that was cut, replaced or deleted between two runs, before all was
    /// read; to stop unless told. Otherwise what is left of a file that was cut is read, and what
    /// replaces a file is read from its beginning, by the first of its splits alone; the bytes that
    /// are lost are counted in the position. A file that changes so while a job reads it stops the job all the same, and it goes
    /// on when it is started again.
    ///
    /// ```
    /// use isochrone_connectors::{OnDataLoss, files::Files};
    /// let log = Files::at("app.log").on_data_loss(OnDataLoss::ContinueFromEarliest).text();
    /// # let _ = log;
    /// ```
    #[must_use]
    pub fn on_data_loss(mut self, on_data_loss: OnDataLoss) -> Files {
        self.settings.on_data_loss = on_data_loss;
        self
    }

    /// One JSON value to a line.
    ///
    /// ```
    /// use isochrone_connectors::files::Files;
    /// let pairs = Files::at("pairs.jsonl").json::<(String, i64)>();
    /// # let _ = pairs;
    /// ```
    pub fn json<T: Record>(self) -> FileSource<T, Json<T>> {
        self.format(Json::default())
    }

    /// Comma-separated values below a header in each file; see [`Csv`].
    ///
    /// ```
    /// use isochrone_connectors::files::Files;
    /// #[derive(Clone, serde::Serialize, serde::Deserialize)]
    /// struct Sale { item: String, cents: u32 }
    /// let sales = Files::at("sales/*.csv").csv::<Sale>();
    /// # let _ = sales;
    /// ```
    pub fn csv<T: Record>(self) -> FileSource<T, Csv<T>> {
        self.format(Csv::default())
    }

    /// Lines of text, empty ones too.
    ///
    /// ```
    /// let lines = isochrone_connectors::files::Files::at("poem.txt").text();
    /// # let _ = lines;
    /// ```
    pub fn text(self) -> FileSource<String, Text> {
        self.format(Text)
    }

    /// CSV or JSON, as the name of each file says; see [`ByExtension`].
    pub fn by_extension<T: Record>(self) -> FileSource<T, ByExtension<T>> {
        self.format(ByExtension::default())
    }

    /// Another format.
    ///
    /// ```
    /// use isochrone_connectors::{files::Files, format::Csv};
    /// let source = Files::at("prices").format(Csv::<(String, u32)>::default().delimiter(b';'));
    /// # let _ = source;
    /// ```
    pub fn format<F: Format>(self, format: F) -> FileSource<F::Item, F> {
        FileSource { settings: self.settings, format }
    }
}

/// A source of records in files; made by [`Files`].
#[derive(Clone, Debug)]
pub struct FileSource<T, F: Format<Item = T>> {
    settings: Settings,
    format: F,
}

impl<T: Record, F: Format<Item = T>> Source for FileSource<T, F> {
    type Item = T;
    type Position = FilePosition;

    fn discover(&self, known: &[String]) -> Result<Discovery<FilePosition>> {
        let known = discover::paths_of(known);
        let path = discover::absolute(&self.settings.path);
        let input = Input::find(&path, self.settings.follow, &known)?;
        let mut new = Vec::new();
        for path in input.paths.iter().filter(|path| !known.contains(*path)) {
            let format = self.format.for_file(path)?;
            new.extend(plan::splits_of(path, &self.settings, &format)?);
        }
        Ok(Discovery { new, complete: !(self.settings.follow && input.can_grow) })
    }

    fn remarks(&self, known: &[String]) -> Vec<String> {
        let path = discover::absolute(&self.settings.path);
        let others = discover::all_elsewhere(&path, &discover::paths_of(known));
        let remark = others.map(|others| {
            format!(
                "the checkpoint has read {others}, and nothing of input `{path}`: what was begun there \
                 is read to its end, and this input from its beginning"
            )
        });
        remark.into_iter().collect()
    }

    fn has_more(&self, split: &Split<FilePosition>) -> Result<bool> {
        let position = &split.position;
        match loss::standing(position)? {
            Standing::Fits(blocks) => Ok(position.end.is_none() && blocks.size() > position.offset),
            // It was read to its end; that is all one can ask of it.
            Standing::Gone => Ok(false),
            standing => match (self.settings.on_data_loss, loss::stopped(position, &standing)) {
                (OnDataLoss::Stop, Some(error)) => Err(error),
                // Opening it decides what there is.
                _ => Ok(true),
            },
        }
    }

    fn show(&self, position: &FilePosition) -> String {
        position.to_string()
    }

    fn open(&self, split: Split<FilePosition>) -> Result<Box<dyn Reader<T, FilePosition>>> {
        let Split { id, mut position } = split;
        let mut standing = loss::standing(&position)?;
        if let Some(error) = loss::stopped(&position, &standing) {
            if self.settings.on_data_loss == OnDataLoss::Stop {
                return Err(error);
            }
            let (next, has_file) = loss::go_on(&id, &position, &standing);
            let lost = next.lost - position.lost;
            tracing::warn!(lost, next = next.offset, "{error}; the source continues without them");
            if !has_file {
                return Ok(Box::new(Ended(next)));
            }
            standing = loss::standing(&next)?;
            position = next;
        }
        if matches!(standing, Standing::Gone) && loss::nothing_is_left(&position) {
            return Ok(Box::new(Ended(position)));
        }
        let Standing::Fits(blocks) = standing else {
            return Err(Error::unavailable(format!(
                "input `{}` changes while it is looked at; start the job again",
                position.path
            )));
        };
        let format = self.format.for_file(&position.path)?;
        Ok(Box::new(FileReader::open(position, blocks, &self.settings, format)?))
    }
}
