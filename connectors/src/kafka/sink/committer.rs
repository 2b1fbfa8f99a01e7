//! Recovery and commit: fences older runs, finds out what they have published, and publishes the
//! rest.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use isochrone_engine::connector::{Committer, Recovery, RunContext, SinkContext};
use isochrone_engine::ids::{JobName, random_id};
use isochrone_engine::{Error, Result};

use super::decide::{self, Claim, Facts, Marker, View};
use super::effect::KafkaEffect;
use super::lane::Lane;
use super::producer::Deadline;
use super::progress::{Entry, Progress, Seen};
use super::publisher::Publisher;
use crate::crash_point;

/// What does not work at the start is told within 30 seconds.
const PATIENCE: Duration = Duration::from_secs(22);

pub(super) struct KafkaCommitter {
    progress: Progress,
    run: Arc<RunContext>,
    generation: u64,
    job: JobName,
    accept_duplicates: bool,
    lane: Option<Lane>,
}

impl KafkaCommitter {
    pub(super) fn new(
        progress: Progress,
        context: &SinkContext,
        accept_duplicates: bool,
    ) -> Result<KafkaCommitter> {
        let SinkContext { job, run, generation, .. } = context;
        let mut committer = KafkaCommitter {
            job: job.clone(),
            progress,
            run: run.clone(),
            generation: generation.0,
            accept_duplicates,
            lane: None,
        };
        // Process 0 recovers first, before the others are let in.
        if run.process > 0 {
            committer.start_lane(committer.publisher(run.process))?;
        }
        Ok(committer)
    }

    fn publisher(&self, lane: u32) -> Publisher {
        Publisher {
            progress: self.progress.clone(),
            lane,
            id: format!("isochrone.{}.{}.{}.{lane}", self.job, self.progress.sink, self.run.origin),
            run: self.run.clone(),
            producer: None,
        }
    }

    fn start_lane(&mut self, publisher: Publisher) -> Result<()> {
        self.lane = Some(Lane::start(publisher)?);
        Ok(())
    }

    /// Recovers the sink under its id of the checkpoint.
    fn recover_as(
        &self,
        pending: &[KafkaEffect],
        from: Option<u64>,
    ) -> Result<(Publisher, Vec<String>)> {
        let mut deadline = Deadline::after(PATIENCE);
        let mut first = self.publisher(0);
        // From here on no older run publishes on lane 0, where claims are written as well.
        std::thread::scope(|scope| {
            let prepared = scope.spawn(|| self.progress.prepare());
            first.ready(&deadline)?;
            prepared.join().map_err(|_| Error::internal("a thread that asks Kafka panicked"))?
        })?;
        crash_point("kafka-fenced-first");
        // Lanes that somebody meant to use, whether that was committed or not: one that is still open
        // would hide the end from who reads committed records only, until its time is over.
        let (anything, nonce) = first.read(&deadline, Seen::Everything)?;
        let lanes = anything.lanes();
        let mut others: Vec<Publisher> = (1..lanes).map(|lane| self.publisher(lane)).collect();
        at_once(&mut others, |lane| lane.ready(&deadline))?;
        crash_point("kafka-fenced");
        // IMPORTANT: marks are final only now that every lane has been fenced.
        deadline.extend();
        let (view, nonce) = if others.is_empty() {
            (self.progress.read_to(&nonce, None, Seen::Committed)?, nonce)
        } else {
            first.read(&deadline, Seen::Committed)?
        };
        let facts = Facts {
            sink: &self.progress.owner(),
            topic: &self.progress.topic,
            origin: &self.run.origin,
            from,
            pending,
            accept_duplicates: self.accept_duplicates,
        };
        decide::check(&facts, &view)?;
        deadline.extend();
        self.claim(&mut first, &view, &nonce, &deadline)?;
        let mut lanes: Vec<Publisher> = std::iter::once(first).chain(others).collect();
        self.step_back(&mut lanes, &view, from, &deadline)?;
        let lines = self.publish_pending(&mut lanes, pending, &view)?;
        Ok((lanes.swap_remove(0), lines))
    }

