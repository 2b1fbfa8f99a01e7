use isochrone_persistence::ErrorKind;
use isochrone_persistence::ids::Generation;
use serde_json::json;

use super::*;

const SOURCE: usize = 0;
const STATE: usize = 1;
const SINK: usize = 2;

fn part(operator: usize, worker: u32) -> Part {
    Part { operator, worker: Worker(worker) }
}

fn segment(name: &str, epoch: u64, worker: u32) -> Segment {
    Segment {
        name: name.into(),
        bytes: 1,
        digest: String::new(),
        rows: 1,
        generation: Generation(1),
        epoch: Epoch(epoch),
        worker: Worker(worker),
    }
}

fn split(id: &str, position: u64) -> Split {
    Split { id: id.into(), position: json!(position), watermark: None, finished: false }
}

/// Restored: splits a at 1 and b at 2, 3 skipped; segments r1, r2; output of worker 5 pending.
fn ledger() -> Ledger {
    let operator = |id, part| manifest::Operator { id: OperatorId::new(id).unwrap(), part };
    let effect = json!("old");
    let pending = vec![Pending { worker: Worker(5), epoch: Epoch(9), effect, kept: vec![] }];
    Ledger::restore(vec![
        operator(
            "log",
            manifest::Part::Source { splits: vec![split("a", 1), split("b", 2)], skipped: 3 },
        ),
        operator(
            "count",
            manifest::Part::State {
                version: StateVersion(1),
                shape: "s".into(),
                codec: "c".into(),
                segments: vec![segment("r1", 8, 0), segment("r2", 9, 1)],
            },
        ),
        operator("out", manifest::Part::Sink { pending, history: None, target: None }),
    ])
}

fn splits(ledger: &Ledger, epoch: u64) -> (Vec<Split>, u64) {
    match ledger.manifest_operators(Epoch(epoch)).swap_remove(SOURCE).part {
        manifest::Part::Source { splits, skipped } => (splits, skipped),
        other => panic!("{other:?}"),
    }
}

fn segments(ledger: &Ledger, epoch: u64) -> Vec<String> {
    match ledger.manifest_operators(Epoch(epoch)).swap_remove(STATE).part {
        manifest::Part::State { segments, .. } => segments.into_iter().map(|s| s.name).collect(),
        other => panic!("{other:?}"),
    }
}

fn pending(ledger: &Ledger, epoch: u64) -> Vec<(u64, u32)> {
    match ledger.manifest_operators(Epoch(epoch)).swap_remove(SINK).part {
        manifest::Part::Sink { pending, .. } => {
            pending.into_iter().map(|p| (p.epoch.0, p.worker.0)).collect()
        }
        other => panic!("{other:?}"),
    }
}

fn ack_state(ledger: &mut Ledger, name: &str, epoch: u64, worker: u32) {
    let segment = Some(segment(name, epoch, worker));
    ledger.ack(part(STATE, worker), Epoch(epoch), Content::State { segment }).unwrap();
}

fn ack_sink(ledger: &mut Ledger, epoch: u64, worker: u32) {
    let pending = Some(json!(epoch).into());
    ledger.ack(part(SINK, worker), Epoch(epoch), Content::Sink { pending }).unwrap();
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|n| (*n).to_owned()).collect()
}

#[test]
fn a_split_that_nobody_owns_keeps_its_restored_position() {
    let mut l = ledger();
    let content = Content::Source { splits: vec![split("b", 7), split("c", 1)], skipped: 2 };
    l.ack(part(SOURCE, 0), Epoch(10), content).unwrap();
    let content = Content::Source { splits: vec![], skipped: 1 };
    l.ack(part(SOURCE, 1), Epoch(10), content).unwrap();
    assert_eq!(splits(&l, 10), (vec![split("a", 1), split("b", 7), split("c", 1)], 6));
}

#[test]
fn skips_are_counted_once_however_often_they_are_told() {
    let mut l = ledger();
    for epoch in 10..13 {
        let content = Content::Source { splits: vec![], skipped: 4 };
        l.ack(part(SOURCE, 0), Epoch(epoch), content).unwrap();
    }
    assert_eq!(splits(&l, 12).1, 7);
}

#[test]
fn a_late_acknowledgement_does_not_take_a_split_back() {
    let mut l = ledger();
    let content = |position| Content::Source { splits: vec![split("a", position)], skipped: 0 };
    l.ack(part(SOURCE, 1), Epoch(11), content(9)).unwrap();
    l.ack(part(SOURCE, 0), Epoch(10), content(5)).unwrap();
    assert_eq!(splits(&l, 11).0[0], split("a", 9));
}

#[test]
fn segments_of_an_abandoned_epoch_are_named_by_the_next_published_one() {
    let mut l = ledger();
    ack_state(&mut l, "w0-10", 10, 0);
    ack_state(&mut l, "w0-11", 11, 0);
    ack_state(&mut l, "w1-10", 10, 1);
    ack_state(&mut l, "w1-11", 11, 1);
    assert_eq!(segments(&l, 11), ["r1", "r2", "w0-10", "w1-10", "w0-11", "w1-11"]);
    l.ack(part(STATE, 0), Epoch(12), Content::State { segment: None }).unwrap();
    assert_eq!(segments(&l, 12).len(), 6, "nothing changed, nothing added");
}

