//! A Kafka cluster as a job describes it: addresses, settings that pass through, secrets.

use std::collections::BTreeMap;
use std::fmt;

use isochrone_engine::{Error, Result};
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};

use super::client::Context;
use super::secret::{Secret, is_secret, is_sensitive};

/// A Kafka cluster. Nothing is connected yet.
///
/// ```
/// use isochrone_connectors::kafka::{Kafka, Secret};
/// let kafka = Kafka::at("broker-1:9093,broker-2:9093")?
///     .set("security.protocol", "SASL_SSL")
///     .set("sasl.mechanism", "SCRAM-SHA-512")
///     .set("sasl.username", "assessor")
///     .secret("sasl.password", Secret::env("KAFKA_PASSWORD"));
/// assert_eq!(kafka.addresses(), "broker-1:9093,broker-2:9093");
/// # Ok::<(), isochrone_engine::Error>(())
/// ```
#[derive(Clone)]
pub struct Kafka {
    addresses: String,
    settings: BTreeMap<String, String>,
    secrets: BTreeMap<String, Secret>,
    /// A secret that was given as what anybody may see. Its value is not kept.
    misplaced: Option<String>,
}

/// What a setting of our own is worth against one of the user's.
#[derive(Clone, Copy)]
pub(super) enum Own {
    /// The user's setting wins.
    Default,
    /// A user's setting that differs is refused, for this reason.
    Fixed(&'static str),
}

/// What librdkafka calls the addresses.
const ADDRESSES: [&str; 2] = ["bootstrap.servers", "metadata.broker.list"];

impl Kafka {
    /// A cluster by the addresses of some of its brokers: `host:port`, with commas in between.
    ///
    /// ```
    /// use isochrone_connectors::kafka::Kafka;
    /// let error = Kafka::at("broker").unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "Kafka address `broker` has no port; write `host:port`, such as `127.0.0.1:9092`"
    /// );
    /// ```
    pub fn at(addresses: &str) -> Result<Kafka> {
        let mut checked = Vec::new();
        for address in addresses.split(',').map(str::trim) {
            check_address(address)?;
            checked.push(address);
        }
        Ok(Kafka {
            addresses: checked.join(","),
            settings: BTreeMap::new(),
            secrets: BTreeMap::new(),
            misplaced: None,
        })
    }

    /// A cluster and a topic by `kafka://host:port[,host:port]/topic`, as in a flag. Users and
    /// passwords are not part of it: everybody on the machine can read the flags of a process.
    ///
    /// ```
    /// use isochrone_connectors::kafka::Kafka;
    /// let (kafka, topic) = Kafka::parse_url("kafka://127.0.0.1:9092/purchases")?;
    /// assert_eq!((kafka.addresses(), topic.as_str()), ("127.0.0.1:9092", "purchases"));
    /// # Ok::<(), isochrone_engine::Error>(())
    /// ```
    pub fn parse_url(url: &str) -> Result<(Kafka, String)> {
        let form = "write `kafka://host:port/topic`";
        if url.contains('@') {
            return Err(Error::invalid(format!(
                "the URL of a Kafka topic has no place for a user and a password; {form}, and give \
                 them as settings"
            )));
        }
        let wrong = |what: &str| Error::invalid(format!("URL `{url}` {what}; {form}"));
        let rest = url.strip_prefix("kafka://").ok_or_else(|| wrong("is not one of Kafka"))?;
        let (addresses, topic) = rest.split_once('/').ok_or_else(|| wrong("names no topic"))?;
        if topic.is_empty() {
            return Err(wrong("names no topic"));
        }
        check_topic(topic)?;
        Ok((Kafka::at(addresses)?, topic.to_owned()))
    }

    /// A setting of librdkafka, passed through: `security.protocol`, `ssl.ca.location` and so on.
    ///
    /// Those that exactness depends on cannot be changed: a source or sink refuses them when the job
    /// starts, as it does those that librdkafka does not know, and passwords and keys, which go to
    /// [`Kafka::secret`].
    #[must_use]
    pub fn set(mut self, key: impl Into<String>, value: impl Into<String>) -> Kafka {
        let (key, value) = (key.into(), value.into());
        if is_secret(&key) {
            self.misplaced.get_or_insert(key);
            return self;
        }
        if is_sensitive(&key) {
            return self.secret(key, Secret::text(value));
        }
        self.settings.insert(key, value);
        self
    }