    /// Says that this job publishes for the sink, with so many lanes, unless that is said already.
    fn claim(
        &self,
        first: &mut Publisher,
        view: &View,
        nonce: &str,
        deadline: &Deadline,
    ) -> Result<()> {
        let lanes = view.lanes().max(self.run.processes);
        if view.claims.last().is_some_and(|claim| claim.lanes >= lanes) {
            return Ok(());
        }
        let own = random_id()?;
        let claim = Claim {
            origin: self.run.origin.clone(),
            generation: self.generation,
            lanes,
            nonce: own.clone(),
        };
        first.tell(&Entry::Claim(claim), deadline)?;
        // Another job of the same name may have looked at the same time, and seen nothing either.
        let since = self.progress.read_to(&own, Some(nonce), Seen::Committed)?;
        let rival = since.claims.into_iter().find(|claim| claim.origin != self.run.origin);
        let Some(rival) = rival else { return Ok(()) };
        first.tell(&Entry::Claim(Claim { nonce: random_id()?, ..rival }), deadline)?;
        Err(decide::foreign_owner(&self.progress.owner(), &self.progress.topic))
    }

    /// Where output may be there twice, by choice: lanes that are ahead of the checkpoint go on from
    /// it.
    fn step_back(
        &self,
        lanes: &mut [Publisher],
        view: &View,
        from: Option<u64>,
        deadline: &Deadline,
    ) -> Result<()> {
        let covered = decide::covered(from);
        for lane in lanes {
            let Some(marker) = view.markers.get(&lane.lane) else { continue };
            if marker.mark > covered {
                let (lane_number, published) = (lane.lane, marker.mark);
                tracing::warn!(
                    lane_number,
                    "output after {covered}, up to {published}, comes again"
                );
                let mark = covered;
                lane.tell(&Entry::Published(Marker { mark, ..marker.clone() }), deadline)?;
            }
        }
        Ok(())
    }

    /// Publishes what is owed, each lane on a thread of its own. Tells it in lines.
    fn publish_pending(
        &self,
        lanes: &mut Vec<Publisher>,
        pending: &[KafkaEffect],
        view: &View,
    ) -> Result<Vec<String>> {
        let mut owed: BTreeMap<u32, Vec<KafkaEffect>> = BTreeMap::new();
        let mut lines = Vec::new();
        for effect in sorted(pending.to_vec()) {
            let done = effect.done(view.published(effect.lane));
            let all = effect.chunks.len();
            lines.push(match (done, all - done) {
                (_, 0) => format!("{}: {effect}: was published already", self.progress.owner()),
                (0, _) => format!("{}: {effect}: published now", self.progress.owner()),
                (done, _) => format!(
                    "{}: {effect}: {done} of {all} pieces were published already, the others now",
                    self.progress.owner()
                ),
            });
            if done < all {
                owed.entry(effect.lane).or_default().push(effect);
            }
        }
        let most = owed.keys().last().map_or(0, |lane| lane + 1);
        let known = u32::try_from(lanes.len()).unwrap_or(u32::MAX);
        lanes.extend((known..most).map(|lane| self.publisher(lane)));
        at_once(lanes, |lane| {
            let parts = owed.get(&lane.lane).map(Vec::as_slice).unwrap_or_default();
            lane.publish_after(parts, view.published(lane.lane), PATIENCE)
        })?;
        Ok(lines)
    }
}

impl Committer<KafkaEffect> for KafkaCommitter {
    fn recover(&mut self, recovery: Recovery<KafkaEffect>) -> Result<Vec<String>> {
        let Recovery { pending, from, renamed_from, is_new } = recovery;
        let from = from.filter(|_| !is_new).map(|epoch| epoch.0);
        let mut lines = Vec::new();
        let mut pending = pending;
        if let Some(old) = renamed_from {
            let before = KafkaCommitter {
                progress: Progress { sink: old.to_string(), ..self.progress.clone() },
                run: self.run.clone(),
                job: self.job.clone(),
                lane: None,
                ..*self
            };
            lines = before.recover_as(&std::mem::take(&mut pending), from)?.1;
        }
        let (first, more) = self.recover_as(&pending, from)?;
        lines.extend(more);
        self.start_lane(first)?;
        Ok(lines)
    }

    fn commit(&mut self, effects: &[KafkaEffect]) -> Result<()> {
        let lane = self.lane.as_ref().ok_or_else(|| {
            Error::internal("a Kafka sink was asked to commit before it had recovered")
        })?;
        let parts = sorted(effects.to_vec());
        lane.publish(parts)?;
        for chunk in effects.iter().flat_map(|effect| &effect.chunks) {
            self.run.write_ahead.release(&chunk.kept);
        }
        Ok(())
    }
}

fn sorted(mut parts: Vec<KafkaEffect>) -> Vec<KafkaEffect> {
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
