//! What recovery does, decided from what the progress topic says and what the checkpoint owes. Knows
//! no broker.

use std::collections::BTreeMap;

use isochrone_engine::{Error, Result};
use serde::{Deserialize, Serialize};

use super::effect::{KafkaEffect, Mark};

/// How far a lane has published: written in the same transaction as what it speaks of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Marker {
    /// The job; see `RunContext`.
    pub(super) origin: String,
    /// The run that wrote the output; another may have published it.
    pub(super) generation: u64,
    pub(super) mark: Mark,
}

/// That a job is the one that publishes for this sink, and with how many lanes at most so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Claim {
    pub(super) origin: String,
    pub(super) generation: u64,
    pub(super) lanes: u32,
    /// Random, fresh for each.
    pub(super) nonce: String,
}

/// What the progress topic says of a sink.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct View {
    /// The claims that are still there, in order: the last one counts.
    pub(super) claims: Vec<Claim>,
    /// By lane, the newest.
    pub(super) markers: BTreeMap<u32, Marker>,
}

impl View {
    /// The number of lanes that were ever in use.
    pub(super) fn lanes(&self) -> u32 {
        let claimed = self.claims.iter().map(|claim| claim.lanes).max().unwrap_or(0);
        let marked = self.markers.keys().last().map_or(0, |lane| lane + 1);
        claimed.max(marked)
    }

    /// The place up to which a lane has published.
    pub(super) fn published(&self, lane: u32) -> Option<Mark> {
        self.markers.get(&lane).map(|marker| marker.mark)
    }
}

/// What is known at the start of a run.
pub(super) struct Facts<'a> {
    /// The sink, as messages name it.
    pub(super) sink: &'a str,
    /// The progress topic.
    pub(super) topic: &'a str,
    /// The job; see `RunContext`.
    pub(super) origin: &'a str,
    /// The checkpoint that the run goes on from, if it knows the sink: output of epochs before it,
    /// and of no other, is part of it.
    pub(super) from: Option<u64>,
    /// What it owes.
    pub(super) pending: &'a [KafkaEffect],
    /// What was published of epochs after the checkpoint may be published again.
    pub(super) accept_duplicates: bool,
}

/// The last place of a lane that a checkpoint covers: the end of the epoch before it.
pub(super) fn covered(from: Option<u64>) -> Mark {
    from.and_then(|from| from.checked_sub(1)).map_or(Mark::default(), |epoch| Mark {
        epoch,
        worker: u32::MAX,
        chunks: u32::MAX,
    })
}

/// Refuses (`Invalid`) where the history of this job does not explain what is there. `view` is what
/// there was before this run wrote its own claim, but read after all older runs were fenced.
pub(super) fn check(facts: &Facts<'_>, view: &View) -> Result<()> {
    let Facts { sink, topic, origin, from, pending, .. } = *facts;
    let foreign = view.claims.last().map(|claim| &claim.origin).into_iter();
    let mut foreign = foreign.chain(view.markers.values().map(|marker| &marker.origin));
    if foreign.any(|other| other != origin) {
        return Err(foreign_owner(sink, topic));
    }
    if view.claims.is_empty() && !pending.is_empty() {
        return Err(Error::invalid(format!(
            "progress topic `{topic}` does not know {sink}, so that it cannot be told which of its \
             pending output was published; it may have been deleted, or this is another cluster: \
             bring it back, or give the pending output up (`Job::abort_pending`)"
        )));
    }
    for (lane, marker) in &view.markers {
        if marker.mark > covered(from) && !facts.accept_duplicates {
            let from = from.map_or("the beginning".to_owned(), |from| format!("checkpoint {from}"));
            return Err(Error::invalid(format!(
                "{sink} would go on from {from}, but its lane {lane} has published up to {}, and \
                 what is published cannot be taken back: go on from a newer checkpoint, or accept \
                 that the output in between is there twice (`accept_duplicates`)",
                marker.mark
            )));
        }
    }
    for effect in pending {
        let marker = view.markers.get(&effect.lane);
        let differs = |marker: &&Marker| {
            marker.mark.epoch == effect.epoch
                && marker.mark.worker == effect.worker
                && marker.generation != effect.generation
        };
        if let Some(marker) = marker.filter(differs) {
            return Err(Error::invalid(format!(
                "{sink} has published epoch {} as run {} wrote it, and the checkpoint names it as \
                 run {} did: the store is not the one that the output came from",
                effect.epoch, marker.generation, effect.generation
            )));
        }
    }
    Ok(())
}

