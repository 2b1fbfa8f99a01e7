//! A file read block by block into one buffer, with the few bytes before that prove which file it is.

use std::fs::File;

use isochrone_engine::Result;

use super::BLOCK_BYTES;
use super::identity::{self, FileIdentity, HEAD_BYTES, TAIL_BYTES};
use super::proof::Kept;
use super::stamp::Stamp;

/// Bytes read at a time where no more are known to be there.
const SMALL_BYTES: usize = 8 * 1024;

/// The bytes of a file from some offset on.
#[derive(Debug)]
pub(super) struct Blocks {
    path: String,
    file: File,
    inode: Option<u64>,
    /// No byte from here on is read.
    end: u64,
    buffer: Vec<u8>,
    /// The place in the file of the buffer's first byte.
    start: u64,
    cursor: usize,
    filled: usize,
    /// The first bytes of the file.
    head: Vec<u8>,
    /// The longest the file was seen.
    size: u64,
    /// What proves all that was read here, if that is kept.
    kept: Option<Kept>,
}

impl Blocks {
    /// Opens a file at an offset. `size` is the longest it was seen before.
    pub(super) fn open(path: &str, offset: u64, end: Option<u64>, size: u64) -> Result<Blocks> {
        let (file, found) = identity::open(path)?;
        if found.len() < size {
            return Err(identity::truncated(path, offset, size, found.len()));
        }
        let tail = offset.min(TAIL_BYTES as u64);
        let mut blocks = Blocks {
            path: path.to_owned(),
            file,
            inode: identity::inode(&found),
            end: end.unwrap_or(u64::MAX),
            buffer: Vec::new(),
            start: offset - tail,
            cursor: tail as usize,
            filled: 0,
            head: Vec::new(),
            size: found.len(),
            kept: None,
        };
        blocks.head = blocks.read_exactly(0, HEAD_BYTES)?;
        blocks.buffer = blocks.read_exactly(offset - tail, tail as usize)?;
        blocks.filled = blocks.buffer.len();
        if blocks.filled < blocks.cursor {
            return Err(identity::truncated(
                path,
                offset,
                size,
                blocks.start + blocks.filled as u64,
            ));
        }
        Ok(blocks)
    }

    /// The bytes read and not consumed.
    #[inline]
    pub(super) fn unread(&self) -> &[u8] {
        &self.buffer[self.cursor..self.filled]
    }

    #[inline]
    pub(super) fn consume(&mut self, bytes: usize) {
        debug_assert!(self.cursor + bytes <= self.filled);
        self.cursor += bytes;
    }

    /// The place in the file of the next unread byte.
    #[inline]
    pub(super) fn offset(&self) -> u64 {
        self.start + self.cursor as u64
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// The longest the file was seen.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// The place in the file behind the last byte read.
    pub(super) fn read_to(&self) -> u64 {
        self.start + self.filled as u64
    }

    /// Keeps from here on what proves all that is read.
    pub(super) fn keep_proof(&mut self) {
        self.kept = Some(Kept::from(self.read_to()));
    }

    pub(super) fn kept(&self) -> Option<&Kept> {
        self.kept.as_ref()
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Reads more behind the unread bytes; `false` if there are none before the end.
    pub(super) fn fill(&mut self) -> Result<bool> {
        self.drop_consumed();
        let at = self.read_to();
        let known = self.size.saturating_sub(at).clamp(SMALL_BYTES as u64, BLOCK_BYTES as u64);
        let wanted = self.end.saturating_sub(at).min(known) as usize;
        if wanted == 0 {
            return Ok(false);
        }
        if self.buffer.len() < self.filled + wanted {
            self.buffer.resize(self.filled + wanted, 0);
        }
        let target = &mut self.buffer[self.filled..self.filled + wanted];
        let read = identity::read_at(&self.file, at, target)
            .map_err(|error| identity::unreadable(&self.path, error))?;
        if let Some(kept) = &mut self.kept {
            kept.add(&self.buffer[self.filled..self.filled + read]);
        }
        self.extend_head(at, self.filled, read);
        self.filled += read;
        self.size = self.size.max(self.read_to());
        Ok(read > 0)
    }

    /// What is remembered of the file at the next unread byte.
    pub(super) fn identity(&self) -> FileIdentity {
        FileIdentity { size: self.size, inode: self.inode, digest: self.digest() }
    }

    fn digest(&self) -> String {
        let head = self.head.len().min(usize::try_from(self.offset()).unwrap_or(usize::MAX));
        let tail = self.cursor.saturating_sub(TAIL_BYTES);
        identity::digest(&self.head[..head], &self.buffer[tail..self.cursor])
    }

    /// Whether the open file still has the first and the last bytes that were read.
    pub(super) fn is_unchanged(&self) -> Result<bool> {
        let tail = self.filled.min(TAIL_BYTES);
        let last = self.read_exactly(self.read_to() - tail as u64, tail)?;
        let head = self.read_exactly(0, self.head.len())?;
        Ok(head == self.head && last == self.buffer[self.filled - tail..self.filled])
    }

    /// The length of the open file, whether or not it still has its name.
    pub(super) fn length_now(&mut self) -> Result<u64> {
        Ok(self.stamp_now()?.length)
    }

    /// What the file system says of the open file, whether or not it still has its name.
    pub(super) fn stamp_now(&mut self) -> Result<Stamp> {
        let found =
            self.file.metadata().map_err(|error| identity::unreadable(&self.path, error))?;
        self.size = self.size.max(found.len());
        Ok(Stamp::of(&found))
    }

    /// Gives back memory while there is nothing to read: many files may be followed.
    pub(super) fn release(&mut self) {
        self.drop_consumed();
        self.buffer.truncate(self.filled);
        self.buffer.shrink_to_fit();
    }

    pub(super) fn inode(&self) -> Option<u64> {
        self.inode
    }

    fn read_exactly(&self, offset: u64, bytes: usize) -> Result<Vec<u8>> {
        let mut buffer = vec![0; bytes];
        let read = identity::read_at(&self.file, offset, &mut buffer)
            .map_err(|error| identity::unreadable(&self.path, error))?;
        buffer.truncate(read);
        Ok(buffer)
    }

    /// Moves the unread bytes to the front, but for those that prove which file it is.
    fn drop_consumed(&mut self) {
        let dropped = self.cursor.saturating_sub(TAIL_BYTES);
        self.buffer.copy_within(dropped..self.filled, 0);
        self.start += dropped as u64;
        self.cursor -= dropped;
        self.filled -= dropped;
    }

    fn extend_head(&mut self, at: u64, from: usize, read: usize) {
        let known = self.head.len() as u64;
        if self.head.len() >= HEAD_BYTES || at > known {
            return;
        }
        let news = &self.buffer[from..from + read];
        let skipped = (known - at) as usize;
        let room = HEAD_BYTES - self.head.len();
        self.head.extend(news.iter().skip(skipped).take(room));
    }
}
