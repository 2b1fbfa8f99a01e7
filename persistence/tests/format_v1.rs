//! Checkpoints written by format 1 are readable for ever. The fixtures are never rewritten: a
//! change of the format gets a new version, new fixtures and a test like this one.

use isochrone_persistence::ids::*;
use isochrone_persistence::manifest::{self, *};
use isochrone_persistence::segment::{self, Identity, Row, SegmentBytes};
use isochrone_persistence::{ErrorKind, paths};

const MANIFEST: &[u8] = include_bytes!("fixtures/manifest_v1.json");
const SEGMENT: &[u8] = include_bytes!("fixtures/segment_v1.seg");
const NAME: &str = "risk/m/00000000000000000007.json";

fn written() -> Manifest {
    let operator =
        |id: &str, part| Operator { id: OperatorId::new(id).expect("a legal name"), part };
    let split = Split {
        id: "transfers-0".to_owned(),
        position: serde_json::json!({ "offset": 1200 }),
        watermark: Some(1_700_000_000_000),
        finished: false,
    };
    let pending = Pending {
        worker: Worker(1),
        epoch: Epoch(5),
        effect: serde_json::json!({ "rename": ["part-5.tmp", "part-5.csv"] }),
        kept: Vec::new(),
    };
    let state = Part::State {
        version: StateVersion(2),
        shape: "4f1d".to_owned(),
        codec: "bincode2".to_owned(),
        segments: vec![reference()],
    };
    Manifest {
        format: 1,
        job: JobName::new("risk").expect("a legal name"),
        sequence: Sequence(7),
        generation: Generation(3),
        nonce: "00112233445566778899aabbccddeeff".to_owned(),
        run: None,
        origin: None,
        predecessor: Some(manifest::digest_of(b"the one before")),
        step: Step::Checkpoint,
        epoch: Epoch(5),
        taken_at_ms: 1_700_000_001_000,
        duration_ms: 42,
        bytes: SEGMENT.len() as u64,
        finished: false,
        workers: 2,
        key_groups: 128,
        key_hash: "example".to_owned(),
        savepoint: Some("before-release".to_owned()),
        operators: vec![
            operator("transfers", Part::Source { splits: vec![split], skipped: 1 }),
            operator("count", state),
            operator("alerts", Part::Sink { pending: vec![pending], history: None, target: None }),
        ],
        in_flight: vec![],
    }
}

fn writer() -> Identity {
    Identity {
        job: JobName::new("risk").expect("a legal name"),
        generation: Generation(3),
        epoch: Epoch(5),
        operator: OperatorId::new("count").expect("a legal name"),
        worker: Worker(1),
    }
}

fn reference() -> Segment {
    let name = paths::DataName {
        epoch: Epoch(5),
        operator: writer().operator,
        worker: Worker(1),
        generation: Generation(3),
        random: "0123456789abcdef".to_owned(),
        kind: paths::DataKind::Segment,
    };
    segment::reference(paths::data(&writer().job, &name), SEGMENT, &writer())
}

fn rows() -> [Row<'static>; 3] {
    [
        Row { group: KeyGroup(0), key: b"alice", value: Some(b"\x02\x0f") },
        Row { group: KeyGroup(0), key: b"bob", value: None },
        Row { group: KeyGroup(127), key: b"", value: Some(b"") },
    ]
}

#[test]
fn manifests_of_format_1_are_read() {
    assert_eq!(manifest::decode(NAME, MANIFEST).unwrap(), written());
}

#[test]
fn manifests_of_format_1_are_written_to_the_byte() {
    assert_eq!(manifest::encode(&written()), MANIFEST);
}

#[test]
fn segments_of_format_1_are_read() {
    let manifest = manifest::decode(NAME, MANIFEST).unwrap();
    let Part::State { segments, .. } = &manifest.operators[1].part else { panic!("no state") };
    let id = writer();
    let opened = SegmentBytes::open(SEGMENT.to_vec(), &segments[0], &id.job, &id.operator).unwrap();
    assert_eq!(opened.rows(0..128).collect::<Vec<_>>(), rows());
}

#[test]
fn segments_of_format_1_are_written_to_the_byte() {
    let mut buffer = segment::Rows::new();
    for row in rows().iter().rev() {
        buffer.push(row.group, row.key, row.value);
    }
    assert_eq!(segment::encode(buffer, &writer()), SEGMENT);
}

#[test]
fn every_flipped_bit_of_a_manifest_is_found_out_by_name() {
    for at in 0..MANIFEST.len() {
        for bit in 0..8 {
            let mut ruined = MANIFEST.to_vec();
            ruined[at] ^= 1 << bit;
            let error = manifest::decode(NAME, &ruined).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "byte {at}: {error}");
            assert!(error.to_string().contains(NAME), "{error}");
        }
    }
}

#[test]
fn every_cut_and_every_added_byte_of_a_manifest_is_found_out() {
    for len in 0..MANIFEST.len() {
        let error = manifest::decode(NAME, &MANIFEST[..len]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{len} bytes: {error}");
    }
    let longer = [MANIFEST, b"\n"].concat();
    assert_eq!(manifest::decode(NAME, &longer).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn a_newer_format_is_told_from_damage() {
    let newer = manifest::encode(&Manifest { format: 2, ..written() });
    let error = manifest::decode(NAME, &newer).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    let text = error.to_string();
    assert!(text.contains("written by format 2, this library reads up to 1"), "{text}");
}

#[test]
fn manifests_of_another_job_or_place_are_refused() {
    let other = JobName::new("other").unwrap();
    let foreign = manifest::encode(&Manifest { job: other, ..written() });
    let error = manifest::decode(NAME, &foreign).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("`other`"), "{error}");

    let moved = manifest::encode(&Manifest { sequence: Sequence(8), ..written() });
    assert_eq!(manifest::decode(NAME, &moved).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(manifest::decode("risk/x", MANIFEST).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn endless_nesting_is_refused() {
    let mut deep = written();
    let nested = (0..500).fold(serde_json::json!(1), |inner, _| serde_json::json!([inner]));
    if let Part::Source { splits, .. } = &mut deep.operators[0].part {
        splits[0].position = nested;
    }
    let error = manifest::decode(NAME, &manifest::encode(&deep)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
}
