//! What recovery does, decided from what the progress topic says and what the checkpoint owes. Knows
//! no broker.
//!
//! Epochs tell how far a lane has published, as long as there is one history: as long as no run goes
//! on from a checkpoint older than what was published. When one does, by choice, the same epochs are
//! written once more, and nothing tells an epoch of before from one of afterwards. So a *turn* is
//! written: it gives the history that begins there a name, which each of its checkpoints keeps, and
//! remembers the furthest place ever published. A checkpoint of another history is then measured by
//! that place, since the marks do not speak of it.
//!
//! Nor do they speak of what was published while another topic kept the progress. A checkpoint names
//! the topic that keeps it, and is gone on from with another one by choice only.

use std::collections::BTreeMap;

use isochrone_engine::{Error, Result};

use super::effect::{KafkaEffect, Mark};
use super::history::{History, Home};
use super::progress::Entry;
use super::view::{Marker, Turn, View};

/// What is known at the start of a run.
pub(super) struct Facts<'a> {
    /// The sink, as messages name it.
    pub(super) sink: &'a str,
    /// The progress topic.
    pub(super) home: &'a Home,
    /// The job; see `RunContext`.
    pub(super) origin: &'a str,
    pub(super) start: &'a Start,
    /// What was published of epochs after the checkpoint may be published again.
    pub(super) accept_duplicates: bool,
    /// A random name, for a history that begins here.
    pub(super) fresh: &'a str,
}

/// The checkpoint that a run goes on from, as the sink must know it.
#[derive(Clone, Debug, Default)]
pub(super) struct Start {
    /// Its epoch: output of epochs before it, and of no other, is part of it.
    pub(super) from: Option<u64>,
    /// Whether it does not know the sink.
    pub(super) is_new: bool,
    /// The history that it belongs to; none if nothing of the sink had been published exactly once.
    pub(super) history: Option<History>,
    /// What it owes.
    pub(super) pending: Vec<KafkaEffect>,
}

impl Start {
    /// The epoch before which output of this sink may be published.
    fn known_from(&self) -> Option<u64> {
        self.from.filter(|_| !self.is_new)
    }

    /// The last place of a lane that the checkpoint covers: the end of the epoch before it.
    fn covered(&self) -> Mark {
        self.known_from()
            .and_then(|from| from.checked_sub(1))
            .map_or(Mark::default(), |epoch| Mark { epoch, worker: u32::MAX, chunks: u32::MAX })
    }

    /// Whether the marks in this topic speak of the history that it belongs to.
    fn relation(&self, home: &Home, turn: Option<&Turn>) -> Relation {
        let named = turn.map(|turn| &turn.history);
        let own = self.history.as_ref().and_then(|history| history.turn.as_ref());
        let began_it = |turn: &Turn| turn.before == self.history && turn.from == self.known_from();
        if self.elsewhere(home).is_none() && named == own {
            Relation::Same
        } else if turn.is_some_and(began_it) {
            Relation::Began
        } else {
            Relation::Other
        }
    }

    /// The topic that kept its progress, if that is another one.
    fn elsewhere(&self, home: &Home) -> Option<&Home> {
        self.history.as_ref().map(|history| &history.home).filter(|other| !other.is(home))
    }

    /// The first output of a lane that is owed.
    fn first_owed(&self, lane: u32) -> Option<&KafkaEffect> {
        let owed = self.pending.iter().filter(|effect| effect.lane == lane);
        owed.min_by_key(|effect| effect.mark(0))
    }

    fn name(&self) -> String {
        self.from.map_or("the beginning".to_owned(), |from| format!("checkpoint {from}"))
    }
}

/// What a checkpoint is to the history that the marks speak of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    /// Of it.
    Same,
    /// What it began with: that has the name of what was before, until the first checkpoint.
    Began,
    /// Neither: the marks say nothing of it.
    Other,
}

/// What the progress topic has to be told before anything is published.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    pub(super) turn: Option<Turn>,
    /// Lanes that go on from an earlier place than they have published up to.
    pub(super) back: BTreeMap<u32, Marker>,
}

impl Changes {
    /// What is told, by lane.
    pub(super) fn entries(&self) -> Vec<(u32, Entry)> {
        let turn = self.turn.iter().map(|turn| (0, Entry::Turn(turn.clone())));
        let back = self.back.iter().map(|(lane, marker)| (*lane, Entry::Published(marker.clone())));
        turn.chain(back).collect()
    }

    /// What the topic says when it has been told.
    pub(super) fn apply(&self, view: &mut View) {
        view.turn = self.turn.clone().or(view.turn.take());
        view.markers.extend(self.back.clone());
    }
}

