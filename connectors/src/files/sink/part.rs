//! Writes the parts of one worker: a buffer, a hidden file, and at the end of the epoch a closure
//! that makes it durable. Knows nothing of how records are formatted or how parts get published.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use isochrone_engine::connector::{Prepare, Readiness, Writer};
use isochrone_engine::ids::{Epoch, Worker};
use isochrone_engine::{Error, Result};
use serde::{Deserialize, Serialize};

use super::encode::{BUFFER_BYTES, Encode};
use super::name::Names;
use super::{folder, io_error};

/// A part that is durable but not yet visible: what a checkpoint remembers of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreparedPart {
    /// The folder, an absolute path.
    pub folder: String,
    /// The name it was written under.
    pub open: String,
    /// The name it gets.
    pub finished: String,
    /// Its length.
    pub bytes: u64,
    /// BLAKE3 of its content, in hex.
    pub digest: String,
}

pub(super) struct PartWriter<T> {
    folder: String,
    names: Names,
    worker: Worker,
    encoder: Box<dyn Encode<T>>,
    part: Option<(Epoch, OpenPart)>,
}

impl<T: 'static> PartWriter<T> {
    pub(super) fn new(
        folder: String,
        names: Names,
        worker: Worker,
        encoder: Box<dyn Encode<T>>,
    ) -> Self {
        PartWriter { folder, names, worker, encoder, part: None }
    }

    fn begin(&mut self, epoch: Epoch, first: &T) -> Result<()> {
        let finished = self.names.finished(epoch, self.worker);
        let open = self.names.open(&finished);
        let mut part = OpenPart::new(self.folder.clone(), open, finished);
        self.encoder.begin(first, &mut part.buffer)?;
        self.part = Some((epoch, part));
        Ok(())
    }
}

impl<T: 'static> Writer<T, PreparedPart> for PartWriter<T> {
    fn write(&mut self, batch: &mut Vec<T>, epoch: Epoch) -> Result<Readiness> {
        let Some(first) = batch.first() else { return Ok(Readiness::Ready) };
        if self.part.is_none() {
            self.begin(epoch, first)?;
        }
        let (begun, part) = self.part.as_mut().expect("the part was begun just above");
        assert_eq!(*begun, epoch, "an epoch began before the one before it was prepared");
        let mut rest = &batch[..];
        while !rest.is_empty() {
            let taken = self.encoder.encode(rest, &mut part.buffer)?;
            rest = &rest[taken..];
            if part.buffer.len() >= BUFFER_BYTES {
                part.write_out()?;
            }
        }
        batch.clear();
        Ok(Readiness::Ready)
    }

    fn prepare(&mut self, epoch: Epoch) -> Result<Prepare<PreparedPart>> {
        let Some((begun, mut part)) = self.part.take() else { return Ok(Box::new(|| Ok(None))) };
        assert_eq!(begun, epoch, "an epoch ends as the one in which it was written");
        Ok(Box::new(move || part.finish().map(Some)))
    }
}

/// One part in progress. Small ones reach the disk only in `finish`, on the background thread.
struct OpenPart {
    place: PreparedPart,
    buffer: Vec<u8>,
    digest: blake3::Hasher,
    file: Option<File>,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Writing,
    Durable,
    Lost,
}

impl OpenPart {
    fn new(folder: String, open: String, finished: String) -> Self {
        OpenPart {
            place: PreparedPart { folder, open, finished, bytes: 0, digest: String::new() },
            buffer: Vec::with_capacity(BUFFER_BYTES + BUFFER_BYTES / 16),
            digest: blake3::Hasher::new(),
            file: None,
            state: State::Writing,
        }
    }

    fn path(&self) -> PathBuf {
        Path::new(&self.place.folder).join(&self.place.open)
    }

    /// Writes the buffer; what a failing disk did not take stays in it for the next try.
    fn write_out(&mut self) -> Result<()> {
        if self.file.is_none() {
            self.file = Some(create(&self.path())?);
        }
        let file = self.file.as_mut().expect("created just above");
        let mut written = 0;
        let outcome = loop {
            match file.write(&self.buffer[written..]) {
                Ok(0) if written == self.buffer.len() => break Ok(()),
                Ok(0) => break Err(ErrorKind::WriteZero.into()),
                Ok(count) => written += count,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => break Err(e),
            }
        };
        self.digest.update(&self.buffer[..written]);
        self.place.bytes += written as u64;
        self.buffer.drain(..written);
        outcome.map_err(|e| io_error("write", &self.path(), e))
    }

    fn finish(&mut self) -> Result<PreparedPart> {
        if self.state == State::Durable {
            return Ok(self.place.clone());
        }
        if self.state == State::Lost {
            let path = self.path();
            return Err(Error::unavailable(format!(
                "{} could not be synced before, so its content is unknown; restart the job from \
                 its last checkpoint",
                path.display()
            )));
        }
        self.write_out()?;
        self.place.digest = self.digest.finalize().to_hex().to_string();
        self.sync()?;
        self.buffer = Vec::new();
        self.file = None;
        Ok(self.place.clone())
    }

    /// IMPORTANT: a sync that failed is never tried again. The kernel drops the pages it could
    /// not write and reports the error once: a second sync would succeed over missing data.
    fn sync(&mut self) -> Result<()> {
        self.state = State::Lost;
        let file = self.file.as_ref().expect("a part in progress has a file once written out");
        file.sync_all().map_err(|e| io_error("sync", &self.path(), e))?;
        folder::sync(Path::new(&self.place.folder))?;
        self.state = State::Durable;
        Ok(())
    }
}

/// A run that ends well leaves nothing in progress behind. After a crash the next run does it.
impl Drop for OpenPart {
    fn drop(&mut self) {
        if self.state == State::Writing && self.file.take().is_some() {
            // What stays is never read, and removed when the job starts again.
            let _ = std::fs::remove_file(self.path());
        }
    }
}

fn create(path: &Path) -> Result<File> {
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    file.map_err(|e| io_error("create", path, e))
}

#[cfg(test)]
mod tests {
    use isochrone_engine::ErrorKind as Kind;

    use super::*;

    #[test]
    fn a_failed_sync_is_never_tried_again() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().to_str().unwrap().to_owned();
        let mut part = OpenPart::new(path, "open".into(), "finished".into());
        // A device that takes bytes but cannot sync them.
        part.file = Some(OpenOptions::new().write(true).open("/dev/null").unwrap());
        part.buffer.extend_from_slice(b"line\n");
        let first = part.finish().unwrap_err();
        assert_eq!(first.kind(), Kind::Unavailable);
        assert!(first.to_string().contains("cannot sync"), "{first}");

        part.file = Some(create(&part.path()).unwrap());
        let again = part.finish().unwrap_err();
        assert_eq!(again.kind(), Kind::Unavailable);
        assert!(again.to_string().contains("restart the job"), "{again}");
    }
}
