//! Runs an example as a process and looks at the files it leaves.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// An example about to run.
pub(crate) struct Example(Command);

impl Example {
    /// The program that Cargo built beside this test.
    pub(crate) fn new(name: &str) -> Example {
        let test = std::env::current_exe().unwrap();
        let program = test.ancestors().nth(2).unwrap().join("examples").join(name);
        assert!(program.exists(), "{} is not built: `cargo build --examples`", program.display());
        Example(Command::new(program))
    }

    /// The program as a user without rights runs it, from a copy that it can reach. Who is root here
    /// becomes nobody; who is not is such a user already.
    pub(crate) fn without_rights(name: &str, folder: &Path) -> Example {
        let Example(command) = Example::new(name);
        let program = folder.join(name);
        fs::copy(command.get_program(), &program).unwrap();
        let (nobody, is_root) = ("65534", fs::read_dir("/root").is_ok());
        if !is_root {
            return Example(Command::new(program));
        }
        let mut command = Command::new("setpriv");
        command.args(["--reuid", nobody, "--regid", nobody, "--clear-groups"]).arg(program);
        Example(command)
    }

    pub(crate) fn arg(mut self, flag: &str, value: &str) -> Example {
        self.0.arg(flag).arg(value);
        self
    }

    pub(crate) fn flag(mut self, flag: &str) -> Example {
        self.0.arg(flag);
        self
    }

    pub(crate) fn path(self, flag: &str, value: &Path) -> Example {
        self.arg(flag, value.to_str().unwrap())
    }

    /// Keeps its checkpoints in `state` below the folder.
    pub(crate) fn store(self, folder: &Path) -> Example {
        self.path("--store", &folder.join("state"))
    }

    /// Runs it beside the test, saying nothing.
    pub(crate) fn start(mut self) -> Child {
        self.0.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// Runs it beside the test; what it says goes to a file.
    pub(crate) fn start_saying_to(mut self, file: &Path) -> Child {
        let said = fs::File::create(file).unwrap();
        self.0.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said).spawn().unwrap()
    }

    pub(crate) fn output(mut self) -> Output {
        self.0.output().unwrap()
    }

    /// Runs it; gives what it said on standard error.
    pub(crate) fn succeeds(self) -> String {
        self.ends_with(0)
    }

    pub(crate) fn fails_with(self, code: i32) -> String {
        self.ends_with(code)
    }

    fn ends_with(self, code: i32) -> String {
        let output = self.output();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{said}");
        said
    }
}

/// The lines of all files in a folder with this extension that are not hidden, by name of file.
pub(crate) fn lines_of(folder: &Path, extension: &str) -> Vec<String> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_hidden = |path: &Path| path.file_name().unwrap().to_str().unwrap().starts_with('.');
    let mut paths: Vec<PathBuf> = paths
        .filter(|path| path.extension().is_some_and(|e| e == extension) && !is_hidden(path))
        .collect();
    paths.sort();
    let lines = |path: PathBuf| {
        let text = fs::read_to_string(path).unwrap();
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    paths.into_iter().flat_map(lines).collect()
}

/// All files below a folder with their bytes.
pub(crate) fn snapshot(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.insert(path.clone(), fs::read(path).unwrap());
            }
        }
    }
    files
}

const TOTALS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/data/purchases.totals.csv");

/// Events and cents by account of `examples/data/purchases.csv`, as computed by another program.
pub(crate) fn totals() -> BTreeMap<String, (u64, i64)> {
    let text = fs::read_to_string(TOTALS).unwrap();
    let row = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        let [account, events, cents] = fields[..] else { panic!("{line}") };
        (account.to_owned(), (events.parse().unwrap(), cents.parse().unwrap()))
    };
    text.lines().skip(1).map(row).collect()
}
