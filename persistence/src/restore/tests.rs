//! Every row of the table of what may be found at a start, with its outcome.

use std::sync::Arc;

use super::*;
use crate::ids::{Epoch, Generation, KeyGroup, Sequence, Worker};
use crate::lineage::test_store::MapStore;
use crate::lineage::{Base, Checkpoint, Lineage, read_newest};
use crate::manifest::{Manifest, Operator, Part, Pending, Segment, Split, Step as Written};
use crate::segment::{self, Identity, Rows};
use crate::{Error, ErrorKind, Result, Store, paths};

fn id(name: &str) -> OperatorId {
    OperatorId::new(name).unwrap()
}

fn job() -> JobName {
    JobName::new("risk").unwrap()
}

fn source() -> Part {
    let split = Split {
        id: "0".to_owned(),
        position: serde_json::json!(17),
        watermark: None,
        finished: false,
    };
    Part::Source { splits: vec![split], skipped: 0 }
}

fn state(segments: Vec<Segment>) -> Part {
    Part::State {
        version: StateVersion(2),
        shape: "old-shape".to_owned(),
        codec: "codec".to_owned(),
        segments,
    }
}

fn sink(pending: usize) -> Part {
    let effect = Pending {
        worker: Worker(0),
        epoch: Epoch(5),
        effect: serde_json::json!("rename"),
        kept: vec![],
    };
    Part::Sink { pending: vec![effect; pending], history: None, target: None }
}

fn manifest(epoch: u64, operators: Vec<(&str, Part)>) -> Manifest {
    Manifest {
        format: 1,
        job: job(),
        sequence: Sequence(epoch + 1),
        generation: Generation(1),
        nonce: "nonce".to_owned(),
        run: None,
        origin: None,
        predecessor: None,
        step: Written::Checkpoint,
        epoch: Epoch(epoch),
        taken_at_ms: 0,
        duration_ms: 0,
        bytes: 0,
        finished: false,
        workers: 1,
        key_groups: 128,
        key_hash: "hash".to_owned(),
        savepoint: None,
        operators: operators
            .into_iter()
            .map(|(name, part)| Operator { id: id(name), part })
            .collect(),
        in_flight: vec![],
    }
}

fn intact(manifest: Manifest) -> Result<Candidate> {
    Ok(Candidate { name: format!("m/{}", manifest.sequence), manifest: Ok(manifest) })
}

fn unusable(error: Error) -> Result<Candidate> {
    Ok(Candidate { name: "m/9".to_owned(), manifest: Err(error) })
}

fn operator(name: &str, kind: Kind) -> DeclaredOperator {
    DeclaredOperator { id: id(name), renamed_from: None, kind }
}

fn renamed(name: &str, from: &str, kind: Kind) -> DeclaredOperator {
    DeclaredOperator { renamed_from: Some(id(from)), ..operator(name, kind) }
}

/// A state type that takes bytes of version 2.
fn typed(version: u16, shape: &str) -> Kind {
    Kind::State(StateType {
        version: StateVersion(version),
        shape: shape.to_owned(),
        codec: "codec".to_owned(),
        can_upgrade: |from| from == StateVersion(2),
    })
}

fn same_type() -> Kind {
    typed(2, "old-shape")
}

fn declared(operators: Vec<DeclaredOperator>) -> Declared {
    Declared { job: job(), key_groups: 128, key_hash: "hash".to_owned(), operators }
}

fn previous() -> Policy {
    Policy { on_damage: OnDamage::Previous, ..Policy::default() }
}

fn dropping(name: &str) -> Policy {
    Policy { drops: vec![id(name)], ..Policy::default() }
}

fn resumed(decision: Decision) -> Resume {
    match decision {
        Decision::Resume(resume) => *resume,
        other => panic!("not resumed: {other:?}"),
    }
}

#[track_caller]
fn refused(decision: Decision, kind: ErrorKind, says: &[&str]) {
    let Decision::Refuse(error) = decision else { panic!("not refused: {decision:?}") };
    assert_eq!(error.kind(), kind, "{error}");
    for part in says {
        assert!(error.to_string().contains(part), "`{error}` does not say `{part}`");
    }
}

