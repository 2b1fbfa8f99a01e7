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
//! the topic that keeps it; one that owes output is not gone on from with another.

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
    fn is_of(&self, home: &Home, turn: Option<&Turn>) -> bool {
        let named = turn.map(|turn| &turn.history);
        let own = self.history.as_ref().and_then(|history| history.turn.as_ref());
        // What the turn began with has the name of what was before it, until the first checkpoint.
        let began_it = |turn: &Turn| turn.before == self.history && turn.from == self.known_from();
        self.elsewhere(home).is_none() && named == own || turn.is_some_and(began_it)
    }

    /// The topic that kept its progress, if that is another one.
    fn elsewhere(&self, home: &Home) -> Option<&Home> {
        self.history.as_ref().map(|history| &history.home).filter(|other| !other.is(home))
    }

    /// The first place of a lane that is owed.
    fn first_owed(&self, lane: u32) -> Option<(Mark, u64)> {
        let owed = self.pending.iter().filter(|effect| effect.lane == lane);
        owed.map(|effect| (effect.mark(0), effect.generation)).min()
    }

    fn name(&self) -> String {
        self.from.map_or("the beginning".to_owned(), |from| format!("checkpoint {from}"))
    }
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
    let goes_on = facts.start.is_of(facts.home, view.turn.as_ref());
    let elsewhere = facts.start.elsewhere(facts.home).filter(|_| !goes_on);
    check_owner(facts, view)?;
    if !facts.accept_duplicates {
        check_owed(facts, view, elsewhere)?;
        check_ahead(facts, view, goes_on)?;
    }
    if goes_on {
        check_writer(facts, view)?;
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

fn check_owner(facts: &Facts<'_>, view: &View) -> Result<()> {
    let mut foreign = view.markers.values().map(|marker| &*marker.origin).chain(view.owner());
    if foreign.any(|other| other != facts.origin) {
        return Err(foreign_owner(facts.sink, &facts.home.topic));
    }
    Ok(())
}

/// What is owed may not have been published without a mark of it here.
fn check_owed(facts: &Facts<'_>, view: &View, elsewhere: Option<&Home>) -> Result<()> {
    let Facts { sink, home, start, .. } = *facts;
    if start.pending.is_empty() {
        return Ok(());
    }
    let unknown = format!("it cannot be told which of the output that {} owes", start.name());
    let choice = "give that output up (`Job::abort_pending`), or accept that it may be there twice \
                  (`accept_duplicates`)";
    Err(Error::invalid(match elsewhere {
        Some(other) if other.topic == home.topic => format!(
            "progress topic {home} is not the one of that name that kept the progress of {sink} \
             (id {}), so that {unknown} was published: it has been deleted and made anew, or this is \
             another cluster; bring the other one back, {choice}",
            other.id.as_deref().unwrap_or_default()
        ),
        Some(other) => format!(
            "{sink} kept its progress in topic {other}, not in {home}, so that {unknown} was \
             published: start with that topic until nothing is owed (a run that ends well owes \
             nothing; `Job::commit_pending`), {choice}"
        ),
        None if view.owner().is_none() => format!(
            "progress topic {home} does not know {sink}, so that {unknown} was published; it may \
             have been deleted, or this is another cluster: bring it back, {choice}"
        ),
        None => return Ok(()),
    }))
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

/// What is owed was not published as somebody else wrote it.
fn check_writer(facts: &Facts<'_>, view: &View) -> Result<()> {
    for effect in &facts.start.pending {
        let marker = view.markers.get(&effect.lane);
        let differs = |marker: &&Marker| {
            marker.mark.epoch == effect.epoch
                && marker.mark.worker == effect.worker
                && marker.generation != effect.generation
        };
        if let Some(marker) = marker.filter(differs) {
            return Err(Error::invalid(format!(
                "{} has published epoch {} as run {} wrote it, and the checkpoint names it as run \
                 {} did: the store is not the one that the output came from",
                facts.sink, effect.epoch, marker.generation, effect.generation
            )));
        }
    }
    Ok(())
}

/// The lanes that are beyond where the run goes on. In the history that the marks speak of, what is
/// owed was published if they say so; in another one they say nothing of it.
fn steps_back(start: &Start, view: &View, goes_on: bool) -> BTreeMap<u32, Marker> {
    let mut back = BTreeMap::new();
    for (&lane, marker) in &view.markers {
        let owed = start.first_owed(lane).filter(|_| !goes_on);
        let (mark, generation) = owed.unwrap_or((start.covered(), marker.generation));
        if marker.mark > mark {
            back.insert(lane, Marker { mark, generation, ..marker.clone() });
        }
    }
    back
}

#[cfg(test)]
mod tests;
