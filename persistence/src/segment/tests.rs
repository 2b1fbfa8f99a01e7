//! What is written comes back; merging is what a map does; ruined bytes are found out.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::ErrorKind;

type Pushed = (u16, Vec<u8>, Option<Vec<u8>>);
/// The slow obvious twin: what is left of a key.
type Twin = BTreeMap<(u16, Vec<u8>), Option<Vec<u8>>>;

fn identity() -> Identity {
    Identity {
        job: JobName::new("risk").unwrap(),
        generation: Generation(2),
        epoch: Epoch(9),
        operator: OperatorId::new("count").unwrap(),
        worker: Worker(3),
    }
}

fn pushed(rows: &[Pushed]) -> Rows {
    let mut buffer = Rows::new();
    for (group, key, value) in rows {
        buffer.push(KeyGroup(*group), key, value.as_deref());
    }
    buffer
}

fn opened(bytes: Vec<u8>) -> SegmentBytes {
    let expected = reference("risk/d/x", &bytes, &identity());
    open(bytes, &expected).unwrap()
}

fn open(bytes: Vec<u8>, expected: &manifest::Segment) -> crate::Result<SegmentBytes> {
    SegmentBytes::open(bytes, expected, &identity().job, &identity().operator)
}

fn twin_of(rows: &[Pushed]) -> Twin {
    rows.iter().cloned().map(|(group, key, value)| ((group, key), value)).collect()
}

fn collected<'a>(rows: impl Iterator<Item = Row<'a>>) -> Vec<Pushed> {
    rows.map(|row| (row.group.0, row.key.to_vec(), row.value.map(<[u8]>::to_vec))).collect()
}

fn listed(twin: &Twin, groups: std::ops::Range<u16>) -> Vec<Pushed> {
    let inside = twin.iter().filter(|((group, _), _)| groups.contains(group));
    inside.map(|((group, key), value)| (*group, key.clone(), value.clone())).collect()
}

/// Short keys over a small alphabet, so that keys meet and are prefixes of one another.
fn some_rows() -> impl Strategy<Value = Vec<Pushed>> {
    let key = prop_oneof![
        prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(255)], 0..4),
        prop::collection::vec(Just(7u8), 6..12),
        prop::collection::vec(any::<u8>(), 0..20),
    ];
    let value = prop::option::of(prop::collection::vec(any::<u8>(), 0..300));
    let group = prop_oneof![0u16..4, Just(127), Just(KEY_GROUPS_MAX - 1)];
    prop::collection::vec((group, key, value), 0..60)
}

proptest! {
    #[test]
    fn rows_come_back_sorted_and_the_last_of_a_key_wins(rows in some_rows()) {
        let segment = opened(encode(pushed(&rows), &identity()));
        let twin = twin_of(&rows);
        prop_assert_eq!(segment.len(), twin.len() as u64);
        let all = 0..KEY_GROUPS_MAX;
        prop_assert_eq!(collected(segment.rows(all.clone())), listed(&twin, all));
    }

    #[test]
    fn a_range_of_groups_gives_just_its_rows(
        rows in some_rows(), start in 0u16..130, len in 0u16..130,
    ) {
        let segment = opened(encode(pushed(&rows), &identity()));
        let range = start..start + len;
        prop_assert_eq!(collected(segment.rows(range.clone())), listed(&twin_of(&rows), range));
        let backwards = std::ops::Range { start: start + len, end: start };
        prop_assert_eq!(segment.rows(backwards).count(), 0);
    }

    #[test]
    fn merging_does_what_a_map_does(
        parts in prop::collection::vec(some_rows(), 0..5), drop in any::<bool>(),
    ) {
        let segments: Vec<_> =
            parts.iter().map(|rows| opened(encode(pushed(rows), &identity()))).collect();
        let mut twin: Twin = parts.iter().flat_map(|rows| twin_of(rows)).collect();
        let tombstones = if drop { Tombstones::Drop } else { Tombstones::Keep };
        if drop {
            twin.retain(|_, value| value.is_some());
        }
        let some = 1..128;
        prop_assert_eq!(
            collected(newest_wins(&segments, some.clone(), tombstones)), listed(&twin, some)
        );
        let base = opened(merge(&segments, &identity(), tombstones));
        let all = 0..KEY_GROUPS_MAX;
        prop_assert_eq!(collected(base.rows(all.clone())), listed(&twin, all));
    }

    #[test]
    fn appended_rows_win(first in some_rows(), second in some_rows()) {
        let mut rows = pushed(&first);
        rows.append(pushed(&second));
        let both = [first, second].concat();
        prop_assert_eq!(rows.len(), both.len());
        prop_assert_eq!(
            encode(rows, &identity()), encode(pushed(&both), &identity())
        );
    }

    /// The digest is made to fit, so that the structure alone is checked.
    #[test]
    fn no_bytes_panic(rows in some_rows(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = encode(pushed(&rows), &identity());
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let expected = reference("risk/d/x", &bytes, &identity());
        if let Ok(segment) = open(bytes, &expected) {
            prop_assert_eq!(segment.rows(0..KEY_GROUPS_MAX).count() as u64, segment.len());
        }
    }

    #[test]
    fn foreign_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let expected = reference("risk/d/x", &bytes, &identity());
        prop_assert!(open(bytes, &expected).is_err());
    }
}

