//! Proves that a file still has what was read of it, by reading it again.

use std::fs::File;
use std::io;

use super::BLOCK_BYTES;
use super::identity::read_at;

/// Bytes read again in one call before others get their turn.
const BYTES_PER_CALL: usize = 8 * 1024 * 1024;

/// What is kept of all bytes read from some offset on.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    from: u64,
    bytes: u64,
    hasher: blake3::Hasher,
}

impl Kept {
    pub(super) fn from(offset: u64) -> Kept {
        Kept { from: offset, bytes: 0, hasher: blake3::Hasher::new() }
    }

    pub(super) fn add(&mut self, read: &[u8]) {
        self.hasher.update(read);
        self.bytes += read.len() as u64;
    }

    /// Compares with what this file has.
    pub(super) fn prove(&self, file: File) -> Proof {
        Proof { file, kept: self.clone(), found: Kept::from(self.from) }
    }
}

/// What was read is being read again.
#[derive(Debug)]
pub(super) struct Proof {
    file: File,
    kept: Kept,
    found: Kept,
}

impl Proof {
    /// Reads on; whether the file has the same bytes, once that is known.
    pub(super) fn go_on(&mut self) -> io::Result<Option<bool>> {
        let mut buffer = vec![0; BLOCK_BYTES];
        for _ in 0..BYTES_PER_CALL / BLOCK_BYTES {
            let left = self.kept.bytes - self.found.bytes;
            if left == 0 {
                return Ok(Some(self.kept.hasher.finalize() == self.found.hasher.finalize()));
            }
            let wanted = left.min(BLOCK_BYTES as u64) as usize;
            let at = self.found.from + self.found.bytes;
            let read = read_at(&self.file, at, &mut buffer[..wanted])?;
            if read < wanted {
                return Ok(Some(false));
            }
            self.found.add(&buffer[..read]);
        }
        Ok(None)
    }

    /// The length of the file.
    pub(super) fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
}
