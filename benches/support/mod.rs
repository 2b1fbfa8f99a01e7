//! What the benchmarks share: wall and CPU time of a piece of work, medians, and a table.
//!
//! Alternatives are measured in turns within one run, so that whatever else the machine does
//! disturbs all of them alike. Knows nothing of what is measured.

#![allow(dead_code, reason = "each benchmark uses some of it")]
#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

use isochrone::time::{Clock, SystemClock};

/// Kernel ticks per second of the times in `/proc`.
const TICKS_PER_S: f64 = 100.0;

/// What a piece of work cost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    /// From start to end, in seconds.
    pub(crate) wall_s: f64,
    /// Of all threads of the process, in seconds.
    pub(crate) cpu_s: f64,
}

/// Runs work and measures it.
pub(crate) fn measure<R>(work: impl FnOnce() -> R) -> (Cost, R) {
    let clock = SystemClock::default();
    let (cpu_s, start_us) = (process_cpu_s(), clock.monotonic_us());
    let result = work();
    let wall_s = (clock.monotonic_us() - start_us) as f64 / 1e6;
    (Cost { wall_s, cpu_s: process_cpu_s() - cpu_s }, result)
}

/// Of this process so far, in seconds.
fn process_cpu_s() -> f64 {
    cpu_s("self")
}

/// Fields 14 and 15 of `/proc/ID/stat`: user and system time, threads that have ended included.
pub(crate) fn cpu_s(process: &str) -> f64 {
    let path = format!("/proc/{process}/stat");
    let stat = std::fs::read_to_string(path).expect("Linux tells of a process that runs");
    let (_, fields) = stat.rsplit_once(") ").expect("the name of the program stands in brackets");
    let ticks =
        fields.split(' ').skip(11).take(2).map(|field| field.parse::<f64>().expect("ticks"));
    ticks.sum::<f64>() / TICKS_PER_S
}

/// Of all processes of the machine since it started, in seconds, and how many cores they have.
pub(crate) fn machine_cpu_s() -> (f64, f64) {
    let stat = std::fs::read_to_string("/proc/stat").expect("benchmarks run on Linux");
    let is_core = |line: &&str| line.starts_with("cpu") && !line.starts_with("cpu ");
    let cores = stat.lines().filter(is_core).count() as f64;
    let line = stat.lines().next().expect("the sum of all cores").split_whitespace().skip(1);
    let ticks: Vec<f64> = line.map(|field| field.parse().expect("ticks")).collect();
    // User, nice, system, idle, waiting, interrupts: those of guests are in user already.
    let busy = ticks.iter().take(7).sum::<f64>() - ticks[3] - ticks[4];
    (busy / TICKS_PER_S, cores)
}

/// The most memory that a process has had resident, in megabytes.
pub(crate) fn rss_peak_mb(process: &str) -> u64 {
    let path = format!("/proc/{process}/status");
    let status = std::fs::read_to_string(path).expect("Linux tells of a process that runs");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = peak.and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
    number.expect("a number of kB") / 1000
}

/// The middle of some numbers.
pub(crate) fn median(numbers: impl IntoIterator<Item = f64>) -> f64 {
    let mut numbers: Vec<f64> = numbers.into_iter().collect();
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A number from the environment, for quick runs.
pub(crate) fn from_env(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")),
        Err(_) => default,
    }
}

/// Prints rows under a head, the first column to the left, the others to the right.
pub(crate) fn print_table(title: &str, head: &[&str], rows: &[Vec<String>]) {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([head[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut line = String::new();
        for (column, (cell, &width)) in cells.zip(&widths).enumerate() {
            line += &match column {
                0 => format!("{cell:<width$}"),
                _ => format!("  {cell:>width$}"),
            };
        }
        line
    };
    println!("\n{title}");
    println!("{}", line(&mut head.iter().copied()));
    for row in rows {
        println!("{}", line(&mut row.iter().map(String::as_str)));
    }
}
