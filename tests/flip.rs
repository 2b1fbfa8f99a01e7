//! Every byte of a small checkpoint changed once, every object cut, deleted and swapped: the job
//! refuses and names the object, or goes back by choice and says past what; never a panic, never a
//! wrong result. Of older manifests, the boundary and the hint, which nothing is restored from, some
//! bytes are changed, each at the cost of a run: every 61st to 97th, of the hint every one.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

#[path = "support/lab.rs"]
mod lab;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use isochrone::{ErrorKind, Outcome};
use lab::*;

/// A short history whose newest checkpoint has all kinds of objects: manifests, segments, a
/// boundary and the hint.
fn history() -> Lab<Event> {
    let mut lab = Lab::new(vec![vec![(1, 1), (2, 2)], vec![(1, 3)], vec![(2, 4)]]);
    // So many that the oldest one has a segment less than the newest.
    lab.retain = 3;
    for _ in 0..2 {
        let build = totals(&lab);
        lab.phase(&quiet(1), build).unwrap();
    }
    lab
}

/// What a run may do with a damaged store.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// It named the object.
    Refused,
    /// The output is right; these checkpoints were passed over.
    Right(Vec<String>),
}

impl End {
    fn is_right(&self) -> bool {
        matches!(self, End::Right(_))
    }

    /// It went back behind a checkpoint, for this object's sake.
    fn went_back(&self, object: &Path) -> bool {
        matches!(self, End::Right(passed) if passed.iter().any(|line| line.contains(name(object))))
    }
}

/// As messages have it.
fn name(object: &Path) -> &str {
    object.to_str().unwrap()
}

/// Runs with one object damaged, and puts everything back.
struct Trial {
    lab: Lab<Event>,
    pristine: Lab<Event>,
}

impl Trial {
    fn new() -> Trial {
        let lab = history();
        let pristine = lab.fork();
        // Opens the gates once and for all.
        pristine.fork().finishes_rightly(&quiet(1));
        let trial = Trial { lab, pristine };
        for kind in ["m", "d", "b", "latest.json"] {
            assert!(trial.objects().iter().any(|object| is_of(object, kind)), "no {kind}");
        }
        trial
    }

    fn objects(&self) -> Vec<PathBuf> {
        let store = self.pristine.store();
        let all = files(&store.join(JOB)).into_iter();
        all.map(|path| path.strip_prefix(&store).unwrap().to_owned()).collect()
    }

    fn bytes(&self, object: &Path) -> Vec<u8> {
        fs::read(self.pristine.store().join(object)).unwrap()
    }

    /// Replaces an object (`None`: deletes it), runs, checks, and restores the store.
    fn with(&self, object: &Path, bytes: Option<&[u8]>, args: &isochrone::RunArgs) -> End {
        let path = self.lab.store().join(object);
        match bytes {
            Some(bytes) => fs::write(&path, bytes).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
        let end = self.lab.finish(args, totals(&self.lab));
        let end = match end {
            Ok(summary) => {
                assert_ne!(summary.outcome, Outcome::NothingToDo, "{object:?}");
                assert_eq!(self.lab.lines(), self.lab.expected(), "{object:?}");
                End::Right(summary.restore.passed_over)
            }
            Err(error) => {
                let text = error.report();
                assert!(
                    matches!(
                        error.kind(),
                        ErrorKind::Corrupt | ErrorKind::Incompatible | ErrorKind::Invalid
                    ),
                    "{object:?}: {text}"
                );
                assert!(text.contains(name(object)), "{object:?} is not named: {text}");
                End::Refused
            }
        };
        match end {
            End::Refused => fs::write(&path, self.bytes(object)).unwrap(),
            End::Right(_) => self.reset(),
        }
        end
    }

    fn reset(&self) {
        let (from, to) = (&self.pristine, &self.lab);
        for (from, to) in [(from.store(), to.store()), (from.out(), to.out())] {
            fs::remove_dir_all(&to).unwrap();
            copy(&from, &to);
        }
    }
}

fn is_hint(object: &Path) -> bool {
    object.ends_with("latest.json")
}

fn is_of(object: &Path, folder: &str) -> bool {
    object.starts_with(Path::new(JOB).join(folder))
}

/// The objects that the newest checkpoint consists of.
fn needed(trial: &Trial) -> Vec<PathBuf> {
    let objects = trial.objects();
    let newest = objects.iter().rfind(|object| is_of(object, "m")).unwrap().clone();
    let mut needed: Vec<PathBuf> =
        objects.into_iter().filter(|object| is_of(object, "d")).collect();
    needed.push(newest);
    needed
}

#[test]
fn every_flipped_byte_of_the_newest_checkpoint_is_refused_by_name() {
    let trial = Trial::new();
    let mut tried = 0;
    for object in needed(&trial) {
        let bytes = trial.bytes(&object);
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at % 8);
            let end = trial.with(&object, Some(&flipped), &quiet(1));
            assert_eq!(end, End::Refused, "{object:?}, byte {at}");
            tried += 1;
        }
    }
    assert!(tried > 1500, "only {tried} bytes were flipped");
}

