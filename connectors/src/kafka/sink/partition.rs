//! Which partition a key goes to: the one that Kafka's own clients choose, so that a topic that is
//! joined with another by its partitions stays in step.

/// The partition of a key, of `partitions` there are.
///
/// Source: the default partitioner of Apache Kafka's Java client: murmur2 of the key's bytes with
/// seed 0x9747b28c, sign bit cleared, modulo the number of partitions. In librdkafka it is called
/// `murmur2`.
pub(super) fn of_key(key: &[u8], partitions: i32) -> i32 {
    (murmur2(key) & 0x7fff_ffff).cast_signed() % partitions
}

fn murmur2(bytes: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    const SEED: u32 = 0x9747_b28c;
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let mut hash = SEED ^ length;
    let mut words = bytes.chunks_exact(4);
    for word in &mut words {
        let mut k = u32::from_le_bytes(word.try_into().expect("a chunk of four bytes"));
        k = k.wrapping_mul(M);
        k ^= k >> 24;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        let tail = rest.iter().rev().fold(0, |tail, byte| (tail << 8) | u32::from(*byte));
        hash = (hash ^ tail).wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of Apache Kafka's own test of its hash (`UtilsTest.testMurmur2`).
    #[test]
    fn hashes_as_kafka_does() {
        let known = [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
        ];
        for (key, hash) in known {
            assert_eq!(murmur2(key.as_bytes()).cast_signed(), hash, "{key}");
        }
        assert!((0..7).contains(&of_key(b"foobar", 7)));
    }
}
