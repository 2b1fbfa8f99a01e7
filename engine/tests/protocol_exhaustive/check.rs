//! What must hold in every state that is reached, whatever move led to it.

use isochrone_persistence::ids::Epoch;
use isochrone_persistence::manifest::Part;

use crate::job::{Manifest, Records, Setup, Summary, bit};
use crate::run::{Instance, Publishing, Run};
use crate::world::World;
use crate::write;

impl World {
    /// Fails with the invariant of the design (parts 4 and 5) that does not hold.
    pub(crate) fn check(&self) -> Result<(), String> {
        let durable = &self.durable;
        let it = &durable.manifest.summary;
        write::check(&self.setup, it)?;
        self.check_output(it)?;
        let mut holders = 0;
        for run in &self.runs {
            run.check_places(&self.setup)?;
            run.check_marks(&self.setup)?;
            run.check_bounds(&self.setup, self.setup.abandons - self.abandons)?;
            run.check_durable_first()?;
            if run.sequence == durable.sequence {
                holders += 1;
                run.check_mark_of_checkpoint(it)?;
            }
            if run.sequence > durable.sequence || run.generation > durable.generation {
                return Err("a run knows of a manifest that does not exist".into());
            }
        }
        if holders > 1 {
            return Err("two runs may publish next".into());
        }
        Ok(())
    }

    /// What is visible is in the newest manifest; what that one calls written is visible or pending.
    fn check_output(&self, it: &Summary) -> Result<(), String> {
        let visible = self.durable.visible;
        if visible & !it.sunk != 0 {
            return Err(format!("{visible:b} is visible, {:b} is in a manifest", it.sunk));
        }
        let pending = it.pending.iter().map(|effect| effect.records).fold(0, |a, b| a | b);
        if it.sunk & !visible & !pending != 0 {
            return Err("output is neither visible nor pending".into());
        }
        let mut epochs: Vec<Epoch> = it.pending.iter().map(|effect| effect.epoch).collect();
        epochs.dedup();
        let abandoned = usize::from(self.setup.abandons - self.abandons);
        if epochs.len() > 2 + abandoned {
            return Err(format!("a manifest names the output of {} epochs", epochs.len()));
        }
        Ok(())
    }
}

impl Run {
    /// Every record that was read is in exactly one place before the state, or in it; every record
    /// in the state has its effect in exactly one place behind it.
    fn check_places(&self, setup: &Setup) -> Result<(), String> {
        let read = self.sources.iter().flat_map(|source| &source.splits);
        let read = read.map(|at| setup.before_in(at.split, at.position)).fold(0, |a, b| a | b);
        let to_states = self.channels.len() - self.workers as usize;
        let (inward, outward) = self.channels.split_at(to_states);
        let queued = |channels: &[std::rc::Rc<std::collections::VecDeque<(Epoch, u8)>>]| {
            channels.iter().flat_map(|c| c.iter().map(|(_, id)| *id)).collect::<Vec<_>>()
        };
        let applied = places("state", &self.states, queued(inward), read)?;
        places("output", &self.sinks, queued(outward), applied)?;
        Ok(())
    }

    /// A split's watermark is that of its position, also after a restore: nothing in time is late,
    /// and no time passes twice.
    fn check_marks(&self, setup: &Setup) -> Result<(), String> {
        for at in self.sources.iter().flat_map(|source| &source.splits) {
            let wanted = setup.mark(at.position);
            if at.mark != wanted {
                return Err(format!(
                    "the watermark of split {} at {} is {:?} instead of {wanted:?}",
                    at.split, at.position, at.mark
                ));
            }
        }
        Ok(())
    }

    /// Memory: what stands on an edge fits its credits; what stands before a sink, beside these, is
    /// what stood before its state; one checkpoint is under way, and what was abandoned before it.
    fn check_bounds(&self, setup: &Setup, abandoned: u8) -> Result<(), String> {
        let n = self.workers as usize;
        let edges = 2 * n;
        let (inward, outward) = self.channels.split_at(self.channels.len() - n);
        if let Some(full) = inward.iter().find(|channel| channel.len() > setup.credits) {
            return Err(format!("{full:?} is more than the credits of an edge"));
        }
        let restored = self.base.summary.to_state.len();
        for (w, state) in self.states.iter().enumerate() {
            let before = state.stash.len();
            let behind = outward[w].len() + self.sinks[w].stash.len();
            let (before_max, behind_max) =
                (setup.credits * edges, setup.credits * (edges + 1) + restored);
            if before > before_max || behind > behind_max {
                return Err(format!(
                    "{before} before and {behind} behind a state: over the credits"
                ));
            }
        }
        for instance in self.states.iter().chain(&self.sinks) {
            if instance.frozen.len() > 1 + usize::from(abandoned) {
                return Err("a cut was frozen before the one before it was durable".into());
            }
        }
        Ok(())
    }

    /// What a manifest names of this run, asked for or published, was acknowledged as durable.
    fn check_durable_first(&self) -> Result<(), String> {
        if let Publishing::Asked(manifest) = &self.publishing {
            self.check_named(manifest)?;
        }
        Ok(())
    }

    fn check_named(&self, manifest: &Manifest) -> Result<(), String> {
        let is_durable = |of: &[std::rc::Rc<Instance>], worker: u32, epoch: Epoch| {
            of[worker as usize].acked_epoch >= Some(epoch)
        };
        for operator in &manifest.operators {
            let durable = match &operator.part {
                Part::Source { .. } => true,
                Part::State { segments, .. } => segments
                    .iter()
                    .filter(|segment| segment.generation.0 == self.generation)
                    .all(|segment| is_durable(&self.states, segment.worker.0, segment.epoch)),
                Part::Sink { pending, .. } => pending
                    .iter()
                    .filter(|it| it.effect[0].as_u64() == Some(self.generation))
                    .all(|it| is_durable(&self.sinks, it.worker.0, it.epoch)),
            };
            if !durable {
                return Err(format!("a manifest names of {} what is not durable", operator.id));
            }
        }
        Ok(())
    }

    /// A checkpoint that counts as published has its manifest, even if nothing happened in its epoch:
    /// of the run that may publish next, it is the newest.
    fn check_mark_of_checkpoint(&self, newest: &Summary) -> Result<(), String> {
        let published = self.coordinator.status().published;
        let mark = self.proof.unwrap_or(self.base.summary.epoch);
        if newest.epoch != mark || published > Some(mark) {
            return Err(format!(
                "{published:?} counts as published, {mark} has a proof, {} a manifest",
                newest.epoch
            ));
        }
        Ok(())
    }
}

/// Fails unless the records in instances, and on the way there, are those `wanted`, each once; answers
/// with those in the instances.
fn places(
    what: &str,
    instances: &[std::rc::Rc<Instance>],
    queued: Vec<u8>,
    wanted: Records,
) -> Result<Records, String> {
    let (mut found, mut applied) = (0, 0);
    let mut is_twice = false;
    let mut put = |records: Records| {
        is_twice |= found & records != 0;
        found |= records;
    };
    for instance in instances {
        put(instance.applied);
        applied |= instance.applied;
        instance.stash.iter().for_each(|(_, id)| put(bit(*id)));
        instance.restored.iter().for_each(|id| put(bit(*id)));
    }
    queued.into_iter().for_each(|id| put(bit(id)));
    if is_twice || found != wanted {
        return Err(format!("{what}: {found:b} instead of {wanted:b}, or one of them twice"));
    }
    Ok(applied)
}
