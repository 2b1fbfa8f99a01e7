//! One number for everything that happened in a run, in its order.

use std::sync::atomic::{AtomicU64, Ordering};

/// A hash that grows; shared by all that have something to tell.
#[derive(Debug, Default)]
pub(crate) struct Trace(AtomicU64);

impl Trace {
    /// Notes one event. Events are told one at a time: that is what a simulation is for.
    pub(crate) fn note(&self, event: u64) {
        let hash = self.0.load(Ordering::SeqCst);
        let mixed = (hash.rotate_left(5) ^ event).wrapping_mul(0x517c_c1b7_2722_0a95);
        self.0.store(mixed ^ (mixed >> 29), Ordering::SeqCst);
    }

    pub(crate) fn note_bytes(&self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.note(u64::from_le_bytes(word));
        }
        self.note(bytes.len() as u64);
    }

    pub(crate) fn hash(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}
