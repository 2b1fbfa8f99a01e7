//! A manifest as bytes: JSON that people can read, in an envelope that proves it intact.
//!
//! The envelope is the same for all format versions, so that a reader can tell "damaged" from
//! "written by a newer version". Its text is fixed to the byte and the digest covers all the rest,
//! so that no byte can change unnoticed.

use serde::Deserialize;

use super::{FORMAT, Manifest, Part, Segment};
use crate::paths::{self, Object};
use crate::{Error, Result};

const BEFORE_DIGEST: &[u8] = b"{\n\"digest\": \"";
const AFTER_DIGEST: &[u8] = b"\",\n\"manifest\": ";
const AFTER_MANIFEST: &[u8] = b"\n}\n";
const DIGEST_BYTES: usize = 64;

/// The bytes of a manifest.
///
/// ```
/// # let bytes = include_bytes!("../../tests/fixtures/manifest_v1.json");
/// use isochrone_persistence::manifest::{decode, encode};
/// let manifest = decode("risk/m/00000000000000000007.json", bytes)?;
/// assert_eq!(encode(&manifest), bytes);
/// # Ok::<(), isochrone_persistence::Error>(())
/// ```
pub fn encode(manifest: &Manifest) -> Vec<u8> {
    let body = serde_json::to_vec_pretty(manifest)
        .expect("a manifest has only string keys and serializes to memory");
    let digest = digest_of(&body);
    [BEFORE_DIGEST, digest.as_bytes(), AFTER_DIGEST, &body, AFTER_MANIFEST].concat()
}

/// The manifest in `bytes`, which were read from the object `name`.
///
/// Fails with `Corrupt` if they are not what was written, `Incompatible` if a newer version of
/// the format wrote them, `Invalid` if they belong to another job than the name says.
pub fn decode(name: &str, bytes: &[u8]) -> Result<Manifest> {
    let Some((job, Object::Manifest(sequence))) = paths::parse(name) else {
        return Err(Error::invalid(format!("`{name}` is not the name of a manifest")));
    };
    let body = checked_body(name, bytes)?;
    check_format(name, body)?;
    let manifest: Manifest = serde_json::from_slice(body).map_err(|cause| {
        damaged(name, "a manifest of format 1", "other JSON").with_source(cause)
    })?;
    if manifest.job != job {
        return Err(Error::invalid(format!(
            "object `{name}` is a manifest of job `{}`; it was copied from elsewhere: point the \
             store at the right place, or name the job as it was",
            manifest.job
        )));
    }
    if manifest.sequence != sequence {
        return Err(damaged(name, format!("sequence {sequence}"), manifest.sequence));
    }
    check_epochs(name, &manifest)?;
    Ok(manifest)
}

/// State must not be newer than the positions beside it: records would be applied twice.
fn check_epochs(name: &str, manifest: &Manifest) -> Result<()> {
    let parts = manifest.operators.iter().map(|operator| &operator.part);
    let segments = parts.flat_map(|part| match part {
        Part::State { segments, .. } => segments.as_slice(),
        _ => &[],
    });
    match segments.into_iter().find(|segment| segment.epoch > manifest.epoch) {
        None => Ok(()),
        Some(Segment { name: segment, epoch, .. }) => {
            let expected = format!("state up to epoch {}", manifest.epoch);
            Err(damaged(name, expected, format!("`{segment}` of epoch {epoch}")))
        }
    }
}

/// Digest of the bytes of an object, in hex.
///
/// ```
/// use isochrone_persistence::manifest::digest_of;
/// assert!(digest_of(b"").starts_with("af1349b9f5f9a1a6"));
/// ```
pub fn digest_of(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}

/// What to do about it. Whoever has done so needs not be told.
pub const TAKE_AN_OLDER_ONE: &str =
    "restore an older checkpoint with `--on-damage previous` (`RunArgs::on_damage`)";

/// The error for bytes that are not what was written.
pub(crate) fn damaged(
    name: &str,
    expected: impl std::fmt::Display,
    found: impl std::fmt::Display,
) -> Error {
    Error::corrupt(format!(
        "object `{name}` is damaged: expected {expected}, found {found}; {TAKE_AN_OLDER_ONE}"
    ))
}

fn checked_body<'a>(name: &str, bytes: &'a [u8]) -> Result<&'a [u8]> {
    let (digest, body) = split(bytes).ok_or_else(|| {
        damaged(
            name,
            "the envelope of a manifest",
            format!("{} bytes of something else", bytes.len()),
        )
    })?;
    let found = digest_of(body);
    if digest != found.as_bytes() {
        let expected = String::from_utf8_lossy(digest);
        return Err(damaged(name, format!("digest {expected}"), found));
    }
    Ok(body)
}

fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = bytes.strip_prefix(BEFORE_DIGEST)?;
    let (digest, rest) = rest.split_at_checked(DIGEST_BYTES)?;
    let body = rest.strip_prefix(AFTER_DIGEST)?.strip_suffix(AFTER_MANIFEST)?;
    Some((digest, body))
}

/// Looks at the version alone, since a newer format may have any other fields.
fn check_format(name: &str, body: &[u8]) -> Result<()> {
    #[derive(Deserialize)]
    struct Version {
        format: u32,
    }
    let version: Version = serde_json::from_slice(body)
        .map_err(|cause| damaged(name, "a format version", "none").with_source(cause))?;
    if version.format > FORMAT {
        return Err(Error::incompatible(format!(
            "object `{name}` was written by format {}, this library reads up to {FORMAT}; \
             {TAKE_AN_OLDER_ONE}, or run the newer release",
            version.format
        )));
    }
    if version.format == 0 {
        return Err(damaged(name, "format 1 or more", "format 0"));
    }
    Ok(())
}
