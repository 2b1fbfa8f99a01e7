//! Counts the words of text files. Each word comes out with its count so far; the last line of a
//! word has its total.
//!
//! ```sh
//! cargo run --release --example word_count -- --input README.md
//! cargo run --release --example word_count -- --input README.md --output words --store words-state
//! ```

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use isochrone::connectors::Stdout;
use isochrone::prelude::*;

/// Counts the words of text files.
#[derive(Parser)]
struct Args {
    /// Text to read: a file, a directory or a glob
    #[arg(long, value_name = "PATH")]
    input: PathBuf,
    /// Directory for the counts, as part-*.jsonl, each exactly once; standard output without it
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Clone, Serialize, Deserialize)]
struct Count {
    word: String,
    count: u64,
}

fn main() -> ExitCode {
    isochrone::main(|| {
        let args = Args::parse();
        if let Some(output) = &args.output {
            Files::at(&args.input).check_apart_from(output)?;
        }
        Job::new("word-count").run(args.run.clone(), move |flow| word_count(flow, &args))
    })
}

/// The job.
fn word_count(flow: &Flow<'_>, args: &Args) -> Result<()> {
    let counts = flow
        .source("lines", Files::at(&args.input).text())
        .flat_map(|line| words(&line))
        .key_by(|word| word.clone())
        .count("counts")
        .map(|(word, count)| Count { word, count });
    match &args.output {
        Some(folder) => counts.sink("output", PartFiles::at(folder).json()),
        None => counts.sink("output", Stdout::json()),
    }
    Ok(())
}

/// Letters and digits that stand together, in lower case.
fn words(line: &str) -> Vec<String> {
    let words = line.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect()
}
