//! Whose turn it is: everybody's at once, or, in a simulation, one thread's at a time.

use std::time::Duration;

/// Actors are worker indices; the others have the numbers below.
pub(crate) trait Pace: Send + Sync + 'static {
    /// Waits until the actor may take a step; `false` means that the machine has crashed.
    fn turn(&self, actor: usize) -> bool;
    /// The actor has taken its step.
    fn pass(&self, actor: usize);
    /// The actor takes no more steps.
    fn leave(&self, actor: usize);
    /// Whether a step may wait for something.
    fn parks(&self) -> bool;
    /// Lets some time pass within a step.
    fn rest(&self, span: Duration);
    /// Whether this bug is planted in the run; see [`planted`].
    fn has(&self, _: Planted) -> bool {
        false
    }
}

/// Bugs of the protocol that a simulation can switch on, to show that it would find them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "testing"),
    expect(unreachable_pub, reason = "`testing` exports it; without, nothing names it")
)]
pub enum Planted {
    /// The uploader acknowledges a part of the state before it is durable.
    AckBeforeDurable,
    /// The coordinator publishes a checkpoint although one acknowledgement is missing.
    PublishWithoutAck,
    /// A source notes its positions one poll late: records behind the cut count as before it.
    PositionsLate,
    /// A sink's output is made visible before its checkpoint exists.
    CommitBeforeManifest,
}

/// Whether a bug is planted here: never, unless the crate is built for tests.
pub(crate) fn planted(pace: &dyn Pace, bug: Planted) -> bool {
    cfg!(feature = "testing") && pace.has(bug)
}

/// The actor that makes output visible.
pub(crate) const COMMITTER: usize = usize::MAX - 2;
/// The actor that talks to the store.
pub(crate) const UPLOADER: usize = usize::MAX - 1;
/// The actor that decides about checkpoints.
pub(crate) const COORDINATOR: usize = usize::MAX;

/// Everybody runs.
pub(crate) struct Free;

impl Pace for Free {
    fn turn(&self, _: usize) -> bool {
        true
    }
    fn pass(&self, _: usize) {}
    fn leave(&self, _: usize) {}
    fn parks(&self) -> bool {
        true
    }
    fn rest(&self, span: Duration) {
        crossbeam_channel::after(span).recv().ok();
    }
}