#[test]
fn rows_encoded_in_place_are_those_pushed() {
    let mut rows = Rows::new();
    rows.push_with(KeyGroup(1), b"a", |buffer| buffer.extend_from_slice(b"one"));
    let failed: Result<(), &str> = rows.try_push_with(KeyGroup(1), b"b", |buffer| {
        buffer.extend_from_slice(b"half");
        Err("no")
    });
    assert_eq!(failed, Err("no"));
    rows.push_with(KeyGroup(1), b"c", |_| ());
    let segment = opened(encode(rows, &identity()));
    let expected = [(1, b"a".to_vec(), Some(b"one".to_vec())), (1, b"c".to_vec(), Some(vec![]))];
    assert_eq!(collected(segment.rows(0..2)), expected);
}

#[test]
fn no_rows_make_a_segment() {
    let segment = opened(encode(Rows::new(), &identity()));
    assert!(segment.is_empty());
    assert_eq!(segment.rows(0..KEY_GROUPS_MAX).count(), 0);
}

fn small() -> (Vec<u8>, manifest::Segment) {
    let rows = [
        (0, b"alice".to_vec(), Some(b"1".to_vec())),
        (0, b"bob".to_vec(), None),
        (6, b"".to_vec(), Some(vec![0; 200])),
    ];
    let bytes = encode(pushed(&rows), &identity());
    let expected = reference("risk/d/x", &bytes, &identity());
    (bytes, expected)
}

#[test]
fn every_flipped_bit_is_found_out_by_name() {
    let (bytes, expected) = small();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut ruined = bytes.clone();
            ruined[at] ^= 1 << bit;
            let error = open(ruined, &expected).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            assert!(error.to_string().contains("`risk/d/x`"), "{error}");
        }
    }
}

/// Even if length and digest are made to fit.
#[test]
fn every_cut_is_found_out() {
    let (bytes, expected) = small();
    for len in 0..bytes.len() {
        let cut = bytes[..len].to_vec();
        assert_eq!(open(cut.clone(), &expected).unwrap_err().kind(), ErrorKind::Corrupt);
        let fitting = reference("risk/d/x", &cut, &identity());
        assert_eq!(open(cut, &fitting).unwrap_err().kind(), ErrorKind::Corrupt);
    }
}

#[test]
fn swapped_segments_are_found_out() {
    let others = [
        Identity { job: JobName::new("other").unwrap(), ..identity() },
        Identity { generation: Generation(1), ..identity() },
        Identity { epoch: Epoch(8), ..identity() },
        Identity { operator: OperatorId::new("sum").unwrap(), ..identity() },
        Identity { worker: Worker(4), ..identity() },
    ];
    for other in others {
        let bytes = encode(pushed(&[]), &other);
        let fitting = reference("risk/d/x", &bytes, &identity());
        let error = open(bytes, &fitting).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        let text = error.to_string();
        assert!(text.contains(&other.to_string()) && text.contains(&identity().to_string()));
    }
}

#[test]
fn a_newer_format_is_told_from_damage() {
    let (mut bytes, _) = small();
    bytes[8] = 2;
    let fitting = reference("risk/d/x", &bytes, &identity());
    let error = open(bytes, &fitting).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    assert!(error.to_string().contains("written by format 2"), "{error}");
}

#[test]
fn unsorted_rows_are_refused() {
    let mut writer = writer::Writer::new(&identity(), 0);
    for key in [b"b", b"a"] {
        writer.row(Row { group: KeyGroup(0), key, value: None });
    }
    let bytes = writer.finish();
    let fitting = reference("risk/d/x", &bytes, &identity());
    assert_eq!(open(bytes, &fitting).unwrap_err().kind(), ErrorKind::Corrupt);
}