fn step(resume: &Resume, name: &str) -> Step {
    resume.operators.iter().find(|plan| plan.id == id(name)).unwrap().step.clone()
}

/// The decision for one operator declared and one part left.
fn one(policy: &Policy, operator: DeclaredOperator, left: (&str, Part)) -> Decision {
    decide(&declared(vec![operator]), policy, [intact(manifest(5, vec![left]))])
}

#[test]
fn no_checkpoint_starts_fresh_unless_one_is_required() {
    let job = declared(vec![operator("count", same_type())]);
    assert!(matches!(decide(&job, &Policy::default(), []), Decision::Fresh));
    let required = Policy { restore: Require::Required, ..Policy::default() };
    refused(decide(&job, &required, []), ErrorKind::Invalid, &["`risk`", "--restore required"]);
}

#[test]
fn a_claim_without_checkpoint_is_no_checkpoint() {
    let job = declared(vec![operator("count", same_type())]);
    let claimed = || [intact(manifest(0, vec![]))];
    assert!(matches!(decide(&job, &Policy::default(), claimed()), Decision::Fresh));
    let other_groups = Declared { key_groups: 64, ..job.clone() };
    assert!(matches!(decide(&other_groups, &Policy::default(), claimed()), Decision::Fresh));
    let required = Policy { restore: Require::Required, ..Policy::default() };
    refused(decide(&job, &required, claimed()), ErrorKind::Invalid, &["no checkpoint"]);
}

#[test]
fn damage_and_newer_formats_stop_unless_previous_is_chosen() {
    let job = declared(vec![]);
    let older = || intact(manifest(5, vec![]));
    for damage in [Error::corrupt, Error::incompatible] {
        let kind = damage("").kind();
        let found = || [unusable(damage("this is wrong")), unusable(damage("this too")), older()];
        refused(decide(&job, &Policy::default(), found()), kind, &["this is wrong"]);
        let resume = resumed(decide(&job, &previous(), found()));
        assert_eq!(resume.manifest.epoch, Epoch(5));
        assert_eq!(resume.passed_over.len(), 2, "both are reported");
        let none = [unusable(damage("this is wrong")), unusable(damage("this too"))];
        refused(decide(&job, &previous(), none), kind, &["none of 2", "this is wrong"]);
    }
}

/// Passing over every checkpoint must not end in a fresh start.
#[test]
fn a_claim_from_before_the_first_checkpoint_is_no_previous_one() {
    let found = [unusable(Error::corrupt("why")), intact(manifest(0, vec![]))];
    let decision = decide(&declared(vec![]), &previous(), found);
    refused(decision, ErrorKind::Corrupt, &["none of 1", "why"]);
}

#[test]
fn what_is_no_damage_never_leads_to_an_older_checkpoint() {
    let job = declared(vec![]);
    for error in [Error::invalid, Error::unavailable] {
        let kind = error("").kind();
        let found = [unusable(error("why")), intact(manifest(5, vec![]))];
        refused(decide(&job, &previous(), found), kind, &["why"]);
        let found = [Err(error("why")), intact(manifest(5, vec![]))];
        refused(decide(&job, &previous(), found), kind, &["why"]);
    }
    let misfit = [intact(manifest(6, vec![("gone", state(vec![]))])), intact(manifest(5, vec![]))];
    refused(decide(&job, &previous(), misfit), ErrorKind::Incompatible, &["`gone`"]);
}

#[test]
fn the_same_version_and_shape_is_kept() {
    let resume =
        resumed(one(&Policy::default(), operator("count", same_type()), ("count", state(vec![]))));
    assert_eq!(step(&resume, "count"), Step::Keep);
    let resume = resumed(one(&Policy::default(), operator("in", Kind::Source), ("in", source())));
    assert_eq!(step(&resume, "in"), Step::Keep);
    let resume = resumed(one(&Policy::default(), operator("out", Kind::Sink), ("out", sink(1))));
    assert_eq!(step(&resume, "out"), Step::Keep);
}

