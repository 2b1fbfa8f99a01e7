//! Watches what accounts spend: drops events already seen, keeps count and total per account, and
//! writes one line for every accepted purchase with the account's level of risk.
//!
//! ```sh
//! cargo run --release --example account_risk -- --input examples/data/purchases.csv --output out --store state
//! ```

mod ends;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use clap::builder::ValueParser;
use ends::{End, Hint, KafkaFlags};
use isochrone::connector::{Malformed, OnMalformed, Source};
use isochrone::prelude::*;

#[derive(Clone, Serialize, Deserialize)]
struct Purchase {
    event_id: String,
    account: String,
    at: Day,
    units: u32,
    cents: i64,
}

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

fn main() -> ExitCode {
    ends::log();
    isochrone::main(|| run(std::env::args_os()))
}

pub(crate) fn run(args: impl IntoIterator<Item = OsString>) -> Result<Summary> {
    let args = Args::parse_from(args);
    assess(args).map_err(|error| ends::in_flags(error, &[MALFORMED]))
}

const MALFORMED: Hint = Hint {
    says: &["`OnMalformed::Skip`"],
    flags: "`--on-malformed skip` or `--on-malformed dead-letters=DIR|URL`",
};

fn assess(args: Args) -> Result<Summary> {
    let letters = match &args.on_malformed {
        NotAPurchase::DeadLetters(end) => Some(end),
        NotAPurchase::Fail | NotAPurchase::Skip => None,
    };
    args.kafka.check(&args.input, &args.output, letters, args.follow)?;
    for written in [Some(&args.output), letters].into_iter().flatten() {
        if let (End::Path(input), End::Path(written)) = (&args.input, written) {
            Files::at(input).check_apart_from(written)?;
        }
    }
    match &args.output {
        #[cfg(feature = "kafka")]
        End::Topic(url) => args.kafka.create(url)?,
        #[cfg(not(feature = "kafka"))]
        End::Topic(url) => return ends::without_kafka(url),
        End::Path(_) => {}
    }
    let job = Job::new("account-risk").checkpoint(Checkpoint::dir("state"));
    job.run(args.run.clone(), move |flow| account_risk(flow, &args))
}

/// The job.
fn account_risk(flow: &Flow<'_>, args: &Args) -> Result<()> {
    let levels = args.levels;
    let purchases = args.purchases(flow)?;

    let assessments = purchases
        .key_by(|purchase| purchase.event_id.clone())
        .dedup("seen", DAY * args.remember_days)
        .key_by(|purchase| purchase.account.clone())
        .state::<Spent>("spent")
        .map(move |spent, purchase| {
            let Purchase { event_id, account, cents, .. } = purchase;
            spent.events += 1;
            spent.cents += cents;
            let Spent { events, cents } = *spent;
            Assessment { event_id, account, events, cents, level: levels.of(cents) }
        });
    args.write(&assessments)
}

/// Watches what accounts spend.
#[derive(Parser)]
struct Args {
    /// Purchases to read: a file, a directory or a glob, of .csv with a header or .jsonl, or a topic
    /// of JSON, kafka://host:port/topic
    #[arg(long, value_name = "PATH|URL")]
    input: End,
    /// Directory for the assessments, as part-*.jsonl, or a topic, kafka://host:port/topic
    #[arg(long, value_name = "DIR|URL")]
    output: End,
    /// Go on reading when input files grow; a topic is read on and on unless `--until-end` is given
    #[arg(long)]
    follow: bool,
    /// What is not a purchase: fail, skip it, or write it to a directory or topic of dead letters
    #[arg(long, value_name = "fail|skip|dead-letters=DIR|URL", default_value = "fail",
          value_parser = ValueParser::new(NotAPurchase::parse))]
    on_malformed: NotAPurchase,
    /// Days for which an event id is remembered
    #[arg(long, value_name = "DAYS", default_value = "30", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=36_500))]
    remember_days: u32,
    #[command(flatten)]
    kafka: KafkaFlags,
    #[command(flatten)]
    levels: Levels,
    #[command(flatten)]
    run: RunArgs,
}

/// What to do with input that is not a purchase.
#[derive(Clone)]
enum NotAPurchase {
    Fail,
    Skip,
    DeadLetters(End),
}

impl NotAPurchase {
    /// An end is named as one, so that a slip of the pen does not become one.
    fn parse(text: &str) -> Result<NotAPurchase, String> {
        match (text, text.split_once('=')) {
            ("fail", _) => Ok(NotAPurchase::Fail),
            ("skip", _) => Ok(NotAPurchase::Skip),
            (_, Some(("dead-letters", folder))) if !folder.is_empty() => {
                folder.parse().map(NotAPurchase::DeadLetters)
            }
            _ => Err("give fail, skip or dead-letters=DIR|URL".to_owned()),
        }
    }
}

