//! What every exactly-once sink must do: one suite that all of them pass. Knows the traits only.
//!
//! Plays one history of a job: runs that follow one another, each with a higher generation, that
//! write, prepare, crash and recover. After each step it compares what is visible with what the
//! committed epochs explain. What readers do not see, such as leftovers that recovery must remove,
//! each sink checks in its own tests.

use std::fmt::Debug;

use isochrone_engine::ErrorKind;
use isochrone_engine::connector::{Committer, Recovery, Sink, SinkContext, Writer};
use isochrone_engine::ids::Epoch;

/// Checks a sink against the contract of [`Sink`]; panics, saying what is broken.
///
/// `make` describes the sink as a job would at each start; always the same, empty, target.
/// `visible` reads what readers of that target see now. `item` makes distinct items.
///
/// ```
/// use isochrone_connectors::{Collected, check_sink};
/// let collected = Collected::<u64>::default();
/// check_sink(|| collected.clone(), || collected.items(), |n| n);
/// ```
pub fn check_sink<S: Sink>(
    make: impl Fn() -> S,
    visible: impl Fn() -> Vec<S::Item>,
    item: impl Fn(u64) -> S::Item,
) where
    S::Item: PartialEq + Debug,
{
    let history = History { make, visible, item };
    let mut run = history.start(1, Vec::new(), None);
    let first = history.is_invisible_until_committed(&mut run);
    history.workers_do_not_collide(&mut run);
    history.an_empty_epoch_has_no_effect(&mut run);
    let pending = history.prepared_but_crashed(&mut run);
    let mut zombie = run;
    let mut run = history.finishes_pending(pending);
    history.a_zombie_does_no_harm(&mut zombie, &mut run);
    history.a_late_commit_changes_nothing(&mut zombie, &first);
    history.unprepared_output_is_dropped(run);
    history.what_will_be_written_again_is_taken_back();
    history.refuses_what_no_history_explains();
}

struct History<M, V, I> {
    make: M,
    visible: V,
    item: I,
}

/// One run of the job: two workers and the committer of their process.
struct Run<S: Sink> {
    writers: Vec<Box<dyn Writer<S::Item, S::Effect>>>,
    committer: Box<dyn Committer<S::Effect>>,
}

type Effects<S> = Vec<<S as Sink>::Effect>;

