//! Passwords and the like: where they come from, and that they are shown nowhere.

use std::fmt;
use std::path::{Path, PathBuf};

use isochrone_engine::{Error, Result};

/// Where a password comes from. It is read when a client is made, and shown nowhere.
///
/// ```
/// use isochrone_connectors::kafka::Secret;
/// let secret = Secret::env("KAFKA_PASSWORD");
/// assert_eq!(format!("{secret:?}"), "Secret(environment variable KAFKA_PASSWORD)");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Origin);

#[derive(Clone, PartialEq, Eq)]
enum Origin {
    Env(String),
    File(PathBuf),
    Text(String),
}

impl Secret {
    /// The value of an environment variable.
    pub fn env(name: impl Into<String>) -> Secret {
        Secret(Origin::Env(name.into()))
    }

    /// The content of a file, without the line feed at its end.
    pub fn file(path: impl AsRef<Path>) -> Secret {
        Secret(Origin::File(path.as_ref().to_owned()))
    }

    /// A value that the program has from elsewhere, such as a vault; not from its flags, which
    /// everybody on the machine can read, nor from its source.
    ///
    /// ```
    /// use isochrone_connectors::kafka::Secret;
    /// let secret = Secret::text("hunter2");
    /// assert_eq!(format!("{secret:?}"), "Secret(redacted)");
    /// ```
    pub fn text(text: impl Into<String>) -> Secret {
        Secret(Origin::Text(text.into()))
    }

    /// The value, for setting `key`.
    pub(super) fn read(&self, key: &str) -> Result<String> {
        let value = match &self.0 {
            Origin::Env(name) => std::env::var(name).map_err(|error| {
                // The error's own text shows a value that is not UTF-8.
                let what = match error {
                    std::env::VarError::NotPresent => "is not set",
                    std::env::VarError::NotUnicode(_) => "is not UTF-8",
                };
                Error::invalid(format!(
                    "setting `{key}` of Kafka comes from environment variable {name}, which {what}"
                ))
            })?,
            Origin::File(path) => {
                let text = std::fs::read_to_string(path).map_err(|error| {
                    let file = path.display();
                    Error::invalid(format!(
                        "setting `{key}` of Kafka comes from file `{file}`, which cannot be read"
                    ))
                    .with_source(error)
                })?;
                text.trim_end_matches(['\r', '\n']).to_owned()
            }
            Origin::Text(text) => text.clone(),
        };
        if value.is_empty() {
            return Err(Error::invalid(format!("setting `{key}` of Kafka is empty ({self:?})")));
        }
        Ok(value)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Origin::Env(name) => write!(f, "Secret(environment variable {name})"),
            Origin::File(path) => write!(f, "Secret(file {})", path.display()),
            Origin::Text(_) => write!(f, "Secret(redacted)"),
        }
    }
}

/// Whether a setting is a password or a private key.
pub(super) fn is_secret(key: &str) -> bool {
    ["password", "passphrase", "secret", "key.pem"].iter().any(|part| key.contains(part))
}

/// Whether the value of a setting is to be kept out of sight however it was given.
pub(super) fn is_sensitive(key: &str) -> bool {
    is_secret(key) || ["token", ".pem", "oauthbearer.config"].iter().any(|part| key.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_s_line_end_is_not_part_of_the_password() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        std::fs::write(&path, "hunter 2\r\n").unwrap();
        assert_eq!(Secret::file(&path).read("sasl.password").unwrap(), "hunter 2");
    }

    #[test]
    fn what_is_missing_is_named() {
        let error = Secret::env("ISOCHRONE_NO_SUCH_VARIABLE").read("sasl.password").unwrap_err();
        assert_eq!(
            error.to_string(),
            "setting `sasl.password` of Kafka comes from environment variable \
             ISOCHRONE_NO_SUCH_VARIABLE, which is not set"
        );
        let error = Secret::file("/no/such/file").read("ssl.key.password").unwrap_err();
        assert!(error.to_string().contains("`/no/such/file`, which cannot be read"));
    }
}
