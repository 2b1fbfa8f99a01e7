//! Reads the records of one split.

use isochrone_engine::connector::{Batch, Malformed, Poll, Reader};
use isochrone_engine::{Error, Result};

use super::blocks::Blocks;
use super::header::{pass_byte_order_mark, take_header};
use super::position::FilePosition;
use super::record::{
    count_lines, line_feeds, malformed, place, place_within, too_long, without_carriage_return,
};
use super::watch::{Seen, Watch};
use super::{BLOCK_BYTES, RAW_BYTES_MAX, Settings, identity};
use crate::format::{Decoder, Format, RecordEnd};

/// Blocks read in one call before others get their turn.
const BLOCKS_PER_POLL: usize = 8 * 1024 * 1024 / BLOCK_BYTES;

/// The reader of one split.
pub(super) struct FileReader<F: Format> {
    format: F,
    settings: Settings,
    blocks: Blocks,
    watch: Watch,
    /// By earlier runs: bytes, and how many times.
    lost_before: (u64, u32),
    range_end: Option<u64>,
    header: Option<String>,
    /// There once the header was read.
    decoder: Option<F::Decoder>,
    end: RecordEnd,
    line: Option<u64>,
    too_long: Option<TooLong>,
    open_line: bool,
    /// The end of a file that is followed was reached.
    waiting: bool,
    /// The input is this file, not whatever is in a folder or matches a pattern.
    is_all_input: bool,
    /// That it is gone was told.
    is_missed: bool,
    finished: bool,
}

/// A record that is being passed over without being held.
struct TooLong {
    /// Of its first byte: it counts as unread until its end was found.
    position: FilePosition,
    raw: Vec<u8>,
    line_feeds: u64,
    reason: String,
}

impl TooLong {
    /// Keeps what is shown of the record, the same however its bytes arrive.
    fn pass(&mut self, bytes: &[u8]) {
        let room = RAW_BYTES_MAX - self.raw.len();
        self.raw.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.line_feeds += line_feeds(bytes);
    }
}

impl<F: Format> FileReader<F> {
    /// Reads on at a position that fits the file, and that was opened there.
    pub(super) fn open(
        position: FilePosition,
        mut blocks: Blocks,
        settings: &Settings,
        format: F,
    ) -> Result<Self> {
        let FilePosition { offset, end, line, header, open_line, lost, losses, .. } = position;
        if !settings.follow {
            blocks.keep_proof();
        }
        let watch = Watch::new(&mut blocks)?;
        let path = blocks.path().to_owned();
        if open_line {
            close_line(&mut blocks)?;
        }
        let mut reader = FileReader {
            end: RecordEnd::new(format.framing()),
            open_line: open_line && blocks.offset() == offset,
            format,
            settings: settings.clone(),
            blocks,
            watch,
            lost_before: (lost, losses),
            range_end: end,
            header,
            decoder: None,
            line,
            too_long: None,
            waiting: false,
            is_all_input: super::discover::absolute(&settings.path) == path,
            is_missed: false,
            finished: false,
        };
        reader.look_for_header()?;
        Ok(reader)
    }

    /// A header that does not fit is reported before anything runs.
    fn look_for_header(&mut self) -> Result<()> {
        while !self.is_past_header(false)? && self.fill()? {}
        Ok(())
    }

    /// Whether the next unread byte is the first of a record.
    fn is_past_header(&mut self, at_end: bool) -> Result<bool> {
        if !pass_byte_order_mark(&mut self.blocks) && !at_end {
            return Ok(false);
        }
        if self.decoder.is_some() {
            return Ok(true);
        }
        if self.format.has_header() && self.header.is_none() {
            let bytes_max = self.settings.record_bytes_max;
            let (blocks, end) = (&mut self.blocks, &mut self.end);
            self.header = take_header(blocks, end, &mut self.line, bytes_max, at_end)?;
            if self.header.is_none() {
                return Ok(false);
            }
        }
        let decoder = self.format.decoder(self.header.as_deref()).map_err(|error| {
            Error::new(error.kind(), format!("input `{}`: {error}", self.blocks.path()))
        })?;
        self.decoder = Some(decoder);
        Ok(true)
    }

    fn fill(&mut self) -> Result<bool> {
        let seen = self.watch.look(&mut self.blocks)?;
        let length = self.length_of_same(seen)?;
        if self.waiting && length <= self.blocks.read_to() {
            return Ok(false);
        }
        let more = self.blocks.fill()?;
        self.waiting = !more && self.settings.follow;
        Ok(more)
    }

