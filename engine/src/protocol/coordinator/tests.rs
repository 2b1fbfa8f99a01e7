use super::Action::*;
use super::*;
use isochrone_persistence::ids::{OperatorId, Worker};

const SOURCE: usize = 0;
const STATE: usize = 1;
const SINK: usize = 2;

struct Job(Coordinator);

fn settings() -> Settings {
    Settings { interval_ms: Some(100), records: None, timeout_ms: 1000, failures_max: 2 }
}

fn job(settings: Settings) -> Job {
    let id = |name| OperatorId::new(name).unwrap();
    let operators =
        vec![(id("log"), Kind::Source), (id("count"), Kind::State), (id("out"), Kind::Sink)];
    Job(Coordinator::new(settings, Plan { operators, workers: 2 }, Epoch(10), 0))
}

fn part(operator: usize, worker: u32) -> Part {
    Part { operator, worker: Worker(worker) }
}

fn trigger(epoch: u64, cause: Cause) -> Action {
    Trigger { epoch: Epoch(epoch), cause }
}

fn publish(epoch: u64, duration_ms: u64) -> Action {
    Publish { epoch: Epoch(epoch), savepoint: None, finished: false, duration_ms }
}

impl Job {
    fn on(&mut self, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        self.0.on(event, &mut actions);
        actions
    }

    fn tick(&mut self, now_ms: u64, records_read: u64) -> Vec<Action> {
        self.on(Event::Tick { now_ms, records_read })
    }

    /// Ticks often until then.
    fn listen(&mut self, until_ms: u64, records_read: u64) -> Vec<Action> {
        let from_ms = self.0.now_ms;
        let ticks = (from_ms..until_ms).step_by(100).skip(1).chain([until_ms]);
        ticks.flat_map(|now_ms| self.tick(now_ms, records_read)).collect()
    }

    fn request(&mut self, id: u64, savepoint: Option<&str>) -> Vec<Action> {
        self.on(Event::Request { id, savepoint: savepoint.map(str::to_owned) })
    }

    fn ack_all(&mut self, epoch: u64) -> Vec<Action> {
        let epoch = Epoch(epoch);
        let parts: Vec<_> = self.0.plan.parts().collect();
        parts.into_iter().flat_map(|part| self.on(Event::Ack { part, epoch })).collect()
    }

    fn published(&mut self, epoch: u64) -> Vec<Action> {
        self.on(Event::Published { epoch: Epoch(epoch) })
    }

    fn complete(&mut self, epoch: u64) -> Vec<Action> {
        assert!(matches!(self.ack_all(epoch)[..], [Publish { .. }]));
        self.published(epoch)
    }

    fn end_input(&mut self) -> Vec<Action> {
        (0..2).flat_map(|w| self.on(Event::Ended { part: part(SOURCE, w) })).collect()
    }

    fn commit(&mut self, epoch: u64) -> Vec<Action> {
        let commit = |w| Event::Committed { part: part(SINK, w), epoch: Epoch(epoch) };
        (0..2).flat_map(|w| self.on(commit(w))).collect()
    }
}

#[test]
fn publishes_when_exactly_all_parts_acknowledged_and_commits_after_that() {
    let mut job = job(settings());
    assert_eq!(job.tick(100, 5), [trigger(11, Cause::Interval)]);
    job.tick(130, 9);
    for part in job.0.plan.parts().take(5).collect::<Vec<_>>() {
        assert_eq!(job.on(Event::Ack { part, epoch: Epoch(11) }), []);
        assert_eq!(job.on(Event::Ack { part, epoch: Epoch(11) }), [], "twice counts once");
    }
    assert_eq!(job.0.status().running.unwrap().missing, [part(SINK, 1)]);
    assert_eq!(job.on(Event::Ack { part: part(SINK, 1), epoch: Epoch(11) }), [publish(11, 30)]);
    assert_eq!(job.published(11), [Commit { epoch: Epoch(11) }, Collect]);
    assert_eq!(job.0.status().published, Some(Epoch(11)));
}

#[test]
fn interval_runs_from_trigger_to_trigger_but_never_overlaps() {
    let mut job = job(settings());
    assert_eq!(job.tick(99, 1), []);
    assert_eq!(job.tick(120, 1), [trigger(11, Cause::Interval)]);
    assert_eq!(job.tick(330, 2), []);
    let after = job.complete(11);
    assert_eq!(after, [Commit { epoch: Epoch(11) }, Collect, trigger(12, Cause::Interval)]);
}

