//! Any number of workers to any other: stopped anywhere and started again with another number, a
//! job has the output of one that was never stopped, per key in the same order, and the same state.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

#[path = "support/lab.rs"]
mod lab;

use std::collections::BTreeMap;
use std::time::Duration;

use isochrone::keyed::{Context, Process};
use isochrone::prelude::*;
use lab::*;

const WORKERS: [u32; 6] = [1, 2, 3, 7, 4, 1];
const SPLITS: usize = 5;

/// A purchase: time, account, event id, amount.
type Purchase = (i64, u16, u32, u64);

/// As many phases as there are runs, of uneven length, each event id twice.
fn purchases() -> Vec<Vec<Purchase>> {
    let mut number = 0;
    let mut purchase = || {
        number += 1;
        let id: u64 = number / 2;
        let account = (id * id + id / 3) % 37;
        (id as i64 * 10, account as u16, id as u32, 1 + id % 5)
    };
    let lengths = [311, 7, 950, 1, 402, 229];
    lengths.map(|length| (0..length).map(|_| purchase()).collect()).into()
}

type Build = Box<dyn Fn(&Flow<'_>) -> Result<()> + Send + Sync>;

/// Runs the phases at the given numbers of workers; lines by run.
fn history(workers: [u32; 6], build: impl Fn(&Lab<Purchase>) -> Build) -> Vec<String> {
    // One split for each residue of the account: records of a key are in order.
    let mut lab = Lab::new_split_by(purchases(), SPLITS, |purchase| purchase.1 as usize);
    for workers in workers {
        let build = build(&lab);
        lab.phase(&quiet(workers), build).unwrap();
    }
    lines_in_order(&lab.out())
}

fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort();
    lines
}

/// The lines of each key, in the order of the parts.
fn by_key(lines: &[String]) -> BTreeMap<String, Vec<String>> {
    let mut keys = BTreeMap::<_, Vec<_>>::new();
    for line in lines {
        let (key, rest) = line.split_once(' ').unwrap();
        keys.entry(key.to_owned()).or_default().push(rest.to_owned());
    }
    keys
}

fn assert_rescales(build: impl Fn(&Lab<Purchase>) -> Build) {
    let undisturbed = history([1; 6], &build);
    let rescaled = history(WORKERS, &build);
    assert_eq!(by_key(&rescaled), by_key(&undisturbed), "per key in order");
    assert!(undisturbed.len() > 500, "there is something to compare");
    assert_eq!(sorted(rescaled), sorted(undisturbed));
}

/// Account, event id, events and cents so far.
type Line = (u16, u32, u64, u64);

/// What remembers events and accounts: the state is in every line that it makes. Events of one
/// account come over several workers, so that their order among each other is free.
#[test]
fn a_job_like_account_risk() {
    let build = |lab: &Lab<Purchase>| -> Build {
        let (source, out) = (lab.source(), lab.out());
        Box::new(move |flow| {
            flow.source("purchases", source())
                .key_by(|purchase| purchase.2)
                .dedup("seen", Duration::MAX)
                .key_by(|purchase| purchase.1)
                .state::<(u64, u64)>("spent")
                .map(|(events, cents), purchase| {
                    *events += 1;
                    *cents += purchase.3;
                    format!("{} {} {events} {cents}", purchase.1, purchase.2)
                })
                .sink("lines", PartFiles::at(&out).text());
            Ok(())
        })
    };
    let parse = |line: &String| -> Line {
        let numbers: Vec<u64> = line.split(' ').map(|number| number.parse().unwrap()).collect();
        (numbers[0] as u16, numbers[1] as u32, numbers[2], numbers[3])
    };
    let amounts: BTreeMap<u32, (u16, u64)> =
        purchases().into_iter().flatten().map(|(_, account, id, n)| (id, (account, n))).collect();
    for workers in [[1; 6], WORKERS, [7, 1, 7, 2, 7, 3]] {
        let mut left = amounts.clone();
        let mut spent = BTreeMap::<u16, (u64, u64)>::new();
        for (account, id, events, cents) in history(workers, build).iter().map(parse) {
            let (owner, amount) = left.remove(&id).expect("each event is accepted once");
            let so_far = spent.entry(account).or_default();
            *so_far = (so_far.0 + 1, so_far.1 + amount);
            assert_eq!((owner, *so_far), (account, (events, cents)), "event {id}");
        }
        assert!(left.is_empty(), "lost: {left:?}");
    }
}

