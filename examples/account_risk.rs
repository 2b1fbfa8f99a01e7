//! Watches what accounts spend: drops events already seen, keeps count and total per account, and
//! writes one line for every accepted purchase with the account's level of risk.
//!
//! ```sh
//! cargo run --release --example account_risk -- --input examples/data/purchases.csv --output out --store state
//! ```

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use isochrone::prelude::*;

#[derive(Clone, Serialize, Deserialize)]
struct Purchase {
    event_id: String,
    account: String,
    at: Date,
    units: u32,
    cents: i64,
}

/// A day, written `1997-01-31`.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
struct Date(i32, u32, u32);

#[derive(Clone, Serialize, Deserialize)]
struct Assessment {
    event_id: String,
    account: String,
    events: u64,
    cents: i64,
    level: Level,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Level {
    Normal,
    Watch,
    High,
}

/// What an account has bought so far.
#[derive(Default, PartialEq, Serialize, Deserialize)]
struct Spent {
    events: u64,
    cents: i64,
}

impl State for Spent {
    const VERSION: u16 = 1;
}

/// Watches what accounts spend.
#[derive(Parser)]
struct Args {
    /// Purchases to read: a file, a directory or a glob, of CSV with a header or JSON lines
    #[arg(long, value_name = "PATH")]
    input: PathBuf,
    /// Directory for the assessments, as part-*.jsonl
    #[arg(long, value_name = "DIR")]
    output: PathBuf,
    /// Go on reading when the input grows
    #[arg(long)]
    follow: bool,
    /// Days for which an event id is remembered
    #[arg(long, value_name = "DAYS", default_value = "30")]
    remember_days: u64,
    /// Total from which an account is watched, in cents
    #[arg(long, value_name = "CENTS", default_value = "10000")]
    watch: i64,
    /// Total from which an account is a high risk, in cents
    #[arg(long, value_name = "CENTS", default_value = "50000")]
    high: i64,
    #[command(flatten)]
    run: RunArgs,
}

fn main() -> Result<()> {
    run(std::env::args_os())
}

pub(crate) fn run(args: impl IntoIterator<Item = OsString>) -> Result<()> {
    let args = Args::parse_from(args);
    let job = Job::new("account-risk").checkpoint(Checkpoint::dir("state"));
    let summary = job.run(args.run.clone(), move |flow| {
        let purchases = Files::at(&args.input).follow(args.follow).csv::<Purchase>();
        let day = Duration::from_secs(24 * 60 * 60);
        let remember = day * u32::try_from(args.remember_days).unwrap_or(u32::MAX);
        let (watch, high) = (args.watch, args.high);

        flow.source("purchases", purchases.event_time(|p| p.at.into(), day))
            .key_by(|p| p.event_id.clone())
            .dedup("seen", remember)
            .key_by(|p| p.account.clone())
            .state::<Spent>("spent")
            .map(move |spent, p| {
                spent.events += 1;
                spent.cents += p.cents;
                let level = match spent.cents {
                    cents if cents >= high => Level::High,
                    cents if cents >= watch => Level::Watch,
                    _ => Level::Normal,
                };
                let Spent { events, cents } = *spent;
                Assessment { event_id: p.event_id, account: p.account, events, cents, level }
            })
            .sink("assessments", PartFiles::at(&args.output).json());
        Ok(())
    })?;
    eprintln!("{summary}");
    Ok(())
}

impl From<Date> for EventTime {
    fn from(Date(year, month, day): Date) -> EventTime {
        EventTime::from_date(year, month, day).expect("a date is checked when it is made")
    }
}

impl From<Date> for String {
    fn from(Date(year, month, day): Date) -> String {
        format!("{year:04}-{month:02}-{day:02}")
    }
}

impl TryFrom<String> for Date {
    type Error = String;

    fn try_from(text: String) -> Result<Date, String> {
        let wrong = || format!("`{text}` is not a day; write it as 1997-01-31");
        let mut numbers = text.splitn(3, '-').map(str::parse::<u32>);
        let mut next = || numbers.next()?.ok();
        let (year, month, day) = (|| Some((next()?, next()?, next()?)))().ok_or_else(wrong)?;
        let year = i32::try_from(year).map_err(|_| wrong())?;
        EventTime::from_date(year, month, day).ok_or_else(wrong)?;
        Ok(Date(year, month, day))
    }
}