#[test]
fn the_first_interval_is_short() {
    for (interval_ms, first_ms) in [(100, 100), (200, 200), (1_000, 200), (60_000, 6_000)] {
        let mut job = job(Settings { interval_ms: Some(interval_ms), ..settings() });
        assert_eq!(job.tick(first_ms - 1, 1), []);
        assert_eq!(job.tick(first_ms, 1), [trigger(11, Cause::Interval)], "{interval_ms}");
        job.complete(11);
        assert_eq!(job.tick(first_ms + interval_ms - 1, 2), []);
        let next = job.tick(first_ms + interval_ms, 2);
        assert_eq!(next, [trigger(12, Cause::Interval)], "{interval_ms}");
    }
}

/// The next checkpoint need not wait for the target of a sink; the one after it does.
#[test]
fn output_that_does_not_become_visible_holds_up_checkpoints() {
    let mut job = job(settings());
    job.tick(100, 1);
    job.complete(11);
    assert_eq!(job.tick(200, 2), [trigger(12, Cause::Interval)], "11 is not visible yet");
    job.complete(12);
    assert_eq!(job.tick(300, 3), [], "11 is still not");
    assert_eq!(job.request(1, None), []);
    assert_eq!(job.on(Event::Stop), []);
    assert_eq!(job.on(Event::Committed { part: part(SINK, 0), epoch: Epoch(11) }), []);
    let last = Event::Committed { part: part(SINK, 1), epoch: Epoch(11) };
    assert_eq!(job.on(last), [trigger(13, Cause::Stopped)]);
    job.complete(13);
    assert_eq!(job.commit(12), []);
    assert_eq!(job.commit(13), [Finish { cause: Cause::Stopped }]);
}

fn overdue(epoch: u64, waited_ms: u64, workers: &[u32], gives_up: bool) -> Action {
    let missing = workers.iter().map(|worker| part(SINK, *worker)).collect();
    Overdue { epoch: Epoch(epoch), waited_ms, missing, gives_up }
}

/// It cannot be dropped: its checkpoint exists. Whoever waits behind it is told.
#[test]
fn output_that_stays_invisible_is_told_at_each_timeout_and_ends_the_job_as_failures_in_a_row_do() {
    let mut job = job(Settings { failures_max: 3, ..settings() });
    job.tick(100, 1);
    job.complete(11);
    job.on(Event::Committed { part: part(SINK, 0), epoch: Epoch(11) });
    job.tick(200, 2);
    job.complete(12);
    assert_eq!(job.request(1, None), []);
    assert_eq!(job.on(Event::Stop), []);
    assert_eq!(job.listen(1099, 3), []);
    let output = job.0.status().output.unwrap();
    assert_eq!(
        (output.epoch, output.age_ms, output.missing),
        (Epoch(11), 999, vec![part(SINK, 1)])
    );
    let told: Vec<_> = (1..=3).map(|n| job.listen(100 + n * 1000, 3)).collect();
    assert_eq!(told[0], [overdue(11, 1000, &[1], false)]);
    assert_eq!(told[1], [overdue(11, 2000, &[1], false)]);
    let [Answer { id: 1, result: Err(why) }, last] = &told[2][..] else { panic!("{told:?}") };
    assert_eq!(why, "the output of checkpoint 11 is not visible after 3000 ms");
    assert_eq!(*last, overdue(11, 3000, &[1], true));
    assert_eq!(job.tick(99_000, 9), [], "it is over");
    assert_eq!(job.commit(11), [], "also if it becomes visible after all");
}

#[test]
fn output_is_given_its_time_from_when_the_one_before_became_visible() {
    let mut job = job(settings());
    job.tick(100, 1);
    job.complete(11);
    job.tick(200, 2);
    job.complete(12);
    assert_eq!(job.listen(1099, 2), [], "a commit that is merely slow");
    job.commit(11);
    assert_eq!(job.0.status().output.unwrap().epoch, Epoch(12));
    assert_eq!(job.listen(2098, 2), []);
    assert_eq!(job.tick(2099, 2), [overdue(12, 1000, &[0, 1], false)], "nothing else waits");
    job.commit(12);
    assert_eq!(job.0.status().output, None);
    assert_eq!(job.listen(9000, 2), []);
    let next = job.tick(9001, 3);
    assert_eq!(next, [trigger(13, Cause::Interval)], "what was overdue counts no further");
}