    /// A setting that is never shown: `sasl.password`, `ssl.key.password`.
    #[must_use]
    pub fn secret(mut self, key: impl Into<String>, secret: Secret) -> Kafka {
        self.secrets.insert(key.into(), secret);
        self
    }

    /// The addresses, with commas in between.
    pub fn addresses(&self) -> &str {
        &self.addresses
    }

    /// What a client is made of: the user's settings over our defaults, and ours that are fixed.
    pub(super) fn client(&self, own: &[(&str, &str, Own)]) -> Result<(ClientConfig, Context)> {
        let mut config = ClientConfig::new();
        // What is shown of it is decided where it is logged.
        config.set_log_level(RDKafkaLogLevel::Info);
        config.set("bootstrap.servers", &self.addresses);
        let keys = self.settings.keys().chain(self.secrets.keys());
        let mut keys = keys.filter(|key| ADDRESSES.contains(&key.as_str()));
        if let Some(key) = keys.next() {
            return Err(Error::invalid(format!(
                "setting `{key}` of Kafka: give the addresses to `Kafka::at` instead"
            )));
        }
        if let Some(key) = &self.misplaced {
            return Err(Error::invalid(format!(
                "setting `{key}` of Kafka is a secret, and was given as what anybody may see; give it \
                 to `Kafka::secret`, from an environment variable or a file"
            )));
        }
        let mut hidden = Vec::new();
        for (key, secret) in &self.secrets {
            let value = secret.read(key)?;
            config.set(key, &value);
            hidden.push(value);
        }
        for (key, value) in &self.settings {
            config.set(key, value);
        }
        for (key, value, worth) in own {
            match (self.settings.get(*key), worth) {
                (Some(chosen), Own::Fixed(why)) if chosen != value => {
                    return Err(Error::invalid(format!(
                        "setting `{key}` of Kafka is `{chosen}`, and has to be `{value}`: {why}; \
                         remove it"
                    )));
                }
                (Some(_), _) => {}
                (None, _) => drop(config.set(*key, *value)),
            }
        }
        Ok((config, Context::new(&self.addresses, hidden)))
    }
}

impl fmt::Debug for Kafka {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kafka")
            .field("addresses", &self.addresses)
            .field("settings", &self.settings)
            .field("secrets", &self.secrets)
            .finish()
    }
}

fn check_address(address: &str) -> Result<()> {
    let form = "write `host:port`, such as `127.0.0.1:9092`";
    let wrong = |what: &str| Error::invalid(format!("Kafka address `{address}` {what}; {form}"));
    let (host, port) = address.rsplit_once(':').ok_or_else(|| wrong("has no port"))?;
    if host.is_empty() {
        return Err(wrong("has no host"));
    }
    if host.contains(':') && !(host.starts_with('[') && host.ends_with(']')) {
        return Err(wrong("has too many colons: an IPv6 address goes in brackets"));
    }
    match port.parse::<u16>() {
        Ok(1..) => Ok(()),
        _ => Err(wrong("has no port between 1 and 65535")),
    }
}