#[test]
fn count() {
    assert_rescales(|lab| {
        let (source, out) = (lab.source(), lab.out());
        Box::new(move |flow| {
            flow.source("purchases", source())
                .key_by(|purchase| purchase.1)
                .count("counts")
                .map(|(account, count)| format!("{account} {count}"))
                .sink("lines", PartFiles::at(&out).text());
            Ok(())
        })
    });
}

/// Entries come and go, so that some are removed in a later run than the one that made them.
#[test]
fn state_map() {
    assert_rescales(|lab| {
        let (source, out) = (lab.source(), lab.out());
        Box::new(move |flow| {
            flow.source("purchases", source())
                .key_by(|purchase| purchase.1)
                .state_map(
                    "baskets",
                    |basket: &mut MapState<u64, u64>, (_, account, id, amount)| {
                        if id % 3 == 0 {
                            basket.remove(&amount);
                        } else {
                            *{
                                if basket.get(&amount).is_none() {
                                    basket.insert(amount, 0);
                                }
                                basket.get_mut(&amount).unwrap()
                            } += 1;
                        }
                        let entries: Vec<_> = basket.iter().collect();
                        Some(format!("{account} {id} {entries:?}"))
                    },
                )
                .sink("lines", PartFiles::at(&out).text());
            Ok(())
        })
    });
}

/// Says how many purchases of an account lie within a second after the first of them.
struct Bursts;

impl Process<u16, Purchase> for Bursts {
    type State = (u64, u64);
    type Out = String;

    fn on_record(
        &self,
        mut cx: Context<'_, u16, (u64, u64)>,
        purchase: Purchase,
    ) -> impl IntoIterator<Item = String> {
        if cx.state.0 == 0 {
            cx.timer.set(cx.now.plus(Duration::from_secs(1)));
        }
        cx.state.0 += 1;
        cx.state.1 += purchase.3;
        None
    }

    fn on_timer(&self, cx: Context<'_, u16, (u64, u64)>) -> impl IntoIterator<Item = String> {
        let (events, cents) = std::mem::take(cx.state);
        Some(format!("{} at {}: {events} {cents}", cx.key, cx.now.0))
    }
}

#[test]
fn timers_move_with_their_key() {
    let build = |lab: &Lab<Purchase>| -> Build {
        let (source, out) = (lab.source(), lab.out());
        Box::new(move |flow| {
            let time = |purchase: &Purchase| EventTime(purchase.0);
            flow.source("purchases", source().event_time(time, Duration::ZERO))
                .key_by(|purchase| purchase.1)
                .process("bursts", Bursts)
                .sink("lines", PartFiles::at(&out).text());
            Ok(())
        })
    };
    let undisturbed = history([1; 6], build);
    let rescaled = history(WORKERS, build);
    assert!(undisturbed.len() > 50, "{} timers", undisturbed.len());
    let events = |lines: &[String]| -> u64 {
        lines.iter().map(|line| line.split(' ').nth(3).unwrap().parse::<u64>().unwrap()).sum()
    };
    assert_eq!(events(&undisturbed), 1900, "each purchase is in one burst");
    assert_eq!(events(&rescaled), 1900);
    for (key, lines) in by_key(&rescaled) {
        let times: Vec<i64> = lines
            .iter()
            .map(|line| line.split([' ', ':']).nth(1).unwrap().parse().unwrap())
            .collect();
        assert!(times.is_sorted_by(|a, b| a < b), "{key}: {times:?}");
    }
}
