//! Which names a store accepts: the same on every backend.
//!
//! The rule is the smallest common one: safe as a path on any file system (no `..`, nothing
//! absolute, no case to fold, nothing to escape), as a key of an object store and as text in a
//! database. Knows characters only; what names mean is the business of `paths`.

use crate::{Error, Result};

/// The longest legal name, in bytes.
pub const NAME_BYTES_MAX: usize = 512;

/// The longest part of a name between two slashes, in bytes: what any file system can hold.
pub const COMPONENT_BYTES_MAX: usize = 200;

/// Checks the name of an object. Fails with `Invalid` unless it is made of non-empty parts of
/// `a-z`, `0-9`, `_`, `-` and `.`, none beginning with a dot, separated by single slashes.
///
/// That no part begins with a dot also rules out `.` and `..`, and keeps dotted names free for a
/// store's own temporary files.
///
/// ```
/// use isochrone_persistence::store::name;
/// assert!(name::check("orders/m/00000000000000000001").is_ok());
/// assert!(name::check("orders/../../etc/passwd").is_err());
/// ```
pub fn check(name: &str) -> Result<()> {
    let fault = if name.len() > NAME_BYTES_MAX {
        Some(format!("is longer than {NAME_BYTES_MAX} bytes"))
    } else {
        name.split('/').find_map(fault_of)
    };
    fault.map_or(Ok(()), |fault| Err(refused("object name", name, &fault)))
}

/// Checks a prefix for listing: any beginning of a legal name, the empty one included.
///
/// One that no legal name can begin with is an error, not an empty list: an empty list can mean
/// "no checkpoint".
///
/// ```
/// use isochrone_persistence::store::name;
/// assert!(name::check_prefix("orders/m/0000").is_ok());
/// assert!(name::check_prefix("").is_ok());
/// assert!(name::check_prefix("../").is_err());
/// ```
pub fn check_prefix(prefix: &str) -> Result<()> {
    // A prefix is legal exactly when some name that continues it is.
    let continued = if prefix.is_empty() || prefix.ends_with('/') { "0" } else { "" };
    if prefix.len() > NAME_BYTES_MAX {
        return Err(refused("prefix", prefix, &format!("is longer than {NAME_BYTES_MAX} bytes")));
    }
    let fault = format!("{prefix}{continued}").split('/').find_map(fault_of);
    fault.map_or(Ok(()), |fault| Err(refused("prefix", prefix, &fault)))
}

fn fault_of(part: &str) -> Option<String> {
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-.".contains(c);
    if part.is_empty() {
        return Some("has an empty part".to_owned());
    }
    if part.starts_with('.') {
        return Some("has a part that begins with a dot".to_owned());
    }
    if part.len() > COMPONENT_BYTES_MAX {
        return Some(format!("has a part longer than {COMPONENT_BYTES_MAX} bytes"));
    }
    part.chars().find(|c| !legal(*c)).map(|c| format!("contains {c:?}"))
}

fn refused(what: &str, name: &str, fault: &str) -> Error {
    Error::invalid(format!(
        "{what} {name:?} {fault}; use parts of a-z, 0-9, _, - and . that do not begin with a dot, \
         separated by single slashes"
    ))
}
