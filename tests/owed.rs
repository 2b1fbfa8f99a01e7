//! Output that a checkpoint owes, and what the job does that starts from it: as it was, without the
//! sink, or with another kind of it.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use isochrone::connector::{
    Committer, Prepare, Readiness, Recovery, Sink, SinkContext, Source, Writer,
};
use isochrone::connectors::Collected;
use isochrone::connectors::generator::Generator;
use isochrone::ids::{Epoch, OperatorId};
use isochrone::prelude::*;
use isochrone::{ErrorKind, Outcome};
use tempfile::TempDir;

/// A place to which letters go at the end of each epoch, unless it is closed.
#[derive(Clone, Default)]
struct Post {
    is_closed: Arc<AtomicBool>,
    sent: Arc<Mutex<BTreeSet<u64>>>,
}

impl Sink for Post {
    type Item = u64;
    type Effect = Vec<u64>;

    fn writer(&self, _: &SinkContext) -> Result<Box<dyn Writer<u64, Vec<u64>>>> {
        Ok(Box::new(Letters::default()))
    }

    fn committer(&self, _: &SinkContext) -> Result<Box<dyn Committer<Vec<u64>>>> {
        Ok(Box::new(self.clone()))
    }

    fn describe(effect: &Vec<u64>) -> String {
        format!("{} letters", effect.len())
    }
}

#[derive(Default)]
struct Letters(Vec<u64>);

impl Writer<u64, Vec<u64>> for Letters {
    fn write(&mut self, batch: &mut Vec<u64>, _: Epoch) -> Result<Readiness> {
        self.0.append(batch);
        Ok(Readiness::Ready)
    }

    fn prepare(&mut self, _: Epoch) -> Result<Prepare<Vec<u64>>> {
        let letters = std::mem::take(&mut self.0);
        Ok(Box::new(move || Ok((!letters.is_empty()).then(|| letters.clone()))))
    }
}

impl Committer<Vec<u64>> for Post {
    fn recover(&mut self, recovery: Recovery<Vec<u64>>) -> Result<Vec<String>> {
        self.commit(&recovery.pending).map(|()| Vec::new())
    }

    fn outcomes(&self) -> Vec<String> {
        vec!["posted now".to_owned()]
    }

    fn commit(&mut self, effects: &[Vec<u64>]) -> Result<()> {
        if self.is_closed.load(Ordering::SeqCst) && !effects.is_empty() {
            return Err(Error::unavailable("the post is closed"));
        }
        self.sent.lock().unwrap().extend(effects.iter().flatten());
        Ok(())
    }
}

struct Bench {
    folder: TempDir,
    post: Post,
}

impl Bench {
    /// A run has failed with its checkpoint made and its letters not sent.
    fn owing() -> Bench {
        let bench = Bench { folder: TempDir::new().unwrap(), post: Post::default() };
        bench.post.is_closed.store(true, Ordering::SeqCst);
        let error = bench.as_it_was().unwrap_err();
        assert_eq!(error.to_string(), "the post is closed");
        bench.post.is_closed.store(false, Ordering::SeqCst);
        bench
    }

    fn as_it_was(&self) -> Result<Summary> {
        self.run(&[], Generator::counting(7, |n| n), self.post.clone())
    }

    fn run(
        &self,
        drops: &[&str],
        source: impl Source<Item = u64> + Clone + Send + Sync,
        letters: impl Sink<Item = u64> + Clone + Send + Sync,
    ) -> Result<Summary> {
        self.job(drops, move |flow| {
            let numbers = flow.source("numbers", source.clone());
            numbers.sink("letters", letters.clone());
            numbers.sink("lines", Collected::default());
            Ok(())
        })
    }