/// The refusal of a job that is not the one that has published so far.
pub(super) fn foreign_owner(sink: &str, topic: &str) -> Error {
    Error::invalid(format!(
        "progress topic `{topic}` belongs to another job of the same name, or to this one with \
         another store: nobody could tell what {sink} has published from what it has not; give this \
         job another name, name another progress topic, or, if the other is gone for good, delete \
         `{topic}`"
    ))
}

#[cfg(test)]
mod tests {
    use isochrone_engine::ErrorKind;

    use super::super::effect::tests::effect;
    use super::*;

    fn claim(origin: &str, lanes: u32) -> Claim {
        Claim { origin: origin.to_owned(), generation: 1, lanes, nonce: "n".to_owned() }
    }

    fn marker(epoch: u64, generation: u64) -> Marker {
        let mark = Mark { epoch, worker: 0, chunks: 1 };
        Marker { origin: "mine".to_owned(), generation, mark }
    }

    fn view(claims: Vec<Claim>, markers: impl IntoIterator<Item = (u32, Marker)>) -> View {
        View { claims, markers: markers.into_iter().collect() }
    }

    fn refusal(from: Option<u64>, pending: &[KafkaEffect], view: &View) -> Option<String> {
        let facts = Facts {
            sink: "sink `out`",
            topic: "risk.progress",
            origin: "mine",
            from,
            pending,
            accept_duplicates: false,
        };
        check(&facts, view).err().map(|error| {
            assert_eq!(error.kind(), ErrorKind::Invalid);
            error.to_string()
        })
    }

    #[test]
    fn an_ordinary_history_is_taken_up() {
        let mine = || vec![claim("mine", 2)];
        let pending = [effect(6, 0, 1)];
        assert_eq!(refusal(None, &[], &View::default()), None, "a first start");
        assert_eq!(refusal(None, &[], &view(mine(), [])), None, "killed before any checkpoint");
        assert_eq!(refusal(Some(7), &pending, &view(mine(), [])), None, "nothing published");
        let all = view(mine(), [(0, marker(6, 1))]);
        assert_eq!(refusal(Some(7), &pending, &all), None, "all published");
        assert_eq!(
            refusal(Some(9), &[], &View::default()),
            None,
            "owes nothing: nothing to double"
        );
    }

    /// Output of the epoch that begins with a checkpoint is not part of it: the checkpoint before the
    /// newest one is an older one too.
    #[test]
    fn a_history_that_does_not_fit_is_refused() {
        let pending = [effect(6, 0, 1)];
        let other = view(vec![claim("mine", 1), claim("other", 1)], []);
        let lost = View::default();
        let ahead = view(vec![claim("mine", 1)], [(0, marker(7, 1))]);
        let forked = view(vec![claim("mine", 1)], [(0, marker(6, 2))]);
        let cases: [(_, &[KafkaEffect], _, _); 5] = [
            (Some(7), &[], &other, "belongs to another job"),
            (Some(7), &pending, &lost, "may have been deleted"),
            (Some(7), &pending, &ahead, "lane 0 has published up to epoch 7"),
            (None, &[], &ahead, "would go on from the beginning"),
            (Some(7), &pending, &forked, "as run 2 wrote it"),
        ];
        for (from, pending, view, what) in cases {
            let text = refusal(from, pending, view).expect(what);
            assert!(text.contains(what), "{text}");
        }
    }

    #[test]
    fn lanes_are_counted_by_claims_and_by_what_was_published() {
        assert_eq!(View::default().lanes(), 0);
        assert_eq!(view(vec![claim("mine", 3), claim("mine", 2)], []).lanes(), 3);
        assert_eq!(view(vec![], [(4, marker(1, 1))]).lanes(), 5);
    }
}