/// Refuses (`Invalid`) where the history of this job does not explain what is there, and otherwise
/// answers what is to be told. `view` is what there was before this run wrote its own claim, but read
/// after all older runs were fenced.
pub(super) fn decide(facts: &Facts<'_>, view: &View) -> Result<Changes> {
    let relation = facts.start.relation(facts.home, view.turn.as_ref());
    let goes_on = relation != Relation::Other;
    let elsewhere = facts.start.elsewhere(facts.home).filter(|_| !goes_on);
    check_owner(facts, view)?;
    if !facts.accept_duplicates {
        check_home(facts, view, elsewhere)?;
        check_ahead(facts, view, goes_on)?;
        if goes_on {
            check_writer(facts, view)?;
        }
        if relation == Relation::Same {
            check_marks(facts, view)?;
        }
    }
    let mut changes = Changes::default();
    if facts.accept_duplicates {
        changes.back = steps_back(facts.start, view, goes_on);
    }
    let furthest = view.furthest();
    let has_past = furthest > Mark::default() || elsewhere.is_some();
    if !changes.back.is_empty() || !goes_on && has_past {
        changes.turn = Some(Turn {
            history: facts.fresh.to_owned(),
            before: facts.start.history.clone(),
            from: facts.start.known_from(),
            furthest,
        });
    }
    Ok(changes)
}

/// What is known of one lane in the midst of a run.
pub(super) struct Lane<'a> {
    /// The job; see `RunContext`.
    pub(super) own: &'a str,
    /// What is to be published, all of one run.
    pub(super) parts: &'a [KafkaEffect],
    /// How far it had published when that was last known for sure.
    pub(super) known: Option<Mark>,
    /// What the topic says.
    pub(super) marker: Option<&'a Marker>,
}

/// Refuses (`Invalid`) a mark that is neither what it was nor of the run that is published, and one
/// that went back.
pub(super) fn check_lane(sink: &str, topic: &str, lane: &Lane<'_>) -> Result<()> {
    let Lane { own, parts, known, marker } = *lane;
    let reached = marker.map(|marker| marker.mark);
    if let Some(known) = known.filter(|known| reached < Some(*known)) {
        return Err(marks_lost(sink, topic, known, reached));
    }
    let (Some(marker), Some(part)) = (marker, parts.last()) else { return Ok(()) };
    let is_own = marker.run == part.run && marker.mark <= part.end();
    if marker.origin != own {
        Err(foreign_owner(sink, topic))
    } else if reached == known || is_own {
        Ok(())
    } else {
        Err(twin(sink, topic))
    }
}

fn check_owner(facts: &Facts<'_>, view: &View) -> Result<()> {
    let mut foreign = view.markers.values().map(|marker| &*marker.origin).chain(view.owner());
    if foreign.any(|other| other != facts.origin) {
        return Err(foreign_owner(facts.sink, &facts.home.topic));
    }
    Ok(())
}

/// The marks of before have to be here, where there may be any.
fn check_home(facts: &Facts<'_>, view: &View, elsewhere: Option<&Home>) -> Result<()> {
    let Facts { sink, home, start, .. } = *facts;
    let owes = !start.pending.is_empty();
    let (what, choice) = match owes {
        true => (
            format!("which of the output that {} owes was published", start.name()),
            "start once with `accept_duplicates`: what is owed may be there twice then; or give it up \
             with that and `Job::abort_pending`",
        ),
        false => (
            format!("whether {} is older than what was published", start.name()),
            "start once with `accept_duplicates`: if it is the newest checkpoint there was, nothing \
             is there twice",
        ),
    };
    Err(Error::invalid(match elsewhere {
        Some(other) if other.topic == home.topic => format!(
            "progress topic {home} is not the one of that name that kept the progress of {sink} \
             (id {}), so that it cannot be told {what}: it has been deleted and made anew, or this \
             is another cluster; bring the other one back, or {choice}",
            other.id.as_deref().unwrap_or_default()
        ),
        Some(other) => format!(
            "{sink} kept its progress in topic {other}, not in {home}, so that it cannot be told \
             {what}: go on with that topic, or {choice}"
        ),
        None if owes && view.owner().is_none() => format!(
            "progress topic {home} does not know {sink}, so that it cannot be told {what}; it may \
             have been deleted, or this is another cluster: bring it back, or {choice}"
        ),
        None => return Ok(()),
    }))
}

/// The refusal of a job that is not the one that has published so far.
pub(super) fn foreign_owner(sink: &str, topic: &str) -> Error {
    Error::invalid(format!(
        "progress topic `{topic}` belongs to another job of the same name, or to this one with \
         another store: nobody could tell what {sink} has published from what it has not; bring the \
         other store back, or give this job another name or another progress topic: then it begins \
         anew, and writes all of its output again beside what is there"
    ))
}