/// The computer may have slept, or the coordinator have waited for the store: what came meanwhile is
/// heard before anything is late.
#[test]
fn time_in_which_nobody_listened_counts_a_quarter_of_a_timeout_at_most() {
    let mut job = job(Settings { failures_max: 1, ..settings() });
    job.tick(100, 1);
    job.complete(11);
    job.tick(200, 2);
    job.tick(300, 2);
    assert_eq!(job.ack_all(12), [publish(12, 100)]);
    assert_eq!(job.tick(90_000, 2), [], "nothing is late while a manifest is in doubt");
    job.published(12);
    assert_eq!(job.tick(90_001, 2), []);
    assert_eq!(job.tick(990_000, 2), [], "listened for 200 ms, 1 and 250");
    assert_eq!(job.commit(12), [], "heard in time");
    job.tick(990_001, 3);
    assert_eq!(job.0.status().running.unwrap().epoch, Epoch(13));
    assert_eq!(job.tick(1_990_000, 3), [], "nor is a checkpoint");
    assert_eq!(job.listen(1_990_749, 3), []);
    let [Abandon { .. }, Fail { .. }] = job.tick(1_990_750, 3)[..] else { panic!() };
}

#[test]
fn the_last_output_is_waited_for_as_long_as_any() {
    let mut job = job(Settings { failures_max: 1, ..settings() });
    job.on(Event::Stop);
    job.complete(11);
    assert!(job.0.status().ending);
    assert_eq!(job.listen(999, 0), []);
    assert_eq!(job.tick(1000, 0), [overdue(11, 1000, &[0, 1], true)]);
    assert_eq!(job.commit(11), []);
}

#[test]
fn nothing_read_since_the_last_published_one_takes_none() {
    let mut job = job(settings());
    assert_eq!(job.tick(500, 0), []);
    job.tick(501, 1);
    job.complete(11);
    assert_eq!(job.tick(900, 1), []);
    assert_eq!(job.tick(901, 2), [trigger(12, Cause::Interval)]);
    job.on(Event::PartFailed { part: part(STATE, 0), epoch: Epoch(12), reason: "x".into() });
    assert_eq!(job.tick(1001, 2), [trigger(13, Cause::Interval)], "12 was not published");
}

#[test]
fn triggers_after_so_many_records() {
    let mut job = job(Settings { interval_ms: None, records: Some(10), ..settings() });
    assert_eq!(job.tick(5000, 9), []);
    assert_eq!(job.tick(5001, 12), [trigger(11, Cause::Records)]);
    job.complete(11);
    assert_eq!(job.tick(5002, 21), []);
    assert_eq!(job.tick(5003, 22), [trigger(12, Cause::Records)]);
}

#[test]
fn a_timeout_names_who_is_missing_and_the_number_is_not_used_again() {
    let mut job = job(settings());
    job.tick(100, 1);
    for part in job.0.plan.parts().skip(1).collect::<Vec<_>>() {
        job.on(Event::Ack { part, epoch: Epoch(11) });
    }
    let actions = job.listen(1100, 1);
    let [Abandon { epoch, why }, next] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!(*epoch, Epoch(11));
    assert_eq!(why, "timed out after 1000 ms; still missing: `log` on worker 0");
    assert_eq!(*next, trigger(12, Cause::Interval));
    let late = job.on(Event::Ack { part: part(SOURCE, 0), epoch: Epoch(11) });
    assert_eq!(late, [], "a late acknowledgement of an abandoned checkpoint is silent");
    assert_eq!(job.published(11), []);
    assert_eq!(job.ack_all(12), [publish(12, 0)]);
}

#[test]
fn a_publish_in_doubt_does_not_time_out() {
    let mut job = job(settings());
    job.tick(100, 1);
    job.ack_all(11);
    assert_eq!(job.tick(9000, 5), []);
    assert_eq!(job.published(11)[0], Commit { epoch: Epoch(11) });
}