/// Refuses a name that no topic can have.
pub(super) fn check_topic(topic: &str) -> Result<()> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if topic.is_empty()
        || topic.len() > 249
        || matches!(topic, "." | "..")
        || !topic.chars().all(fits)
    {
        return Err(Error::invalid(format!(
            "`{topic}` cannot be the name of a Kafka topic: those have 1 to 249 of the characters \
             a-z, A-Z, 0-9, `.`, `_` and `-`"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked_one_by_one() {
        assert_eq!(Kafka::at(" a:1 , [::1]:9092").unwrap().addresses(), "a:1,[::1]:9092");
        for (address, what) in [
            ("", "has no port"),
            ("a:1,", "has no port"),
            (":9092", "has no host"),
            ("a:0", "no port between"),
            ("a:x", "no port between"),
            ("::1:9092", "too many colons"),
        ] {
            let error = Kafka::at(address).unwrap_err().to_string();
            assert!(error.contains(what), "{address}: {error}");
        }
    }

    #[test]
    fn urls_name_a_topic_and_never_a_password() {
        let (kafka, topic) = Kafka::parse_url("kafka://a:1,b:2/some.topic-x").unwrap();
        assert_eq!((kafka.addresses(), topic.as_str()), ("a:1,b:2", "some.topic-x"));
        for (url, what) in [
            ("http://a:1/t", "is not one of Kafka"),
            ("kafka://a:1", "names no topic"),
            ("kafka://a:1/", "names no topic"),
            ("kafka://a:1/t/u", "cannot be the name"),
            ("kafka://a/t", "has no port"),
        ] {
            let error = Kafka::parse_url(url).unwrap_err().to_string();
            assert!(error.contains(what), "{url}: {error}");
        }
        let error = Kafka::parse_url("kafka://me:hunter2@a:1/t").unwrap_err().report();
        assert!(!error.contains("hunter2") && error.contains("as settings"), "{error}");
    }

    #[test]
    fn settings_of_ours_that_are_fixed_are_not_overridden() {
        let kafka = Kafka::at("a:1").unwrap().set("isolation.level", "read_uncommitted");
        let own = [
            ("isolation.level", "read_committed", Own::Fixed("output of others may be taken back")),
            ("fetch.wait.max.ms", "100", Own::Default),
        ];
        let error = kafka.client(&own).err().unwrap().to_string();
        assert_eq!(
            error,
            "setting `isolation.level` of Kafka is `read_uncommitted`, and has to be \
             `read_committed`: output of others may be taken back; remove it"
        );
        let kafka = Kafka::at("a:1").unwrap().set("fetch.wait.max.ms", "7");
        let (config, _) = kafka.client(&own).unwrap();
        assert_eq!(config.get("fetch.wait.max.ms"), Some("7"));
        assert_eq!(config.get("isolation.level"), Some("read_committed"));
        let kafka = Kafka::at("a:1").unwrap().set("bootstrap.servers", "b:1");
        assert!(kafka.client(&own).is_err());
        let kafka = Kafka::at("a:1").unwrap().secret("bootstrap.servers", Secret::env("HOME"));
        assert!(kafka.client(&own).is_err());
        // Given as a secret, a fixed setting is fixed all the same.
        let kafka = Kafka::at("a:1").unwrap().secret("isolation.level", Secret::env("HOME"));
        let (config, _) = kafka.client(&own).unwrap();
        assert_eq!(config.get("isolation.level"), Some("read_committed"));
    }

    #[test]
    fn a_secret_among_the_settings_is_refused_and_not_shown() {
        for key in [
            "sasl.password",
            "ssl.key.password",
            "ssl.key.pem",
            "ssl.keystore.password",
            "sasl.oauthbearer.client.secret",
            "sasl.oauthbearer.client.credentials.client.secret",
            "sasl.oauthbearer.assertion.private.key.passphrase",
            "sasl.oauthbearer.assertion.private.key.pem",
        ] {
            let kafka = Kafka::at("a:1").unwrap().set(key, "hunter2");
            let error = kafka.client(&[]).err().unwrap().report();
            let says = format!("setting `{key}` of Kafka is a secret");
            assert!(error.starts_with(&says) && error.contains("`Kafka::secret`"), "{error}");
            assert!(!format!("{error}{kafka:?}").contains("hunter"), "{error}{kafka:?}");
            let kafka = Kafka::at("a:1").unwrap().secret(key, Secret::text("hunter2"));
            assert_eq!(kafka.client(&[]).unwrap().0.get(key), Some("hunter2"));
        }
        let kafka = Kafka::at("a:1").unwrap().set("ssl.ca.pem", "everybody's");
        assert_eq!(kafka.client(&[]).unwrap().0.get("ssl.ca.pem"), Some("everybody's"));
    }

    #[test]
    fn secrets_are_in_no_debug_output() {
        let kafka = Kafka::at("a:1").unwrap().secret("sasl.password", Secret::text("hunter2"));
        let kafka = kafka.set("sasl.oauthbearer.config", "hunter3").set("sasl.username", "me");
        let text = format!("{kafka:?}");
        assert!(!text.contains("hunter") && text.contains("\"me\""), "{text}");
        let (config, context) = kafka.client(&[]).unwrap();
        assert_eq!(config.get("sasl.password"), Some("hunter2"));
        assert_eq!(context.redacted("wrong: hunter2, hunter3"), "wrong: ***, ***");
    }
}
