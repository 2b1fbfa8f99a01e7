//! Where a story happens: two topics, a store, and the knowledge of what has to come out.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::time::Duration;

use isochrone::PendingOutput;
use tempfile::TempDir;

use crate::job::{Assessment, CHILD, Purchase, Settle, settle};
use crate::support::child::{Job, assert_ends_well, crashes};
use crate::support::kafka::{Broker, Content, Found, Row, Topic, Verdict, judge, row};
use crate::support::{stored, wait};

const ACCOUNTS: u64 = 40;
const PARTITIONS_IN: u32 = 6;
pub(crate) const PARTITIONS_OUT: u32 = 4;
const CHECKPOINT_EVERY: &str = "50ms";
/// What goes wrong is told within so long, the start of the process included.
pub(crate) const TOLD_WITHIN: Duration = Duration::from_secs(30);

/// What an account's n-th purchase was.
pub(crate) type Counted = (u64, String);

pub(crate) struct Place {
    /// Of the job, and in the names of its topics.
    pub(crate) name: String,
    pub(crate) folder: TempDir,
    pub(crate) address: String,
    pub(crate) input: Topic,
    pub(crate) output: Topic,
    pub(crate) expected: Vec<(String, Counted)>,
    counts: BTreeMap<String, u64>,
    starts: Cell<u32>,
}

impl Place {
    /// On the broker that all share.
    pub(crate) fn new(name: &str) -> Place {
        Place::on(Broker::shared(), name)
    }

    pub(crate) fn on(broker: &Broker, name: &str) -> Place {
        let input = Topic::create(broker, &format!("{name}-in"), PARTITIONS_IN);
        let output = Topic::create(broker, &format!("{name}-out"), PARTITIONS_OUT);
        Place {
            name: name.to_owned(),
            folder: TempDir::new().unwrap(),
            address: broker.address().to_owned(),
            input,
            output,
            expected: Vec::new(),
            counts: BTreeMap::new(),
            starts: Cell::new(0),
        }
    }

    /// The next purchases, of all accounts in turn; they are expected from now on.
    pub(crate) fn rows(&mut self, count: u64, note: usize) -> Vec<Row> {
        let next = |_| {
            let number = self.expected.len() as u64;
            let (event_id, account) = (format!("e{number}"), format!("a{}", number * 7 % ACCOUNTS));
            let events = self.counts.entry(account.clone()).or_default();
            *events += 1;
            self.expected.push((account.clone(), (*events, event_id.clone())));
            let purchase = Purchase { event_id, account, note: "n".repeat(note) };
            row(&purchase.account, serde_json::to_vec(&purchase).unwrap())
        };
        (0..count).map(next).collect()
    }

    /// More purchases in the input.
    pub(crate) fn feed(&mut self, count: u64) {
        let rows = self.rows(count, 0);
        self.input.write(rows);
    }

    /// Feeds as long as the job runs, and answers how it ended.
    pub(crate) fn feed_until_it_ends(&mut self, job: &mut Job) -> std::process::ExitStatus {
        let end = wait::until(wait::SOON, || {
            self.feed(60);
            wait::pause(Duration::from_millis(40));
            job.ended()
        });
        end.unwrap_or_else(|| panic!("the job does not end; it says: {}", job.errors()))
    }

    /// A run that is still to be started.
    pub(crate) fn job(&self) -> Run<'_> {
        let url = |topic: &Topic| format!("kafka://{}/{}", self.address, topic.name);
        let run = Run { place: self, flags: vec!["--quiet".to_owned()], before: Vec::new() };
        run.flag("--name", &self.name)
            .flag("--input", url(&self.input))
            .flag("--output", url(&self.output))
            .flag("--store", self.store().to_str().unwrap())
            .flag("--checkpoint-every", CHECKPOINT_EVERY)
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    /// A topic of its own for a second sink, with what a run needs to write to it.
    pub(crate) fn copies(&self, broker: &Broker) -> (Topic, String) {
        let copies = Topic::create(broker, &format!("{}-copies", self.name), PARTITIONS_OUT);
        let url = format!("kafka://{}/{}", self.address, copies.name);
        (copies, url)
    }

    /// Where the sink says how far it has published.
    pub(crate) fn progress(&self) -> Topic {
        Topic { name: format!("{}.progress", self.name), client: self.output.client.clone() }
    }

    pub(crate) fn manifests(&self) -> Vec<String> {
        stored::manifests(&self.store(), &self.name)
    }

    /// Waits until a committed record is there for each purchase so far.
    pub(crate) fn await_all(&self, job: &Job) {
        let all = self.expected.len() as u64;
        let (mut seen, mut since) = (0, wait::Since::now());
        while seen < all {
            wait::pause(Duration::from_millis(200));
            let now = verdict(&self.expected, &self.output.glance()).records;
            if now > seen {
                (seen, since) = (now, wait::Since::now());
            }
            let goes_on = since.passed() < wait::SOON;
            assert!(goes_on, "{seen} of {all} records came out; the job says: {}", job.errors());
        }
    }

