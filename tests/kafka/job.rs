//! The job of these tests: counts each account's purchases, from topic to topic. Its flags say what
//! a user would say in the program: the promise of the sink, its name, what may be lost.

use std::ffi::OsString;

use clap::{Parser, ValueEnum};
use isochrone::connectors::kafka::{KafkaOutput, OnDataLoss};
use isochrone::prelude::*;
use isochrone::{PendingOutput, Result};

use crate::ends::KafkaFlags;
use crate::support::child::play;
use crate::{account_risk, load_topic};

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Purchase {
    pub(crate) event_id: String,
    pub(crate) account: String,
    /// To make records as large as a test wants them.
    pub(crate) note: String,
}

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Assessment {
    pub(crate) event_id: String,
    pub(crate) account: String,
    pub(crate) events: u64,
    pub(crate) note: String,
}

#[derive(Default, PartialEq, Serialize, Deserialize)]
struct Spent {
    events: u64,
}

impl State for Spent {
    const VERSION: u16 = 1;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Promise {
    Exactly,
    AtLeast,
    Idempotent,
}

/// Counts purchases.
#[derive(Clone, Parser)]
struct Args {
    #[arg(long)]
    name: String,
    #[arg(long)]
    input: String,
    #[arg(long)]
    output: String,
    /// Where a sink `copies` writes the same, if there is to be one.
    #[arg(long)]
    copies: Option<String>,
    #[arg(long, default_value = "copies")]
    copies_sink: String,
    #[arg(long, value_enum, default_value = "exactly")]
    promise: Promise,
    #[arg(long, default_value = "assessments")]
    sink: String,
    #[arg(long)]
    renamed_from: Option<String>,
    #[arg(long)]
    accept_loss: bool,
    #[command(flatten)]
    kafka: KafkaFlags,
    #[command(flatten)]
    run: RunArgs,
}

impl Args {
    fn job(&self) -> Job {
        Job::new(&self.name).checkpoint(Checkpoint::dir("named by a flag"))
    }

    fn build(&self, flow: &Flow<'_>) -> Result<()> {
        let (kafka, topic) = self.kafka.open(&self.input)?;
        let on_loss = match self.accept_loss {
            true => OnDataLoss::ContinueFromEarliest,
            false => OnDataLoss::Stop,
        };
        let source = kafka.source(topic).until_end(self.kafka.until_end).on_data_loss(on_loss);
        let assessments = flow
            .source("purchases", source.json::<Purchase>())
            .key_by(|purchase| purchase.account.clone())
            .state::<Spent>("spent")
            .map(|spent, Purchase { event_id, account, note }| {
                spent.events += 1;
                Assessment { event_id, account, events: spent.events, note }
            });
        let id = Id::new(&self.sink);
        let id = self.renamed_from.iter().fold(id, |id, old| id.renamed_from(old));
        if let Some(copies) = &self.copies {
            let copies = self.output(copies)?.json().key(|a: &Assessment| &a.account);
            assessments.sink(Id::new(&self.copies_sink), copies);
        }
        let sink = self.output(&self.output)?.json().key(|a: &Assessment| &a.account);
        match self.promise {
            Promise::Idempotent => {
                assessments.sink(id, sink.idempotent(|a: &Assessment| a.event_id.clone()));
            }
            _ => assessments.sink(id, sink),
        }
        Ok(())
    }

    fn output(&self, url: &str) -> Result<KafkaOutput> {
        let output = self.kafka.output(url)?;
        Ok(if self.promise == Promise::AtLeast { output.at_least_once() } else { output })
    }
}

pub(crate) fn run(flags: impl IntoIterator<Item = OsString>) -> Result<Summary> {
    let args = Args::parse_from(flags);
    let build = args.clone();
    args.job().run(args.run, move |flow| build.build(flow))
}

/// What an operator does with pending output.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Settle {
    List,
    Commit,
    Abort,
}

pub(crate) fn settle(what: Settle, flags: &[String]) -> Result<Vec<PendingOutput>> {
    let args = Args::parse_from(std::iter::once("job").chain(flags.iter().map(String::as_str)));
    let (job, run) = (args.job(), args.run.clone());
    let build = move |flow: &Flow<'_>| args.build(flow);
    match what {
        Settle::List => job.pending(&run, &build),
        Settle::Commit => job.commit_pending(&run, &build),
        Settle::Abort => job.abort_pending(&run, &build),
    }
}

/// The test that a child process is told to run.
pub(crate) const CHILD: &str = "job::a_child_process_is_the_job_that_its_flags_describe";
/// The same for the examples, whatever their flags.
pub(crate) const LOADER: &str = "job::a_child_process_loads_a_topic";
pub(crate) const WATCHER: &str = "job::a_child_process_watches_accounts";

fn log() {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env();
    let filter = filter.unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    let log = tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false);
    log.with_env_filter(filter).init();
}

/// In the process of the tests themselves there is nothing to do.
#[test]
fn a_child_process_is_the_job_that_its_flags_describe() {
    play(|flags| {
        log();
        // Whose flags these are.
        let has = |flag: &str| flags.iter().any(|given| given == flag);
        if has("--name") {
            run(flags)
        } else if has("--create-topic") {
            load_topic::run(flags)
        } else {
            account_risk::run(flags)
        }
    });
}

#[test]
fn a_child_process_loads_a_topic() {
    play(|flags| {
        log();
        load_topic::run(flags)
    });
}

#[test]
fn a_child_process_watches_accounts() {
    play(|flags| {
        log();
        account_risk::run(flags)
    });
}
