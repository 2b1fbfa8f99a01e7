//! What a contender is: a process that does the job until it is killed.
//!
//! It is given, as arguments `name=value`: `broker`, `input` and `output` (topics that are there),
//! `store` (a folder of its own, empty at its first start and kept for the next), and `interval-ms`
//! (how often it makes its output visible). It starts at the beginning of the input, or, after it
//! was killed, wherever it has to; it gives nothing back but its output.
//!
//! One in Rust is a module beside this one with `run(&Place)`, played by this very program; `ours`
//! and `play` below name it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use super::super::support::{cpu_s, rss_peak_mb};
use super::{bare, isochrone};

/// In front of the arguments of this program: be a contender instead.
const BE: &str = "--contender";

/// What a contender is given.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) broker: String,
    pub(crate) input: String,
    pub(crate) output: String,
    pub(crate) store: PathBuf,
    pub(crate) interval: Duration,
}

impl Place {
    fn arguments(&self) -> [String; 5] {
        [
            format!("broker={}", self.broker),
            format!("input={}", self.input),
            format!("output={}", self.output),
            format!("store={}", self.store.display()),
            format!("interval-ms={}", self.interval.as_millis()),
        ]
    }

    fn of(arguments: &[String]) -> Place {
        let get = |name: &str| {
            let found = arguments.iter().find_map(|argument| {
                argument.strip_prefix(name)?.strip_prefix('=').map(str::to_owned)
            });
            found.unwrap_or_else(|| panic!("a contender is given `{name}=`"))
        };
        let interval_ms = get("interval-ms").parse().expect("a number of milliseconds");
        Place {
            broker: get("broker"),
            input: get("input"),
            output: get("output"),
            store: get("store").into(),
            interval: Duration::from_millis(interval_ms),
        }
    }
}

/// One who takes part.
pub(crate) struct Contender {
    pub(crate) name: &'static str,
    /// The program and what it is always given.
    command: Vec<String>,
    /// Whether it promises an exact output when it is killed.
    pub(crate) is_exactly_once: bool,
}

/// All who take part, by the names that `ONLY` lists; all of them without it.
pub(crate) fn contenders(folder: &Path) -> Vec<Contender> {
    let only = std::env::var("ONLY").ok();
    let wanted =
        |name: &str| only.as_ref().is_none_or(|only| only.split(',').any(|word| word == name));
    let mut contenders = Vec::new();
    if wanted("bare") {
        contenders.push(ours("bare", false));
    }
    if wanted("isochrone") {
        contenders.push(ours("isochrone", true));
    }
    if wanted("streams") {
        contenders.push(Contender {
            name: "streams",
            command: streams(folder),
            is_exactly_once: true,
        });
    }
    contenders
}

/// One that this program plays.
fn ours(name: &'static str, is_exactly_once: bool) -> Contender {
    let program = std::env::current_exe().expect("this program");
    let program = program.to_str().expect("a path in UTF-8").to_owned();
    Contender { name, command: vec![program, BE.to_owned(), name.to_owned()], is_exactly_once }
}

/// Plays a contender, if that is what this program was started for; then it does not return.
pub(crate) fn play() {
    let arguments: Vec<String> = std::env::args().collect();
    let Some(at) = arguments.iter().position(|argument| argument == BE) else { return };
    let place = Place::of(&arguments[at + 2..]);
    match arguments[at + 1].as_str() {
        "bare" => bare::run(&place),
        "isochrone" => isochrone::run(&place),
        name => panic!("there is no contender `{name}`"),
    }
}

/// Kafka Streams: fetches its jars, compiles the job, and says how to start it.
fn streams(folder: &Path) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let peer = root.join("benches/peers/streams");
    let mut fetch = Command::new("bash");
    fetch.arg(root.join("tests/services/jars.sh")).arg("kafka-streams-4.3.1");
    let fetched = fetch.arg(peer.join("pom.xml")).stderr(Stdio::inherit()).output();
    let fetched = fetched.expect("bash runs");
    assert!(fetched.status.success(), "the jars of Kafka Streams cannot be fetched");
    let jars = String::from_utf8(fetched.stdout).expect("a path in UTF-8");
    let jars = format!("{}/*", jars.trim_end());
    let classes = folder.join("classes");
    let mut compile = Command::new("javac");
    compile.args(["-nowarn", "-cp", &jars, "-d"]).arg(&classes).arg(peer.join("AccountRisk.java"));
    let compiled = compile.status().expect("javac is there: a JDK, not only a JRE");
    assert!(compiled.success(), "the job for Kafka Streams cannot be compiled");
    let path = format!("{}:{jars}", classes.display());
    let quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error";
    ["java", "-Xms1g", "-Xmx1g", "-XX:+UseParallelGC", quiet, "-cp", &path, "AccountRisk"]
        .map(str::to_owned)
        .to_vec()
}

/// A contender at work; killed when it is dropped.
pub(crate) struct AtWork {
    child: Child,
}

impl Contender {
    pub(crate) fn start(&self, place: &Place) -> AtWork {
        std::fs::create_dir_all(&place.store).expect("a folder for its store");
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]).args(place.arguments());
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        AtWork {
            child: child.unwrap_or_else(|error| panic!("{} does not start: {error}", self.name)),
        }
    }
}

impl AtWork {
    pub(crate) fn cpu_s(&self) -> f64 {
        cpu_s(&self.child.id().to_string())
    }

    pub(crate) fn rss_peak_mb(&self) -> u64 {
        rss_peak_mb(&self.child.id().to_string())
    }

    /// Fails if it has ended by itself: none does so when all is well.
    pub(crate) fn must_run(&mut self) {
        let ended: Option<ExitStatus> = self.child.try_wait().expect("it is our child");
        assert!(ended.is_none(), "the contender has ended by itself: {ended:?}");
    }

    pub(crate) fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let _may_have_ended = self.child.kill();
        let _may_have_been_waited_for = self.child.wait();
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        self.end();
    }
}
