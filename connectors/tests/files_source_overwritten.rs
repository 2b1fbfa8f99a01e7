//! Files that are not followed and change while they are read: growing is fine, anything else is
//! found out before their last record is handed out. Also where nothing but all of the bytes can tell.
#![expect(clippy::unwrap_used, reason = "a failure fails the test")]

mod common;

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use common::write;
use isochrone_connectors::files::{FilePosition, FileSource, Files};
use isochrone_connectors::format::Text;
use isochrone_engine::connector::{Batch, Poll, Reader, Source};
use isochrone_engine::{Error, ErrorKind, Result};
use tempfile::TempDir;

/// So many lines are more than what is read ahead, so that a reader comes to the changed ones.
const LINES: usize = 200_000;

type LinesReader = Box<dyn Reader<String, FilePosition>>;

fn line(number: usize) -> String {
    format!("line {number:09}\n")
}

fn lines(range: std::ops::Range<usize>) -> String {
    range.map(line).collect()
}

/// A file that a reader has begun to read.
struct Begun {
    folder: TempDir,
    path: PathBuf,
    reader: LinesReader,
    batch: Batch<String>,
}

impl Begun {
    /// Of the first split, ten lines are read.
    fn new(settings: impl FnOnce(Files) -> Files) -> Begun {
        let folder = tempfile::tempdir().unwrap();
        let path = write(folder.path(), "a.txt", lines(0..LINES));
        let source: FileSource<String, Text> = settings(Files::at(&path)).text();
        let split = source.discover(&[]).unwrap().new.remove(0);
        let mut reader = source.open(split).unwrap();
        let mut batch = Batch::default();
        assert_eq!(reader.poll(&mut batch, 10).unwrap(), Poll::Ready);
        Begun { folder, path, reader, batch }
    }

    fn whole() -> Begun {
        Begun::new(|files| files)
    }

    /// The first of three splits.
    fn range() -> Begun {
        Begun::new(|files| files.split_bytes(1_200_000))
    }

    fn read_to_end(&mut self) -> Result<()> {
        while self.reader.poll(&mut self.batch, 10_000)? == Poll::Ready {}
        Ok(())
    }

    fn fails(mut self) -> Error {
        let error = self.read_to_end().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        error
    }
}

/// Changes bytes where they are.
fn overwrite(path: &Path, at: usize, content: &str) {
    let mut file = OpenOptions::new().write(true).open(path).unwrap();
    file.seek(SeekFrom::Start(at as u64)).unwrap();
    file.write_all(content.as_bytes()).unwrap();
}

fn says(error: &Error, parts: &[&str]) {
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}

#[test]
fn a_file_that_is_overwritten_in_place_while_it_is_read_is_an_error() {
    let other = lines(0..LINES).replace("line", "LINE");
    let longer = format!("{other}more\n");
    for (content, length) in [(&other, other.len()), (&longer, longer.len())] {
        for begun in [Begun::whole(), Begun::range()] {
            overwrite(&begun.path, 0, content);
            let error = begun.fails();
            let length = format!("has {length} bytes now");
            says(&error, &["a.txt` is not the file", "overwritten while it was read", &length]);
        }
    }
}

/// The first bytes and those where the reader stands stay the same.
#[test]
fn other_bytes_in_the_middle_of_what_was_read_are_found_at_the_end() {
    let others = |settings: fn(Files) -> Files| {
        for at in [6_000, 300_000, 500_010] {
            let begun = Begun::new(settings);
            overwrite(&begun.path, at, "LINE");
            says(&begun.fails(), &["overwritten while it was read"]);
        }
    };
    others(|files| files);
    others(|files| files.split_bytes(1_200_000));
}

/// The reader gives what the file has, and that is one thing, not two.
#[test]
fn other_bytes_where_nothing_was_read_yet_are_read_as_they_are_by_then() {
    let mut begun = Begun::whole();
    overwrite(&begun.path, 1_500_000, "LINE");
    begun.read_to_end().unwrap();
    let expected = lines(0..LINES).replace("line 000100000", "LINE 000100000");
    assert_eq!(begun.batch.items.concat(), expected.replace('\n', ""));
    // Behind a range it is another split's business.
    let mut begun = Begun::range();
    overwrite(&begun.path, 1_500_000, "LINE");
    begun.read_to_end().unwrap();
}

/// What a file system tells of the last change may be as coarse as two seconds: a file may be written,
/// opened and written again without showing it.
#[test]
fn a_change_that_leaves_no_trace_in_times_is_found_in_a_file_that_is_new() {
    let begun = Begun::whole();
    let before = std::fs::metadata(&begun.path).unwrap().modified().unwrap();
    overwrite(&begun.path, 15_000, "LINE");
    OpenOptions::new().write(true).open(&begun.path).unwrap().set_modified(before).unwrap();
    says(&begun.fails(), &["overwritten while it was read"]);
}