#[test]
fn an_older_version_is_upgraded() {
    let newer = operator("count", typed(3, "new-shape"));
    let resume = resumed(one(&Policy::default(), newer, ("count", state(vec![]))));
    assert_eq!(step(&resume, "count"), Step::Upgrade { from: StateVersion(2) });
}

#[test]
fn a_version_without_upgrade_stops() {
    let mut kind = typed(3, "new-shape");
    if let Kind::State(state) = &mut kind {
        state.can_upgrade = |_| false;
    }
    let decision = one(&Policy::default(), operator("count", kind), ("count", state(vec![])));
    let says = ["`count`", "version 2", "and 3", "`upgrade`"];
    refused(decision, ErrorKind::Incompatible, &says);
}

#[test]
fn a_newer_version_stops_whatever_can_be_upgraded() {
    let older = operator("count", typed(1, "first-shape"));
    let decision = one(&Policy::default(), older, ("count", state(vec![])));
    refused(decision, ErrorKind::Incompatible, &["`count`", "version 2", "and 1", "newer program"]);
}

#[test]
fn a_changed_shape_without_a_new_version_stops() {
    let changed = operator("count", typed(2, "new-shape"));
    let decision = one(&Policy::default(), changed, ("count", state(vec![])));
    let says = ["`count`", "old-shape", "new-shape", "`VERSION` to 3"];
    refused(decision, ErrorKind::Incompatible, &says);
}

#[test]
fn another_codec_stops() {
    let mut kind = same_type();
    if let Kind::State(state) = &mut kind {
        state.codec = "other-codec".to_owned();
    }
    let decision = one(&Policy::default(), operator("count", kind), ("count", state(vec![])));
    refused(decision, ErrorKind::Incompatible, &["`count`", "`codec`", "`other-codec`"]);
}

#[test]
fn state_of_an_operator_that_is_gone_stops_unless_dropped() {
    let job = declared(vec![]);
    for (part, name) in [(state(vec![]), "state"), (source(), "source"), (sink(1), "sink")] {
        let found = || [intact(manifest(5, vec![("count", part.clone())]))];
        let says = [name, "`count`", "renamed_from(\"count\")", "--drop count"];
        refused(decide(&job, &Policy::default(), found()), ErrorKind::Incompatible, &says);
        let resume = resumed(decide(&job, &dropping("count"), found()));
        assert_eq!(step(&resume, "count"), Step::Dropped);
    }
}

#[test]
fn a_sink_that_is_gone_and_owes_output_says_so() {
    let found = [intact(manifest(5, vec![("letters", sink(2))]))];
    let says = ["owes output of sink `letters`", "(pieces: 2)", "once more with that sink"];
    let decision = decide(&declared(vec![]), &Policy::default(), found);
    refused(decision, ErrorKind::Incompatible, &says);
}

#[test]
fn a_sink_with_nothing_pending_may_go() {
    let found = [intact(manifest(5, vec![("out", sink(0))]))];
    let resume = resumed(decide(&declared(vec![]), &Policy::default(), found));
    assert_eq!(step(&resume, "out"), Step::Dropped);
}

#[test]
fn a_renamed_operator_goes_on() {
    let same = renamed("tally", "count", same_type());
    let resume = resumed(one(&Policy::default(), same, ("count", state(vec![]))));
    assert_eq!(step(&resume, "tally"), Step::Rename { from: id("count"), upgrade: None });

    let newer = renamed("tally", "count", typed(3, "new-shape"));
    let resume = resumed(one(&Policy::default(), newer, ("count", state(vec![]))));
    let upgrade = Some(StateVersion(2));
    assert_eq!(step(&resume, "tally"), Step::Rename { from: id("count"), upgrade });

    let since = renamed("tally", "count", same_type());
    let resume = resumed(one(&Policy::default(), since, ("tally", state(vec![]))));
    assert_eq!(step(&resume, "tally"), Step::Keep, "it was renamed before");
}

