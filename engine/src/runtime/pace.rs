//! Whose turn it is: everybody's at once, or, in a simulation, one thread's at a time.

/// Actors are worker indices; the uploader and the coordinator have the two numbers below.
pub(crate) trait Pace: Send + Sync + 'static {
    /// Waits until the actor may take a step; `false` means that the machine has crashed.
    fn turn(&self, actor: usize) -> bool;
    /// The actor has taken its step.
    fn pass(&self, actor: usize);
    /// The actor takes no more steps.
    fn leave(&self, actor: usize);
    /// Whether a step may wait for something.
    fn parks(&self) -> bool;
}

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
}
