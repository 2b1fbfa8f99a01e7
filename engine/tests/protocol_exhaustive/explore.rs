//! Visits every state that can be reached, once.

use std::collections::HashSet;
use std::hash::{Hash, Hasher};

use crate::world::{Move, World};

const STATES_MAX: usize = 1_500_000;

pub(crate) struct Violation {
    pub(crate) message: String,
    pub(crate) path: Vec<Move>,
}

pub(crate) struct Explored {
    pub(crate) states: usize,
    pub(crate) ends: usize,
    pub(crate) violation: Option<Violation>,
}

/// Depth first, until the first violation. A state is remembered by a fingerprint of 128 bits.
///
/// Every move leads on and none can be taken for ever, so a state without a move that is no end is
/// the only way in which a job could hang.
pub(crate) fn explore(start: World) -> Explored {
    let mut seen = HashSet::from([fingerprint(&start)]);
    let mut explored = Explored { states: 1, ends: 0, violation: None };
    let mut path: Vec<Move> = Vec::new();
    let mut stack = vec![start.moves().into_iter().map(|m| (start.clone(), m)).collect::<Vec<_>>()];
    while let Some(open) = stack.last_mut() {
        let Some((mut world, step)) = open.pop() else {
            stack.pop();
            path.pop();
            continue;
        };
        path.push(step);
        if let Err(message) = world.go(step).and_then(|()| world.check()) {
            explored.violation = Some(Violation { message, path });
            break;
        }
        if !seen.insert(fingerprint(&world)) {
            path.pop();
            continue;
        }
        explored.states += 1;
        assert!(explored.states < STATES_MAX, "the world is too large to be explored in a test");
        let moves = world.moves();
        if world.ended() {
            explored.ends += 1;
        } else if moves.iter().all(Move::is_fault) {
            explored.violation = Some(Violation { message: format!("stuck: {world:?}"), path });
            break;
        }
        stack.push(moves.into_iter().map(|m| (world.clone(), m)).collect());
    }
    explored
}

fn fingerprint(world: &World) -> (u64, u64) {
    let mut mix = Mix(0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344);
    world.hash(&mut mix);
    (mix.0, mix.1)
}

/// Two independent multiplicative hashes.
struct Mix(u64, u64);

impl Mix {
    fn word(&mut self, n: u64) {
        let fold = |h: u64, k: u64| {
            let wide = u128::from(h ^ n) * u128::from(k);
            (wide as u64) ^ ((wide >> 64) as u64).rotate_left(17) ^ n
        };
        self.0 = fold(self.0, 0x9e37_79b9_7f4a_7c15);
        self.1 = fold(self.1.rotate_left(23), 0xd6e8_feb8_6659_fd93);
    }
}

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.word(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, n: u8) {
        self.word(u64::from(n));
    }

    fn write_u64(&mut self, n: u64) {
        self.word(n);
    }

    fn write_usize(&mut self, n: usize) {
        self.word(n as u64);
    }
}