#[test]
fn names_that_mean_two_things_are_refused() {
    let twice = [
        vec![operator("a", Kind::Sink), operator("a", Kind::Source)],
        vec![renamed("a", "old", same_type()), renamed("b", "old", same_type())],
        vec![renamed("a", "b", same_type()), operator("b", same_type())],
    ];
    for operators in twice {
        let found = [intact(manifest(5, vec![]))];
        let decision = decide(&declared(operators), &Policy::default(), found);
        refused(decision, ErrorKind::Invalid, &["operator"]);
    }
    let decision = one(&dropping("count"), operator("count", same_type()), ("in", source()));
    refused(decision, ErrorKind::Invalid, &["--drop count"]);
}

#[test]
fn an_operator_without_a_part_starts_empty_and_is_reported() {
    let job = declared(vec![operator("count", same_type()), operator("new", same_type())]);
    let found = [intact(manifest(5, vec![("count", state(vec![]))]))];
    let resume = resumed(decide(&job, &Policy::default(), found));
    assert_eq!((step(&resume, "count"), step(&resume, "new")), (Step::Keep, Step::New));
}

#[test]
fn another_kind_of_operator_stops() {
    let decision = one(&Policy::default(), operator("x", Kind::Sink), ("x", state(vec![])));
    refused(decision, ErrorKind::Incompatible, &["`x`", "sink", "state", "--drop x"]);
}

#[test]
fn other_key_groups_hash_or_job_stop() {
    let found = || [intact(manifest(5, vec![]))];
    let job = Declared { key_groups: 64, ..declared(vec![]) };
    let decision = decide(&job, &Policy::default(), found());
    refused(decision, ErrorKind::Incompatible, &["128 key groups", "64"]);
    let job = Declared { key_hash: "other".to_owned(), ..declared(vec![]) };
    let decision = decide(&job, &Policy::default(), found());
    refused(decision, ErrorKind::Incompatible, &["`hash`", "`other`"]);
    let job = Declared { job: JobName::new("other").unwrap(), ..declared(vec![]) };
    refused(decide(&job, &Policy::default(), found()), ErrorKind::Incompatible, &["`other`"]);
}

/// A store with three checkpoints of one segment each; gives the names of the segments.
fn stored() -> (Arc<MapStore>, Vec<String>) {
    let store = Arc::new(MapStore::default());
    let fresh = |_: &_| Ok(Base::Fresh { key_groups: 128, key_hash: "hash".to_owned() });
    let (mut run, _) = Lineage::claim(store.clone(), &job(), 0, fresh).unwrap();
    let mut names = Vec::new();
    for epoch in 1..=3 {
        let segment = uploaded(&store, run.generation(), epoch);
        names.push(segment.name.clone());
        let checkpoint = Checkpoint {
            epoch: Epoch(epoch),
            taken_at_ms: 0,
            duration_ms: 0,
            bytes: 0,
            finished: false,
            workers: 1,
            savepoint: None,
            operators: vec![Operator { id: id("count"), part: state(vec![segment]) }],
            in_flight: vec![],
        };
        run.publish(checkpoint).unwrap();
    }
    (store, names)
}

fn uploaded(store: &MapStore, generation: Generation, epoch: u64) -> Segment {
    let identity = Identity {
        job: job(),
        generation,
        epoch: Epoch(epoch),
        operator: id("count"),
        worker: Worker(0),
    };
    let mut rows = Rows::new();
    rows.push(KeyGroup(3), b"alice", Some(&epoch.to_le_bytes()));
    let bytes = segment::encode(rows, &identity);
    let name = paths::DataName::fresh(
        identity.epoch,
        &identity.operator,
        Worker(0),
        generation,
        paths::DataKind::Segment,
    );
    let name = paths::data(&job(), &name.unwrap());
    store.put(&name, &bytes).unwrap();
    segment::reference(name, &bytes, &identity)
}

