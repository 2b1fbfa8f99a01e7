//! Recovery of a sink under one id: older runs are fenced, then what they have published is found
//! out, and the rest is published.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use isochrone_engine::connector::RunContext;
use isochrone_engine::ids::{JobName, random_id};
use isochrone_engine::{Error, Result};

use super::decide::{self, Facts, Start, decide};
use super::effect::KafkaEffect;
use super::history::{History, Home};
use super::producer::Deadline;
use super::progress::{Entry, Progress, Seen};
use super::publisher::Publisher;
use super::view::{Claim, Ownership, View};
use crate::crash_point;

/// What does not work at the start is told within 30 seconds.
const PATIENCE: Duration = Duration::from_secs(22);

/// A sink under one of its ids, in a run.
#[derive(Clone)]
pub(super) struct Party {
    pub(super) progress: Progress,
    pub(super) run: Arc<RunContext>,
    pub(super) generation: u64,
    pub(super) job: JobName,
    pub(super) accept_duplicates: bool,
}

/// Its lanes, all that were ever in use: no older run publishes on them any more, and none of them
/// has anything open.
pub(super) struct Fenced {
    party: Party,
    lanes: Vec<Publisher>,
    home: Home,
    /// Written to the progress topic since the first one was fenced.
    nonce: String,
}

/// What has come of it.
pub(super) struct Recovered {
    /// The lane of this process.
    pub(super) first: Publisher,
    /// Of each part that was owed, in the order of the checkpoint.
    pub(super) outcomes: Vec<String>,
    pub(super) history: History,
}

impl Party {
    pub(super) fn publisher(&self, lane: u32) -> Publisher {
        let (job, sink, origin) = (&self.job, &self.progress.sink, &self.run.origin);
        Publisher {
            progress: self.progress.clone(),
            lane,
            id: format!("isochrone.{job}.{sink}.{origin}.{lane}"),
            run: self.run.clone(),
            producer: None,
            known: None,
            batch_max: None,
        }
    }

    /// Reads nothing that an open transaction of another sink could hide.
    pub(super) fn fence(self) -> Result<Fenced> {
        let deadline = Deadline::after(PATIENCE);
        let mut first = self.publisher(0);
        // From here on no older run publishes on lane 0, where claims are written as well.
        let home = std::thread::scope(|scope| {
            let prepared = scope.spawn(|| self.progress.prepare());
            first.ready(&deadline)?;
            prepared.join().map_err(|_| Error::internal("a thread that asks Kafka panicked"))?
        })?;
        crash_point("kafka-fenced-first");
        // Lanes that somebody meant to use, whether that was committed or not: one that is still open
        // would hide the end from who reads committed records only, until its time is over.
        let (anything, nonce) = first.read(&deadline, Seen::Everything)?;
        let known = anything.lanes_of(&self.run.origin);
        let mut lanes = vec![first];
        lanes.extend((1..known).map(|lane| self.publisher(lane)));
        at_once(&mut lanes[1..], |lane| lane.ready(&deadline))?;
        crash_point("kafka-fenced");
        Ok(Fenced { party: self, lanes, home, nonce })
    }
}

impl Fenced {
    pub(super) fn recover(mut self, start: &Start) -> Result<Recovered> {
        let mut deadline = Deadline::after(PATIENCE);
        self.fence_owed(&start.pending, &deadline)?;
        // IMPORTANT: marks are final only now that every lane has been fenced.
        let mut view = match self.lanes.as_mut_slice() {
            [_] => self.party.progress.read_to(&self.nonce, Seen::Committed)?,
            lanes => lanes[0].read(&deadline, Seen::Committed)?.0,
        };
        let facts = Facts {
            sink: &self.party.progress.owner(),
            home: &self.home,
            origin: &self.party.run.origin,
            start,
            accept_duplicates: self.party.accept_duplicates,
            fresh: &random_id()?,
        };
        let changes = decide(&facts, &view)?;
        deadline.extend();
        self.claim(&view, &deadline)?;
        for (&lane, marker) in &changes.back {
            let (published, mark) = (view.published(lane), marker.mark);
            tracing::warn!(lane, ?published, "output after {mark} comes again");
        }
        // IMPORTANT: in one transaction. With the turn alone the marks would seem to speak of the history
        // that begins with it.
        let entries = changes.entries();
        if !entries.is_empty() {
            self.lanes[0].tell_all(&entries, &deadline)?;
        }
        crash_point("kafka-turned");
        changes.apply(&mut view);
        let outcomes = self.publish_pending(&start.pending, &view)?;
        let published = view.published_with(&start.pending);
        let turn = view.turn.map(|turn| turn.history);
        let run = self.party.run.run.clone();
        let history = History { home: self.home, turn, run, published };
        Ok(Recovered { first: self.lanes.swap_remove(0), outcomes, history })
    }

