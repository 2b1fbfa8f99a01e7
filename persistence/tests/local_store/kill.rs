//! Real SIGKILL of a real writer.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use isochrone_persistence::store::local::LocalStore;
use isochrone_persistence::{Created, Store};

const ROOT: &str = "ISOCHRONE_TEST_KILLED_ROOT";
const ROUNDS: u8 = 25;
const OBJECT_BYTES: usize = 256 << 10;
const ACKNOWLEDGED: &str = "acknowledged ";

/// This test is also its own child: the writer that is killed.
#[test]
fn a_killed_writer_leaves_all_it_acknowledged_and_no_part_of_anything() {
    if let Some(root) = std::env::var_os(ROOT) {
        return write_for_ever(Path::new(&root));
    }
    let folder = tempfile::tempdir().unwrap();
    let mut promised: BTreeMap<String, u8> = BTreeMap::new();
    let mut leftovers = 0;
    for round in 0..ROUNDS {
        // Later in each round, so that the kill meets another moment.
        let acknowledged = run_and_kill(folder.path(), 1 + usize::from(round) % 7);
        leftovers += temporary_files(folder.path());
        let store = LocalStore::open(folder.path()).unwrap();
        assert_eq!(temporary_files(folder.path()), 0, "round {round}: opening sweeps");
        promised.extend(acknowledged);
        check(&store, &promised);
    }
    println!("{} objects acknowledged, {leftovers} leftovers swept", promised.len());
    assert!(promised.len() >= usize::from(ROUNDS));
    assert!(leftovers > 0, "no kill met a write under way: the sweep was not tested");
}

fn check(store: &LocalStore, promised: &BTreeMap<String, u8>) {
    let names = store.list("").unwrap();
    for (name, fill) in promised {
        assert!(names.contains(name), "{name} was acknowledged and is gone");
        assert_eq!(store.get(name).unwrap(), Some(vec![*fill; OBJECT_BYTES]), "{name}");
    }
    for name in names {
        let bytes = store.get(&name).unwrap().unwrap();
        let whole = bytes.len() == OBJECT_BYTES && bytes.iter().all(|byte| *byte == bytes[0]);
        assert!(whole, "{name} is seen in part: {} bytes", bytes.len());
    }
}

/// Starts a writer, kills it when it has acknowledged `enough`, and says all that it had.
fn run_and_kill(root: &Path, enough: usize) -> Vec<(String, u8)> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture"])
        .arg("kill::a_killed_writer_leaves_all_it_acknowledged_and_no_part_of_anything")
        .env(ROOT, root)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut acknowledged = Vec::new();
    for line in lines {
        // The first one may come after the name of the test on the same line.
        let Some((_, line)) = line.split_once(ACKNOWLEDGED) else { continue };
        let (name, fill) = line.split_once(' ').unwrap();
        acknowledged.push((name.to_owned(), fill.parse().unwrap()));
        if acknowledged.len() == enough {
            // Reading goes on to the end: it may have acknowledged more before it died.
            child.kill().unwrap();
        }
    }
    let status = child.wait().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGKILL));
    acknowledged
}

fn write_for_ever(root: &Path) {
    let store = LocalStore::open(root).unwrap();
    std::thread::scope(|scope| {
        // Always being replaced, so that hardly a kill misses a write under way.
        scope.spawn(|| {
            for fill in (0..=250).cycle() {
                store.put("job/latest.json", &vec![fill; OBJECT_BYTES]).unwrap();
            }
        });
        write_and_tell(&store);
    });
}

fn write_and_tell(store: &LocalStore) {
    for number in 0_u64.. {
        let name = format!("job/d/{}-{number}", std::process::id());
        let fill = (number % 251) as u8;
        let bytes = vec![fill; OBJECT_BYTES];
        if number.is_multiple_of(2) {
            assert_eq!(store.put_if_absent(&name, &bytes).unwrap(), Created::Yes);
        } else {
            store.put(&name, &bytes).unwrap();
        }
        println!("{ACKNOWLEDGED}{name} {fill}");
    }
}

fn temporary_files(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries
        .map(|entry| match entry.file_type().unwrap().is_dir() {
            true => temporary_files(&entry.path()),
            false => usize::from(entry.file_name().to_str().unwrap().starts_with(".tmp-")),
        })
        .sum()
}
