//! What the progress topic says of a sink: which job publishes for it, on how many lanes, how far.
//! Knows no broker.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::effect::{KafkaEffect, Mark};
use super::history::History;

/// How far a lane has published: written in the same transaction as what it speaks of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Marker {
    /// The job; see `RunContext`.
    pub(super) origin: String,
    /// The run that wrote the output; another may have published it.
    pub(super) generation: u64,
    /// The same, told from every other: also from one of the same number on a copy of the store.
    #[serde(default)]
    pub(super) run: String,
    pub(super) mark: Mark,
}

/// That a job means to be the one that publishes for this sink, and with how many lanes at most so
/// far. Each job has a key of its own for it: no other can take its lanes out of sight.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Claim {
    pub(super) origin: String,
    pub(super) generation: u64,
    pub(super) lanes: u32,
    /// Random, fresh for each.
    pub(super) nonce: String,
    /// Whether it was the owner already when it wrote this.
    #[serde(default)]
    pub(super) is_owner: bool,
}

/// That output is written again which had been published, by choice: from here on the lanes' marks
/// speak of another history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Turn {
    /// Random. Checkpoints of the history that begins here name it.
    pub(super) history: String,
    /// The history of the checkpoint that it begins with, and its epoch, as the run that began it
    /// knew them.
    pub(super) before: Option<History>,
    pub(super) from: Option<u64>,
    /// The last place that any lane had published up to, in any history.
    pub(super) furthest: Mark,
}

/// What there is of a sink in the topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct View {
    /// In order; compaction may have taken some away, never the last one of a job.
    pub(super) claims: Vec<Claim>,
    /// By lane, the newest.
    pub(super) markers: BTreeMap<u32, Marker>,
    /// The newest.
    pub(super) turn: Option<Turn>,
}

impl View {
    /// The job that publishes for the sink: the one that has published; else the one that was the
    /// owner when it claimed more lanes; else the first to claim it. So it is the same one for
    /// whoever reads, whenever that is.
    pub(super) fn owner(&self) -> Option<&str> {
        let marked = self.markers.values().map(|marker| &marker.origin);
        let confirmed = self.claims.iter().filter(|claim| claim.is_owner).map(|it| &it.origin);
        let first = self.claims.iter().map(|claim| &claim.origin);
        marked.chain(confirmed).chain(first).next().map(String::as_str)
    }

    /// The number of lanes that were ever in use by a job.
    pub(super) fn lanes_of(&self, origin: &str) -> u32 {
        let claimed = self.claims_of(origin).map(|claim| claim.lanes).max().unwrap_or(0);
        let marked = self.markers.keys().last().map_or(0, |lane| lane + 1);
        claimed.max(marked)
    }

    /// The claim that a job has to write before it publishes with so many processes, unless that is
    /// said already. Only a job may ask that no other is the owner of.
    pub(super) fn claim_due(&self, own: &str, processes: u32) -> Option<(u32, Ownership)> {
        let lanes = self.lanes_of(own).max(processes);
        let has_rivals = self.claims.iter().any(|claim| claim.origin != own);
        let last = self.claims_of(own).last();
        // Where somebody else has claimed too, the first claim alone would not say who was first
        // when compaction has passed.
        let is_said = last.is_some_and(|it| it.lanes >= lanes && (it.is_owner || !has_rivals));
        let ownership = self.owner().map_or(Ownership::Sought, |_| Ownership::Had);
        (!is_said).then_some((lanes, ownership))
    }

    /// The place up to which a lane has published.
    pub(super) fn published(&self, lane: u32) -> Option<Mark> {
        self.markers.get(&lane).map(|marker| marker.mark)
    }

    /// How far each lane has published once this has been too.
    pub(super) fn published_with(&self, owed: &[KafkaEffect]) -> Vec<(u32, Mark)> {
        let mut all: BTreeMap<u32, Mark> = BTreeMap::new();
        let marked = self.markers.iter().map(|(lane, marker)| (*lane, marker.mark));
        for (lane, mark) in marked.chain(owed.iter().map(|effect| (effect.lane, effect.end()))) {
            let furthest = all.entry(lane).or_default();
            *furthest = mark.max(*furthest);
        }
        all.into_iter().collect()
    }

