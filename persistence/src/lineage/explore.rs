//! Every interleaving of two runs that claim, publish and collect on one store whose answers may
//! be lost, late or wrong, with the real [`Attempt`] deciding.
//!
//! What must hold: acknowledged publishes never fork; a reader that comes fresh never restores
//! less than was acknowledged; the data of the newest manifest exists; a run is fenced only if
//! another run was there; a listing shows the history and nothing else, whatever an overtaken run
//! has created under names that were freed.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::attempt::{Attempt, Fact, Next, Outcome};
use crate::ids::Sequence;

mod adding;
mod cleaning;

/// A manifest: who wrote it, on which one it stands, whose data it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Record {
    sequence: u64,
    run: u8,
    generation: u64,
    parent: Option<usize>,
    /// `None` for a fence, which names nothing and is never restored.
    data: Option<u8>,
    savepoint: bool,
}

/// What a collector has seen: by sequence, the record and whether it is a savepoint to be kept.
type Seen = BTreeMap<u64, (usize, bool)>;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// Not running, or about to read again after a lost claim.
    Start,
    /// Adding a record. Claims end in `Idle` like publishes, but a lost one starts again.
    Adding {
        attempt: Attempt,
        record: usize,
        why: Why,
    },
    /// Holds the job; its newest record.
    Idle {
        own: usize,
    },
    /// Collecting: has looked; then has written the boundary; then has looked again.
    Looked {
        own: usize,
        seen: Seen,
    },
    Bounded {
        own: usize,
        seen: Seen,
        boundary: u64,
    },
    Deleting {
        own: usize,
        seen: Seen,
        boundary: u64,
    },
    /// Came too late: reads back whether its record stands there; then deletes it.
    Withdrawing {
        record: usize,
        found: bool,
        why: Why,
    },
    Fenced,
    /// Gave up after an unknown outcome.
    Dead,
}

