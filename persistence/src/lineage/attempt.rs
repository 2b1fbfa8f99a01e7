//! One attempt to add a manifest to a history: facts in, next action out. Knows no store.
//!
//! An answer to a write is believed only if it says "created". Everything else is doubt: a client
//! that retries by itself reports a conflict for its own successful write. Doubt is settled by
//! reading back. What was created counts only if the collection boundary, read *after* that, is
//! still below it; otherwise the name may have been free because a collector had deleted what stood
//! there.

use crate::Created;
use crate::ids::Sequence;

/// How often an answer may fail to come before the attempt stops with [`Outcome::Unknown`].
const DOUBTS_MAX: u8 = 8;

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Next {
    /// Create the manifest if its name is free.
    Create,
    /// Read what stands under its name.
    ReadBack,
    /// Read the highest collection boundary.
    ReadBoundary,
    /// Nothing: it is decided.
    Stop(Outcome),
}

/// How an attempt ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Outcome {
    /// The manifest exists and no collector is ahead of it.
    Durable,
    /// Another run's manifest stands there.
    Taken,
    /// A collector is at or past this sequence, so another run is ahead.
    Collected(Sequence),
    /// The store did not answer; the manifest may exist. Asking again may settle it.
    Unknown,
}

/// What the store said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Fact {
    /// The write was applied.
    Created,
    /// Something stands under that name, perhaps our own.
    Exists,
    /// An error: what was asked for may or may not have happened.
    NoAnswer,
    /// Read back: our own manifest.
    Mine,
    /// Read back: another one.
    Other,
    /// Read back: nothing.
    Nothing,
    /// The highest boundary, if there is any.
    Boundary(Option<Sequence>),
}

impl From<Created> for Fact {
    fn from(created: Created) -> Fact {
        match created {
            Created::Yes => Fact::Created,
            Created::Exists => Fact::Exists,
        }
    }
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Attempt {
    sequence: Sequence,
    /// The lowest sequence that must not have been collected: its own, or that of an older
    /// manifest that its run wants to start from.
    needs: Sequence,
    next: Next,
    doubts: u8,
}

impl Attempt {
    /// An attempt to create the manifest `sequence`, which stands on that of `needs`.
    pub(super) fn new(sequence: Sequence, needs: Sequence) -> Self {
        Attempt { sequence, needs, next: Next::Create, doubts: 0 }
    }

    pub(super) fn sequence(&self) -> Sequence {
        self.sequence
    }

    pub(super) fn next(&self) -> Next {
        self.next
    }

    /// Takes the answer to what [`Attempt::next`] asked for.
    pub(super) fn learn(&mut self, fact: Fact) {
        use Next::*;
        self.next = match (self.next, fact) {
            (Create, Fact::Created) | (ReadBack, Fact::Mine) => ReadBoundary,
            (Create, Fact::Exists) => ReadBack,
            (ReadBack, Fact::Other) => Stop(Outcome::Taken),
            (Create, Fact::NoAnswer) => self.doubt(ReadBack),
            (ReadBack, Fact::Nothing) => self.doubt(Create),
            (asked @ (ReadBack | ReadBoundary), Fact::NoAnswer) => self.doubt(asked),
            (ReadBoundary, Fact::Boundary(boundary)) => Stop(self.judge(boundary)),
            (asked, fact) => panic!("{fact:?} is no answer to {asked:?}"),
        };
    }

    /// Goes on after [`Outcome::Unknown`], with as much patience as at first. IMPORTANT: begins
    /// with reading back; the write may have been applied since.
    pub(super) fn go_on(&mut self) {
        if self.next == Next::Stop(Outcome::Unknown) {
            self.doubts = 0;
            self.next = Next::ReadBack;
        }
    }

    fn doubt(&mut self, then: Next) -> Next {
        self.doubts += 1;
        if self.doubts > DOUBTS_MAX { Next::Stop(Outcome::Unknown) } else { then }
    }

    fn judge(&self, boundary: Option<Sequence>) -> Outcome {
        match boundary {
            Some(boundary) if boundary >= self.needs => Outcome::Collected(boundary),
            _ => Outcome::Durable,
        }
    }
}