fn decided(store: &MapStore, policy: &Policy) -> Decision {
    let newest = read_newest(store, &job()).unwrap();
    let check_data = policy.on_damage == OnDamage::Previous;
    let job_name = job();
    let found = candidates(store, &job_name, &newest, check_data);
    decide(&declared(vec![operator("count", same_type())]), policy, found)
}

#[test]
fn every_kind_of_damaged_data_is_found_out_and_the_previous_is_intact() {
    let ruin: [fn(&MapStore, &[String]); 5] = [
        |store, names| store.delete(&names[2]).unwrap(),
        |store, names| store.put(&names[2], b"short").unwrap(),
        |store, names| {
            let mut bytes = store.get(&names[2]).unwrap().unwrap();
            bytes[20] ^= 1;
            store.put(&names[2], &bytes).unwrap();
        },
        |store, names| {
            let other = store.get(&names[1]).unwrap().unwrap();
            store.put(&names[2], &other).unwrap();
        },
        |store, _| store.put(&paths::manifest(&job(), Sequence(4)), b"{}").unwrap(),
    ];
    for ruin in ruin {
        let (store, names) = stored();
        assert_eq!(resumed(decided(&store, &previous())).manifest.epoch, Epoch(3));
        ruin(&store, &names);
        let resume = resumed(decided(&store, &previous()));
        assert_eq!(resume.manifest.epoch, Epoch(2));
        let [passed_over] = &resume.passed_over[..] else { panic!("one is passed over") };
        assert_eq!(passed_over.kind(), ErrorKind::Corrupt);
        let text = passed_over.to_string();
        assert!(text.contains("expected") && text.contains("found"), "{text}");
    }
}

#[test]
fn loading_names_what_is_wrong_with_a_segment() {
    let (store, names) = stored();
    let Decision::Resume(resume) = decided(&store, &Policy::default()) else { panic!() };
    let Part::State { segments, .. } = &resume.manifest.operators[0].part else { panic!() };
    let rows = load(&*store, &job(), &id("count"), &segments[0]).unwrap();
    assert_eq!(rows.rows(0..128).next().unwrap().key, b"alice");
    let renamed = load(&*store, &job(), &id("tally"), &segments[0]).unwrap();
    assert_eq!(renamed.len(), 1, "a renamed operator reads what its old self wrote");

    store.delete(&names[2]).unwrap();
    let error = load(&*store, &job(), &id("count"), &segments[0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("no such object"), "{error}");
    assert_eq!(verify_data(&*store, &resume.manifest).unwrap_err().kind(), ErrorKind::Corrupt);

    let foreign = Segment { name: "other/d/x".to_owned(), ..segments[0].clone() };
    let error = load(&*store, &job(), &id("count"), &foreign).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
}

/// A run that chose an older checkpoint died between its fence and its claim.
#[test]
fn a_fence_is_looked_past() {
    let (store, _) = stored();
    let newest = read_newest(&*store, &job()).unwrap();
    let top = newest.top.unwrap();
    let fence = Manifest {
        step: Written::Fence,
        sequence: top.sequence.next(),
        generation: Generation(2),
        operators: vec![],
        ..top.manifest.unwrap()
    };
    let name = paths::manifest(&job(), fence.sequence);
    store.put(&name, &crate::manifest::encode(&fence)).unwrap();
    assert_eq!(resumed(decided(&store, &Policy::default())).manifest.sequence, top.sequence);
    store.put(&top.name, b"ruined").unwrap();
    refused(decided(&store, &Policy::default()), ErrorKind::Corrupt, &[&top.name]);
    assert_eq!(resumed(decided(&store, &previous())).manifest.epoch, Epoch(2));
}

#[test]
fn a_restore_consumes_nothing() {
    let (store, _) = stored();
    let before = store.objects();
    for _ in 0..3 {
        assert_eq!(resumed(decided(&store, &previous())).manifest.epoch, Epoch(3));
    }
    assert_eq!(store.objects(), before);
}
