//! What deletes: the collector's steps, and an overtaken run that takes its manifest back.

use std::collections::BTreeSet;

use super::adding::after_losing;
use super::{Phase, Record, Seen, World};

impl World {
    pub(super) fn steps_of_cleaning(&self, run: usize, next: &mut Vec<World>) {
        match &self.runs[run].phase {
            Phase::Looked { own, seen } => {
                let planned = self.records[*own].sequence - 1;
                let boundary = self.boundary.map_or(planned, |old| old.max(planned));
                let (own, seen) = (*own, seen.clone());
                let named: BTreeSet<usize> = seen
                    .iter()
                    .filter(|(sequence, (_, savepoint))| **sequence <= planned && *savepoint)
                    .map(|(_, (record, _))| *record)
                    .collect();
                let mut bounded = self.with(run, Phase::Bounded { own, seen, boundary });
                if self.boundary < Some(planned) {
                    bounded.kept = named;
                }
                bounded.boundary = Some(boundary);
                next.push(bounded);
            }
            Phase::Bounded { own, seen, boundary } => {
                let (own, seen, boundary) = (*own, seen.clone(), *boundary);
                next.push(self.with(
                    run,
                    match self.overtaken(own) {
                        true => Phase::Fenced,
                        false => Phase::Deleting { own, seen, boundary },
                    },
                ));
            }
            Phase::Deleting { own, seen, boundary } => {
                next.push(self.delete(run, *own, seen, *boundary));
            }
            Phase::Withdrawing { record, found: false, why } => {
                let (record, why) = (*record, *why);
                let stands = self.live.get(&self.records[record].sequence) == Some(&record);
                next.push(match stands && !self.is_kept(record) {
                    true => self.with(run, Phase::Withdrawing { record, found: true, why }),
                    false => self.with(run, after_losing(why)),
                });
                next.extend(self.troubled().map(|silent| silent.with(run, after_losing(why))));
            }
            Phase::Withdrawing { record, found: true, why } => {
                let mut withdrawn = self.with(run, after_losing(*why));
                withdrawn.live.remove(&self.records[*record].sequence);
                next.push(withdrawn);
                next.extend(self.troubled().map(|silent| silent.with(run, after_losing(*why))));
            }
            other => unreachable!("{other:?} deletes nothing"),
        }
    }

    pub(super) fn look(&self, run: usize, own: usize, next: &mut Vec<World>) {
        let Some(collections) = self.runs[run].collections.checked_sub(1) else { return };
        let mut looked = self.with(
            run,
            match self.overtaken(own) {
                true => Phase::Fenced,
                false => Phase::Looked { own, seen: self.seen() },
            },
        );
        looked.runs[run].collections = collections;
        next.push(looked);
    }

    fn seen(&self) -> Seen {
        let seen =
            |(sequence, record): (&u64, &usize)| (*sequence, (*record, self.is_kept(*record)));
        self.live.iter().map(seen).collect()
    }

    /// Manifests one by one, then the data that only they, or older runs, named.
    fn delete(&self, run: usize, own: usize, seen: &Seen, boundary: u64) -> World {
        let mut deleted = self.clone();
        let given_up = |sequence: u64, savepoint: bool| sequence <= boundary && !savepoint;
        let due = seen.iter().find(|(sequence, (_, savepoint))| {
            given_up(**sequence, *savepoint) && self.live.contains_key(sequence)
        });
        if let Some((sequence, _)) = due {
            deleted.live.remove(sequence);
            return deleted;
        }
        let named = |gone: bool| -> BTreeSet<u8> {
            let of = seen
                .iter()
                .filter(|(sequence, (_, savepoint))| given_up(**sequence, *savepoint) == gone);
            of.filter_map(|(_, (record, _))| self.records[*record].data).collect()
        };
        let (kept, gone) = (named(false), named(true));
        let generation = self.records[own].generation;
        deleted.data.retain(|data| {
            let old = self.writer(*data).generation < generation;
            kept.contains(data) || !(old || gone.contains(data))
        });
        deleted.runs[run].phase = Phase::Idle { own };
        deleted
    }

    /// The first record that named this data.
    fn writer(&self, data: u8) -> Record {
        let named = |record: &&Record| record.data == Some(data);
        *self.records.iter().find(named).expect("data is uploaded for a record")
    }
}