/// What was published may not be beyond the checkpoint.
fn check_ahead(facts: &Facts<'_>, view: &View, goes_on: bool) -> Result<()> {
    let Facts { sink, start, .. } = *facts;
    let (furthest, covered, from) = (view.furthest(), start.covered(), start.name());
    let ahead = view.markers.iter().find(|(_, marker)| marker.mark > covered);
    let is_doubtful = |effect: &KafkaEffect| effect.epoch <= furthest.epoch;
    let fits = match goes_on {
        true => ahead.is_none(),
        false => furthest <= covered && !start.pending.iter().any(is_doubtful),
    };
    if fits {
        return Ok(());
    }
    Err(Error::invalid(if start.is_new && start.from.is_some() {
        format!(
            "{from} does not know {sink}, which has published up to {furthest} before: if it was \
             taken out of the job and comes back, give it a new id, under which it begins anew, or \
             start once with `accept_duplicates`, with which nothing is there twice in this case; if \
             the checkpoint is one of before it was added, go on from a newer one, or accept that \
             its output is there twice (`accept_duplicates`)"
        )
    } else if let Some((lane, marker)) = ahead.filter(|_| goes_on) {
        format!(
            "{sink} would go on from {from}, but its lane {lane} has published up to {}, and what \
             is published cannot be taken back: go on from a newer checkpoint, or accept that the \
             output in between is there twice (`accept_duplicates`)",
            marker.mark
        )
    } else {
        format!(
            "{sink} would go on from {from}, which is not of the history that its output has gone \
             on with since output was accepted twice; up to {furthest} has been published, and what \
             is published cannot be taken back: go on with the store of the run that was last, or \
             accept once more that output is there twice (`accept_duplicates`)"
        )
    }))
}

/// The refusal where a run on a copy of the store has published.
fn twin(sink: &str, topic: &str) -> Error {
    Error::invalid(format!(
        "progress topic `{topic}` says that {sink} has published what another run has written, under \
         the same numbers: the store was copied, or is not the one that the output came from, and a \
         run goes on from either; end one of them, and go on with the store of the other"
    ))
}

/// The refusal where the topic says less than it must.
fn marks_lost(sink: &str, topic: &str, known: Mark, found: Option<Mark>) -> Error {
    let found = found.map_or("nothing".to_owned(), |mark| format!("up to {mark}"));
    Error::invalid(format!(
        "{sink} has published up to {known}, and progress topic `{topic}` says {found}: it has lost \
         records, so that nobody can tell what is published; bring them back, or accept that output \
         may be there twice (`accept_duplicates`)"
    ))
}

/// What is owed was not published as somebody else wrote it.
fn check_writer(facts: &Facts<'_>, view: &View) -> Result<()> {
    let Facts { sink, home, start, .. } = *facts;
    let is_foreign = |effect: &KafkaEffect| {
        let marker = view.markers.get(&effect.lane);
        marker.is_some_and(|it| it.mark > effect.mark(0) && it.run != effect.run)
    };
    match start.pending.iter().any(is_foreign) {
        true => Err(twin(sink, &home.topic)),
        false => Ok(()),
    }
}

/// Each mark is as it was when the run began that took the checkpoint, or was written by that run; and
/// it is not behind what that run knew to be published.
fn check_marks(facts: &Facts<'_>, view: &View) -> Result<()> {
    let Facts { sink, home, start, .. } = *facts;
    let lost = |known, lane| Err(marks_lost(sink, &home.topic, known, view.published(lane)));
    let pending = &start.pending;
    let is_owed = |lane, mark| pending.iter().any(|it| it.lane == lane && it.end() == mark);
    for effect in pending {
        // What was written before it is either published or owed as well.
        let before = effect.after.filter(|mark| !is_owed(effect.lane, *mark));
        if let Some(known) = before.filter(|mark| view.published(effect.lane) < Some(*mark)) {
            return lost(known, effect.lane);
        }
    }
    let Some(history) = &start.history else { return Ok(()) };
    let known: BTreeMap<u32, Mark> = history.published.iter().copied().collect();
    if let Some((lane, mark)) = known.iter().find(|it| view.published(*it.0) < Some(*it.1)) {
        return lost(*mark, *lane);
    }
    let is_foreign = |lane: &u32, marker: &Marker| {
        Some(&marker.mark) > known.get(lane) && marker.run != history.run
    };
    match view.markers.iter().any(|(lane, marker)| is_foreign(lane, marker)) {
        true => Err(twin(sink, &home.topic)),
        false => Ok(()),
    }
}

/// The lanes that are beyond where the run goes on. In the history that the marks speak of, what is
/// owed was published if they say so; in another one they say nothing of it.
fn steps_back(start: &Start, view: &View, goes_on: bool) -> BTreeMap<u32, Marker> {
    let mut back = BTreeMap::new();
    for (&lane, marker) in &view.markers {
        let owed = start.first_owed(lane);
        let from = owed.filter(|_| !goes_on).map(|effect| effect.mark(0));
        let mark = from.unwrap_or(start.covered());
        if marker.mark > mark {
            // Up to there it is what that run has written.
            let writer = owed.map(|effect| (effect.generation, effect.run.clone()));
            let (generation, run) = writer.unwrap_or((marker.generation, marker.run.clone()));
            back.insert(lane, Marker { mark, generation, run, ..marker.clone() });
        }
    }
    back
}

#[cfg(test)]
mod tests;
