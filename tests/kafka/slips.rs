//! The example as somebody meets it who makes a mistake with its flags, or with what is in a topic:
//! which end is wrong, what is there, and which flag helps.

use tempfile::TempDir;

use crate::job::CHILD;
use crate::place::was_killed;
use crate::support::child::Job;
use crate::support::kafka::{Broker, Topic, row};

struct Bench {
    folder: TempDir,
    name: &'static str,
    input: Topic,
    output: Topic,
    letters: Topic,
}

const MALFORMED: &str =
    "{\"event_id\": 7,\u{7}\n \"and so on, so that nobody wants to read all of it here\"";

impl Bench {
    fn new(name: &'static str) -> Bench {
        let topic = |end: &str| Topic::create(Broker::shared(), &format!("{name}-{end}"), 1);
        let (input, output, letters) = (topic("in"), topic("out"), topic("letters"));
        let purchase = r#"{"event_id":"e1","account":"x","at":"1997-01-01","units":1,"cents":100}"#;
        input.write([row("x", purchase), row("x", MALFORMED)]);
        Bench { folder: TempDir::new().unwrap(), name, input, output, letters }
    }

    /// Runs to the end of the topic.
    fn run(&self, more: &[&str], crash: Option<&str>) -> Job {
        let progress = format!("{}-progress", self.name);
        let store = self.folder.path().join("store");
        let url = |topic: &Topic| format!("kafka://{}/{}", Broker::shared().address(), topic.name);
        let (input, output) = (url(&self.input), url(&self.output));
        let ends = ["--until-end", "--input", &input, "--output", &output];
        let kept = ["--progress-topic", &progress, "--store", store.to_str().unwrap()];
        let letters = format!("dead-letters={}", url(&self.letters));
        let more = more.iter().map(|flag| if *flag == "LETTERS" { &letters } else { *flag });
        let flags: Vec<String> =
            ends.into_iter().chain(kept).chain(more).map(str::to_owned).collect();
        let variable = isochrone::testing::crash::VARIABLE;
        let around = crash.map(|point| vec!["env".to_owned(), format!("{variable}={point}")]);
        let errors = self.folder.path().join("errors");
        Job::start_within(&around.unwrap_or_default(), CHILD, &flags, &errors)
    }

    fn fails_with(&self, code: i32, more: &[&str], says: &[&str]) {
        let mut job = self.run(more, None);
        let end = job.end();
        let said = job.errors();
        assert_eq!(end.code(), Some(code), "{said}");
        for words in says {
            assert!(said.contains(words), "`{words}` is missing in: {said}");
        }
    }

    fn ends_well(&self, more: &[&str]) -> String {
        let mut job = self.run(more, None);
        let end = job.end();
        assert_eq!(end.code(), Some(0), "{}", job.errors());
        job.errors()
    }
}

#[test]
fn a_topic_that_is_missing_is_told_with_who_reads_or_writes_it() {
    let bench = Bench::new("slips-missing");
    let dead_letters = ["--on-malformed", "LETTERS"];
    bench.letters.delete();
    let missing = "`slips-missing-letters` at Kafka";
    let says = ["sink `dead-letters`: cannot write to topic", missing, "there is no such topic"];
    bench.fails_with(2, &dead_letters, &says);
    bench.output.delete();
    let flag = "`--create-topic PARTITIONS` makes the topic of `--output`";
    let says = ["sink `assessments`: cannot write to topic `slips-missing-out`", flag];
    bench.fails_with(2, &["--on-malformed", "skip"], &says);
    bench.input.delete();
    let bench = Bench { folder: TempDir::new().unwrap(), ..bench };
    let says = ["source `purchases`: cannot read topic `slips-missing-in`", "create it"];
    bench.fails_with(2, &[], &says);
    let left = std::fs::read_dir(bench.folder.path().join("store")).unwrap();
    assert_eq!(left.count(), 0, "what fails for want of input leaves nothing behind");
}

#[test]
fn what_is_malformed_is_shown_by_its_beginning_and_the_flags_that_help_are_named() {
    let bench = Bench::new("slips-malformed");
    let shown =
        r#"it begins with `{"event_id": 7,\u{7}\n "and so on, so that nobody wants to read a`"#;
    let place = "source `purchases`: topic slips-malformed-in, partition 0, offset 1: ";
    bench.fails_with(2, &[], &[place, shown, "`--on-malformed skip`", "dead-letters=DIR|URL"]);
    bench.ends_well(&["--on-malformed", "LETTERS"]);
    let letters = bench.letters.read().records;
    assert_eq!((letters.len(), letters[0].text().as_str()), (1, MALFORMED));
}

/// A flag that was left out must not cost the dead letters that are still to be published.
#[test]
fn dead_letters_that_are_owed_are_not_forgotten_when_their_flag_is_left_out() {
    let bench = Bench::new("slips-owed");
    let dead_letters = ["--on-malformed", "LETTERS"];
    let mut job = bench.run(&dead_letters, Some("manifest-written"));
    let end = job.end();
    assert!(was_killed(end), "{end}: {}", job.errors());
    assert_eq!(bench.letters.read().records.len(), 0);
    let owes = "the checkpoint owes output of sink `dead-letters`";
    bench.fails_with(3, &["--on-malformed", "skip"], &[owes, "`--drop dead-letters`"]);
    let said = bench.ends_well(&dead_letters);
    // Once, with what became of it, and no warning beside it.
    let outcome = "pending output: `dead-letters`, epoch 1, worker 0: 1 records";
    let published = "for topic slips-owed-letters, lane 0: published now";
    assert!(said.contains(outcome) && said.contains(published), "{said}");
    assert_eq!(said.matches("slips-owed-letters").count(), 1, "{said}");
    assert!(!said.contains("WARN"), "{said}");
    assert!(said.contains("`purchases` slips-owed-in/0 at offset 2, up to 2"), "{said}");
    assert_eq!(bench.letters.read().records.len(), 1);
    assert_eq!(bench.output.read().records.len(), 1);
}
