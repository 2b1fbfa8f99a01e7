//! Seeds: printed first, so that a failure can be played again with `SEED=n`.

use std::io::Read;

/// Numbers that look random and follow from a seed (SplitMix64).
#[derive(Clone)]
pub struct Seeded(u64);

impl Seeded {
    /// From `SEED`, or else from the system; prints how to get the same again.
    pub fn announced() -> Seeded {
        let given = std::env::var("SEED").ok();
        let seed = given.map_or_else(fresh, |text| text.parse().expect("SEED is a number"));
        eprintln!("SEED={seed}");
        Seeded(seed)
    }

    pub fn new(seed: u64) -> Seeded {
        Seeded(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// True once in `n` on average.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Puts them in another order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            items.swap(end, self.below(end as u64 + 1) as usize);
        }
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

fn fresh() -> u64 {
    let mut bytes = [0; 4];
    let mut source = std::fs::File::open("/dev/urandom").expect("the system gives random bytes");
    source.read_exact(&mut bytes).expect("the system gives random bytes");
    u64::from(u32::from_le_bytes(bytes))
}