#[derive(Clone, Copy, clap::Args)]
struct Levels {
    /// Total from which an account is watched, in cents
    #[arg(long, value_name = "CENTS", default_value = "10000")]
    watch: i64,
    /// Total from which an account is a high risk, in cents
    #[arg(long, value_name = "CENTS", default_value = "50000")]
    high: i64,
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

impl Args {
    fn purchases<'s>(&self, flow: &Flow<'s>) -> Result<Stream<'s, Purchase>> {
        match &self.input {
            End::Path(path) => {
                self.read(flow, Files::at(path).follow(self.follow).by_extension::<Purchase>())
            }
            #[cfg(feature = "kafka")]
            End::Topic(url) => {
                let (kafka, topic) = self.kafka.open(url)?;
                self.read(flow, kafka.source(topic).until_end(self.kafka.until_end).json())
            }
            #[cfg(not(feature = "kafka"))]
            End::Topic(url) => ends::without_kafka(url),
        }
    }

    /// The purchases, each at its day. Within a file or a partition they may be a day out of order.
    fn read<'s>(
        &self,
        flow: &Flow<'s>,
        source: impl Source<Item = Purchase>,
    ) -> Result<Stream<'s, Purchase>> {
        let purchases = source.event_time(|purchase| purchase.at.into(), DAY);
        let dead_letters = match &self.on_malformed {
            NotAPurchase::Fail => return Ok(flow.source("purchases", purchases)),
            NotAPurchase::Skip => {
                return Ok(flow.source("purchases", purchases.on_malformed(OnMalformed::Skip)));
            }
            NotAPurchase::DeadLetters(end) => end,
        };
        let (good, bad) = flow.source_with_dead_letters("purchases", purchases);
        match dead_letters {
            End::Path(folder) => {
                bad.map(DeadLetter::from).sink("dead-letters", PartFiles::at(folder).json());
            }
            #[cfg(feature = "kafka")]
            End::Topic(url) => {
                bad.sink("dead-letters", self.kafka.output(url)?.dead_letters());
            }
            #[cfg(not(feature = "kafka"))]
            End::Topic(url) => return ends::without_kafka(url),
        }
        Ok(good)
    }

    fn write(&self, assessments: &Stream<'_, Assessment>) -> Result<()> {
        match &self.output {
            End::Path(folder) => assessments.sink("assessments", PartFiles::at(folder).json()),
            #[cfg(feature = "kafka")]
            End::Topic(url) => {
                let sink = self.kafka.output(url)?.json().key(|a: &Assessment| &a.account);
                assessments.sink("assessments", sink);
            }
            #[cfg(not(feature = "kafka"))]
            End::Topic(url) => return ends::without_kafka(url),
        }
        Ok(())
    }
}

impl Levels {
    fn of(self, cents: i64) -> Level {
        match cents {
            cents if cents >= self.high => Level::High,
            cents if cents >= self.watch => Level::Watch,
            _ => Level::Normal,
        }
    }
}

/// A piece of input that is no purchase, as people want to see it.
#[derive(Clone, Serialize, Deserialize)]
struct DeadLetter {
    place: String,
    reason: String,
    text: String,
}

impl From<Malformed> for DeadLetter {
    fn from(malformed: Malformed) -> DeadLetter {
        let Malformed { place, reason, raw, .. } = malformed;
        DeadLetter { place, reason, text: String::from_utf8_lossy(&raw).into_owned() }
    }
}

/// A day, written `1997-01-31`.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
struct Day(i32, u32, u32);

impl From<Day> for EventTime {
    fn from(Day(year, month, day): Day) -> EventTime {
        EventTime::from_date(year, month, day).expect("a day is checked when it is made")
    }
}

impl From<Day> for String {
    fn from(Day(year, month, day): Day) -> String {
        format!("{year:04}-{month:02}-{day:02}")
    }
}

impl TryFrom<String> for Day {
    type Error = String;

    fn try_from(text: String) -> Result<Day, String> {
        let wrong = || format!("`{text}` is not a day; write it as 1997-01-31");
        let mut numbers = text.splitn(3, '-').map(str::parse::<u32>);
        let mut next = || numbers.next()?.ok();
        let (year, month, day) = (|| Some((next()?, next()?, next()?)))().ok_or_else(wrong)?;
        let year = i32::try_from(year).map_err(|_| wrong())?;
        EventTime::from_date(year, month, day).ok_or_else(wrong)?;
        Ok(Day(year, month, day))
    }
}
