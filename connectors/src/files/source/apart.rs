//! Whether a folder for output is apart from the input: a job must not read what it writes.

use std::path::{Path, PathBuf};

use isochrone_engine::{Error, Result};

use super::Files;

/// The name of a part in output, by extension.
const PARTS: [&str; 3] =
    ["part-0000000001-0000.jsonl", "part-0000000001-0000.csv", "part-0000000001-0000.txt"];

impl Files {
    /// Fails with `Invalid` if files written into the folder `output` would be, or lie among, this
    /// input. Looks at the file system; for a program to call before it runs its job.
    ///
    /// ```
    /// use isochrone_connectors::files::Files;
    /// let folder = tempfile::tempdir().expect("a folder");
    /// assert!(Files::at(folder.path()).check_apart_from(folder.path().join("out")).is_err());
    /// assert!(Files::at(folder.path().join("in")).check_apart_from(folder.path()).is_ok());
    /// ```
    pub fn check_apart_from(&self, output: impl AsRef<Path>) -> Result<()> {
        let (input, output) = (self.settings.path.as_str(), output.as_ref());
        let is_pattern = input.contains(['*', '?', '[']) && !Path::new(input).exists();
        let what = if is_pattern && matches_a_part(input, output) {
            "matches files in"
        } else if !is_pattern && resolved(output) == resolved(Path::new(input)) {
            "is the same as"
        } else if !is_pattern && resolved(output).starts_with(resolved(Path::new(input))) {
            "contains"
        } else {
            return Ok(());
        };
        Err(Error::invalid(format!(
            "input `{input}` {what} the output `{}`; choose a folder for the output that is apart \
             from the input, or the job reads what it writes",
            output.display()
        )))
    }
}

fn matches_a_part(pattern: &str, output: &Path) -> bool {
    let options =
        glob::MatchOptions { require_literal_separator: true, ..glob::MatchOptions::default() };
    let matches = |pattern: glob::Pattern| {
        PARTS.iter().any(|part| pattern.matches_path_with(&output.join(part), options))
    };
    glob::Pattern::new(pattern).is_ok_and(matches)
}

/// The path without links and dots, as far as it exists.
fn resolved(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    for known in path.ancestors() {
        if let (Ok(real), Ok(rest)) = (known.canonicalize(), path.strip_prefix(known)) {
            // An empty rest would leave a separator behind.
            return if rest.as_os_str().is_empty() { real } else { real.join(rest) };
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_that_would_be_read_is_refused_however_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("in")).unwrap();
        std::fs::write(at("in/a.csv"), "").unwrap();
        std::os::unix::fs::symlink(at("in"), at("link")).unwrap();
        let refused = |input: &str, output: &str| {
            let checked = Files::at(at(input)).check_apart_from(at(output));
            checked.err().map(|error| error.to_string())
        };
        for (input, output, what) in [
            ("in", "in", "is the same as"),
            ("in/a.csv", "in/a.csv", "is the same as"),
            ("in", "in/out/deep", "contains"),
            ("in", "link", "is the same as"),
            ("link", "in/../in/out", "contains"),
            ("in/*", "in", "matches files in"),
            ("*/*.jsonl", "out", "matches files in"),
        ] {
            let error = refused(input, output).unwrap_or_else(|| panic!("{input} and {output}"));
            assert!(error.contains(what), "{input} and {output}: {error}");
        }
        for (input, output) in [
            ("in", "out"),
            ("in", "inside"),
            ("in/a.csv", "in"),
            ("in/*.csv", "out"),
            ("no", "out"),
        ] {
            assert_eq!(refused(input, output), None, "{input} and {output}");
        }
    }
}
