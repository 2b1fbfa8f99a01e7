//! The secret that the processes of a job share. Never printed, never logged, never on the wire.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;

use super::assignment::env;
use crate::{Error, Result};

/// The fewest bytes of a secret that a person chooses.
const SECRET_BYTES_MIN: usize = 16;

/// What the processes of a job share and strangers do not know.
///
/// ```
/// use isochrone_engine::cluster::Secret;
/// let secret = Secret::new("0123456789abcdef")?;
/// assert_eq!(format!("{secret:?}"), "Secret(redacted)");
/// assert!(Secret::new("short").is_err());
/// # Ok::<(), isochrone_engine::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Option<String>);

impl Secret {
    /// Takes a secret of 16 bytes or more; space around it does not count.
    pub fn new(text: &str) -> Result<Secret> {
        let text = text.trim();
        if text.len() < SECRET_BYTES_MIN {
            return Err(Error::invalid(format!(
                "the shared secret has {} bytes; use {SECRET_BYTES_MIN} or more, such as the output of `openssl rand -hex 32`",
                text.len()
            )));
        }
        Ok(Secret(Some(text.to_owned())))
    }

    /// A secret nobody else has.
    pub fn random() -> Result<Secret> {
        Ok(Secret(Some(blake3::Hash::from_bytes(random_bytes()?).to_hex().to_string())))
    }

    /// No secret: any local process may join. Every function that opens or uses a socket outside the
    /// loopback interface refuses it.
    pub fn open() -> Secret {
        Secret(None)
    }

    /// The secret of the file, else of the environment (`ISOCHRONE_SECRET`), else [`Secret::open`].
    pub fn find(file: Option<&Path>) -> Result<Secret> {
        if let Some(path) = file {
            return Secret::from_file(path);
        }
        match std::env::var(env::SECRET) {
            Ok(text) => Secret::new(&text),
            Err(std::env::VarError::NotPresent) => Ok(Secret::open()),
            Err(std::env::VarError::NotUnicode(_)) => Err(Error::invalid(format!(
                "the environment variable {} is not UTF-8; use printable characters",
                env::SECRET
            ))),
        }
    }

    /// Reads a file that only its owner may read.
    pub fn from_file(path: &Path) -> Result<Secret> {
        let failed = |error: std::io::Error| {
            let text = format!("flag `--secret-file`: cannot read `{}`", path.display());
            Error::invalid(text).with_source(error)
        };
        refuse_readable_by_others(path, &std::fs::metadata(path).map_err(failed)?)?;
        Secret::new(&std::fs::read_to_string(path).map_err(failed)?)
    }

    /// Refuses to speak without a secret to or from an address that others can reach.
    pub fn permits(&self, address: SocketAddr) -> Result<()> {
        if self.0.is_some() || address.ip().is_loopback() {
            return Ok(());
        }
        self.required_for(&address)
    }

    /// Refuses an open secret for an address that is not a loopback one.
    pub(crate) fn required_for(&self, address: &impl fmt::Display) -> Result<()> {
        if self.0.is_some() {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "{address} can be reached from other machines and there is no shared secret; set {} or give `--secret-file`",
            env::SECRET
        )))
    }

    /// The text to hand to a child; `None` for an open one.
    pub(crate) fn expose(&self) -> Option<&str> {
        self.0.as_deref()
    }

    /// The key of the proofs. An open secret has one too, which proves nothing.
    pub(crate) fn key(&self) -> [u8; 32] {
        blake3::derive_key(
            "isochrone cluster handshake 1",
            self.0.as_deref().unwrap_or("").as_bytes(),
        )
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Secret(redacted)" } else { "Secret(open)" })
    }
}

#[cfg(unix)]
fn refuse_readable_by_others(path: &Path, metadata: &std::fs::Metadata) -> Result<()> {
    use std::os::unix::fs::MetadataExt;
    let mode = metadata.mode() & 0o777;
    if mode & 0o077 == 0 {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "flag `--secret-file`: others may use `{path}` (mode {mode:04o}); run `chmod 600 {path}`",
        path = path.display()
    )))
}

#[cfg(not(unix))]
fn refuse_readable_by_others(_path: &Path, _metadata: &std::fs::Metadata) -> Result<()> {
    Ok(())
}

/// 32 bytes that nobody can guess.
pub(crate) fn random_bytes() -> Result<[u8; 32]> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| {
        Error::internal(format!("the system gave no random bytes: {error}; look at /dev/urandom"))
    })?;
    Ok(bytes)
}
