//! The account-risk job from CSV to JSON lines, beside a hand-written loop on one thread.
//!
//! ```sh
//! cargo bench --bench account_risk
//! RECORDS=300000 ROUNDS=1 cargo bench --bench account_risk
//! ONLY=2 cargo bench --bench account_risk  # the engine on so many workers, 0 the loop: for a profile
//! ```
//!
//! Both read the same generated file, drop events seen in the last 30 days of event time, keep
//! count and total per account and write the same lines. The loop neither syncs its output nor
//! survives a crash. Afterwards both outputs are read back and compared by account.

mod support;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::File;
use std::hash::{BuildHasherDefault, Hasher};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use isochrone::connectors::generator::mix;
use isochrone::prelude::*;
use support::{Cost, from_env, measure, median, print_table};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const REMEMBER: Duration = Duration::from_secs(30 * 24 * 60 * 60);
const WATCH: i64 = 10_000;
const HIGH: i64 = 50_000;

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

#[derive(Default, PartialEq, Serialize, Deserialize)]
struct Spent {
    events: u64,
    cents: i64,
}

impl State for Spent {
    const VERSION: u16 = 1;
}

fn level(cents: i64) -> Level {
    match cents {
        cents if cents >= HIGH => Level::High,
        cents if cents >= WATCH => Level::Watch,
        _ => Level::Normal,
    }
}

fn parse_date(text: &str) -> Option<EventTime> {
    let mut numbers = text.splitn(3, '-').map(str::parse::<u32>);
    let mut next = || numbers.next()?.ok();
    let (year, month, day) = (next()?, next()?, next()?);
    EventTime::from_date(i32::try_from(year).ok()?, month, day)
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

/// The job of `examples/account_risk.rs`.
fn engine(input: &Path, folder: &Path, workers: u32) -> Summary {
    let args = RunArgs { workers, ..RunArgs::default() };
    let checkpoint = Checkpoint::dir(folder.join("state"));
    let (input, output) = (input.to_owned(), folder.join("out"));
    let job = Job::new("account-risk").checkpoint(checkpoint);
    let summary = job.run(args, move |flow| {
        let purchases = Files::at(&input).csv::<Purchase>();
        flow.source("purchases", purchases.event_time(|p| p.at.into(), DAY))
            .key_by(|p| p.event_id.clone())
            .dedup("seen", REMEMBER)
            .key_by(|p| p.account.clone())
            .state::<Spent>("spent")
            .map(move |spent, p| {
                spent.events += 1;
                spent.cents += p.cents;
                let Spent { events, cents } = *spent;
                let level = level(cents);
                Assessment { event_id: p.event_id, account: p.account, events, cents, level }
            })
            .sink("assessments", PartFiles::at(&output).json());
        Ok(())
    });
    summary.expect("the job runs")
}

/// A line as the loop writes it, without copies.
#[derive(Serialize)]
struct Line<'a> {
    event_id: &'a str,
    account: &'a str,
    events: u64,
    cents: i64,
    level: Level,
}

/// Eight bytes at a time, one multiplication each.
#[derive(Default)]
struct Fold(u64);

impl Hasher for Fold {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            let product = u128::from(self.0 ^ u64::from_le_bytes(word) ^ 0x9e37_79b9_7f4a_7c15)
                * 0xa076_1d64_78bd_642f;
            self.0 = product as u64 ^ (product >> 64) as u64;
        }
    }
}

type Table<V> = HashMap<String, V, BuildHasherDefault<Fold>>;

/// What one would write who needs no checkpoints.
fn by_hand(input: &Path, output: &Path) -> std::io::Result<()> {
    let mut input = BufReader::with_capacity(512 * 1024, File::open(input)?);
    let mut output = BufWriter::with_capacity(256 * 1024, File::create(output)?);
    let (mut seen, mut spent) = (Table::<()>::default(), Table::<Spent>::default());
    let mut to_forget = VecDeque::<(EventTime, String)>::new();
    let mut watermark = EventTime::MIN;
    let mut line = String::new();
    input.read_line(&mut line)?;
    assert_eq!(line, "event_id,account,at,units,cents\n");
    loop {
        line.clear();
        if input.read_line(&mut line)? == 0 {
            return output.flush();
        }
        let mut fields = line.trim_end().split(',');
        let mut field = || fields.next().expect("five fields");
        let (event_id, account, at) = (field(), field(), field());
        let _units: u32 = field().parse().expect("units");
        let cents: i64 = field().parse().expect("cents");
        let at = parse_date(at).expect("a day");
        if at.minus(DAY) > watermark {
            watermark = at.minus(DAY);
            while to_forget.front().is_some_and(|(end, _)| *end <= watermark) {
                let (_, event_id) = to_forget.pop_front().expect("there is a front");
                seen.remove(&event_id);
            }
        }
        if seen.contains_key(event_id) {
            continue;
        }
        seen.insert(event_id.to_owned(), ());
        to_forget.push_back((at.plus(REMEMBER), event_id.to_owned()));
        let total = match spent.get_mut(account) {
            Some(total) => total,
            None => spent.entry(account.to_owned()).or_default(),
        };
        total.events += 1;
        total.cents += cents;
        let (events, cents) = (total.events, total.cents);
        let line = Line { event_id, account, events, cents, level: level(cents) };
        serde_json::to_writer(&mut output, &line)?;
        output.write_all(b"\n")?;
    }
}