    /// Everything has come out once and in order, and nothing hangs behind.
    pub(crate) fn check(&self) {
        self.progress().read();
        verdict(&self.expected, &self.output.read()).assert_exact();
    }

    /// Nothing has come out that should not have; more may be still to come. Answers how much has.
    pub(crate) fn check_so_far(&self, when: &str) -> u64 {
        let found = verdict(&self.expected, &self.output.glance());
        let so_far = Verdict { lost: 0, examples: Vec::new(), ..found.clone() };
        assert!(so_far.is_exact(), "{when}: {found:#?}");
        found.records
    }
}

/// What is wrong with an output.
pub(crate) fn verdict(expected: &[(String, Counted)], content: &Content) -> Verdict {
    let found = content.records.iter().map(|record| {
        let Assessment { event_id, account, events, .. } =
            serde_json::from_str(&record.text()).unwrap();
        assert_eq!(record.key_text(), account, "the key is the account");
        Found { partition: record.partition, key: account, value: (events, event_id) }
    });
    judge(expected.iter().cloned(), found)
}

/// A run of the place's job, as its flags say.
pub(crate) struct Run<'p> {
    place: &'p Place,
    pub(crate) flags: Vec<String>,
    before: Vec<String>,
}

impl Run<'_> {
    /// Sets a flag, or sets it anew.
    pub(crate) fn flag(mut self, flag: &str, value: impl AsRef<str>) -> Self {
        if let Some(at) = self.flags.iter().position(|known| known == flag) {
            self.flags.drain(at..at + 2);
        }
        self.flags.extend([flag.to_owned(), value.as_ref().to_owned()]);
        self
    }

    pub(crate) fn with(mut self, flag: &str) -> Self {
        self.flags.push(flag.to_owned());
        self
    }

    pub(crate) fn until_end(self) -> Self {
        self.with("--until-end")
    }

    /// Says what becomes of its processes.
    pub(crate) fn told(mut self) -> Self {
        self.flags.retain(|flag| flag != "--quiet");
        self
    }

    pub(crate) fn workers(self, workers: u32) -> Self {
        self.flag("--workers", workers.to_string())
    }

    pub(crate) fn processes(self, processes: u32) -> Self {
        self.flag("--processes", processes.to_string())
    }

    /// Dies, or stops, at a crash point.
    pub(crate) fn crash(self, point: &str) -> Self {
        self.env(&format!("{}={point}", isochrone::testing::crash::VARIABLE))
    }

    /// The same in some processes only, and in some starts under their supervisor: see `child`.
    pub(crate) fn crashes(self, of: &[(u32, u32, &str)]) -> Self {
        self.env(&crashes(of))
    }

    /// With a variable of the environment, `NAME=value`.
    pub(crate) fn env(mut self, variable: &str) -> Self {
        if self.before.is_empty() {
            self.before.push("env".to_owned());
        }
        self.before.push(variable.to_owned());
        self
    }

    pub(crate) fn start(self) -> Job {
        let Run { place, flags, before } = self;
        let number = place.starts.replace(place.starts.get() + 1);
        let errors = place.folder.path().join(format!("errors-{number}"));
        Job::start_within(&before, CHILD, &flags, &errors)
    }

    /// Runs to the end of the input.
    pub(crate) fn ends_well(self) {
        assert_ends_well(&mut self.until_end().start());
    }

    /// Runs to the end of the input, which it does not reach; answers what it says of that, which
    /// has to come soon.
    pub(crate) fn fails_with(self, code: i32) -> String {
        let since = wait::Since::now();
        let mut job = self.until_end().start();
        let end = job.end();
        let (took, said) = (since.passed(), job.errors());
        assert_eq!(end.code(), Some(code), "{end}: {said}");
        assert!(took < TOLD_WITHIN, "it took {took:?} to say: {said}");
        said
    }

    pub(crate) fn settle(self, what: Settle) -> Vec<String> {
        let settled = self.try_settle(what).unwrap();
        settled.iter().map(ToString::to_string).collect()
    }

    pub(crate) fn try_settle(self, what: Settle) -> isochrone::Result<Vec<PendingOutput>> {
        settle(what, &self.until_end().flags)
    }
}

/// Whether SIGKILL ended it.
pub(crate) fn was_killed(end: std::process::ExitStatus) -> bool {
    end.signal() == Some(libc::SIGKILL)
}

/// In how many processes of a supervised job that was `told` SIGKILL came from a crash point.
pub(crate) fn killed_processes(said: &str) -> usize {
    let is_one = |line: &&str| line.starts_with("process ") && line.ends_with("ended by signal 9");
    said.lines().filter(is_one).count()
}
