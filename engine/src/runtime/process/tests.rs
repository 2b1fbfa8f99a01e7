use std::sync::Mutex;

use isochrone_persistence::ErrorKind;
use isochrone_persistence::store::memory::MemoryStore;
use serde_json::{Value, json};

use super::super::pace::Free;
use super::*;
use crate::connector::Recovery;
use crate::erased::AnyCommitter;
use crate::time::SystemClock;

type Calls = Arc<Mutex<Vec<Value>>>;

/// Says when it is called, and then does what it is told to.
struct Told {
    calls: Calls,
    begun: Sender<()>,
    answer: crossbeam_channel::Receiver<Result<()>>,
}

impl AnyCommitter for Told {
    fn fence(&mut self, _: Option<&OperatorId>) -> Result<()> {
        Ok(())
    }
    fn recover(&mut self, _: Recovery<Value>) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
    fn history(&self) -> Option<String> {
        None
    }
    fn commit(&mut self, effects: &[Value]) -> Result<()> {
        self.calls.lock().unwrap().extend(effects.iter().cloned());
        self.begun.send(()).unwrap();
        self.answer.recv().unwrap()
    }
}

/// A process of two sinks, and what it says.
struct Lab {
    process: Process,
    calls: Calls,
    begun: crossbeam_channel::Receiver<()>,
    answer: Sender<Result<()>>,
    reports: crossbeam_channel::Receiver<Report>,
}

impl Lab {
    /// What process 0 and every other has: it does as ordered, with the output of two epochs prepared.
    fn new() -> Lab {
        let store: SharedStore = Arc::new(MemoryStore::default());
        let (job, generation) = (JobName::new("job").unwrap(), Generation(1));
        let membership = Membership {
            context: Arc::new(RunContext::alone(store.clone(), &job, generation)),
            job,
            generation,
            start: Epoch(0),
            groups: 16,
            first_worker: 1,
            workers: 1,
            store,
            clock: Arc::new(SystemClock::default()),
            pace: Arc::new(Free),
        };
        let (calls, (begin, begun)) = (Calls::default(), crossbeam_channel::unbounded());
        let (answer, answers) = crossbeam_channel::unbounded();
        let committer = |_| -> Box<dyn AnyCommitter> {
            let (begun, answer) = (begin.clone(), answers.clone());
            Box::new(Told { calls: calls.clone(), begun, answer })
        };
        let committers: Committers = (0..2).map(|sink| (sink, committer(sink))).collect();
        let (report, reports) = crossbeam_channel::unbounded();
        let report: Reporter = Arc::new(move |told| report.send(told).unwrap());
        let plan = Plan { operators: Vec::new() };
        let process = Process::begin(&membership, &plan, committers, report).unwrap();
        for (operator, epoch) in [(0, 1), (1, 1), (0, 2), (1, 2)] {
            let part = Part { operator, worker: Worker(1) };
            let effect = json!([operator, epoch]);
            process.due.send(Due::Prepared { part, epoch: Epoch(epoch), effect }).unwrap();
        }
        Lab { process, calls, begun, answer, reports }
    }

    fn commit(&self, epoch: u64) {
        self.process.orders()(&Order::Commit { epoch: Epoch(epoch) });
    }
}

#[test]
fn whatever_is_ordered_nothing_is_committed_behind_what_failed() {
    let lab = Lab::new();
    lab.commit(1);
    lab.commit(2);
    lab.answer.send(Err(Error::unavailable("the target is away"))).unwrap();
    let Ok(Report::Failed(failure)) = lab.reports.recv() else { panic!() };
    assert_eq!(Error::from(failure).kind(), ErrorKind::Unavailable);
    lab.commit(2);
    let (calls, process) = (lab.calls.clone(), lab.process);
    process.end(false).unwrap();
    assert_eq!(*calls.lock().unwrap(), [json!([0, 1])]);
}

#[test]
fn what_is_under_way_can_be_seen() {
    let lab = Lab::new();
    lab.commit(1);
    for operator in 0..2 {
        lab.begun.recv().unwrap();
        let under_way = lab.process.control.commits.under_way(u64::MAX).unwrap();
        assert_eq!((under_way.operator, under_way.epoch), (operator, Epoch(1)));
        lab.answer.send(Ok(())).unwrap();
    }
    lab.process.orders()(&Order::Finish);
    let commits = lab.process.control.commits.clone();
    lab.process.end(true).unwrap();
    assert_eq!(commits.under_way(u64::MAX), None);
}

/// The next run may have begun when it comes back.
#[test]
fn a_committer_that_does_not_return_after_a_failure_is_left_behind_and_commits_nothing_more() {
    let lab = Lab::new();
    lab.commit(1);
    lab.commit(2);
    lab.begun.recv().unwrap();
    lab.process.orders()(&Order::Abort((&Error::unavailable("overdue")).into()));
    let (calls, answer, reports) = (lab.calls.clone(), lab.answer, lab.reports);
    assert_eq!(lab.process.end(true).unwrap_err().to_string(), "overdue");
    answer.send(Ok(())).unwrap();
    assert!(reports.recv().is_err(), "it has ended, and said nothing");
    assert_eq!(*calls.lock().unwrap(), [json!([0, 1])]);
}
