//! Part files: a folder that gets one file per worker and epoch, exactly once.
//!
//! A part is written under a hidden name, made durable when its epoch ends, and gets its final
//! name only after the checkpoint that names it exists. The final name comes from epoch and
//! worker alone, so a replay meets its own earlier output instead of doubling it. Knows paths and
//! bytes; what a record is, the encoders know.

mod csv;
mod done;
mod encode;
mod folder;
mod name;
mod owner;
mod part;
mod publish;

use std::io;
use std::path::{Path, PathBuf};

use isochrone_engine::connector::{Committer, Sink, SinkContext, Writer};
use isochrone_engine::{Error, ErrorKind, Result};
use serde::Serialize;

use encode::Encode;
pub(crate) use encode::{json_line, text_line};
pub use part::PreparedPart;

/// A folder of part files, before it is known what they hold.
///
/// Finished parts are named `part-<epoch>-<worker>.<extension>` with 10 and 4 digits, so that
/// sorting by name is sorting by epoch. An epoch in which a worker wrote nothing makes no file.
/// Parts in progress have names that begin with a dot and end in `.open`: no pattern such as
/// `*.jsonl` matches them. Beside them are the proofs of the parts published last: hidden, empty, and
/// ending in `.done`.
///
/// Give each sink a folder of its own: a hidden file in it says whose it is, and another sink is
/// refused. A job on several machines needs one folder that all of
/// them see under the same path (a shared file system): any of them may have to finish what
/// another one prepared.
///
/// Finished parts may be read, moved and deleted at any time. Leave the hidden files alone: a part in
/// progress that somebody removes is lost, and so the job stops and says which. After
/// `--on-damage previous` the parts of the epochs that will be written again are renamed to
/// `<name>.superseded-<generation>` and reported; who has taken one of them already has seen its
/// records once too often, so look for their epochs in what was taken.
///
/// ```
/// use isochrone_connectors::files::PartFiles;
/// #[derive(serde::Serialize)]
/// struct Total {
///     account: u64,
///     cents: i64,
/// }
/// let as_json = PartFiles::at("totals").json::<Total>();
/// let as_csv = PartFiles::at("totals-csv").csv::<Total>();
/// let as_text = PartFiles::at("log").text::<String>();
/// ```
#[derive(Clone, Debug)]
pub struct PartFiles {
    folder: PathBuf,
}

impl PartFiles {
    /// Part files in `folder`, which is created when the job starts if it is missing.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        PartFiles { folder: folder.into() }
    }

    /// One JSON value a line; extension `jsonl`.
    pub fn json<T: Serialize + 'static>(self) -> PartSink<T> {
        self.sink("jsonl", || Box::new(encode::Json))
    }

    /// A header line per part, then one line a record; extension `csv`.
    ///
    /// A record is a struct with named fields, each a number, text, bool, unit variant or an
    /// option of these; anything else fails with `Invalid` when it is written.
    pub fn csv<T: Serialize + 'static>(self) -> PartSink<T> {
        self.sink("csv", || Box::new(csv::Csv::default()))
    }

    /// One text a line, as it is: a line break within a text is not escaped; extension `txt`.
    pub fn text<T: AsRef<str> + 'static>(self) -> PartSink<T> {
        self.sink("txt", || Box::new(encode::Text))
    }

    fn sink<T>(self, extension: &'static str, encoder: NewEncoder<T>) -> PartSink<T> {
        PartSink { folder: self.folder, extension, encoder }
    }
}

type NewEncoder<T> = fn() -> Box<dyn Encode<T>>;

/// The sink that [`PartFiles`] describes.
pub struct PartSink<T> {
    folder: PathBuf,
    extension: &'static str,
    encoder: NewEncoder<T>,
}

impl<T: 'static> Sink for PartSink<T> {
    type Item = T;
    type Effect = PreparedPart;

    fn writer(&self, context: &SinkContext) -> Result<Box<dyn Writer<T, PreparedPart>>> {
        let folder = absolute(&self.folder)?;
        let names = name::Names::new(context, self.extension);
        Ok(Box::new(part::PartWriter::new(folder, names, context.worker, (self.encoder)())))
    }

    fn committer(&self, context: &SinkContext) -> Result<Box<dyn Committer<PreparedPart>>> {
        let folder = absolute(&self.folder)?;
        let names = name::Names::new(context, self.extension);
        Ok(Box::new(publish::PartCommitter::new(folder, names)))
    }

    fn target(&self) -> Option<String> {
        absolute(&self.folder).ok().map(|folder| format!("folder `{folder}`"))
    }

    fn describe(effect: &PreparedPart) -> String {
        format!("{} ({} bytes) in {}", effect.finished, effect.bytes, effect.folder)
    }
}

/// A prepared part names its folder by absolute path: the process that commits it may run in
/// another working directory, or with another folder in its settings.
fn absolute(folder: &Path) -> Result<String> {
    let path = std::path::absolute(folder).map_err(|e| io_error("resolve", folder, e))?;
    path.into_os_string().into_string().map_err(|path| {
        let path = path.to_string_lossy();
        Error::invalid(format!("folder {path} is not UTF-8; choose a name that is"))
    })
}

/// Whether an I/O error gets better by waiting (a full disk, a lost mount), or only when somebody
/// changes the folder.
fn io_error_kind(error: &io::Error) -> ErrorKind {
    use io::ErrorKind::*;
    match error.kind() {
        NotFound | NotADirectory | IsADirectory | PermissionDenied | ReadOnlyFilesystem
        | AlreadyExists | InvalidFilename => ErrorKind::Invalid,
        _ => ErrorKind::Unavailable,
    }
}

fn io_error(doing: &str, path: &Path, error: io::Error) -> Error {
    let advice = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            ": the disk is full; free some space"
        }
        io::ErrorKind::NotFound => "; is the folder there, and on this machine too?",
        io::ErrorKind::AlreadyExists => "; does a second process run as the same generation?",
        _ => "",
    };
    let message = format!("cannot {doing} {}{advice}", path.display());
    Error::new(io_error_kind(&error), message).with_source(error)
}