#[test]
fn every_flipped_byte_of_older_manifests_and_of_the_hint_has_no_effect() {
    let trial = Trial::new();
    let needed = needed(&trial);
    for object in trial.objects().into_iter().filter(|object| !needed.contains(object)) {
        let bytes = trial.bytes(&object);
        // A run each: every byte of the hint, some of the others.
        let step = if is_hint(&object) { 1 } else { 97 };
        for at in (0..bytes.len()).step_by(step) {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at % 8);
            let end = trial.with(&object, Some(&flipped), &quiet(1));
            // A hint may be made to point behind the newest manifest: then one seems to be gone.
            assert!(
                end == End::Right(Vec::new()) || is_hint(&object),
                "{object:?}, byte {at}: {end:?}"
            );
        }
    }
}

/// By choice a run goes back behind the newest checkpoint, whichever byte is damaged. A segment that the
/// older checkpoints have as well leaves nothing to go back to.
#[test]
fn every_flipped_byte_of_the_newest_checkpoint_is_gone_back_behind_by_choice() {
    let trial = Trial::new();
    let needed = needed(&trial);
    let mut gone_back = BTreeMap::<PathBuf, u32>::new();
    for object in trial.objects() {
        let bytes = trial.bytes(&object);
        let is_needed = needed.contains(&object);
        let is_in_all = is_of(&object, "d") && is_named_by_all(&trial, &object);
        for at in (0..bytes.len()).step_by(if is_needed && !is_in_all { 1 } else { 61 }) {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at % 8);
            let end = trial.with(&object, Some(&flipped), &previous());
            let what = format!("{object:?}, byte {at}: {end:?}");
            if is_in_all {
                assert_eq!(end, End::Refused, "{what}");
            } else if is_needed {
                assert!(end.went_back(&object), "{what}");
                *gone_back.entry(object.clone()).or_default() += 1;
            } else {
                // A damaged hint may seem to show a manifest that is gone.
                assert!(
                    end == End::Right(Vec::new()) || is_hint(&object) && end.is_right(),
                    "{what}"
                );
            }
        }
    }
    let (segments, manifests): (Vec<_>, Vec<_>) =
        gone_back.iter().partition(|(object, _)| is_of(object, "d"));
    assert!(!segments.is_empty() && manifests.len() == 1, "{gone_back:?}");
    assert!(gone_back.values().sum::<u32>() > 1000, "{gone_back:?}");
}

fn is_named_by_all(trial: &Trial, object: &Path) -> bool {
    let manifests = trial.objects().into_iter().filter(|object| is_of(object, "m"));
    let texts: Vec<_> = manifests.map(|found| String::from_utf8(trial.bytes(&found))).collect();
    texts.into_iter().all(|text| text.unwrap().contains(name(object)))
}

#[test]
fn cut_deleted_and_swapped_objects_are_refused_by_name_or_have_no_effect() {
    let trial = Trial::new();
    let objects = trial.objects();
    let needed = needed(&trial);
    for object in &objects {
        let bytes = trial.bytes(object);
        let cut = &bytes[..bytes.len() / 2];
        let mut ends = vec![
            trial.with(object, Some(cut), &quiet(1)),
            trial.with(object, Some(&[]), &quiet(1)),
            trial.with(object, None, &quiet(1)),
        ];
        for other in objects.iter().filter(|other| *other != object && !is_hint(other)) {
            ends.push(trial.with(object, Some(&trial.bytes(other)), &quiet(1)));
            trial.with(object, Some(&trial.bytes(other)), &previous());
        }
        if needed.contains(object) {
            assert!(ends.iter().all(|end| *end == End::Refused), "{object:?}: {ends:?}");
        } else {
            assert!(ends.iter().all(End::is_right), "{object:?}: {ends:?}");
        }
    }
}