impl<S, M, V, I> History<M, V, I>
where
    S: Sink,
    S::Item: PartialEq + Debug,
    M: Fn() -> S,
    V: Fn() -> Vec<S::Item>,
    I: Fn(u64) -> S::Item,
{
    fn start(&self, generation: u64, pending: Effects<S>, from: Option<u64>) -> Run<S> {
        let sink = (self.make)();
        let committer = self.recovered(generation, pending, from);
        let open = |worker| sink.writer(&context(generation, worker)).expect("a writer opens");
        Run { writers: vec![open(0), open(1)], committer }
    }

    fn recovered(
        &self,
        generation: u64,
        pending: Effects<S>,
        from: Option<u64>,
    ) -> Box<dyn Committer<S::Effect>> {
        let sink = (self.make)();
        let mut committer = sink.committer(&context(generation, 0)).expect("a committer opens");
        let recovery = Recovery {
            pending,
            from: from.map(Epoch),
            renamed_from: None,
            is_new: false,
            history: None,
        };
        committer.fence(None).expect("older runs are shut out");
        committer.recover(recovery).expect("a run recovers");
        committer
    }

    fn write(&self, run: &mut Run<S>, worker: usize, epoch: u64, numbers: &[u64]) {
        let mut batch: Vec<S::Item> = numbers.iter().map(|n| (self.item)(*n)).collect();
        run.writers[worker].write(&mut batch, Epoch(epoch)).expect("a batch is written");
        assert!(batch.is_empty(), "write must take all of a batch");
    }

    /// Prepares an epoch twice, as a retry would.
    fn prepare(&self, run: &mut Run<S>, worker: usize, epoch: u64) -> Option<S::Effect> {
        let mut prepare = run.writers[worker].prepare(Epoch(epoch)).expect("an epoch ends");
        let first = prepare().expect("an epoch is prepared").map(|effect| stored::<S>(&effect));
        let again = prepare().expect("prepared again").map(|effect| stored::<S>(&effect));
        assert_eq!(first, again, "preparing twice must give the same effect");
        first.map(|bytes| loaded::<S>(&bytes))
    }

    /// Checks that exactly the items of `expected` are visible, those of each slice in its order.
    fn sees(&self, expected: &[&[u64]], when: &str) {
        let visible = (self.visible)();
        let total: usize = expected.iter().map(|numbers| numbers.len()).sum();
        assert_eq!(visible.len(), total, "{when}: visible are {visible:?}");
        for numbers in expected {
            let items: Vec<_> = numbers.iter().map(|n| (self.item)(*n)).collect();
            let found: Vec<_> = visible.iter().filter(|seen| items.contains(seen)).collect();
            assert_eq!(found, items.iter().collect::<Vec<_>>(), "{when}: items and their order");
        }
    }

    fn is_invisible_until_committed(&self, run: &mut Run<S>) -> Vec<u8> {
        self.write(run, 0, 1, &[3, 1]);
        self.sees(&[], "written");
        self.write(run, 0, 1, &[2]);
        let effect = self.prepare(run, 0, 1).expect("what was written has an effect");
        self.sees(&[], "prepared");
        let bytes = stored::<S>(&effect);
        run.committer.commit(&[effect]).expect("a commit");
        self.sees(&[&[3, 1, 2]], "committed");
        run.committer.commit(&[loaded::<S>(&bytes)]).expect("the same commit again");
        self.sees(&[&[3, 1, 2]], "committed twice");
        bytes
    }

    fn workers_do_not_collide(&self, run: &mut Run<S>) {
        self.write(run, 0, 2, &[10, 11]);
        self.write(run, 1, 2, &[20, 21]);
        let effects = [self.prepare(run, 0, 2), self.prepare(run, 1, 2)];
        let effects: Vec<_> = effects.into_iter().flatten().collect();
        assert_eq!(effects.len(), 2, "each worker that wrote has an effect");
        run.committer.commit(&effects).expect("the effects of two workers");
        self.sees(&[&[3, 1, 2], &[10, 11], &[20, 21]], "two workers in one epoch");
    }

    fn an_empty_epoch_has_no_effect(&self, run: &mut Run<S>) {
        run.writers[0].write(&mut Vec::new(), Epoch(3)).expect("an empty batch");
        assert!(self.prepare(run, 0, 3).is_none(), "an epoch with empty batches has no effect");
        assert!(self.prepare(run, 1, 3).is_none(), "an epoch without batches has no effect");
        run.committer.commit(&[]).expect("nothing to commit");
        self.sees(&[&[3, 1, 2], &[10, 11], &[20, 21]], "an empty epoch");
    }

    /// The checkpoint of epoch 4 exists; the run ends before it commits, with epoch 5 half done:
    /// one worker prepared, the other still writing.
    fn prepared_but_crashed(&self, run: &mut Run<S>) -> Vec<Vec<u8>> {
        self.write(run, 0, 4, &[30]);
        self.write(run, 1, 4, &[31]);
        let pending = [self.prepare(run, 0, 4), self.prepare(run, 1, 4)];
        self.write(run, 0, 5, &[40]);
        self.write(run, 1, 5, &[41]);
        self.prepare(run, 0, 5).expect("an effect that no checkpoint will name");
        self.sees(&[&[3, 1, 2], &[10, 11], &[20, 21]], "prepared in two epochs");
        pending.iter().flatten().map(stored::<S>).collect()
    }

    /// Recovery finishes epoch 4, also if it crashes after that and starts over.
    fn finishes_pending(&self, pending: Vec<Vec<u8>>) -> Run<S> {
        let load = || pending.iter().map(|bytes| loaded::<S>(bytes)).collect();
        self.recovered(2, load(), Some(5));
        let after: [&[u64]; 5] = [&[3, 1, 2], &[10, 11], &[20, 21], &[30], &[31]];
        self.sees(&after, "recovered");
        let run = self.start(3, load(), Some(5));
        self.sees(&after, "recovered twice");
        run
    }

    /// A run that was thought dead goes on writing what the new one writes differently.
    fn a_zombie_does_no_harm(&self, zombie: &mut Run<S>, run: &mut Run<S>) {
        self.write(run, 1, 5, &[50]);
        // A zombie may fail in whatever way it likes: no checkpoint will name what it makes.
        let _ = zombie.writers[1].write(&mut vec![(self.item)(42)], Epoch(5));
        if let Ok(mut prepare) = zombie.writers[1].prepare(Epoch(5)) {
            let _ = prepare();
        }
        let _ = zombie.writers[0].write(&mut vec![(self.item)(43)], Epoch(6));
        self.write(run, 1, 5, &[51]);
        let effect = self.prepare(run, 1, 5).expect("an effect beside a zombie's");
        if let Ok(mut prepare) = zombie.writers[0].prepare(Epoch(6)) {
            let _ = prepare();
        }
        run.committer.commit(&[effect]).expect("a commit beside a zombie");
        let after: [&[u64]; 6] = [&[3, 1, 2], &[10, 11], &[20, 21], &[30], &[31], &[50, 51]];
        self.sees(&after, "a zombie wrote and prepared");
    }

    /// A zombie wakes up with the permit for an epoch that was committed long ago.
    fn a_late_commit_changes_nothing(&self, zombie: &mut Run<S>, first: &[u8]) {
        zombie.committer.commit(&[loaded::<S>(first)]).expect("an old commit, late");
        let after: [&[u64]; 6] = [&[3, 1, 2], &[10, 11], &[20, 21], &[30], &[31], &[50, 51]];
        self.sees(&after, "an old epoch was committed late");
    }

    /// The run ends without a checkpoint of epoch 6; the next one writes that epoch anew.
    fn unprepared_output_is_dropped(&self, mut run: Run<S>) {
        self.write(&mut run, 0, 6, &[60]);
        self.write(&mut run, 1, 6, &[61]);
        self.prepare(&mut run, 0, 6).expect("an effect that no checkpoint will name");
        drop(run);
        let mut run = self.start(4, Vec::new(), Some(6));
        self.write(&mut run, 0, 6, &[70]);
        let effect = self.prepare(&mut run, 0, 6).expect("an effect for the epoch written anew");
        run.committer.commit(&[effect]).expect("the epoch written anew");
        let after: [&[u64]; 7] = [&[3, 1, 2], &[10, 11], &[20, 21], &[30], &[31], &[50, 51], &[70]];
        self.sees(&after, "an epoch was written anew");
    }

    /// The newest checkpoints are given up: the run goes on from the cut before epoch 5.
    fn what_will_be_written_again_is_taken_back(&self) {
        let mut run = self.start(5, Vec::new(), Some(5));
        let before: [&[u64]; 5] = [&[3, 1, 2], &[10, 11], &[20, 21], &[30], &[31]];
        self.sees(&before, "went on from an older checkpoint");
        self.write(&mut run, 1, 5, &[50, 51]);
        let effect = self.prepare(&mut run, 1, 5).expect("an effect for the epoch written again");
        run.committer.commit(&[effect]).expect("the epoch written again");
        let after: [&[u64]; 6] = [&[3, 1, 2], &[10, 11], &[20, 21], &[30], &[31], &[50, 51]];
        self.sees(&after, "an epoch was written again after a roll-back");
    }

    fn refuses_what_no_history_explains(&self) {
        let mut committer = (self.make)().committer(&context(6, 0)).expect("a committer opens");
        let fresh = Recovery {
            pending: Vec::new(),
            from: None,
            renamed_from: None,
            is_new: false,
            history: None,
        };
        committer.fence(None).expect("older runs are shut out");
        let refused = committer.recover(fresh);
        let error = refused.expect_err("a fresh job must refuse a target that holds output");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
}

fn context(generation: u64, worker: u32) -> SinkContext {
    SinkContext::alone("conformance", "sink", generation, worker).expect("legal names")
}

/// What a checkpoint keeps of an effect.
fn stored<S: Sink>(effect: &S::Effect) -> Vec<u8> {
    serde_json::to_vec(effect).expect("an effect can be stored")
}

fn loaded<S: Sink>(bytes: &[u8]) -> S::Effect {
    serde_json::from_slice(bytes).expect("a stored effect can be loaded")
}
