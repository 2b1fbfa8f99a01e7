//! The slow obvious twin: what the job must leave, computed record by record without any engine.

use std::collections::{BTreeMap, BTreeSet};

use crate::input::{Event, Input, Origin, Output};
use crate::pipeline::{Counted, Effect, REMEMBERED, Sum, end_of_window};
use crate::state::Left;

/// What must come out.
pub(crate) struct Twin {
    facts: Vec<(Event, bool)>,
    sums: BTreeMap<u16, Sum>,
    windows: BTreeSet<Effect>,
    counts: BTreeMap<Counted, u64>,
    ids: BTreeSet<u64>,
}

/// How the output differs; all zero if it does not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
    pub(crate) out_of_order: u64,
    /// Neither lost nor doubled, but not what the twin says.
    pub(crate) wrong: u64,
    pub(crate) state: Vec<String>,
}

impl Twin {
    pub(crate) fn of(input: &Input) -> Twin {
        let mut facts: Vec<(Event, bool)> = Vec::new();
        let mut sums = BTreeMap::<u16, Sum>::new();
        for split in &input.first {
            let mut forgotten_at = BTreeMap::<u64, i64>::new();
            for event in split {
                let end = forgotten_at.entry(event.id).or_insert(i64::MIN);
                if event.at < *end {
                    continue;
                }
                *end = event.at + i64::try_from(REMEMBERED.as_millis()).unwrap();
                let event = Event { amount: event.amount * 2, ..event.clone() };
                let sum = sums.entry(event.account).or_default();
                sum.events += 1;
                sum.total += event.amount;
                facts.push((event, true));
            }
        }
        facts.extend(input.second.iter().flatten().map(|event| (event.clone(), false)));
        let windows = windows(&facts);
        let mut counts = BTreeMap::new();
        for (event, _) in &facts {
            *counts.entry(Counted { window: false, account: event.account }).or_default() += 1;
        }
        for window in &windows {
            *counts.entry(window.counted()).or_default() += 1;
        }
        let ids = input.first.iter().chain(&input.second).flatten().map(|event| event.id).collect();
        Twin { facts, sums, windows, counts, ids }
    }

    pub(crate) fn judge(&self, output: &Output, left: &Left) -> Verdict {
        let mut verdict = Verdict::default();
        let effects = output.effects.items();
        self.judge_seen(&effects, &mut verdict);
        let found = effects.iter().filter(|effect| effect.counted().window).cloned();
        compare(self.windows.iter().cloned(), found, &mut verdict);
        let wanted = self.counts.iter().flat_map(|(counted, n)| (1..=*n).map(|i| (*counted, i)));
        let counted = output.counts.items();
        verdict.out_of_order += falls(counted.iter().map(|(counted, n)| (*counted, *n)));
        compare(wanted, counted, &mut verdict);
        if left.sums != self.sums {
            verdict.state.push(format!("sums {:?} instead of {:?}", left.sums, self.sums));
        }
        if left.counts != self.counts {
            verdict.state.push(format!("counts {:?} instead of {:?}", left.counts, self.counts));
        }
        let strange = left.ids.difference(&self.ids).count();
        if left.windows + strange > 0 {
            verdict.state.push(format!("{} windows, {strange} strange ids left", left.windows));
        }
        verdict
    }

    /// Each fact once; per account each number once and in order; per account and split in the
    /// split's order.
    fn judge_seen(&self, effects: &[Effect], verdict: &mut Verdict) {
        let mut seen: Vec<(u16, Origin, u64)> = Vec::new();
        for effect in effects {
            if let Effect::Seen { account, origin, nth } = *effect {
                seen.push((account, origin, nth));
            }
        }
        let wanted = self.facts.iter().map(|(event, _)| (event.account, event.origin));
        compare(wanted, seen.iter().map(|(account, origin, _)| (*account, *origin)), verdict);
        let numbered = |(event, first): &(Event, bool)| first.then_some(event.account);
        let mut wanted = BTreeMap::<u16, u64>::new();
        for account in self.facts.iter().filter_map(numbered) {
            *wanted.entry(account).or_default() += 1;
        }
        let wanted = wanted.into_iter().flat_map(|(account, n)| (1..=n).map(move |i| (account, i)));
        let first = seen.iter().filter(|(_, origin, _)| origin.source == 0);
        compare(wanted, first.clone().map(|(account, _, nth)| (*account, *nth)), verdict);
        verdict.out_of_order += falls(first.map(|(account, _, nth)| (*account, *nth)));
        // In the first source, records of one account go different ways to be rid of repetitions, so
        // that only the second one's splits keep their order.
        let second = seen.iter().filter(|(_, origin, _)| origin.source == 1);
        let places = second.map(|(account, origin, _)| {
            ((*account, origin.source, origin.split), u64::from(origin.number))
        });
        verdict.out_of_order += falls(places);
    }
}

impl Verdict {
    pub(crate) fn is_good(&self) -> bool {
        *self == Verdict::default()
    }
}

fn windows(facts: &[(Event, bool)]) -> BTreeSet<Effect> {
    let mut open = BTreeMap::<(u16, i64), (u64, u64)>::new();
    for (event, _) in facts {
        let (events, total) = open.entry((event.account, end_of_window(event.at))).or_default();
        *events += 1;
        *total += event.amount;
    }
    let close = |((account, end), (events, total))| Effect::Window { account, end, events, total };
    open.into_iter().map(close).collect()
}

fn compare<T: Ord>(
    wanted: impl Iterator<Item = T>,
    found: impl IntoIterator<Item = T>,
    verdict: &mut Verdict,
) {
    let mut balance = BTreeMap::<T, (i64, i64)>::new();
    wanted.for_each(|item| balance.entry(item).or_default().0 += 1);
    found.into_iter().for_each(|item| balance.entry(item).or_default().1 += 1);
    for (wanted, found) in balance.into_values() {
        verdict.lost += (wanted - found).max(0) as u64;
        match wanted {
            0 => verdict.wrong += found as u64,
            _ => verdict.doubled += (found - wanted).max(0) as u64,
        }
    }
}

/// How often a number is not higher than the one before of its key.
fn falls<K: Ord>(numbers: impl Iterator<Item = (K, u64)>) -> u64 {
    let mut last = BTreeMap::<K, u64>::new();
    numbers
        .map(|(key, number)| {
            let before = last.insert(key, number);
            u64::from(before.is_some_and(|before| before > number))
        })
        .sum()
}
