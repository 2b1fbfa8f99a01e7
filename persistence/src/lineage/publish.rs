//! Making a checkpoint exist, and the proof that it does.

use super::attempt::{Attempt, Outcome};
use super::fence::in_place;
use super::{Lineage, carry_out};
use crate::ids::{Epoch, Generation, JobName, Sequence};
use crate::manifest::{FORMAT, Manifest, Operator, Segment, Step, decode, digest_of, encode};
use crate::{Error, Result, paths};

/// What a checkpoint says that the history does not know by itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    /// The cut; higher than that of the checkpoint before.
    pub epoch: Epoch,
    /// Wall-clock time, in milliseconds since 1970.
    pub taken_at_ms: u64,
    /// From trigger to the last acknowledgement, in milliseconds.
    pub duration_ms: u64,
    /// Bytes written for this checkpoint alone.
    pub bytes: u64,
    /// Whether all input was read and all output committed or listed as pending.
    pub finished: bool,
    /// How many workers wrote it.
    pub workers: u32,
    /// Savepoint label.
    pub savepoint: Option<String>,
    /// What each durable operator left.
    pub operators: Vec<Operator>,
    /// Logs of in-flight records.
    pub in_flight: Vec<Segment>,
}

/// Proof that a checkpoint is durable and that no newer run had taken over by then. Only
/// [`Lineage::publish`] makes one; whatever makes output visible asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    sequence: Sequence,
    epoch: Epoch,
    generation: Generation,
}

impl Published {
    /// The manifest.
    pub fn sequence(&self) -> Sequence {
        self.sequence
    }

    /// The cut that it describes.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The run that wrote it.
    pub fn generation(&self) -> Generation {
        self.generation
    }
}

/// A manifest whose write has not been settled.
pub(super) struct PendingPublish {
    attempt: Attempt,
    manifest: Manifest,
    bytes: Vec<u8>,
}

impl Lineage {
    /// Makes a checkpoint exist. What it names must be durable already, and be either new or named
    /// by the newest manifest too: what only older ones name may be collected.
    ///
    /// Fails with `Fenced` if a newer run has taken over: stop, and commit nothing. Fails with
    /// `Unavailable` if the store does not answer: the checkpoint may exist. Then its output must be
    /// neither committed nor aborted; call [`Lineage::resolve`] until it settles, or
    /// [`Lineage::give_up`], or end the run.
    pub fn publish(&mut self, checkpoint: Checkpoint) -> Result<Published> {
        self.check_not_fenced()?;
        if let Some(pending) = &self.pending {
            return Err(Error::internal(format!(
                "checkpoint {} was published before it was known what became of {}",
                checkpoint.epoch, pending.manifest.epoch
            )));
        }
        if checkpoint.epoch <= self.epoch {
            return Err(Error::internal(format!(
                "checkpoint {} was published after {}",
                checkpoint.epoch, self.epoch
            )));
        }
        let manifest = self.next_manifest(checkpoint)?;
        let bytes = encode(&manifest);
        check_readable(&self.job, &manifest, &bytes)?;
        let attempt = Attempt::new(manifest.sequence, manifest.sequence);
        self.pending = Some(PendingPublish { attempt, bytes, manifest });
        self.resolve()
    }

    /// Settles a [`Lineage::publish`] that failed with `Unavailable`: asks the store again what
    /// became of it. Fails like it does.
    pub fn resolve(&mut self) -> Result<Published> {
        self.check_not_fenced()?;
        let Some(mut pending) = self.pending.take() else {
            return Err(Error::internal("there is no publish to resolve"));
        };
        pending.attempt.go_on();
        let PendingPublish { attempt, bytes, manifest } = &mut pending;
        let carried = in_place(&*self.store, &self.job, &self.hold, self.sequence)
            .and_then(|()| carry_out(&*self.store, &self.job, bytes, attempt));
        let (outcome, last) = match carried {
            Ok(carried) => carried,
            Err(error) => {
                self.pending = Some(pending);
                return Err(error);
            }
        };
        match outcome {
            Outcome::Durable => Ok(self.published(manifest, bytes)),
            Outcome::Taken => {
                let found = format!("manifest {} was written by another run", manifest.sequence);
                Err(self.fence(&found))
            }
            Outcome::Collected(boundary) => {
                let found = format!("manifests up to {boundary} are being collected");
                Err(self.fence(&found))
            }
            Outcome::Unknown => {
                let error = self.unknown(manifest.epoch, last);
                self.pending = Some(pending);
                Err(error)
            }
        }
    }

