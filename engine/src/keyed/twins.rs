//! For tests: an operator on several workers, with a store, that can be stopped and restored on
//! another number of workers at any time.

use std::collections::BTreeMap;

use isochrone_persistence::ids::{KeyGroup, StateVersion, Worker};

use super::{Logic, Outputs, Table};
use crate::record::{Key, Record, group_of, groups_of, hash_of, owner};
use crate::state::keyspace::Packed;
use crate::time::EventTime;

pub(super) const GROUPS: u16 = 16;

pub(super) struct Cluster<K: Key, T: Record, L: Logic<K, T>> {
    logic: fn() -> L,
    pub(super) workers: Vec<Table<K, T, L, Packed>>,
    /// The newest row of each key, live ones only: what a store would give.
    pub(super) stored: BTreeMap<(KeyGroup, Vec<u8>), Vec<u8>>,
    /// Rows written, tombstones among them, by the last checkpoint.
    pub(super) written: usize,
    version: StateVersion,
    watermark: EventTime,
}

impl<K: Key, T: Record, L: Logic<K, T>> Cluster<K, T, L> {
    pub(super) fn new(workers: u32, logic: fn() -> L) -> Self {
        let mut cluster = Cluster {
            logic,
            workers: Vec::new(),
            stored: BTreeMap::new(),
            written: 0,
            version: StateVersion(0),
            watermark: EventTime::MIN,
        };
        cluster.restart(workers);
        cluster
    }

    /// Applies records in one batch per worker.
    pub(super) fn apply(&mut self, records: Vec<(K, T)>, time: Option<i64>) -> Vec<L::Out> {
        let mut batches: Vec<Vec<(K, T)>> = self.workers.iter().map(|_| Vec::new()).collect();
        for (key, record) in records {
            let group = group_of(hash_of(&key), GROUPS);
            let worker = owner(group, GROUPS, self.workers.len() as u32);
            batches[worker.0 as usize].push((key, record));
        }
        let mut out = Outputs::default();
        for (table, batch) in self.workers.iter_mut().zip(&mut batches) {
            let hashes: Vec<_> = batch.iter().map(|(key, _)| hash_of(key)).collect();
            let times = time.map_or(vec![], |time| vec![EventTime(time); batch.len()]);
            table.apply(batch, |pair| pair, &hashes, &times, &mut out);
        }
        out.items
    }

    /// Raises the watermark, firing at most so many timers at a time.
    pub(super) fn advance(&mut self, watermark: i64, max: usize) -> Vec<L::Out> {
        self.watermark = self.watermark.max(EventTime(watermark));
        let mut out = Outputs::default();
        for table in &mut self.workers {
            while table.advance_some(self.watermark, max, &mut out) {}
        }
        out.items
    }

    pub(super) fn freeze(&mut self) {
        self.workers.iter_mut().for_each(Table::freeze);
    }

    pub(super) fn step(&mut self, max_keys: usize) {
        for table in &mut self.workers {
            table.snapshot_step(max_keys);
        }
    }

    /// Completes the checkpoint that `freeze` began.
    pub(super) fn store(&mut self) {
        self.written = 0;
        for table in &mut self.workers {
            assert!(table.snapshot_step(usize::MAX));
            self.version = table.state_version();
            let rows = table.take_rows();
            self.written += rows.len();
            for (group, key, value) in rows.iter() {
                match value {
                    Some(value) => self.stored.insert((group, key.to_vec()), value.to_vec()),
                    None => self.stored.remove(&(group, key.to_vec())),
                };
            }
        }
    }

    /// Starts again from the store, on so many workers.
    pub(super) fn restart(&mut self, workers: u32) {
        self.workers = (0..workers)
            .map(|worker| {
                let mut table = Table::packed(GROUPS, (self.logic)());
                let groups = groups_of(Worker(worker), GROUPS, workers);
                for ((group, key), value) in &self.stored {
                    if groups.contains(&group.0) {
                        table.load(self.version, *group, key, value).unwrap();
                    }
                }
                table
            })
            .collect();
    }

    pub(super) fn keys(&self) -> usize {
        self.workers.iter().map(Table::keys).sum()
    }

    pub(super) fn slot(&self, key: &K) -> Option<&L::Slot> {
        let group = group_of(hash_of(key), GROUPS);
        let worker = owner(group, GROUPS, self.workers.len() as u32);
        self.workers[worker.0 as usize].get(hash_of(key), key)
    }
}