/// Nor is the time of modification trusted, which every program can set.
#[test]
#[cfg(unix)]
fn a_change_of_an_old_file_is_found_though_its_time_is_set_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "a.txt", lines(0..LINES));
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let set_back = || File::options().write(true).open(&path).unwrap().set_modified(old).unwrap();
    set_back();
    let source = Files::at(&path).text();
    let mut reader = source.open(source.discover(&[]).unwrap().new.remove(0)).unwrap();
    let mut batch = Batch::default();
    reader.poll(&mut batch, 10).unwrap();
    overwrite(&path, 15_000, "LINE");
    set_back();
    let error = loop {
        match reader.poll(&mut batch, 10_000) {
            Ok(poll) => assert_eq!(poll, Poll::Ready),
            Err(error) => break error,
        }
    };
    says(&error, &["overwritten while it was read"]);
}

#[test]
fn a_file_that_grows_while_it_is_read_is_read_to_its_new_end() {
    let mut begun = Begun::whole();
    let append = |text: &str| {
        let mut file = OpenOptions::new().append(true).open(&begun.path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    };
    append(&lines(LINES..LINES + 10));
    begun.reader.poll(&mut begun.batch, 10_000).unwrap();
    append(&lines(LINES + 10..LINES + 20));
    begun.read_to_end().unwrap();
    assert_eq!(begun.batch.items.concat(), lines(0..LINES + 20).replace('\n', ""));

    let mut begun = Begun::range();
    let mut file = OpenOptions::new().append(true).open(&begun.path).unwrap();
    file.write_all(b"more\n").unwrap();
    begun.read_to_end().unwrap();
    let read = lines(0..begun.batch.items.len());
    assert_eq!(begun.batch.items.concat(), read.replace('\n', ""));
    assert!(!begun.batch.items.is_empty() && begun.batch.items.len() < LINES);
}

/// It is read through to its end, never a mixture; and it stops the job, as between two runs.
#[test]
#[cfg(unix)]
fn a_file_that_is_replaced_by_rename_is_read_to_its_end_and_then_an_error() {
    let other = lines(0..LINES).replace("line 0001", "LINE 0001");
    let longer = format!("{other}more\n");
    for content in [&other, &longer, "short\n"] {
        let mut begun = Begun::whole();
        let new = write(begun.folder.path(), "new", content);
        std::fs::rename(new, &begun.path).unwrap();
        let error = begun.read_to_end().unwrap_err();
        let length = format!("replaced by another of {} bytes", content.len());
        says(&error, &["a.txt` is not the file", &length]);
        assert_eq!(begun.batch.items.concat(), lines(0..LINES).replace('\n', ""));
    }
    // In what this split has read, there is no difference.
    let mut begun = Begun::range();
    let new = write(begun.folder.path(), "new", other);
    std::fs::rename(new, &begun.path).unwrap();
    begun.read_to_end().unwrap();
}

#[test]
#[cfg(unix)]
fn a_file_that_is_replaced_by_a_copy_or_deleted_while_it_is_read_is_read_to_its_end() {
    let mut begun = Begun::whole();
    let copy = begun.folder.path().join("copy");
    std::fs::copy(&begun.path, &copy).unwrap();
    std::fs::rename(copy, &begun.path).unwrap();
    begun.read_to_end().unwrap();
    assert_eq!(begun.batch.items.len(), LINES);

    let mut begun = Begun::whole();
    std::fs::remove_file(&begun.path).unwrap();
    begun.read_to_end().unwrap();
    assert_eq!(begun.batch.items.len(), LINES);
}

/// A file that is followed rests at its end: what is written over there leaves its length alone.
#[test]
fn a_followed_file_that_is_overwritten_with_as_many_bytes_while_it_waits_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "a.txt", "one\ntwo\n");
    let source = Files::at(&path).follow(true).text();
    let mut reader = source.open(source.discover(&[]).unwrap().new.remove(0)).unwrap();
    let mut batch = Batch::default();
    for _ in 0..3 {
        assert!(matches!(reader.poll(&mut batch, 10).unwrap(), Poll::Idle { .. }));
    }
    overwrite(&path, 0, "uno\ndos\n");
    let error = reader.poll(&mut batch, 10).unwrap_err();
    says(&error, &["a.txt` is not the file", "has 8 bytes now"]);
    assert_eq!(batch.items, ["one", "two"]);
}
