//! Brokers of a test, run by `tests/services/kafka.sh`.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use rdkafka::ClientConfig;

/// The user whom a broker with [`Options::secure`] knows.
const USER: &str = "isochrone";

/// One broker, or three that stand in for each other.
///
/// Killed when it is dropped and when the process of the test ends, however that ends.
#[derive(Debug)]
pub struct Broker {
    folder: PathBuf,
    addresses: String,
    password: Option<String>,
    /// Ends the brokers when the pipe to it breaks.
    guard: Child,
}

/// What brokers are started with.
#[derive(Clone, Debug, Default)]
pub struct Options {
    three: bool,
    password: Option<String>,
    settings: Vec<String>,
    jvm: Option<String>,
}

impl Options {
    /// Three brokers; topics have three replicas, two of which must be in sync.
    pub fn three(mut self) -> Options {
        self.three = true;
        self
    }

    /// TLS, SASL/SCRAM and rights: the head of `kafka.sh` says which. Needs feature `kafka-ssl`.
    pub fn secure(mut self, password: &str) -> Options {
        self.password = Some(password.to_owned());
        self
    }

    /// A property of the brokers.
    pub fn set(mut self, key: &str, value: &str) -> Options {
        self.settings.push(format!("{key}={value}"));
        self
    }

    /// Flags of the JVM instead of those for quick starts.
    pub fn jvm(mut self, flags: &str) -> Options {
        self.jvm = Some(flags.to_owned());
        self
    }

    pub fn start(self) -> Broker {
        let folder = new_folder();
        let mut command = script();
        command.arg("start").arg(&folder).arg("--until-eof");
        if self.three {
            command.args(["--brokers", "3"]);
        }
        if let Some(password) = &self.password {
            command.arg("--secure").env("KAFKA_PASSWORD", password);
        }
        if let Some(flags) = &self.jvm {
            command.env("KAFKA_JVM", flags);
        }
        for setting in &self.settings {
            command.args(["--set", setting]);
        }
        // In a group of its own, so that Ctrl-C for the test leaves the guard its work.
        let command = command.process_group(0).stdin(Stdio::piped());
        let mut guard = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut addresses = String::new();
        let answer = guard.stdout.take().expect("it was asked for");
        BufReader::new(answer).read_line(&mut addresses).unwrap();
        let addresses = addresses.trim_end().to_owned();
        if addresses.is_empty() {
            let mut said = String::new();
            let errors = guard.stderr.as_mut().expect("it was asked for");
            errors.read_to_string(&mut said).unwrap();
            panic!("no Kafka broker for this test: {said}");
        }
        Broker { folder, addresses, password: self.password, guard }
    }
}

impl Broker {
    /// One for all tests of this binary that leave it alone; each takes topics of its own.
    pub fn shared() -> &'static Broker {
        static SHARED: OnceLock<Broker> = OnceLock::new();
        SHARED.get_or_init(Broker::start)
    }

    /// One for a test that stops or kills it.
    pub fn start() -> Broker {
        Options::default().start()
    }

    pub fn options() -> Options {
        Options::default()
    }

    /// Host and port; of three, separated by commas.
    pub fn address(&self) -> &str {
        &self.addresses
    }

    /// Where its properties, data and logs are, and with TLS `ca.pem` and `other-ca.pem`.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What a client needs to be let in.
    pub fn client(&self) -> ClientConfig {
        match &self.password {
            None => self.client_with(None),
            Some(password) => self.client_with(Some(password)),
        }
    }

    /// A client that says this password.
    pub fn client_with(&self, password: Option<&str>) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.addresses).set("log_level", "3");
        if let Some(password) = password {
            let ca = self.folder.join("ca.pem");
            config
                .set("security.protocol", "SASL_SSL")
                .set("ssl.ca.location", ca.to_str().expect("a path in UTF-8"))
                .set("sasl.mechanism", "SCRAM-SHA-512")
                .set("sasl.username", USER)
                .set("sasl.password", password);
        }
        config
    }

    /// Ends them as an operator does; they keep their data and ports.
    pub fn stop(&self) {
        self.run(&["stop"], None);
    }

    /// Kills them with SIGKILL.
    pub fn kill9(&self) {
        self.run(&["kill9"], None);
    }

    /// Starts them again on the same data and ports; ends them before if they run.
    pub fn restart(&self) {
        self.run(&["restart"], None);
    }

    /// Sends a signal, such as `STOP` and `CONT`.
    pub fn signal(&self, name: &str) {
        self.run(&["signal", name], None);
    }

    /// [`Broker::stop`] for one of three, counted from 1.
    pub fn stop_one(&self, number: u32) {
        self.run(&["stop"], Some(number));
    }

    /// [`Broker::kill9`] for one of three.
    pub fn kill9_one(&self, number: u32) {
        self.run(&["kill9"], Some(number));
    }

    /// [`Broker::restart`] for one of three.
    pub fn restart_one(&self, number: u32) {
        self.run(&["restart"], Some(number));
    }

    /// The process of one of them, while it runs.
    pub fn process(&self, number: u32) -> u32 {
        let path = self.folder.join(number.to_string()).join("pid");
        let text = std::fs::read_to_string(path).unwrap();
        text.split(' ').next().and_then(|id| id.parse().ok()).expect("a process id and its start")
    }

    /// One of Kafka's own command-line tools, as an operator of the brokers; answers what it prints.
    pub fn tool(&self, what: &[&str]) -> String {
        let mut command = script();
        command.arg("tool").arg(&self.folder).args(what).stdin(Stdio::null());
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{what:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn run(&self, what: &[&str], number: Option<u32>) {
        let mut command = script();
        command.arg(what[0]).arg(&self.folder).args(&what[1..]);
        command.args(number.map(|number| number.to_string())).stdin(Stdio::null());
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kafka.sh {} {number:?}: {said}", what.join(" "));
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        let _may_have_been_waited_for = self.guard.wait();
    }
}

fn script() -> Command {
    let mut command = Command::new("bash");
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/services/kafka.sh"));
    command
}

/// Not there yet, so that the script removes it at the end.
fn new_folder() -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("isochrone-kafka-{}-{number}", std::process::id()))
}