/// Purchases over 18 months in the order of their days; one in fifty comes twice.
fn write_input(path: &Path, records: u64) -> std::io::Result<()> {
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    file.write_all(b"event_id,account,at,units,cents\n")?;
    for number in 0..records {
        let event = if number % 50 == 49 { number - mix(number) % 40 } else { number };
        let random = mix(event);
        let account = random % (records / 3 + 1);
        let day = event * 540 / records;
        let (year, month, day) = (1997 + day / 360, day / 30 % 12 + 1, (day % 30).min(27) + 1);
        let (units, cents) = (random >> 32 & 7, (random >> 40) % 9_000 + 99);
        writeln!(file, "p{event:08},{account:07},{year}-{month:02}-{day:02},{units},{cents}")?;
    }
    file.flush()
}

/// Accepted purchases, and the last count and total of each account.
fn totals_of(files: Vec<PathBuf>) -> (u64, BTreeMap<String, (u64, i64)>) {
    let (mut lines, mut totals) = (0, BTreeMap::<String, (u64, i64)>::new());
    for file in files {
        for line in BufReader::new(File::open(file).expect("output")).lines() {
            let line: Assessment = serde_json::from_str(&line.expect("text")).expect("json");
            let total = totals.entry(line.account).or_default();
            *total = (*total).max((line.events, line.cents));
            lines += 1;
        }
    }
    (lines, totals)
}

fn parts_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("an output folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "jsonl")).collect()
}

/// Workers of each case; none is the loop.
fn cases() -> Vec<u32> {
    match from_env("ONLY", u64::MAX) {
        only @ 0..=64 => vec![only as u32],
        _ => vec![0, 1, 2],
    }
}

fn main() -> std::io::Result<()> {
    let (records, rounds) = (from_env("RECORDS", 3_000_000), from_env("ROUNDS", 3));
    let folder = tempfile::tempdir()?;
    let input = folder.path().join("purchases.csv");
    write_input(&input, records)?;
    let by_hand_output = folder.path().join("by-hand.jsonl");
    let cases = cases();
    let mut results: Vec<Vec<(Cost, Option<Summary>)>> = cases.iter().map(|_| vec![]).collect();
    let mut expected = None;
    for _ in 0..rounds {
        for (workers, results) in cases.iter().zip(&mut results) {
            if *workers == 0 {
                let (cost, done) = measure(|| by_hand(&input, &by_hand_output));
                done?;
                results.push((cost, None));
                continue;
            }
            let run = tempfile::tempdir_in(folder.path())?;
            let (cost, summary) = measure(|| engine(&input, run.path(), *workers));
            results.push((cost, Some(summary)));
            if cases.len() > 1 {
                let by_hand = || totals_of(vec![by_hand_output.clone()]);
                let output = totals_of(parts_in(&run.path().join("out")));
                assert!(*expected.get_or_insert_with(by_hand) == output, "equal output");
            }
        }
    }
    let head = [
        "",
        "M/s",
        "us CPU",
        "of the loop",
        "(per core)",
        "checkpoints",
        "longest ms",
        "alignment us",
        "pause us",
        "MB",
    ];
    let rows = cases.iter().zip(&results).map(|(workers, own)| {
        let of = |what: fn(&Cost) -> f64| median(own.iter().map(|(cost, _)| what(cost)));
        let ratio = |what: fn(&Cost) -> f64| {
            let pairs = results[0].iter().zip(own);
            median(pairs.map(|((first, _), (own, _))| what(first) / what(own)))
        };
        let cell = |what: fn(&isochrone::CheckpointStats) -> u64| {
            let summary = own.last().and_then(|(_, summary)| summary.as_ref());
            summary.map_or(String::new(), |summary| what(&summary.checkpoints).to_string())
        };
        let name = match workers {
            0 => "loop by hand".to_owned(),
            workers => format!("engine, {workers} worker(s)"),
        };
        vec![
            name,
            format!("{:.2}", records as f64 / of(|cost| cost.wall_s) / 1e6),
            format!("{:.3}", of(|cost| cost.cpu_s) * 1e6 / records as f64),
            format!("{:.2}", ratio(|cost| cost.wall_s)),
            format!("{:.2}", ratio(|cost| cost.cpu_s)),
            cell(|stats| stats.published),
            cell(|stats| stats.duration_ms_max),
            cell(|stats| stats.alignment_us_max),
            cell(|stats| stats.pause_us_max),
            cell(|stats| stats.bytes_total / 1_000_000),
        ]
    });
    let title = format!("{} M purchases, median of {rounds}", records as f64 / 1e6);
    print_table(&title, &head, &rows.collect::<Vec<_>>());
    Ok(())
}