/// What a record is added for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Why {
    Publish,
    Claim,
    /// To take the name of a publish that is in doubt.
    Void {
        of: usize,
    },
    /// To claim from this older one next.
    Fence {
        base: usize,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Run {
    phase: Phase,
    publishes: u8,
    collections: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    records: Vec<Record>,
    live: BTreeMap<u64, usize>,
    boundary: Option<u64>,
    /// The savepoints that the boundary names.
    kept: BTreeSet<usize>,
    data: BTreeSet<u8>,
    /// What only this model knows: the record that was the first of its sequence.
    history: BTreeMap<u64, usize>,
    acked: BTreeSet<usize>,
    /// Writes that were given up by their sender and may still arrive.
    late: BTreeSet<usize>,
    runs: [Run; 2],
    /// How often the store may still answer badly.
    troubles: u8,
}

/// What is explored.
#[derive(Clone, Copy)]
struct Scope {
    publishes: u8,
    collections: u8,
    troubles: u8,
    /// Whether a claim may choose an older manifest than the newest.
    older: bool,
    /// Whether checkpoints are savepoints.
    savepoints: bool,
}

impl World {
    /// A job with two checkpoints of a first run, which still runs (0); another is to start (1).
    fn new(scope: Scope) -> World {
        let record = |sequence, parent| Record {
            sequence,
            run: 0,
            generation: 1,
            parent,
            data: Some(sequence as u8),
            savepoint: scope.savepoints,
        };
        let run = |phase| Run { phase, ..scope.budget() };
        World {
            records: vec![record(1, None), record(2, Some(0))],
            live: BTreeMap::from([(1, 0), (2, 1)]),
            boundary: None,
            kept: BTreeSet::new(),
            data: BTreeSet::from([1, 2]),
            history: BTreeMap::from([(1, 0), (2, 1)]),
            acked: BTreeSet::from([0, 1]),
            late: BTreeSet::new(),
            runs: [run(Phase::Idle { own: 1 }), run(Phase::Start)],
            troubles: scope.troubles,
        }
    }

    fn newest(&self) -> usize {
        *self.live.last_key_value().expect("the newest manifest is never deleted").1
    }

    fn overtaken(&self, own: usize) -> bool {
        self.records[self.newest()].sequence > self.records[own].sequence
    }

    fn is_ancestor(&self, old: usize, mut young: usize) -> bool {
        loop {
            match self.records[young].parent {
                _ if old == young => return true,
                None => return false,
                Some(parent) => young = parent,
            }
        }
    }

    fn check(&self, scope: Scope) {
        let newest = self.newest();
        assert!(Some(self.records[newest].sequence) > self.boundary, "nothing above: {self:?}");
        for record in self.live.values().map(|record| &self.records[*record]) {
            let intact = record.data.is_none_or(|data| self.data.contains(&data));
            assert!(intact || Some(record.sequence) <= self.boundary, "data lost: {self:?}");
        }
        for (sequence, record) in &self.live {
            if self.is_listed(*sequence, *record) {
                assert_eq!(self.history.get(sequence), Some(record), "listed: {self:?}");
                let data = self.records[*record].data;
                assert!(data.is_none_or(|data| self.data.contains(&data)), "{self:?}");
            }
        }
        for (sequence, record) in &self.history {
            let must_be = Some(*sequence) > self.boundary || self.records[*record].savepoint;
            let is_there = self.live.get(sequence) == Some(record);
            assert!(is_there || !must_be, "{record} deleted: {self:?}");
        }
        for run in 0..2 {
            if self.runs[run].phase == Phase::Fenced {
                let rival = self.records.iter().any(|r| usize::from(r.run) != run);
                assert!(rival, "fenced by nobody: {self:?}");
            }
        }
        if scope.older {
            return;
        }
        for one in &self.acked {
            assert!(self.is_ancestor(*one, newest), "acknowledged {one} lost: {self:?}");
            for other in &self.acked {
                let in_line = self.is_ancestor(*one, *other) || self.is_ancestor(*other, *one);
                assert!(in_line, "{one} and {other} fork: {self:?}");
            }
        }
    }

    /// The same with other phase of a run.
    fn with(&self, run: usize, phase: Phase) -> World {
        let mut next = self.clone();
        next.runs[run].phase = phase;
        next
    }

    fn troubled(&self) -> Option<World> {
        let troubles = self.troubles.checked_sub(1)?;
        Some(World { troubles, ..self.clone() })
    }

    /// Names are freed only up to the boundary, so that above it every record is the first.
    fn create(&mut self, record: usize) {
        let sequence = self.records[record].sequence;
        self.live.insert(sequence, record);
        if Some(sequence) > self.boundary {
            let before = self.history.insert(sequence, record);
            assert_eq!(before, None, "two records of {sequence}: {self:?}");
        }
    }

    fn is_listed(&self, sequence: u64, record: usize) -> bool {
        Some(sequence) > self.boundary || self.is_kept(record)
    }

    /// As [`Boundary::keeps`](super::boundary::Boundary::keeps).
    fn is_kept(&self, record: usize) -> bool {
        let Record { sequence, savepoint, .. } = self.records[record];
        savepoint && (Some(sequence) > self.boundary || self.kept.contains(&record))
    }

    fn steps(&self, scope: Scope) -> Vec<World> {
        let mut next = Vec::new();
        for run in 0..2 {
            self.steps_of(run, scope, &mut next);
        }
        for record in &self.late {
            let mut arrived = self.clone();
            arrived.late.remove(record);
            if !self.live.contains_key(&self.records[*record].sequence) {
                arrived.create(*record);
            }
            next.push(arrived);
        }
        next
    }

    fn steps_of(&self, run: usize, scope: Scope, next: &mut Vec<World>) {
        match &self.runs[run].phase {
            Phase::Fenced | Phase::Dead => {}
            Phase::Start => self.claims(run, scope, next),
            Phase::Adding { attempt, record, why } => match attempt.next() {
                Next::Stop(outcome) => self.settle(run, outcome, next),
                _ => self.answers(run, attempt, *record, *why, next),
            },
            Phase::Idle { own } => {
                self.publish(run, *own, next);
                self.look(run, *own, next);
            }
            Phase::Looked { .. }
            | Phase::Bounded { .. }
            | Phase::Deleting { .. }
            | Phase::Withdrawing { .. } => self.steps_of_cleaning(run, next),
        }
    }

    /// The newest is claimed at once; an older one after a fence, under which fences are no base.
    fn claims(&self, run: usize, scope: Scope, next: &mut Vec<World>) {
        let top = self.records[self.newest()];
        let listed = self.live.iter().filter(|(sequence, base)| self.is_listed(**sequence, **base));
        for (sequence, base) in listed {
            let Some(data) = self.records[*base].data else { continue };
            let (at, generation) = (top.sequence + 1, top.generation + 1);
            if *sequence == top.sequence {
                next.push(self.add(run, (at, generation), *base, Some(data), Why::Claim));
            } else if scope.older || self.is_newest_to_restore(*base) {
                let why = Why::Fence { base: *base };
                next.push(self.add(run, (at, generation), self.newest(), None, why));
            }
        }
    }

    /// Above it are fences only.
    fn is_newest_to_restore(&self, base: usize) -> bool {
        let restorable = |record: &&usize| self.records[**record].data.is_some();
        self.live.values().rfind(restorable) == Some(&base)
    }

    fn publish(&self, run: usize, own: usize, next: &mut Vec<World>) {
        let Some(publishes) = self.runs[run].publishes.checked_sub(1) else { return };
        let Record { sequence, generation, .. } = self.records[own];
        let data = 10 + 10 * run as u8 + publishes;
        let mut uploaded = self.add(run, (sequence + 1, generation), own, Some(data), Why::Publish);
        let record = uploaded.records.last_mut().expect("just added");
        record.savepoint = self.records[0].savepoint;
        uploaded.data.insert(data);
        uploaded.runs[run].publishes = publishes;
        next.push(uploaded);
    }

    fn add(
        &self,
        run: usize,
        (sequence, generation): (u64, u64),
        parent: usize,
        data: Option<u8>,
        why: Why,
    ) -> World {
        let needs = match why {
            Why::Fence { base } if !self.records[base].savepoint => self.records[base].sequence,
            Why::Fence { .. } => sequence,
            Why::Publish | Why::Claim | Why::Void { .. } => sequence,
        };
        let attempt = Attempt::new(Sequence(sequence), Sequence(needs));
        let record = self.records.len();
        let mut next = self.with(run, Phase::Adding { attempt, record, why });
        let (run, savepoint) = (run as u8, false);
        next.records.push(Record {
            sequence,
            run,
            generation,
            parent: Some(parent),
            data,
            savepoint,
        });
        next
    }
}

impl Scope {
    fn budget(self) -> Run {
        Run { phase: Phase::Start, publishes: self.publishes, collections: self.collections }
    }

    /// Visits every state that can be reached; gives their number.
    fn explore(self) -> usize {
        let first = World::new(self);
        let mut seen = HashSet::from([first.clone()]);
        let mut open = vec![first];
        while let Some(world) = open.pop() {
            world.check(self);
            for next in world.steps(self) {
                if seen.insert(next.clone()) {
                    open.push(next);
                }
            }
        }
        seen.len()
    }
}

#[test]
fn acknowledged_publishes_never_fork_and_are_never_lost() {
    let scope =
        Scope { publishes: 2, collections: 1, troubles: 1, older: false, savepoints: false };
    let states = scope.explore();
    assert!(states > 10_000, "only {states} states");
}

#[test]
fn what_a_run_starts_from_is_never_collected() {
    let scope = Scope { publishes: 1, collections: 1, troubles: 1, older: true, savepoints: false };
    let states = scope.explore();
    assert!(states > 1_000, "only {states} states");
}

#[test]
fn a_listing_shows_the_history_and_nothing_that_an_overtaken_run_created_again() {
    for older in [false, true] {
        let scope = Scope { publishes: 1, collections: 2, troubles: 1, older, savepoints: true };
        let states = scope.explore();
        assert!(states > 1_000, "only {states} states");
    }
}
