//! Judges the output of `account_risk` on a generated log: every purchase once, and per account a
//! count that rises by one with a total that rises by the purchase.
//!
//! In which order the purchases of one account follow each other is free when there are several
//! workers, because each first passes the worker that knows its event id.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::purchases::Log;

#[derive(Deserialize)]
struct Assessment<'a> {
    event_id: &'a str,
    account: &'a str,
    events: u64,
    cents: i64,
    level: &'a str,
}

/// What is wrong with an output, counted by kind; the first few in words.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    pub lost: u64,
    pub doubled: u64,
    pub out_of_order: u64,
    pub wrong: u64,
    pub examples: Vec<String>,
}

const EXAMPLES_MAX: usize = 8;

impl Verdict {
    fn note(&mut self, kind: impl Fn(&mut Verdict) -> &mut u64, text: impl FnOnce() -> String) {
        *kind(self) += 1;
        if self.examples.len() < EXAMPLES_MAX {
            self.examples.push(text());
        }
    }
}

/// The visible parts in their order.
pub fn parts(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut parts: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    let is_part = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        !name.starts_with('.') && name.ends_with(".jsonl")
    };
    parts.retain(is_part);
    parts.sort();
    parts
}

/// Reads all visible parts, in order, and compares them with what the log asks for.
pub fn judge(log: &Log, output: &Path) -> Verdict {
    let mut verdict = Verdict::default();
    let mut seen = vec![false; log.purchases.len()];
    let accounts = log.purchases.iter().map(|p| p.account as usize + 1).max().unwrap_or(0);
    let mut totals = vec![(0u64, 0i64); accounts];
    for part in parts(output) {
        let text = fs::read_to_string(&part).unwrap();
        assert!(text.ends_with('\n'), "{} is visible in part", part.display());
        for line in text.lines() {
            judge_line(log, line, &part, &mut seen, &mut totals, &mut verdict);
        }
    }
    for (number, _) in seen.iter().enumerate().filter(|(_, seen)| !**seen) {
        verdict.note(|v| &mut v.lost, || format!("e{number:07} is missing"));
    }
    verdict
}

fn judge_line(
    log: &Log,
    line: &str,
    part: &Path,
    seen: &mut [bool],
    totals: &mut [(u64, i64)],
    verdict: &mut Verdict,
) {
    let place = || format!("{line} in {}", part.display());
    let found: Assessment<'_> = serde_json::from_str(line).unwrap();
    let number = found.event_id[1..].parse::<usize>().unwrap();
    let account = found.account[1..].parse::<u32>().unwrap();
    let Some(purchase) = log.purchases.get(number).filter(|p| p.account == account) else {
        return verdict.note(|v| &mut v.wrong, place);
    };
    if std::mem::replace(&mut seen[number], true) {
        return verdict.note(|v| &mut v.doubled, place);
    }
    let total = &mut totals[account as usize];
    let expected = (total.0 + 1, total.1 + purchase.cents);
    *total = (found.events, found.cents);
    if found.events != expected.0 {
        verdict.note(|v| &mut v.out_of_order, place);
    } else if found.cents != expected.1 || found.level != level(found.cents) {
        verdict.note(|v| &mut v.wrong, place);
    }
}

fn level(cents: i64) -> &'static str {
    match cents {
        50_000.. => "high",
        10_000.. => "watch",
        _ => "normal",
    }
}