    /// Gives up a publish that [`Lineage::resolve`] could not settle. Its name is taken by a manifest
    /// that holds nothing, and that nobody restores: then the checkpoint does not exist and never
    /// will, however late its write arrives. Answers the proof that it exists if it does after all.
    ///
    /// Fails with `Unavailable` if the store does not answer: it is still not known. Then end the
    /// run; the next one finds out.
    pub fn give_up(&mut self, now_ms: u64) -> Result<Option<Published>> {
        self.check_not_fenced()?;
        let Some(pending) = self.pending.take() else {
            return Err(Error::internal("there is no publish to give up"));
        };
        let void = Manifest {
            step: Step::Fence,
            nonce: paths::random_hex::<16>()?,
            epoch: self.epoch,
            taken_at_ms: now_ms,
            duration_ms: 0,
            bytes: 0,
            finished: false,
            savepoint: None,
            operators: Vec::new(),
            in_flight: Vec::new(),
            ..pending.manifest.clone()
        };
        let bytes = encode(&void);
        let mut attempt = Attempt::new(void.sequence, void.sequence);
        let carried = in_place(&*self.store, &self.job, &self.hold, self.sequence)
            .and_then(|()| carry_out(&*self.store, &self.job, &bytes, &mut attempt));
        match carried {
            Ok((Outcome::Durable, _)) => {
                self.sequence = void.sequence;
                self.digest = digest_of(&bytes);
                Ok(None)
            }
            // Its own, or that of another run.
            Ok((Outcome::Taken, _)) => {
                self.pending = Some(pending);
                self.resolve().map(Some)
            }
            Ok((Outcome::Collected(boundary), _)) => {
                let found = format!("manifests up to {boundary} are being collected");
                Err(self.fence(&found))
            }
            Ok((Outcome::Unknown, last)) => Err(self.unknown(pending.manifest.epoch, last)),
            Err(error) => {
                self.pending = Some(pending);
                Err(error)
            }
        }
    }

    fn next_manifest(&self, checkpoint: Checkpoint) -> Result<Manifest> {
        let Checkpoint { epoch, taken_at_ms, duration_ms, bytes, finished, .. } = checkpoint;
        Ok(Manifest {
            format: FORMAT,
            job: self.job.clone(),
            sequence: self.sequence.next(),
            generation: self.hold.generation,
            nonce: paths::random_hex::<16>()?,
            run: Some(self.hold.nonce.clone()),
            origin: Some(self.origin.clone()),
            predecessor: Some(self.digest.clone()),
            step: Step::Checkpoint,
            epoch,
            taken_at_ms,
            duration_ms,
            bytes,
            finished,
            workers: checkpoint.workers,
            key_groups: self.key_groups,
            key_hash: self.key_hash.clone(),
            savepoint: checkpoint.savepoint,
            operators: checkpoint.operators,
            in_flight: checkpoint.in_flight,
        })
    }

    fn published(&mut self, manifest: &Manifest, bytes: &[u8]) -> Published {
        self.sequence = manifest.sequence;
        self.epoch = manifest.epoch;
        self.digest = digest_of(bytes);
        self.hint = Some(serde_json::json!({
            "sequence": manifest.sequence,
            "epoch": manifest.epoch,
            "generation": manifest.generation,
            "taken_at_ms": manifest.taken_at_ms,
            "manifest": paths::manifest(&self.job, manifest.sequence),
        }));
        Published {
            sequence: manifest.sequence,
            epoch: manifest.epoch,
            generation: manifest.generation,
        }
    }

    /// Says which checkpoint is the newest, for people and tools, unless that has been said. Nothing
    /// waits for it, and restoring does not need it, so that a failure is only logged.
    pub fn leave_hint(&mut self) {
        let Some(hint) = self.hint.take() else { return };
        let name = paths::latest(&self.job);
        let left = in_place(&*self.store, &self.job, &self.hold, self.sequence)
            .and_then(|()| self.store.put(&name, format!("{hint:#}\n").as_bytes()));
        if let Err(error) = left {
            tracing::warn!(%name, error = %error.report(), "hint to the newest checkpoint not written");
        }
    }

    fn unknown(&self, epoch: Epoch, last: Option<Error>) -> Error {
        let error = Error::unavailable(format!(
            "job `{}`: checkpoint {epoch} may or may not exist: {} does not answer",
            self.job,
            self.store.describe()
        ));
        match last {
            Some(last) => error.with_source(last),
            None => error,
        }
    }
}

/// Positions and effects are a connector's own JSON; a checkpoint that could be written but not
/// read, or reads otherwise, must not come to exist.
fn check_readable(job: &JobName, manifest: &Manifest, bytes: &[u8]) -> Result<()> {
    let read = decode(&paths::manifest(job, manifest.sequence), bytes);
    if read.is_ok_and(|read| read == *manifest) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "checkpoint {} of job `{job}` cannot be read back as written; a source position or pending \
         effect nests too deeply or holds fractions: keep them small and flat",
        manifest.epoch
    )))
}
