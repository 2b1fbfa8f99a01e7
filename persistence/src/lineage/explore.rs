//! Every interleaving of two runs that claim, publish and collect on one store whose answers may
//! be lost, late or wrong, with the real [`Attempt`] deciding.
//!
//! What must hold: acknowledged publishes never fork; a reader that comes fresh never restores
//! less than was acknowledged; the data of the newest manifest exists; a run is fenced only if
//! another run was there.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::attempt::{Attempt, Fact, Next, Outcome};
use crate::ids::Sequence;

/// A manifest: who wrote it, on which one it stands, whose data it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Record {
    sequence: u64,
    run: u8,
    generation: u64,
    parent: Option<usize>,
    /// `None` for a fence, which names nothing and is never restored.
    data: Option<u8>,
}

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
        seen: BTreeMap<u64, usize>,
    },
    Bounded {
        own: usize,
        seen: BTreeMap<u64, usize>,
        boundary: u64,
    },
    Deleting {
        own: usize,
        seen: BTreeMap<u64, usize>,
        boundary: u64,
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
    data: BTreeSet<u8>,
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
        };
        let run = |phase| Run { phase, ..scope.budget() };
        World {
            records: vec![record(1, None), record(2, Some(0))],
            live: BTreeMap::from([(1, 0), (2, 1)]),
            boundary: None,
            data: BTreeSet::from([1, 2]),
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

    fn create(&mut self, record: usize) {
        self.live.insert(self.records[record].sequence, record);
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
            Phase::Looked { own, seen } => {
                let planned = self.records[*own].sequence - 1;
                let boundary = self.boundary.map_or(planned, |old| old.max(planned));
                let (own, seen) = (*own, seen.clone());
                let mut bounded = self.with(run, Phase::Bounded { own, seen, boundary });
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
        }
    }

    /// The newest is claimed at once; an older one after a fence, under which fences are no base.
    fn claims(&self, run: usize, scope: Scope, next: &mut Vec<World>) {
        let top = self.records[self.newest()];
        for (sequence, base) in &self.live {
            let Some(data) = self.records[*base].data else { continue };
            let (at, generation) = (top.sequence + 1, top.generation + 1);
            if *sequence == top.sequence {
                next.push(self.add(run, (at, generation), *base, Some(data), Why::Claim));
            } else if scope.older && Some(*sequence) > self.boundary {
                let why = Why::Fence { base: *base };
                next.push(self.add(run, (at, generation), self.newest(), None, why));
            }
        }
    }

    fn publish(&self, run: usize, own: usize, next: &mut Vec<World>) {
        let Some(publishes) = self.runs[run].publishes.checked_sub(1) else { return };
        let Record { sequence, generation, .. } = self.records[own];
        let data = 10 + 10 * run as u8 + publishes;
        let mut uploaded = self.add(run, (sequence + 1, generation), own, Some(data), Why::Publish);
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
            Why::Fence { base } => self.records[base].sequence,
            Why::Publish | Why::Claim => sequence,
        };
        let attempt = Attempt::new(Sequence(sequence), Sequence(needs));
        let record = self.records.len();
        let mut next = self.with(run, Phase::Adding { attempt, record, why });
        let run = run as u8;
        next.records.push(Record { sequence, run, generation, parent: Some(parent), data });
        next
    }

    /// All answers that the store may give, good ones and bad ones.
    fn answers(
        &self,
        run: usize,
        attempt: &Attempt,
        record: usize,
        why: Why,
        next: &mut Vec<World>,
    ) {
        let mut answer = |world: World, fact: Fact| {
            let mut attempt = attempt.clone();
            attempt.learn(fact);
            next.push(world.with(run, Phase::Adding { attempt, record, why }));
        };
        let standing = self.live.get(&self.records[record].sequence);
        match attempt.next() {
            Next::Create if standing.is_some() => answer(self.clone(), Fact::Exists),
            Next::Create => {
                let mut created = self.clone();
                created.create(record);
                answer(created.clone(), Fact::Created);
                if let Some(created) = created.troubled() {
                    answer(created.clone(), Fact::Exists);
                    answer(created, Fact::NoAnswer);
                }
                if let Some(mut late) = self.troubled() {
                    late.late.insert(record);
                    answer(late, Fact::NoAnswer);
                }
            }
            Next::ReadBack => answer(
                self.clone(),
                match standing {
                    None => Fact::Nothing,
                    Some(standing) if *standing == record => Fact::Mine,
                    Some(_) => Fact::Other,
                },
            ),
            Next::ReadBoundary => {
                answer(self.clone(), Fact::Boundary(self.boundary.map(Sequence)));
            }
            Next::Stop(_) => unreachable!("settled elsewhere"),
        }
        if let Some(silent) = self.troubled() {
            answer(silent, Fact::NoAnswer);
        }
    }

    fn settle(&self, run: usize, outcome: Outcome, next: &mut Vec<World>) {
        let Phase::Adding { attempt, record, why } = &self.runs[run].phase else { return };
        match (outcome, *why) {
            (Outcome::Durable, Why::Fence { base }) => {
                let Record { sequence, generation, .. } = self.records[*record];
                let (at, data) = ((sequence + 1, generation + 1), self.records[base].data);
                next.push(self.add(run, at, base, data, Why::Claim));
            }
            (Outcome::Durable, Why::Claim | Why::Publish) => {
                let mut acked = self.with(run, Phase::Idle { own: *record });
                acked.acked.insert(*record);
                next.push(acked);
            }
            (Outcome::Taken | Outcome::Collected(_), Why::Claim | Why::Fence { .. }) => {
                next.push(self.with(run, Phase::Start));
            }
            (Outcome::Taken | Outcome::Collected(_), Why::Publish) => {
                next.push(self.with(run, Phase::Fenced));
            }
            (Outcome::Unknown, _) => {
                next.push(self.with(run, Phase::Dead));
                let mut attempt = attempt.clone();
                attempt.go_on();
                let (record, why) = (*record, *why);
                next.push(self.with(run, Phase::Adding { attempt, record, why }));
            }
        }
    }

    fn look(&self, run: usize, own: usize, next: &mut Vec<World>) {
        let Some(collections) = self.runs[run].collections.checked_sub(1) else { return };
        let mut looked = self.with(
            run,
            match self.overtaken(own) {
                true => Phase::Fenced,
                false => Phase::Looked { own, seen: self.live.clone() },
            },
        );
        looked.runs[run].collections = collections;
        next.push(looked);
    }

    /// Manifests one by one, then the data that only they, or older runs, named.
    fn delete(&self, run: usize, own: usize, seen: &BTreeMap<u64, usize>, boundary: u64) -> World {
        let mut deleted = self.clone();
        let given_up = |sequence: u64| sequence <= boundary;
        let due = seen
            .iter()
            .find(|(sequence, _)| given_up(**sequence) && self.live.contains_key(sequence));
        if let Some((sequence, _)) = due {
            deleted.live.remove(sequence);
            return deleted;
        }
        let named = |gone: bool| -> BTreeSet<u8> {
            let of = seen.iter().filter(|(sequence, _)| given_up(**sequence) == gone);
            of.filter_map(|(_, record)| self.records[*record].data).collect()
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
    let scope = Scope { publishes: 2, collections: 1, troubles: 1, older: false };
    let states = scope.explore();
    assert!(states > 10_000, "only {states} states");
}

#[test]
fn what_a_run_starts_from_is_never_collected() {
    let scope = Scope { publishes: 1, collections: 1, troubles: 1, older: true };
    let states = scope.explore();
    assert!(states > 1_000, "only {states} states");
}
