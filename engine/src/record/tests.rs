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
        assert_eq!(hash_of(&key), KeyHash::of_bytes(&plain));
    }
}

/// The construction as the module's page writes it, word by word.
fn slow_hash(bytes: &[u8]) -> KeyHash {
    let mut hash = SEED;
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = fold(hash ^ u64::from_le_bytes(word), WORD);
    }
    KeyHash(fold(hash ^ bytes.len() as u64, LAST))
}

#[test]
fn hash_is_the_documented_one_however_the_codec_cuts_the_bytes() {
    for len in 0..70_u8 {
        let bytes: Vec<u8> = (0..len).map(|byte| byte.wrapping_mul(37)).collect();
        assert_eq!(KeyHash::of_bytes(&bytes), slow_hash(&bytes));
        let number = u64::MAX >> (len % 64);
        let key = (len, &bytes, number, len.is_multiple_of(3), number as u16, (number as i32, 'x'));
        let plain = bincode::serde::encode_to_vec(key, bincode::config::standard()).unwrap();
        assert_eq!(hash_of(&key), slow_hash(&plain));
    }
}

/// Placement of every key ever stored depends on these.
#[test]
fn hash_values_never_change() {
    assert_eq!(hash_of(&0_u64), KeyHash(0x8829_fb5a_701d_651a));
    assert_eq!(hash_of(&300_u32), KeyHash(0x8b7f_a35a_b791_fe01));
    assert_eq!(hash_of(&u64::MAX), KeyHash(0x0925_a5fa_3264_c18a));
    assert_eq!(hash_of(&-1_i64), KeyHash(0x9aa5_6a9b_33cd_d2da));
    assert_eq!(hash_of("account-0000000000000042"), KeyHash(0xfc26_355d_7db7_ae64));
    assert_eq!(hash_of(&()), KeyHash(0x0850_f979_4d51_08b4));
}

#[test]
fn sequential_keys_spread_over_groups_and_buckets() {
    let mut groups = [0_u32; 128];
    let mut buckets = [0_u32; 1024];
    let mut tags = [0_u32; 128];
    let mut seen = BTreeSet::new();
    for key in 0..128_000_u64 {
        let hash = hash_of(&key);
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
