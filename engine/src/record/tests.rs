use std::collections::BTreeSet;

use super::*;

#[test]
fn group_ranges_and_owners_agree() {
    for groups in [1, 2, 7, 128, 1000, u16::MAX] {
        for workers in [1_u32, 2, 3, 5, 64, 300] {
            let mut next = 0;
            for worker in (0..workers).map(Worker) {
                let range = groups_of(worker, groups, workers);
                assert_eq!(range.start, next);
                next = range.end;
                assert!(range.into_iter().all(|g| owner(KeyGroup(g), groups, workers) == worker));
            }
            assert_eq!(next, groups);
        }
    }
}

#[test]
fn buffer_gives_the_codecs_bytes_at_every_length() {
    let mut buffer = KeyBuffer::default();
    for len in (0..80).chain([300, 31, 32, 33, 0]) {
        let key = ("k".repeat(len), len as u64);
        let plain = bincode::serde::encode_to_vec(&key, bincode::config::standard()).unwrap();
        assert_eq!(buffer.encode(&key), plain);
        assert_eq!(buffer.hash(&key), KeyHash::of_bytes(&plain));
    }
}

#[test]
fn sequential_keys_spread_over_groups_and_buckets() {
    let mut buffer = KeyBuffer::default();
    let mut groups = [0_u32; 128];
    let mut buckets = [0_u32; 1024];
    let mut tags = [0_u32; 128];
    let mut seen = BTreeSet::new();
    for key in 0..128_000_u64 {
        let hash = buffer.hash(&key);
        groups[usize::from(group_of(hash, 128).0)] += 1;
        buckets[(hash.0 & 1023) as usize] += 1;
        tags[(hash.0 >> 57) as usize] += 1;
        assert!(seen.insert(hash), "a collision among 128 000 keys of 64 bits");
    }
    // Chi-square of an even spread is near its degrees of freedom; six deviations above is a fault.
    let chi = |counts: &[u32]| {
        let expected = 128_000.0 / counts.len() as f64;
        counts.iter().map(|&n| (f64::from(n) - expected).powi(2) / expected).sum::<f64>()
    };
    for counts in [&groups[..], &buckets, &tags] {
        let freedom = counts.len() as f64 - 1.0;
        assert!(chi(counts) < freedom + 6.0 * (2.0 * freedom).sqrt(), "{}", chi(counts));
    }
}