    /// Takes up to `left` records of those that are whole in the buffer.
    fn take_records(&mut self, batch: &mut Batch<F::Item>, left: &mut usize) {
        if self.too_long.is_some() {
            self.pass_too_long(batch, left);
        }
        let Some(decoder) = &mut self.decoder else { return };
        let bytes_max = self.settings.record_bytes_max;
        while *left > 0 {
            let unread = self.blocks.unread();
            let Some(at) = self.end.find(unread) else { break };
            let decoded = if at <= bytes_max {
                decoder.decode(without_carriage_return(&unread[..at]))
            } else {
                Err(too_long(
                    bytes_max,
                    self.format.framing(),
                    (self.line, self.blocks.offset()),
                    unread,
                ))
            };
            match decoded {
                Ok(None) => {}
                Ok(Some(item)) => {
                    batch.items.push(item);
                    *left -= 1;
                }
                Err(reason) => {
                    let place = place(self.blocks.path(), self.line, self.blocks.offset());
                    batch.malformed.push(malformed(place, reason, &unread[..at]));
                    *left -= 1;
                }
            }
            count_lines(&mut self.line, &self.end, &unread[..=at]);
            self.blocks.consume(at + 1);
            self.end.reset();
        }
        if *left > 0 && self.too_long.is_none() && self.blocks.unread().len() > bytes_max {
            let framing = self.format.framing();
            let at = (self.line, self.blocks.offset());
            let reason = too_long(bytes_max, framing, at, self.blocks.unread());
            let position = self.position();
            self.too_long = Some(TooLong { position, raw: Vec::new(), line_feeds: 0, reason });
            self.pass_too_long(batch, left);
        }
    }

    /// Drops what is read of a record that is too long, up to its end if that is there.
    fn pass_too_long(&mut self, batch: &mut Batch<F::Item>, left: &mut usize) {
        let Some(record) = &mut self.too_long else { return };
        let unread = self.blocks.unread();
        match self.end.find(unread) {
            Some(at) => {
                record.pass(&unread[..at]);
                record.line_feeds += 1;
                self.blocks.consume(at + 1);
                self.end_too_long(batch);
                *left -= 1;
            }
            None => {
                let dropped = self.end.droppable();
                record.pass(&unread[..dropped]);
                self.blocks.consume(dropped);
            }
        }
    }

    fn end_too_long(&mut self, batch: &mut Batch<F::Item>) {
        let Some(record) = self.too_long.take() else { return };
        let FilePosition { path, offset, line, .. } = record.position;
        batch.malformed.push(Malformed {
            place: place(&path, line, offset),
            reason: record.reason,
            raw: record.raw,
            origin: Vec::new(),
        });
        self.line = line.map(|line| line + record.line_feeds);
        self.end.reset();
    }

    /// All was read that there is.
    fn at_end(&mut self, batch: &mut Batch<F::Item>) -> Result<Poll> {
        let length = self.blocks.length_now()?;
        let missing = self.range_end.is_some_and(|end| self.blocks.read_to() < end);
        if missing || length < self.blocks.size() {
            return Err(self.lost(identity::truncated, length));
        }
        if self.settings.follow && self.range_end.is_none() {
            return self.wait();
        }
        if self.range_end.is_some() && !self.blocks.unread().is_empty() {
            // The range ended with a record when it was cut.
            return Err(self.lost(identity::replaced, length));
        }
        let Some(seen) = self.watch.settle(&mut self.blocks)? else { return Ok(Poll::Ready) };
        self.length_of_same(seen)?;
        if self.is_past_header(true)? {
            self.take_last_record(batch);
        }
        self.finished = true;
        Ok(Poll::Finished)
    }

    /// The last record needs no line feed.
    fn take_last_record(&mut self, batch: &mut Batch<F::Item>) {
        let unread = self.blocks.unread();
        let bytes = unread.len();
        let Some(decoder) = self.decoder.as_mut().filter(|_| bytes > 0) else { return };
        if let Some(record) = &mut self.too_long {
            record.pass(unread);
            self.blocks.consume(bytes);
            self.end_too_long(batch);
        } else {
            match decoder.decode(without_carriage_return(unread)) {
                Ok(item) => batch.items.extend(item),
                Err(mut reason) => {
                    let at = (self.line, self.blocks.offset());
                    // In the record's own line, its place says where.
                    let quote = self.end.open_quote(unread);
                    if let Some(quote) = quote.filter(|quote| line_feeds(&unread[..*quote]) > 0) {
                        reason = format!("{reason}; it begins {}", place_within(at, unread, quote));
                    }
                    let place = place(self.blocks.path(), at.0, at.1);
                    batch.malformed.push(malformed(place, reason, unread));
                }
            }
            count_lines(&mut self.line, &self.end, unread);
            self.blocks.consume(bytes);
        }
        self.open_line = true;
    }

