//! Which files there are.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use isochrone_engine::{Error, Result};

use super::identity::unreadable;

/// `*` stays within a folder, and passes over hidden files.
const MATCHING: glob::MatchOptions = glob::MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: true,
};

/// The files of an input, in order.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) paths: Vec<String>,
    /// Whether there can be more of them later.
    pub(super) can_grow: bool,
}

/// A path as it is known, however it was spelled and wherever the program was started.
pub(super) fn absolute(path: &str) -> String {
    let absolute = std::path::absolute(path).ok();
    absolute.and_then(|path| path.into_os_string().into_string().ok()).unwrap_or(path.to_owned())
}

/// The files to which known splits belong.
pub(super) fn paths_of(known: &[String]) -> BTreeSet<String> {
    // Every id ends with its range in brackets.
    known.iter().filter_map(|id| Some(absolute(&id[..id.rfind('[')?]))).collect()
}

impl Input {
    pub(super) fn find(path: &str, follow: bool, known: &BTreeSet<String>) -> Result<Input> {
        match std::fs::metadata(path) {
            Ok(found) if found.is_dir() => {
                Ok(Input { paths: files_of_directory(path)?, can_grow: true })
            }
            Ok(_) => Ok(Input { paths: vec![path.to_owned()], can_grow: false }),
            // Whether it should still be there is for its reader to say.
            Err(_) if known.contains(path) => Ok(Input { paths: Vec::new(), can_grow: false }),
            Err(_) if path.contains(['*', '?', '[']) => {
                let paths = files_of_pattern(path)?;
                if paths.is_empty() && known.is_empty() && !follow {
                    return Err(Error::invalid(format!("no file matches input `{path}`")));
                }
                Ok(Input { paths, can_grow: true })
            }
            Err(error) => Err(unreadable(path, error)),
        }
    }
}

/// What the checkpoint has read, if nothing of it is of this input, there or not.
pub(super) fn all_elsewhere(path: &str, known: &BTreeSet<String>) -> Option<String> {
    let first = known.first()?;
    let pattern = glob::Pattern::new(path).ok();
    let is_ours = |file: &String| {
        file == path
            || Path::new(file).parent().is_some_and(|folder| folder == Path::new(path))
            || pattern.as_ref().is_some_and(|it| it.matches_with(file, MATCHING))
    };
    if known.iter().any(is_ours) {
        return None;
    }
    Some(match known.len() {
        1 => format!("`{first}`"),
        files => format!("`{first}` and {} more", files - 1),
    })
}

fn files_of_directory(path: &str) -> Result<Vec<String>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(path).map_err(|error| unreadable(path, error))? {
        paths.push(entry.map_err(|error| unreadable(path, error))?.path());
    }
    readable_files(paths)
}

fn files_of_pattern(pattern: &str) -> Result<Vec<String>> {
    let found = glob::glob_with(pattern, MATCHING)
        .map_err(|error| Error::invalid(format!("input `{pattern}` is not a pattern: {error}")))?;
    let mut paths = Vec::new();
    for path in found {
        paths.push(path.map_err(|error| {
            let path = error.path().display().to_string();
            unreadable(&path, error.into())
        })?);
    }
    readable_files(paths)
}

/// Regular files that are neither hidden nor still being written, by name.
fn readable_files(paths: Vec<PathBuf>) -> Result<Vec<String>> {
    let mut files = Vec::with_capacity(paths.len());
    for path in paths {
        if is_set_aside(&path) {
            continue;
        }
        // Gone since it was listed: as if it had been before.
        if !path.metadata().is_ok_and(|found| found.is_file()) {
            continue;
        }
        let path = path.into_os_string().into_string().map_err(|path| {
            Error::invalid(format!("the name of input {path:?} is not UTF-8; rename the file"))
        })?;
        files.push(path);
    }
    files.sort_unstable();
    Ok(files)
}

/// Hidden, or a part file that its writer has not finished.
fn is_set_aside(path: &Path) -> bool {
    let hidden = path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
    hidden || path.extension().is_some_and(|extension| extension == "open")
}
