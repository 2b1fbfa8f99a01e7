//! Starting from what the store holds: each kind of damage and each misfit has its named outcome,
//! through `Job::run` on a real store. The rows are those of the table "Starting from a
//! checkpoint" in the design.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

#[path = "support/lab.rs"]
mod lab;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use isochrone::args::Restore;
use isochrone::ids::Worker;
use isochrone::prelude::*;
use isochrone::record::{KEY_GROUPS, group_of, hash_of, owner};
use isochrone::{ErrorKind, Outcome};
use lab::*;

fn refusal(lab: &Lab<Event>, args: &RunArgs) -> Error {
    lab.finish(args, totals(lab)).expect_err("a refusal")
}

fn assert_says(error: &Error, kind: ErrorKind, parts: &[&str]) {
    let text = error.report();
    assert_eq!(error.kind(), kind, "{text}");
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

/// The name of an object, as messages have it.
fn name_in(lab: &Lab<Event>, path: &Path) -> String {
    path.strip_prefix(lab.store()).unwrap().to_str().unwrap().to_owned()
}

fn text_of(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

#[test]
fn without_a_checkpoint_a_job_starts_fresh_unless_one_is_required() {
    let lab = Lab::new(phases());
    let required = RunArgs { restore: Restore::Required, ..quiet(1) };
    assert_says(&refusal(&lab, &required), ErrorKind::Invalid, &["no checkpoint", "`shop`"]);
    assert!(lab.manifests().is_empty(), "a refusal leaves nothing behind");
    let summary = lab.finishes_rightly(&quiet(1));
    assert_eq!(summary.restore.epoch, None);
    // Now there is one.
    assert_eq!(lab.finishes_rightly(&required).outcome, Outcome::NothingToDo);
}

#[test]
fn a_checkpoint_can_be_restored_any_number_of_times() {
    let lab = Lab::with_history();
    for workers in [1, 2, 3] {
        let copy = lab.fork();
        let summary = copy.finishes_rightly(&quiet(workers));
        assert_eq!((summary.read, summary.outcome), (40, Outcome::InputEnded));
    }
    // The store itself was not touched.
    assert_eq!(lab.finishes_rightly(&quiet(1)).read, 40);
}

/// Not on copies: runs that restore one checkpoint and end before their first own, each at its first
/// record, leave every object as it was, and nothing but the manifests that say who had claimed the job.
#[test]
fn a_restore_that_ends_before_its_first_checkpoint_leaves_the_store_as_it_was() {
    let lab = Lab::with_history();
    let objects = || -> BTreeMap<PathBuf, Vec<u8>> {
        let all = files(&lab.store()).into_iter();
        all.map(|path| (path.clone(), fs::read(path).unwrap())).collect()
    };
    let before = objects();
    lab.open();
    for (restores, workers) in (1..).zip([1, 2, 3, 1]) {
        let (source, out) = (lab.source(), lab.out());
        let error = lab.job().run(quiet(workers), move |flow| {
            flow.source("events", source())
                .key_by(|event| event.0)
                .state::<Sum>("sums")
                .map(|_, event| -> String { panic!("{event:?} is one too many") })
                .sink("lines", PartFiles::at(&out).text());
            Ok(())
        });
        assert_says(&error.unwrap_err(), ErrorKind::User, &["one too many", "operator `sums`"]);
        let after = objects();
        for (name, bytes) in &before {
            assert!(after.get(name) == Some(bytes), "restore {restores} changed {name:?}");
        }
        let added: Vec<_> = after.keys().filter(|name| !before.contains_key(*name)).collect();
        assert_eq!(added.len(), restores, "{added:?}");
        for name in added {
            assert!(text_of(name).contains("\"step\": \"claim\""), "{name:?}");
        }
    }
    assert_eq!(lab.finishes_rightly(&quiet(2)).read, 40);
}

#[test]
fn the_report_names_operators_by_their_ids() {
    let lab = Lab::with_history();
    let report = lab.finishes_rightly(&quiet(1)).restore.to_string();
    for line in ["`sums`: kept", "`sums` on worker 0: 4 rows, ", "`events` script 0 at 81"] {
        assert!(report.contains(&format!("\n  {line}")), "{line}: {report}");
    }
}

#[test]
fn the_same_store_over_output_that_went_on_without_it_does_not_double() {
    let lab = Lab::with_history();
    let kept = lab.fork();
    lab.finishes_rightly(&quiet(1));
    fs::remove_dir_all(lab.store()).unwrap();
    copy(&kept.store(), &lab.store());
    let summary = lab.finishes_rightly(&quiet(2));
    assert_eq!(summary.read, 40);
    assert!(summary.restore.set_aside[0].contains("SET ASIDE"), "{:?}", summary.restore.set_aside);
}

#[test]
fn a_damaged_newest_manifest_stops_the_job_or_is_passed_over_by_choice() {
    let lab = Lab::with_history();
    let newest = lab.manifests().pop().unwrap();
    flip(&newest, 200);
    let name = name_in(&lab, &newest);
    let damaged = [&*name, "expected digest", "found", "--on-damage previous"];
    assert_says(&refusal(&lab, &quiet(1)), ErrorKind::Corrupt, &damaged);

    let summary = lab.finishes_rightly(&previous());
    assert!(summary.restore.passed_over[0].contains(&name), "{:?}", summary.restore);
    let report = summary.restore.to_string();
    assert!(report.contains("PASSED OVER") && !report.contains("--on-damage"), "{report}");
}

/// The newest checkpoints are lost together with the claim of their run: output that was committed
/// since the older one is set aside, and written again.
#[test]
fn going_back_behind_committed_output_neither_loses_nor_doubles() {
    let lab = Lab::with_history();
    for manifest in lab.manifests().iter().rev().take(2) {
        flip(manifest, 200);
    }
    let copy = lab.fork();
    let summary = lab.finishes_rightly(&previous());
    assert_eq!((summary.read, summary.restore.passed_over.len()), (80, 2));
    assert_eq!(summary.restore.set_aside.len(), 1);
    let aside =
        files(&lab.out()).into_iter().filter(|path| path.to_string_lossy().contains("superseded"));
    let aside: Vec<_> = aside.collect();
    assert_eq!(aside.len(), 1, "{aside:?}");
    assert_eq!(text_of(&aside[0]).lines().count(), 40);
    // Once more, and on more workers: what was set aside is in nobody's way.
    let summary = copy.finishes_rightly(&RunArgs { workers: 3, ..previous() });
    assert_eq!(summary.read, 80);
}

/// The checkpoint that says that all output is visible is lost; the one before it names output
/// that may not be, and a reader has moved it away meanwhile.
#[test]
fn output_that_a_reader_has_taken_is_not_missed() {
    let lab = Lab::with_history();
    flip(&lab.manifests().pop().unwrap(), 200);
    let parts: Vec<_> = files(&lab.out());
    let newest = parts.last().unwrap();
    let taken = text_of(newest);
    fs::remove_file(newest).unwrap();
    let summary = lab.finish(&previous(), totals(&lab)).unwrap();
    let note = &summary.restore.set_aside[0];
    assert!(note.contains("a reader has taken it"), "{note}");
    let mut lines = lab.lines();
    lines.extend(taken.lines().map(str::to_owned));
    lines.sort();
    assert_eq!(lines, lab.expected());
}

#[test]
fn no_intact_checkpoint_at_all_is_refused_never_a_fresh_start() {
    let lab = Lab::with_history();
    for manifest in lab.manifests() {
        flip(&manifest, 200);
    }
    for args in [quiet(1), previous()] {
        assert_says(&refusal(&lab, &args), ErrorKind::Corrupt, &["is damaged"]);
    }
}

#[test]
fn a_newest_manifest_that_is_gone_is_damage() {
    let lab = Lab::with_history();
    let newest = lab.manifests().pop().unwrap();
    fs::remove_file(&newest).unwrap();
    let name = name_in(&lab, &newest);
    assert_says(&refusal(&lab, &quiet(1)), ErrorKind::Corrupt, &[&name, "nothing"]);
    lab.finishes_rightly(&previous());
}

#[test]
fn a_manifest_of_a_newer_format_stops_the_job_or_is_passed_over_by_choice() {
    let lab = Lab::with_history();
    let newest = lab.manifests().pop().unwrap();
    fs::write(&newest, of_format(&text_of(&newest), 99)).unwrap();
    let says = [&*name_in(&lab, &newest), "format 99", "up to 1", "newer release"];
    assert_says(&refusal(&lab, &quiet(1)), ErrorKind::Incompatible, &says);
    lab.finishes_rightly(&previous());
}

/// A job that has read all its input still finds damage, and mends it by choice: left in place, it
/// would be met by the first run that has something to do.
#[test]
fn damage_is_reported_and_mended_when_there_is_nothing_to_do() {
    for what in ["manifest", "segment"] {
        let lab = Lab::with_history();
        lab.finishes_rightly(&quiet(1));
        assert_eq!(lab.finishes_rightly(&quiet(1)).outcome, Outcome::NothingToDo);
        let of_kind = if what == "manifest" { lab.manifests() } else { lab.segments() };
        let object = of_kind.last().unwrap().clone();
        match what {
            "manifest" => flip(&object, 200),
            _ => fs::remove_file(&object).unwrap(),
        }
        let name = name_in(&lab, &object);
        assert_says(&refusal(&lab, &quiet(1)), ErrorKind::Corrupt, &[&name, "expected"]);

        let summary = lab.finishes_rightly(&previous());
        assert_eq!(summary.outcome, Outcome::InputEnded, "{what}");
        assert!(!summary.restore.passed_over.is_empty(), "{what}");
        assert_eq!(lab.finishes_rightly(&quiet(1)).outcome, Outcome::NothingToDo, "{what}");
    }
}

/// The manifest as a newer release would write it: another format, and a digest that fits.
fn of_format(manifest: &str, format: u32) -> String {
    let (_, body) = manifest.split_once("\"manifest\": ").unwrap();
    let body = body.strip_suffix("\n}\n").unwrap();
    let body = body.replacen("\"format\": 1", &format!("\"format\": {format}"), 1);
    let digest = isochrone::persistence::manifest::digest_of(body.as_bytes());
    format!("{{\n\"digest\": \"{digest}\",\n\"manifest\": {body}\n}}\n")
}

type Damage = fn(&Path, &Path);

#[test]
fn a_damaged_segment_stops_the_job_or_the_checkpoint_is_passed_over_by_choice() {
    let damages: [(&str, Damage, &str); 5] = [
        ("missing", |segment, _| fs::remove_file(segment).unwrap(), "no such object"),
        ("short", |segment, _| cut(segment, 1), "bytes"),
        ("empty", |segment, _| cut(segment, usize::MAX), "bytes"),
        ("wrong", |segment, _| flip(segment, fs::read(segment).unwrap().len() / 2), "digest"),
        ("swapped", |segment, other| swap(segment, other), "expected"),
    ];
    for (what, damage, found) in damages {
        let lab = Lab::with_history();
        let mut segments = lab.segments();
        let (newest, other) = (segments.pop().unwrap(), segments.pop().unwrap());
        damage(&newest, &other);
        let error = refusal(&lab, &quiet(1));
        let is_named = |path: &Path| error.report().contains(&name_in(&lab, path));
        // Of two that are swapped, either.
        let is_told = is_named(&newest) || what == "swapped" && is_named(&other);
        assert!(is_told, "{what}: {}", error.report());
        assert_says(&error, ErrorKind::Corrupt, &["expected", found]);
        if what == "swapped" {
            // The other one belongs to the older checkpoint: nothing is intact.
            assert_says(&refusal(&lab, &previous()), ErrorKind::Corrupt, &["expected"]);
        } else {
            let summary = lab.finishes_rightly(&previous());
            assert!(!summary.restore.passed_over.is_empty(), "{what}");
        }
    }
}

fn cut(path: &Path, by: usize) {
    let bytes = fs::read(path).unwrap();
    fs::write(path, &bytes[..bytes.len().saturating_sub(by)]).unwrap();
}

fn swap(one: &Path, other: &Path) {
    let (first, second) = (fs::read(one).unwrap(), fs::read(other).unwrap());
    fs::write(one, second).unwrap();
    fs::write(other, first).unwrap();
}

/// Segments of the same length, from another job, operator or worker: the bytes say whose they are.
#[test]
fn a_segment_of_another_job_operator_or_worker_is_found_out() {
    let (lab, twin) = (two_states("shop"), two_states("ship"));
    let of = |lab: &Lab<Event>, job: &str, part: &str| {
        let all = files(&lab.store().join(job).join("d"));
        all.into_iter().find(|path| path.to_string_lossy().contains(part)).unwrap()
    };
    let mine = of(&lab, "shop", "/sums-0-");
    let bytes = |path: &Path| fs::read(path).unwrap();
    let others = [
        (of(&twin, "ship", "/sums-0-"), "written by job ship"),
        (of(&lab, "shop", "/sumx-0-"), "operator sumx"),
        (of(&lab, "shop", "/sums-1-"), "worker 1"),
    ];
    for (other, whose) in others {
        let lab = {
            let copy = lab.fork();
            fs::copy(&other, of(&copy, "shop", "/sums-0-")).unwrap();
            copy
        };
        assert_eq!(bytes(&other).len(), bytes(&mine).len(), "{other:?}");
        let error = lab.finish(&quiet(2), both(&lab)).unwrap_err();
        let name = name_in(&lab, &of(&lab, "shop", "/sums-0-"));
        assert_says(&error, ErrorKind::Corrupt, &[&name, "expected", whose]);
    }
}

/// Two equal states, so that their segments differ in nothing but whose they are.
fn both(lab: &Lab<Event>) -> impl Fn(&Flow<'_>) -> Result<()> + Send + Sync + 'static {
    let (source, out) = (lab.source(), lab.out());
    move |flow| {
        let events = flow.source("events", source());
        for id in ["sums", "sumx"] {
            let sums = events.key_by(|event| event.0).state::<Sum>(id).map(|sum, event| {
                sum.0 += event.1;
                format!("{} {}", event.0, sum.0)
            });
            sums.sink(id.replace("sum", "out"), PartFiles::at(out.join(id)).text());
        }
        Ok(())
    }
}

fn two_states(job: &str) -> Lab<Event> {
    // An account of each worker, whose segments are of equal length.
    let worker_of = |account: &u32| owner(group_of(hash_of(account), KEY_GROUPS), KEY_GROUPS, 2);
    let account = |worker| (0..).find(|account| worker_of(account) == Worker(worker)).unwrap();
    let phase = vec![(account(0), 1), (account(1), 2)];
    let lab = Lab::new(vec![phase.clone(), phase]);
    let checkpoint = Checkpoint::dir(lab.store()).not_by_time();
    lab.run_until(2, Job::new(job).checkpoint(checkpoint), &quiet(2), both(&lab)).unwrap();
    lab
}
