//! Loads purchases into a topic of Kafka, each once, keyed by account.
//!
//! ```sh
//! cargo run --release --features kafka --example load_topic -- \
//!     --input examples/data/purchases.csv --output kafka://127.0.0.1:9092/purchases --create-topic 6 \
//!     --store state-load
//! ```

mod ends;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use ends::{End, KafkaFlags};
use isochrone::prelude::*;

#[derive(Clone, Serialize, Deserialize)]
struct Purchase {
    event_id: String,
    account: String,
    at: String,
    units: u32,
    cents: i64,
}

/// Loads purchases into a topic of Kafka.
#[derive(Parser)]
struct Args {
    /// Purchases to load: a file, a directory or a glob, of .csv with a header or .jsonl
    #[arg(long, value_name = "PATH")]
    input: PathBuf,
    /// The topic, kafka://host:port/topic
    #[arg(long, value_name = "URL", value_parser = ends::topic)]
    output: String,
    #[command(flatten)]
    kafka: KafkaFlags,
    #[command(flatten)]
    run: RunArgs,
}

fn main() -> ExitCode {
    ends::log();
    isochrone::main(|| run(std::env::args_os()))
}

pub(crate) fn run(args: impl IntoIterator<Item = OsString>) -> Result<Summary> {
    let args = Args::parse_from(args);
    load(args).map_err(|error| ends::in_flags(error, &[]))
}

fn load(args: Args) -> Result<Summary> {
    let (input, output) = (End::Path(args.input.clone()), End::Topic(args.output.clone()));
    args.kafka.check(&input, &output, None, false)?;
    args.kafka.create(&args.output)?;
    let job = Job::new("load-topic").checkpoint(Checkpoint::dir("state-load"));
    job.run(args.run.clone(), move |flow| {
        let purchases = Files::at(&args.input).by_extension::<Purchase>();
        let output = args.kafka.output(&args.output)?;
        let sink = output.json().key(|purchase: &Purchase| &purchase.account);
        flow.source("purchases", purchases).sink("topic", sink);
        Ok(())
    })
}