    /// The end of a file that is followed: is it still there?
    fn wait(&mut self) -> Result<Poll> {
        let length = self.blocks.length_now()?;
        let read_all = length == self.blocks.offset() && self.too_long.is_none();
        match std::fs::metadata(self.blocks.path()) {
            Ok(found) if identity::inode(&found) == self.blocks.inode() => {
                self.blocks.release();
                Ok(Poll::Idle { retry_after: self.settings.retry_after })
            }
            Ok(found) => Err(self.lost(identity::replaced, found.len())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && read_all => {
                if self.is_all_input {
                    self.miss();
                    return Ok(Poll::Idle { retry_after: self.settings.retry_after });
                }
                self.finished = true;
                Ok(Poll::Finished)
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let offset = self.position().offset;
                Err(identity::deleted(self.blocks.path(), offset, length))
            }
            Err(error) => Err(identity::unreadable(self.blocks.path(), error)),
        }
    }

    /// The input has no end, and now no name: whoever moved it may be writing to it still.
    fn miss(&mut self) {
        if !std::mem::replace(&mut self.is_missed, true) {
            tracing::warn!(
                "input `{}` is gone, moved or deleted; all of it has been read, and what is still \
                 written to it is read as well, until the job is stopped",
                self.blocks.path()
            );
        }
        self.blocks.release();
    }

    /// The length of a file that still has what was read.
    fn length_of_same(&self, seen: Seen) -> Result<u64> {
        match seen {
            Seen::Same { length } => Ok(length),
            Seen::Shorter { length } => Err(self.lost(identity::truncated, length)),
            Seen::Overwritten { length } => Err(self.lost(identity::overwritten, length)),
            Seen::Replaced { length } => Err(self.lost(identity::replaced, length)),
        }
    }

    fn lost(&self, what: fn(&str, u64, u64, u64) -> Error, found: u64) -> Error {
        what(self.blocks.path(), self.position().offset, self.blocks.size(), found)
    }
}

impl<F: Format> Reader<F::Item, FilePosition> for FileReader<F> {
    fn poll(&mut self, batch: &mut Batch<F::Item>, max: usize) -> Result<Poll> {
        if self.finished {
            return Ok(Poll::Finished);
        }
        if self.watch.is_settling() {
            return self.at_end(batch);
        }
        let mut left = max.max(1);
        for _ in 0..BLOCKS_PER_POLL {
            if self.is_past_header(false)? {
                self.take_records(batch, &mut left);
                if left == 0 {
                    return Ok(Poll::Ready);
                }
            }
            if !self.fill()? {
                return self.at_end(batch);
            }
        }
        Ok(Poll::Ready)
    }

    fn position(&self) -> FilePosition {
        if let Some(record) = &self.too_long {
            return record.position.clone();
        }
        FilePosition {
            path: self.blocks.path().to_owned(),
            offset: self.blocks.offset(),
            end: self.range_end,
            line: self.line,
            header: self.header.clone(),
            open_line: self.open_line,
            file: self.blocks.identity(),
            lost: self.lost_before.0,
            losses: self.lost_before.1,
        }
    }
}

/// Passes over the line feed that has come since the last line was read without it.
fn close_line(blocks: &mut Blocks) -> Result<()> {
    while blocks.unread().len() < 2 && blocks.fill()? {}
    let line_end = match blocks.unread() {
        [] => 0,
        [b'\n', ..] => 1,
        [b'\r', b'\n', ..] => 2,
        _ => {
            return Err(Error::invalid(format!(
                "input `{}` has grown within its last line, which was read as a whole up to byte \
                 {}; take away what was appended to that line, and write it in a line of its own; a \
                 file whose last line may be unfinished is to be followed from the start",
                blocks.path(),
                blocks.offset()
            )));
        }
    };
    blocks.consume(line_end);
    Ok(())
}
