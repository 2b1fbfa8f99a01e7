//! The input, made by number: whoever knows the number of a purchase knows what it is.

use isochrone::connectors::generator::mix;
use serde::{Deserialize, Serialize};

use super::super::kafka::{Row, row};

/// How many accounts there are; few of them buy most, by Zipf's law with exponent 1.
const ACCOUNTS: u32 = 100_000;

/// What comes in: some 42 bytes of JSON.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Purchase {
    pub(crate) account: u32,
    pub(crate) id: u64,
    pub(crate) cents: i64,
}

/// What goes out.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Assessment {
    pub(crate) account: u32,
    pub(crate) id: u64,
    pub(crate) count: u64,
    pub(crate) total: i64,
}

/// All purchases.
pub(crate) struct Purchases {
    /// By account, how much it and all before it buy.
    shares: Vec<f64>,
}

impl Purchases {
    pub(crate) fn new() -> Purchases {
        let mut sum = 0.0;
        let shares = (1..=ACCOUNTS).map(|rank| {
            sum += 1.0 / f64::from(rank);
            sum
        });
        Purchases { shares: shares.collect() }
    }

    pub(crate) fn get(&self, id: u64) -> Purchase {
        let random = mix(id);
        let part = (random >> 11) as f64 / (1_u64 << 53) as f64;
        let all = self.shares[self.shares.len() - 1];
        let rank = self.shares.partition_point(|share| *share < part * all) as u32;
        // Big accounts are not neighbours.
        let account = rank.min(ACCOUNTS - 1) * 7919 % ACCOUNTS;
        Purchase { account, id, cents: (mix(random) % 70_000) as i64 - 20_000 }
    }

    pub(crate) fn row(&self, id: u64) -> Row {
        let purchase = self.get(id);
        let value = serde_json::to_vec(&purchase).expect("plain numbers");
        row(purchase.account.to_string(), value)
    }

    /// What has to come out for purchases `0..records`, by id.
    pub(crate) fn assessments(&self, records: u64) -> Vec<Assessment> {
        let mut spent = vec![(0_u64, 0_i64); ACCOUNTS as usize];
        let assess = |id| {
            let Purchase { account, id, cents } = self.get(id);
            let spent = &mut spent[account as usize];
            *spent = (spent.0 + 1, spent.1 + cents);
            Assessment { account, id, count: spent.0, total: spent.1 }
        };
        (0..records).map(assess).collect()
    }

    pub(crate) fn accounts() -> usize {
        ACCOUNTS as usize
    }
}