    fn job(
        &self,
        drops: &[&str],
        build: impl Fn(&Flow<'_>) -> Result<()> + Send + Sync + 'static,
    ) -> Result<Summary> {
        let drop = drops.iter().map(|id| OperatorId::new(id).unwrap()).collect();
        let args = RunArgs { quiet: true, drop, ..RunArgs::default() };
        let store = self.folder.path().join("store");
        Job::new("mail").checkpoint(Checkpoint::dir(store)).run(args, build)
    }

    fn without_letters(&self, drops: &[&str]) -> Result<Summary> {
        self.job(drops, |flow| {
            let numbers = flow.source("numbers", Generator::counting(7, |n| n));
            numbers.sink("lines", Collected::default());
            Ok(())
        })
    }

    fn sent(&self) -> Vec<u64> {
        self.post.sent.lock().unwrap().iter().copied().collect()
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

fn assert_misfit(end: Result<Summary>, parts: &[&str]) {
    let error = end.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible, "{error:?}");
    for part in parts {
        assert!(error.report().contains(part), "`{part}` is not in: {error:?}");
    }
}

#[test]
fn what_was_owed_and_what_became_of_it_are_one_line_of_the_report() {
    let bench = Bench::owing();
    let summary = bench.as_it_was().unwrap();
    let pending = &summary.restore.pending;
    assert_eq!(pending[0], "`letters`, epoch 1, worker 0: 7 letters: posted now");
    assert!(pending[1].starts_with("`lines`, epoch 1") && pending[1].ends_with(": visible now"));
    assert_eq!(pending.len(), 2);
    assert_eq!(summary.restore.set_aside, [""; 0]);
    let letters = summary.restore.to_string().matches("7 letters").count();
    assert_eq!(letters, 1, "{}", summary.restore);
    assert_eq!(bench.sent(), [0, 1, 2, 3, 4, 5, 6]);
}

/// Output that nobody would ever see must not be forgotten because a flag was left out.
#[test]
fn a_job_without_the_sink_that_owes_output_is_refused_until_the_output_is_given_up() {
    let bench = Bench::owing();
    let says = ["owes output of sink `letters`", "run the job once more with that sink"];
    assert_misfit(bench.without_letters(&[]), &[says[0], says[1], "`--drop letters`"]);
    let summary = bench.without_letters(&["letters"]).unwrap();
    let line =
        "`letters`: dropped; GIVEN UP with it: output that may not have been visible (pieces: 1)";
    assert!(summary.restore.operators.contains(&line.to_owned()), "{}", summary.restore);
    assert_eq!(bench.sent(), [0; 0]);
    assert_eq!(bench.without_letters(&[]).unwrap().outcome, Outcome::NothingToDo);
}

#[test]
fn a_sink_that_owes_nothing_may_be_left_out_and_the_report_says_so() {
    let bench = Bench { folder: TempDir::new().unwrap(), post: Post::default() };
    let input = bench.at("numbers.jsonl");
    fs::write(&input, "1\n").unwrap();
    bench.run(&[], Files::at(&input).json::<u64>(), bench.post.clone()).unwrap();
    fs::write(&input, "1\n2\n").unwrap();
    let summary = bench.job(&[], move |flow| {
        let numbers = flow.source("numbers", Files::at(&input).json::<u64>());
        numbers.sink("lines", Collected::default());
        Ok(())
    });
    let restore = summary.unwrap().restore;
    assert!(restore.operators.contains(&"`letters`: dropped".to_owned()), "{restore}");
    assert_eq!(bench.sent(), [1]);
}

/// It was taken for damage, which it is not: the bytes are as they were written.
#[test]
fn another_kind_of_sink_or_source_under_the_same_id_is_a_misfit() {
    let bench = Bench::owing();
    let (folder, numbers) = (bench.at("out"), bench.at("numbers.jsonl"));
    let end = bench.job(&[], move |flow| {
        let numbers = flow.source("numbers", Generator::counting(7, |n| n));
        numbers.sink("letters", PartFiles::at(&folder).json());
        numbers.sink("lines", Collected::default());
        Ok(())
    });
    let kind = "that another kind of sink has prepared";
    assert_misfit(end, &["output of sink `letters`", kind, "`--drop letters`"]);

    fs::write(&numbers, "7\n").unwrap();
    let end = bench.run(&[], Files::at(&numbers).json::<u64>(), bench.post.clone());
    assert_misfit(end, &["of source `numbers`", "another kind", "`--drop numbers`"]);
    let summary = bench.as_it_was().unwrap();
    assert_eq!((bench.sent().len(), summary.read), (7, 0));
}

/// One of two hosts, asked to stop before the other has come: it may not say that all is well.
#[test]
fn who_leaves_before_the_run_begins_says_that_output_is_still_owed() {
    let bench = Bench::owing();
    let hosts = bench.at("hosts");
    // Free a moment ago. The other never comes.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    fs::write(&hosts, format!("{free}\n127.0.0.1:1\n")).unwrap();
    let leave = || {
        let post = bench.post.clone();
        let store = bench.folder.path().join("store");
        let job = Job::new("mail").checkpoint(Checkpoint::dir(store));
        job.handle().stop();
        let (process, hosts) = (Some(0), Some(hosts.clone()));
        job.run(RunArgs { process, hosts, quiet: true, ..RunArgs::default() }, move |flow| {
            let numbers = flow.source("numbers", Generator::counting(7, |n| n));
            numbers.sink("letters", post.clone());
            numbers.sink("lines", Collected::default());
            Ok(())
        })
    };
    let error = leave().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("the output of checkpoint 1 may not be visible"), "{error}");
    assert!(bench.sent().is_empty());
    bench.as_it_was().unwrap();
    assert_eq!(bench.sent(), [0, 1, 2, 3, 4, 5, 6]);
}

#[test]
fn a_job_that_has_nothing_to_do_says_what_was_read_and_where_output_is() {
    let bench = Bench::owing();
    bench.as_it_was().unwrap();
    let summary = bench.as_it_was().unwrap();
    assert_eq!(summary.outcome, Outcome::NothingToDo);
    let said = summary.to_string();
    let begins = "all input is done: nothing was read, nothing was changed; output is where earlier \
                  runs have written it; checkpoint 2 has read:\n  `numbers` ";
    assert!(said.starts_with(begins), "{said}");
}

#[test]
fn input_of_which_the_checkpoint_has_read_nothing_is_said_in_the_report() {
    let folder = TempDir::new().unwrap();
    let run = |input: PathBuf| {
        let job = Job::new("copy").checkpoint(Checkpoint::dir(folder.path().join("store")));
        let quiet = RunArgs { quiet: true, ..RunArgs::default() };
        job.run(quiet, move |flow| {
            let lines = flow.source("lines", Files::at(&input).text());
            lines.sink("out", Collected::default());
            Ok(())
        })
    };
    let put = |name: &str| {
        let path = folder.path().join("in").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "a line\n").unwrap();
        path
    };
    let (first, second) = (put("1.txt"), put("2.txt"));
    run(first.clone()).unwrap();
    let restore = run(second.clone()).unwrap().restore;
    let line = format!(
        "source `lines`: the checkpoint has read `{}`, and nothing of input `{}`: what was begun there \
         is read to its end, and this input from its beginning",
        first.display(),
        second.display()
    );
    assert_eq!(restore.remarks, [line]);
    // What was read is part of a larger input, or matches it, there or not.
    put("3.txt");
    assert_eq!(run(folder.path().join("in")).unwrap().restore.remarks, [""; 0]);
    put("4.txt");
    fs::remove_file(first).unwrap();
    assert_eq!(run(folder.path().join("in/*.txt")).unwrap().restore.remarks, [""; 0]);
}