#[test]
fn acknowledgements_of_a_part_only_rise() {
    let mut l = ledger();
    ack_state(&mut l, "w0-11", 11, 0);
    let late = l.ack(part(STATE, 0), Epoch(10), Content::State { segment: None });
    assert_eq!(late.unwrap_err().kind(), ErrorKind::Internal);
    let wrong = l.ack(part(STATE, 0), Epoch(12), Content::Sink { pending: None });
    assert_eq!(wrong.unwrap_err().kind(), ErrorKind::Internal);
}

#[test]
#[should_panic(expected = "was acknowledged before")]
fn a_manifest_never_names_what_is_newer_than_itself() {
    let mut l = ledger();
    ack_state(&mut l, "w0-11", 11, 0);
    l.manifest_operators(Epoch(10));
}

#[test]
fn output_stays_pending_until_its_own_writer_committed_it() {
    let mut l = ledger();
    ack_sink(&mut l, 10, 0);
    ack_sink(&mut l, 11, 0);
    ack_sink(&mut l, 11, 1);
    assert_eq!(pending(&l, 11), [(9, 5), (10, 0), (11, 0), (11, 1)]);
    l.published(Epoch(11));
    l.committed(part(SINK, 0), Epoch(11));
    assert_eq!(pending(&l, 11), [(9, 5), (11, 1)]);
    l.recovered(SINK, None, None);
    l.committed(part(SINK, 1), Epoch(10));
    assert_eq!(pending(&l, 11), [(11, 1)]);
}

#[test]
fn the_history_and_the_target_of_a_sink_are_those_that_it_recovered_with() {
    let kept = |l: &Ledger| match l.manifest_operators(Epoch(11)).swap_remove(SINK).part {
        manifest::Part::Sink { history, target, .. } => [history, target],
        other => panic!("{other:?}"),
    };
    let mut l = ledger();
    let [history, target] = ["h2", "t2"].map(|text| Some(text.to_owned()));
    l.recovered(SINK, history.clone(), target.clone());
    assert_eq!(kept(&l), [history.clone(), target.clone()]);
    let mut next = Ledger::restore(l.manifest_operators(Epoch(11)));
    assert_eq!(kept(&next), [history, target], "as it was, until the sink has recovered");
    next.recovered(SINK, None, None);
    assert_eq!(kept(&next), [None, None]);
}

#[test]
#[should_panic(expected = "committed but not published")]
fn output_is_not_committed_before_its_manifest() {
    let mut l = ledger();
    ack_sink(&mut l, 10, 0);
    l.committed(part(SINK, 0), Epoch(10));
}

#[test]
fn the_log_of_an_abandoned_cut_is_never_named() {
    let mut l = ledger();
    l.in_flight(part(STATE, 0), Epoch(10), vec![segment("log-10", 10, 0)]);
    l.in_flight(part(STATE, 1), Epoch(11), vec![segment("log-11", 11, 1)]);
    let named: Vec<_> = l.manifest_in_flight(Epoch(11)).into_iter().map(|s| s.name).collect();
    assert_eq!(named, ["log-11"]);
    l.published(Epoch(11));
    assert_eq!(l.manifest_in_flight(Epoch(11)), []);
}

#[test]
fn a_base_takes_the_place_of_what_it_merged() {
    let mut l = ledger();
    for (name, epoch, worker) in [("a10", 10, 0), ("b10", 10, 1), ("a11", 11, 0), ("b11", 11, 1)] {
        ack_state(&mut l, name, epoch, worker);
    }
    let mut across = l.clone();
    l.replace(STATE, &names(&["a10", "a11"]), segment("a-base", 99, 0)).unwrap();
    assert_eq!(segments(&l, 11), ["r1", "r2", "b10", "a-base", "b11"]);
    l.replace(STATE, &names(&["r1", "r2"]), segment("r-base", 9, 0)).unwrap();
    assert_eq!(segments(&l, 11), ["r-base", "b10", "a-base", "b11"]);
    across.replace(STATE, &names(&["r2", "b10"]), segment("base", 10, 1)).unwrap();
    assert_eq!(segments(&across, 11), ["r1", "base", "a10", "a11", "b11"]);
}

#[test]
fn a_merge_that_would_change_the_turn_of_a_row_is_refused() {
    let mut l = ledger();
    for (name, epoch, worker) in [("a10", 10, 0), ("a11", 11, 0), ("a12", 12, 0), ("b12", 12, 1)] {
        ack_state(&mut l, name, epoch, worker);
    }
    let before = l.clone();
    for merged in [&["a10", "a12"][..], &["r1", "a10"], &["a12", "b12"], &["gone"], &[]] {
        let refused = l.replace(STATE, &names(merged), segment("base", 12, 0));
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid, "{merged:?}");
    }
    assert_eq!(l, before);
}
