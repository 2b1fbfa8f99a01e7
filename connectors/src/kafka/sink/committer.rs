//! The committer of one process: recovers the sink in the first one, and publishes on a lane of its
//! own.

use isochrone_engine::connector::{Committer, Recovery, SinkContext};
use isochrone_engine::ids::OperatorId;
use isochrone_engine::{Error, Result};

use super::decide::Start;
use super::effect::KafkaEffect;
use super::history::History;
use super::lane::Lane;
use super::progress::Progress;
use super::publisher::Publisher;
use super::recovery::{Fenced, Party, sorted};

pub(super) struct KafkaCommitter {
    party: Party,
    /// Until recovery.
    fenced: Option<Shut>,
    history: Option<History>,
    outcomes: Vec<String>,
    lane: Option<Lane>,
}

/// Whom older runs cannot publish as any more.
struct Shut {
    own: Fenced,
    /// Under the id that the sink had in the checkpoint, if it was another one.
    before: Option<Fenced>,
}

impl KafkaCommitter {
    pub(super) fn new(
        progress: Progress,
        context: &SinkContext,
        accept_duplicates: bool,
    ) -> Result<KafkaCommitter> {
        let SinkContext { job, run, generation, .. } = context;
        let party = Party {
            progress,
            run: run.clone(),
            generation: generation.0,
            job: job.clone(),
            accept_duplicates,
        };
        let (history, outcomes, lane) = (None, Vec::new(), None);
        Ok(KafkaCommitter { party, fenced: None, history, outcomes, lane })
    }

    fn start_lane(&mut self, publisher: Publisher) -> Result<()> {
        self.lane = Some(Lane::start(publisher)?);
        Ok(())
    }
}

impl Committer<KafkaEffect> for KafkaCommitter {
    fn fence(&mut self, renamed_from: Option<&OperatorId>) -> Result<()> {
        let before = renamed_from.map(|old| {
            let progress = Progress { sink: old.to_string(), ..self.party.progress.clone() };
            Party { progress, ..self.party.clone() }.fence()
        });
        let before = before.transpose()?;
        self.fenced = Some(Shut { before, own: self.party.clone().fence()? });
        Ok(())
    }

    fn recover(&mut self, recovery: Recovery<KafkaEffect>) -> Result<Vec<String>> {
        let Recovery { pending, from, is_new, history, .. } = recovery;
        let Shut { own, before } = self.fenced.take().ok_or_else(|| {
            Error::internal("a Kafka sink was asked to recover before older runs were fenced")
        })?;
        let history = history.as_deref().map(History::decode).transpose()?;
        let mut start = Start { from: from.map(|epoch| epoch.0), is_new, history, pending };
        if let Some(before) = before {
            self.outcomes = before.recover(&start)?.outcomes;
            // Of the new id the checkpoint says nothing.
            start = Start { history: None, pending: Vec::new(), ..start };
        }
        let recovered = own.recover(&start)?;
        self.outcomes.extend(recovered.outcomes);
        self.history = Some(recovered.history);
        self.start_lane(recovered.first)?;
        Ok(Vec::new())
    }

    fn join(&mut self, history: Option<&str>) -> Result<()> {
        let history = history.map(History::decode).transpose()?;
        let mut publisher = self.party.publisher(self.party.run.process);
        publisher.known = history.and_then(|history| history.published_by(publisher.lane));
        self.start_lane(publisher)
    }

    fn history(&self) -> Option<String> {
        self.history.as_ref().map(History::encode)
    }

    fn outcomes(&self) -> Vec<String> {
        self.outcomes.clone()
    }

    fn commit(&mut self, effects: &[KafkaEffect]) -> Result<()> {
        let lane = self.lane.as_ref().ok_or_else(|| {
            Error::internal("a Kafka sink was asked to commit before it had recovered")
        })?;
        let parts = sorted(effects.to_vec());
        lane.publish(parts)?;
        for chunk in effects.iter().flat_map(|effect| &effect.chunks) {
            self.party.run.write_ahead.release(&chunk.kept);
        }
        Ok(())
    }
}
