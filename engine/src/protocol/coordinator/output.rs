//! Output that is not visible yet: since when, and for how long it may stay so.
//!
//! It cannot be dropped, as a checkpoint that takes too long is: its checkpoint exists. It may take as
//! long as a checkpoint may, before that is told, and so often as checkpoints may fail in a row, before
//! the job ends. The next run makes it visible before anything else.

use isochrone_persistence::ids::Epoch;

use super::{Action, Coordinator, Life, Part};

/// The oldest checkpoint whose output is not visible everywhere.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Owed {
    pub(super) epoch: Epoch,
    /// Since when it is the oldest.
    pub(super) since_ms: u64,
    /// What the listened time was when the time-out under way began.
    listened_from_ms: u64,
    timeouts: u32,
}

impl Coordinator {
    /// After an event: what is owed now.
    pub(super) fn note_owed(&mut self) {
        let epoch = self.oldest_owed();
        if self.owed.as_ref().map(|owed| owed.epoch) != epoch {
            let (since_ms, listened_from_ms) = (self.now_ms, self.listened_ms);
            let owed = |epoch| Owed { epoch, since_ms, listened_from_ms, timeouts: 0 };
            self.owed = epoch.map(owed);
        }
    }

    /// At a tick: whether the output that is owed takes too long.
    pub(super) fn time_output(&mut self, actions: &mut Vec<Action>) {
        let Some(owed) = self.owed.as_mut().filter(|_| self.life != Life::Over) else { return };
        if self.listened_ms - owed.listened_from_ms < self.settings.timeout_ms.max(1) {
            return;
        }
        owed.listened_from_ms = self.listened_ms;
        owed.timeouts += 1;
        let (epoch, waited_ms) = (owed.epoch, self.now_ms - owed.since_ms);
        let gives_up = owed.timeouts >= self.settings.failures_max.max(1);
        if gives_up {
            self.life = Life::Over;
            let why =
                format!("the output of checkpoint {epoch} is not visible after {waited_ms} ms");
            let under_way = self.running.take().into_iter().flat_map(|running| running.waiting);
            actions.extend(under_way.chain(self.queue.drain()).map(|waiting| waiting.refuse(&why)));
        }
        let missing = self.not_committed(epoch);
        actions.push(Action::Overdue { epoch, waited_ms, missing, gives_up });
    }

    /// The sink instances that have not made the output of `epoch` visible.
    pub(super) fn not_committed(&self, epoch: Epoch) -> Vec<Part> {
        let behind = self.committed.iter().filter(|(_, committed)| *committed < epoch);
        behind.map(|(part, _)| *part).collect()
    }

    /// Whether no checkpoint may be triggered before more output is visible.
    pub(super) fn is_output_behind(&self) -> bool {
        let before = self.published.as_ref().and_then(|published| published.before);
        before.is_some_and(|before| !self.not_committed(before).is_empty())
    }

    fn oldest_owed(&self) -> Option<Epoch> {
        let published = self.published.as_ref()?;
        let epochs = [published.before, Some(published.epoch)].into_iter().flatten();
        epochs.into_iter().find(|epoch| !self.not_committed(*epoch).is_empty())
    }
}