#[test]
fn too_many_failures_in_a_row_fail_the_job_with_the_last_reason() {
    let mut job = job(settings());
    let failed = |n, reason: &str| Event::PartFailed {
        part: part(STATE, 1),
        epoch: Epoch(n),
        reason: reason.into(),
    };
    job.tick(100, 1);
    assert!(matches!(job.on(failed(11, "disk full"))[..], [Abandon { .. }]));
    job.tick(200, 1);
    job.complete(12);
    job.tick(300, 2);
    assert!(matches!(job.on(failed(13, "disk full"))[..], [Abandon { .. }]), "success resets");
    job.tick(400, 2);
    job.ack_all(14);
    job.request(7, None);
    let actions =
        job.on(Event::PublishFailed { epoch: Epoch(14), reason: "no answer from store".into() });
    let [Abandon { .. }, Answer { id: 7, result: Err(_) }, Fail { message }] = &actions[..] else {
        panic!("{actions:?}")
    };
    assert!(message.contains("2 checkpoints in a row"), "{message}");
    assert!(message.contains("no answer from store"), "{message}");
    assert_eq!(job.tick(9000, 99), []);
    assert!(matches!(job.request(8, None)[..], [Answer { id: 8, result: Err(_) }]));
}

#[test]
fn requests_during_a_checkpoint_share_the_next_one() {
    let mut job = job(settings());
    assert_eq!(job.request(1, None), [trigger(11, Cause::Request)]);
    assert_eq!(job.request(2, None), []);
    assert_eq!(job.request(3, Some("before-upgrade")), []);
    assert_eq!(job.request(4, Some("other")), []);
    let answer = |id, epoch| Answer { id, result: Ok(Epoch(epoch)) };
    assert_eq!(job.complete(11)[2..], [answer(1, 11), trigger(12, Cause::Request)]);
    let Publish { savepoint, .. } = &job.ack_all(12)[0] else { panic!() };
    assert_eq!(savepoint.as_deref(), Some("before-upgrade"));
    job.commit(11);
    let after = job.published(12);
    assert_eq!(after[2..], [answer(2, 12), answer(3, 12), trigger(13, Cause::Request)]);
    assert_eq!(job.complete(13)[2..], [answer(4, 13)]);
}

#[test]
fn an_abandoned_checkpoint_answers_its_requests_with_the_reason() {
    let mut job = job(settings());
    job.request(1, None);
    let reason = "disk full".to_owned();
    let actions = job.on(Event::PartFailed { part: part(STATE, 0), epoch: Epoch(11), reason });
    let why = "`count` on worker 0: disk full".to_owned();
    assert_eq!(actions[0], Answer { id: 1, result: Err(why) });
}

#[test]
fn ends_after_a_final_checkpoint_whose_output_is_visible() {
    let mut job = job(settings());
    job.tick(100, 5);
    assert_eq!(job.end_input(), [], "one at a time");
    assert_eq!(job.complete(11)[2..], [trigger(12, Cause::InputEnded)]);
    assert_eq!(job.commit(11), []);
    let Publish { finished: true, .. } = job.ack_all(12)[0] else { panic!() };
    assert_eq!(job.published(12), [Commit { epoch: Epoch(12) }, Collect]);
    assert_eq!(job.request(9, None), [Answer { id: 9, result: Ok(Epoch(12)) }]);
    assert_eq!(job.tick(9000, 5), []);
    assert_eq!(job.commit(12), [Finish { cause: Cause::InputEnded }]);
    assert_eq!(job.commit(12), [], "once");
}

#[test]
fn stop_takes_a_final_checkpoint_and_answers_requests_that_come_during_it() {
    let mut job = job(settings());
    assert_eq!(job.on(Event::Stop), [trigger(11, Cause::Stopped)]);
    job.request(1, Some("last"));
    assert!(matches!(job.request(2, Some("x"))[..], [Answer { id: 2, result: Err(_) }]));
    job.end_input();
    let Publish { savepoint, finished, .. } = &job.ack_all(11)[0] else { panic!() };
    assert_eq!((savepoint.as_deref(), *finished), (Some("last"), false), "cut before the end");
    assert_eq!(job.published(11)[2..], [Answer { id: 1, result: Ok(Epoch(11)) }]);
    assert_eq!(job.commit(11), [Finish { cause: Cause::Stopped }]);
}

#[test]
fn a_final_checkpoint_that_fails_is_taken_again() {
    let mut job = job(settings());
    job.on(Event::Stop);
    let reason = "disk full".to_owned();
    let actions = job.on(Event::PartFailed { part: part(STATE, 0), epoch: Epoch(11), reason });
    assert_eq!(actions[1..], [trigger(12, Cause::Stopped)]);
}
