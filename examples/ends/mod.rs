//! Where an example reads and writes, as its flags say: a path, or a topic `kafka://host:port/topic`.

use std::io::IsTerminal;
use std::path::{PathBuf, absolute};
use std::str::FromStr;

use isochrone::prelude::*;

#[cfg(feature = "kafka")]
use isochrone::connectors::kafka::{Admin, Kafka, KafkaOutput, Secret};

/// Warnings of the library go to standard error, in colour where somebody looks at them.
pub(crate) fn log() {
    let is_seen = std::io::stderr().is_terminal();
    let log = tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(is_seen);
    log.with_max_level(tracing_subscriber::filter::LevelFilter::WARN).init();
}

/// One end of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "not every example has two ends")]
pub(crate) enum End {
    /// A file, a directory or a glob.
    Path(PathBuf),
    /// A URL of a topic.
    Topic(String),
}

impl FromStr for End {
    type Err = String;

    fn from_str(text: &str) -> Result<End, String> {
        if text.starts_with("kafka://") {
            topic(text).map(End::Topic)
        } else if is_nearly_a_topic(text) {
            Err(format!(
                "`{text}` is neither a path nor kafka://host:port/topic; if it is a path, write \
                 ./{text}"
            ))
        } else {
            Ok(End::Path(PathBuf::from(text)))
        }
    }
}

/// A slip of the pen must not become a folder of that name.
fn is_nearly_a_topic(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let has_port = |part: &str| {
        let port = part.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
        matches!(port, Some(Ok(_)))
    };
    let mut parts = lower.split('/').filter(|part| !part.is_empty());
    let begins_with_an_address = match parts.next() {
        Some("kafka") => parts.next().is_some_and(has_port),
        first => !lower.starts_with('/') && first.is_some_and(has_port),
    };
    begins_with_an_address
        || lower.contains("://")
        || ["kafka:", "kafka//"].iter().any(|slip| lower.starts_with(slip))
}

/// The URL of a topic, checked as far as that goes without a broker.
pub(crate) fn topic(url: &str) -> Result<String, String> {
    #[cfg(feature = "kafka")]
    Kafka::parse_url(url).map_err(|error| error.to_string())?;
    Ok(url.to_owned())
}

/// What the library says of its own, and the flags that do that here.
pub(crate) struct Hint {
    /// All of it is in the message.
    pub(crate) says: &'static [&'static str],
    pub(crate) flags: &'static str,
}

const HINTS: [Hint; 5] = [
    Hint {
        says: &["`Kafka::secret`"],
        flags: "`--kafka-secret KEY=env:NAME` or `--kafka-secret KEY=file:PATH`",
    },
    Hint { says: &["name another", "progress topic"], flags: "`--progress-topic NAME`" },
    Hint {
        says: &["another progress topic", "all of its output again"],
        flags: "`--progress-topic NAME`",
    },
    Hint { says: &["`accept_duplicates`"], flags: "`--accept-duplicates`" },
    Hint {
        says: &["cannot write to topic", "there is no such topic"],
        flags: "`--create-topic PARTITIONS` makes the topic of `--output`, and no other",
    },
];

/// The library knows no flags of its programs: an error with those that help.
pub(crate) fn in_flags(error: Error, more: &[Hint]) -> Error {
    let text = error.report();
    let helps = |hint: &&Hint| hint.says.iter().all(|part| text.contains(part));
    match HINTS.iter().chain(more).find(helps) {
        Some(Hint { flags, .. }) => Error::new(error.kind(), format!("{text} (by flags: {flags})")),
        None => error,
    }
}

impl End {
    /// Whether both are one place, as far as names tell.
    fn is_same_as(&self, other: &End) -> bool {
        match (self, other) {
            (End::Path(one), End::Path(other)) => match (absolute(one), absolute(other)) {
                (Ok(one), Ok(other)) => one.components().eq(other.components()),
                _ => false,
            },
            (End::Topic(one), End::Topic(other)) => {
                let ((one, topic), (other, other_topic)) =
                    (address_and_topic(one), address_and_topic(other));
                topic == other_topic && one.split(',').any(|at| other.split(',').any(|it| it == at))
            }
            _ => false,
        }
    }
}

fn address_and_topic(url: &str) -> (&str, &str) {
    let rest = url.strip_prefix("kafka://").unwrap_or(url);
    rest.split_once('/').unwrap_or((rest, ""))
}

/// How to talk to Kafka.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct KafkaFlags {
    /// A setting of the Kafka client, such as security.protocol=SASL_SSL; may be given again
    #[arg(long, value_name = "KEY=VALUE")]
    kafka_set: Vec<String>,
    /// A secret setting, from a variable or a file: sasl.password=env:NAME or =file:PATH
    #[arg(long, value_name = "KEY=FROM")]
    kafka_secret: Vec<String>,
    /// Make the topic that is written, with so many partitions, if there is none
    #[arg(long, value_name = "PARTITIONS")]
    create_topic: Option<i32>,
    /// The topic that says how far output has been published; without this, JOB.progress
    #[arg(long, value_name = "TOPIC")]
    progress_topic: Option<String>,
    /// Go on though output may be there twice then: for one start, when the job says that it is needed
    #[arg(long)]
    accept_duplicates: bool,
    /// Read a topic up to the end that it has now, and be done
    #[arg(long)]
    pub(crate) until_end: bool,
}

