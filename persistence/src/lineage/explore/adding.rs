//! Adding a record: what the store may answer, and what a run makes of how it ends.

use super::{Attempt, Fact, Next, Outcome, Phase, Record, Sequence, Why, World};

impl World {
    /// All answers that the store may give, good ones and bad ones.
    pub(super) fn answers(
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

    /// An attempt that begins with reading back, as that of a publish which is taken up again.
    fn resolving(&self, record: usize) -> Attempt {
        let sequence = Sequence(self.records[record].sequence);
        let mut attempt = Attempt::new(sequence, sequence);
        attempt.learn(Fact::Exists);
        attempt
    }

    pub(super) fn settle(&self, run: usize, outcome: Outcome, next: &mut Vec<World>) {
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
            (Outcome::Taken, Why::Void { of }) => {
                let attempt = self.resolving(of);
                next.push(self.with(run, Phase::Adding { attempt, record: of, why: Why::Publish }));
            }
            (Outcome::Collected(boundary), why) if boundary >= attempt.sequence() => {
                let record = *record;
                next.push(self.with(run, Phase::Withdrawing { record, found: false, why }));
                // Cut off before it can.
                next.push(self.with(run, Phase::Dead));
            }
            (Outcome::Taken | Outcome::Collected(_), why) => {
                next.push(self.with(run, after_losing(why)));
            }
            (Outcome::Durable, Why::Void { .. }) => {
                next.push(self.with(run, Phase::Idle { own: *record }));
            }
            (Outcome::Unknown, Why::Void { .. }) => next.push(self.with(run, Phase::Dead)),
            (Outcome::Unknown, _) => {
                next.push(self.with(run, Phase::Dead));
                if *why == Why::Publish {
                    let Record { sequence, generation, parent, .. } = self.records[*record];
                    let parent = parent.expect("a publish has a parent");
                    let void = Why::Void { of: *record };
                    next.push(self.add(run, (sequence, generation), parent, None, void));
                }
                let mut attempt = attempt.clone();
                attempt.go_on();
                let (record, why) = (*record, *why);
                next.push(self.with(run, Phase::Adding { attempt, record, why }));
            }
        }
    }
}

/// What a run does whose record does not count.
pub(super) fn after_losing(why: Why) -> Phase {
    match why {
        Why::Claim | Why::Fence { .. } => Phase::Start,
        Why::Publish | Why::Void { .. } => Phase::Fenced,
    }
}