    /// Lanes that output is owed on are fenced too, whatever the topic says of them.
    fn fence_owed(&mut self, pending: &[KafkaEffect], deadline: &Deadline) -> Result<()> {
        let owed = pending.iter().map(|effect| effect.lane + 1).max().unwrap_or(0);
        let known = self.lanes.len();
        let first = u32::try_from(known).unwrap_or(u32::MAX);
        self.lanes.extend((first..owed).map(|lane| self.party.publisher(lane)));
        at_once(&mut self.lanes[known..], |lane| lane.ready(deadline))
    }

    /// Says that this job publishes for the sink, with so many lanes, unless that is said already.
    fn claim(&mut self, view: &View, deadline: &Deadline) -> Result<()> {
        let Party { progress, run, generation, .. } = &self.party;
        let Some((lanes, ownership)) = view.claim_due(&run.origin, run.processes) else {
            return Ok(());
        };
        let own = random_id()?;
        let claim = Claim {
            origin: run.origin.clone(),
            generation: *generation,
            lanes,
            nonce: own.clone(),
            is_owner: ownership == Ownership::Had,
        };
        crash_point("kafka-claiming");
        self.lanes[0].tell(&Entry::Claim(claim), deadline)?;
        crash_point("kafka-claimed");
        if ownership == Ownership::Had {
            return Ok(());
        }
        // Another job of the same name may have looked at the same time, and seen nobody either.
        let before = progress.read_to(&own, Seen::Committed)?;
        match before.owner() {
            Some(owner) if owner != run.origin => {
                Err(decide::foreign_owner(&progress.owner(), &progress.topic))
            }
            _ => Ok(()),
        }
    }

    /// Publishes what is owed, each lane on a thread of its own. Answers what became of each part.
    fn publish_pending(&mut self, pending: &[KafkaEffect], view: &View) -> Result<Vec<String>> {
        let done = |effect: &KafkaEffect| effect.done(view.published(effect.lane));
        let outcome = |effect: &KafkaEffect| match (done(effect), effect.chunks.len()) {
            (done, all) if done == all => "was published already".to_owned(),
            (0, _) => "published now".to_owned(),
            (done, all) => {
                format!("{done} of {all} pieces were published already, the others now")
            }
        };
        let outcomes = pending.iter().map(outcome).collect();
        let mut owed: BTreeMap<u32, Vec<KafkaEffect>> = BTreeMap::new();
        for effect in sorted(pending.to_vec()) {
            if done(&effect) < effect.chunks.len() {
                owed.entry(effect.lane).or_default().push(effect);
            }
        }
        at_once(&mut self.lanes, |lane| {
            lane.known = view.published(lane.lane);
            let parts = owed.get(&lane.lane).map(Vec::as_slice).unwrap_or_default();
            lane.publish_after(parts, view.published(lane.lane), PATIENCE)
        })?;
        Ok(outcomes)
    }
}

pub(super) fn sorted(mut parts: Vec<KafkaEffect>) -> Vec<KafkaEffect> {
    parts.sort_by_key(|part| part.mark(0));
    parts
}

/// Does something on all lanes at the same time.
fn at_once(
    lanes: &mut [Publisher],
    work: impl Fn(&mut Publisher) -> Result<()> + Sync,
) -> Result<()> {
    std::thread::scope(|scope| {
        let work = &work;
        let started: Vec<_> =
            lanes.iter_mut().map(|lane| scope.spawn(move || work(lane))).collect();
        started.into_iter().try_for_each(|lane| {
            lane.join().map_err(|_| Error::internal("a thread that publishes output panicked"))?
        })
    })
}