    /// The last place that any lane has published up to, in any history.
    pub(super) fn furthest(&self) -> Mark {
        let marks = self.markers.values().map(|marker| marker.mark);
        marks.chain(self.turn.iter().map(|turn| turn.furthest)).max().unwrap_or_default()
    }

    fn claims_of(&self, origin: &str) -> impl Iterator<Item = &Claim> {
        self.claims.iter().filter(move |claim| claim.origin == origin)
    }
}

/// What a claim says of who wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ownership {
    /// It would become the owner, if nobody was faster.
    Sought,
    /// It is.
    Had,
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::kafka::sink) fn claim(origin: &str, lanes: u32) -> Claim {
        let (origin, nonce) = (origin.to_owned(), "n".to_owned());
        Claim { origin, generation: 1, lanes, nonce, is_owner: false }
    }

    fn confirmed(origin: &str, lanes: u32) -> Claim {
        Claim { is_owner: true, ..claim(origin, lanes) }
    }

    pub(in crate::kafka::sink) fn marker(epoch: u64, generation: u64) -> Marker {
        let mark = Mark { epoch, worker: 0, chunks: 1 };
        Marker { origin: "mine".to_owned(), generation, run: format!("run {generation}"), mark }
    }

    pub(in crate::kafka::sink) fn view(
        claims: Vec<Claim>,
        markers: impl IntoIterator<Item = (u32, Marker)>,
    ) -> View {
        View { claims, markers: markers.into_iter().collect(), turn: None }
    }

    #[test]
    fn lanes_are_counted_by_own_claims_and_by_what_was_published() {
        assert_eq!(View::default().lanes_of("mine"), 0);
        let claims = vec![claim("mine", 3), claim("mine", 2), claim("other", 7)];
        assert_eq!(view(claims, []).lanes_of("mine"), 3);
        assert_eq!(view(vec![], [(4, marker(1, 1))]).lanes_of("mine"), 5);
    }

    /// Two jobs that started at the same moment: whatever each has read, and whatever compaction has
    /// left when it reads again, both come to the same answer.
    #[test]
    fn the_first_to_claim_a_sink_is_its_owner_for_good() {
        let (mine, other) = (|| claim("mine", 1), || claim("other", 5));
        let published = || [(0, marker(3, 1))];
        let cases = [
            ("nobody yet", view(vec![], []), None),
            ("alone", view(vec![mine()], []), Some("mine")),
            ("first", view(vec![mine(), other()], []), Some("mine")),
            ("second", view(vec![other(), mine()], []), Some("other")),
            ("more lanes", view(vec![mine(), other(), confirmed("mine", 3)], []), Some("mine")),
            ("compacted", view(vec![other(), confirmed("mine", 3)], []), Some("mine")),
            ("published", view(vec![other(), mine()], published()), Some("mine")),
            ("claim lost", view(vec![other()], published()), Some("mine")),
        ];
        for (case, view, owner) in cases {
            assert_eq!(view.owner(), owner, "{case}");
        }
    }

    #[test]
    fn a_claim_is_written_when_it_says_more_than_what_is_there() {
        use Ownership::{Had, Sought};
        let due = |claims, processes| view(claims, []).claim_due("mine", processes);
        assert_eq!(due(vec![], 2), Some((2, Sought)));
        assert_eq!(due(vec![claim("mine", 2)], 2), None);
        assert_eq!(due(vec![claim("mine", 2)], 1), None, "fewer processes keep their lanes");
        assert_eq!(due(vec![claim("mine", 2)], 3), Some((3, Had)));
        // Somebody was later; that will be known for good when it is said once more.
        let both = || vec![claim("mine", 3), claim("other", 9)];
        assert_eq!(due(both(), 1), Some((3, Had)));
        assert_eq!(due([both(), vec![confirmed("mine", 3)]].concat(), 1), None);
        // As an earlier version of the library repaired it: with fewer lanes.
        let repaired = [both(), vec![claim("mine", 1)]].concat();
        assert_eq!(due(repaired, 1), Some((3, Had)));
    }

    /// As versions before the owner was told from others wrote it.
    #[test]
    fn a_claim_of_an_earlier_version_is_read() {
        let text = r#"{"origin":"mine","generation":1,"lanes":2,"nonce":"n"}"#;
        assert_eq!(serde_json::from_str::<Claim>(text).unwrap(), claim("mine", 2));
    }
}