impl KafkaFlags {
    /// Refuses flags that would change nothing, since who gives them means something else, and ends
    /// that would be mixed up.
    pub(crate) fn check(
        &self,
        input: &End,
        output: &End,
        dead_letters: Option<&End>,
        follow: bool,
    ) -> Result<()> {
        let is_topic = |end: &End| matches!(end, End::Topic(_));
        let is_output = |end: &End| end.is_same_as(output);
        let is_read = |end: &End| is_topic(end) && end.is_same_as(input);
        let is_progress = |end: &End| match (end, &self.progress_topic) {
            (End::Topic(url), Some(progress)) => address_and_topic(url).1 == progress,
            _ => false,
        };
        let useless = [
            (
                self.until_end && !is_topic(input),
                "`--until-end` is for topics: files are read to their end without it, unless \
                 `--follow` is given; leave it out",
            ),
            (
                follow && is_topic(input),
                "`--follow` is for files: a topic is read on and on without it, unless \
                 `--until-end` is given; leave it out",
            ),
            (
                self.accept_duplicates
                    && ![Some(output), dead_letters].into_iter().flatten().any(is_topic),
                "`--accept-duplicates` is for topics that are written; leave it out",
            ),
            (
                self.create_topic.is_some() && !is_topic(output),
                "`--create-topic` is for topics, and the output is a directory; leave it out",
            ),
            (
                dead_letters.is_some_and(is_output),
                "`--output` and `--on-malformed dead-letters=` name the same place, where nobody could \
                 tell output from dead letters; give the dead letters a place of their own",
            ),
            (
                is_read(output) || dead_letters.is_some_and(is_read),
                "the job reads what it writes: `--input` names the same topic as `--output` or \
                 `--on-malformed dead-letters=`; name another one",
            ),
            (
                [Some(input), Some(output), dead_letters].into_iter().flatten().any(is_progress),
                "`--progress-topic` names a topic that the job reads or writes; it needs one of its \
                 own: name another one, or leave it out",
            ),
        ];
        match useless.iter().find(|(is_useless, _)| *is_useless) {
            Some((_, why)) => Err(Error::invalid(*why)),
            None => Ok(()),
        }
    }
}

#[cfg(feature = "kafka")]
impl KafkaFlags {
    /// The cluster and the topic of a URL.
    pub(crate) fn open(&self, url: &str) -> Result<(Kafka, String)> {
        let (mut kafka, topic) = Kafka::parse_url(url)?;
        let pair = |flag: &str, text: &str| {
            let pair = text.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
            // What stands there may be a password in the wrong place.
            pair.ok_or_else(|| Error::invalid(format!("{flag} takes KEY=VALUE")))
        };
        for text in &self.kafka_set {
            let (key, value) = pair("--kafka-set", text)?;
            kafka = kafka.set(key, value);
        }
        for text in &self.kafka_secret {
            let (key, from) = pair("--kafka-secret", text)?;
            let secret = match from.split_once(':') {
                Some(("env", name)) => Secret::env(name),
                Some(("file", path)) => Secret::file(path),
                _ => {
                    return Err(Error::invalid(format!(
                        "--kafka-secret {key} takes env:NAME or file:PATH, never the secret itself"
                    )));
                }
            };
            kafka = kafka.secret(key, secret);
        }
        Ok((kafka, topic))
    }

    /// The topic of a URL as a place to write to.
    pub(crate) fn output(&self, url: &str) -> Result<KafkaOutput> {
        let (kafka, topic) = self.open(url)?;
        let output = kafka.sink(&topic);
        let output = if self.accept_duplicates { output.accept_duplicates() } else { output };
        Ok(match &self.progress_topic {
            Some(progress) => output.progress_topic(progress),
            None => output,
        })
    }

    /// Makes the topic of a URL, if that is asked for.
    pub(crate) fn create(&self, url: &str) -> Result<()> {
        let Some(partitions) = self.create_topic else { return Ok(()) };
        let (kafka, topic) = self.open(url)?;
        Admin::connect(&kafka)?.create_if_missing(&topic, partitions, &[]).map(drop)
    }
}

/// The refusal of a URL by a program that was built without Kafka.
#[cfg(not(feature = "kafka"))]
pub(crate) fn without_kafka<T>(url: &str) -> Result<T> {
    Err(Error::invalid(format!(
        "this program was built without Kafka, and cannot use `{url}`: build it with \
         `--features kafka`"
    )))
}
