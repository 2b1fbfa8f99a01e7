//! Files that grow, shrink, are replaced, deleted or missing.
#![expect(clippy::unwrap_used, reason = "a failure fails the test")]

mod common;

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use common::{read, write};
use isochrone_connectors::files::{FilePosition, FileSource, Files};
use isochrone_connectors::format::Text;
use isochrone_engine::connector::{Batch, Poll, Reader, Source, Split};
use isochrone_engine::{Error, ErrorKind};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

type Lines = FileSource<String, Text>;
type LinesReader = Box<dyn Reader<String, FilePosition>>;

fn file(content: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "a.txt", content);
    (folder, path)
}

fn append(path: &Path, content: &str) {
    OpenOptions::new().append(true).open(path).unwrap().write_all(content.as_bytes()).unwrap();
}

fn open(source: &Lines) -> (String, LinesReader) {
    let split = source.discover(&[]).unwrap().new.remove(0);
    (split.id.clone(), source.open(split).unwrap())
}

fn poll(reader: &mut LinesReader) -> (Vec<String>, Poll) {
    let mut batch = Batch::default();
    let poll = reader.poll(&mut batch, 100).unwrap();
    (batch.items, poll)
}

fn fails(reader: &mut LinesReader) -> Error {
    reader.poll(&mut Batch::default(), 100).unwrap_err()
}

fn reopen(source: &Lines, position: &FilePosition) -> Result<LinesReader, Error> {
    source.open(Split { id: "a".to_owned(), position: position.clone() })
}

/// Checks that a message has all of these parts.
fn says(error: &Error, parts: &[&str]) {
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}

fn assert_idle(poll: Poll) {
    assert!(matches!(poll, Poll::Idle { .. }), "{poll:?}");
}

#[test]
fn missing_input_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("none.txt");
    for source in [Files::at(&path), Files::at(&path).follow(true)] {
        says(&source.text().discover(&[]).unwrap_err(), &["none.txt` does not exist"]);
    }
}

#[test]
fn a_pattern_that_matches_nothing_is_an_error_unless_followed() {
    let folder = tempfile::tempdir().unwrap();
    let pattern = folder.path().join("*.csv");
    let error = Files::at(&pattern).text().discover(&[]).unwrap_err();
    says(&error, &["no file matches", "*.csv"]);
    let found = Files::at(&pattern).follow(true).text().discover(&[]).unwrap();
    assert!(found.new.is_empty() && !found.complete);
}

#[test]
#[cfg(unix)]
fn input_that_is_no_regular_file_is_refused_without_waiting() {
    says(&read(&Files::at("/dev/null").text()).unwrap_err(), &["/dev/null` is not a regular file"]);
}

#[test]
fn a_directory_gives_its_finished_files_by_name() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["b.txt", "a.txt", ".hidden", "c.txt.open"] {
        write(folder.path(), name, name);
    }
    std::fs::create_dir(folder.path().join("deeper")).unwrap();
    assert_eq!(read(&Files::at(folder.path()).text()).unwrap().items, ["a.txt", "b.txt"]);
    let pattern = folder.path().join("[b-c]*");
    assert_eq!(read(&Files::at(pattern).text()).unwrap().items, ["b.txt"]);
}

#[test]
fn a_file_whose_name_looks_like_a_pattern_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "a[1].txt", "x\n");
    let source = Files::at(path).text();
    assert_eq!(read(&source).unwrap().items, ["x"]);
    let id = source.discover(&[]).unwrap().new.remove(0).id;
    assert!(source.discover(&[id]).unwrap().new.is_empty());
}

#[test]
fn files_that_appear_in_a_followed_directory_are_found_once() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "a.txt", "a\n");
    let source = Files::at(folder.path()).follow(true).text();
    let first = source.discover(&[]).unwrap();
    assert!(!first.complete);
    let mut known = vec![first.new[0].id.clone()];
    assert!(source.discover(&known).unwrap().new.is_empty());
    write(folder.path(), "b.txt", "b\n");
    let second = source.discover(&known).unwrap().new;
    assert_eq!(second.len(), 1);
    known.push(second[0].id.clone());
    assert!(source.discover(&known).unwrap().new.is_empty());
}

#[test]
fn a_followed_line_waits_for_its_line_feed() {
    let (_folder, path) = file("a\nb");
    let source = Files::at(&path).follow(true).text();
    let (_, mut reader) = open(&source);
    let (items, state) = poll(&mut reader);
    assert_eq!(items, ["a"]);
    assert_idle(state);
    append(&path, "c");
    assert_eq!(poll(&mut reader).0.len(), 0);
    append(&path, "\nd\n");
    assert_eq!(poll(&mut reader).0, ["bc", "d"]);
}

#[test]
fn a_followed_file_may_start_empty() {
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    struct Row {
        n: u8,
    }
    let (_folder, path) = file("");
    let source = Files::at(&path).follow(true).csv::<Row>();
    let split = source.discover(&[]).unwrap().new.remove(0);
    let mut reader = source.open(split).unwrap();
    let mut batch = Batch::default();
    for piece in ["\u{feff}", "n", "\n", "1\n2"] {
        assert_idle(reader.poll(&mut batch, 10).unwrap());
        append(&path, piece);
    }
    assert_idle(reader.poll(&mut batch, 10).unwrap());
    assert_eq!(batch.items, [Row { n: 1 }]);
    assert_eq!(reader.position().line, Some(3));
}

#[test]
fn a_position_behind_what_has_grown_can_be_opened_again() {
    let (_folder, path) = file("one\n");
    let source = Files::at(&path).follow(true).text();
    let (_, mut reader) = open(&source);
    for length in [1, 100, 5_000, 1] {
        poll(&mut reader);
        append(&path, &"x".repeat(length));
        append(&path, "\ny\n");
        assert_eq!(poll(&mut reader).0.len(), 2);
        reader = reopen(&source, &reader.position()).unwrap();
    }
    assert_idle(poll(&mut reader).1);
}

#[test]
fn a_file_that_grew_after_its_end_has_more() {
    let (_folder, path) = file("a\nb");
    let source = Files::at(&path).text();
    let (id, mut reader) = open(&source);
    assert_eq!(poll(&mut reader), (vec!["a".to_owned(), "b".to_owned()], Poll::Finished));
    let split = Split { id: id.clone(), position: reader.position() };
    assert!(!source.has_more(&split).unwrap());
    append(&path, "\r\nc\n");
    assert!(source.has_more(&split).unwrap());
    assert!(source.discover(&[id]).unwrap().new.is_empty());
    let mut reader = source.open(split).unwrap();
    assert_eq!(poll(&mut reader).0, ["c"]);
}

#[test]
fn a_last_line_that_grew_after_it_was_read_is_an_error() {
    let (_folder, path) = file("a\nb");
    let source = Files::at(&path).text();
    let (_, mut reader) = open(&source);
    poll(&mut reader);
    append(&path, "cd\n");
    let error = reopen(&source, &reader.position()).err().unwrap();
    says(&error, &["a.txt", "grown within its last line", "byte 3"]);
}

#[test]
fn a_file_shorter_than_the_position_is_an_error_that_counts_the_loss() {
    let (_folder, path) = file("one\ntwo\nthree\n");
    let source = Files::at(&path).text();
    let (_, mut reader) = open(&source);
    reader.poll(&mut Batch::default(), 1).unwrap();
    let position = reader.position();
    std::fs::write(&path, "one\ntw").unwrap();
    let error = reopen(&source, &position).err().unwrap();
    says(&error, &["a.txt` was 14 bytes long and is 6 now", "up to byte 4", "8 bytes"]);
}

#[test]
fn a_file_with_other_content_than_was_read_is_an_error() {
    let (_folder, path) = file("one\ntwo\nthree\n");
    let source = Files::at(&path).text();
    let (_, mut reader) = open(&source);
    reader.poll(&mut Batch::default(), 2).unwrap();
    let position = reader.position();
    std::fs::write(&path, "one\ntwO\nthree\nfour\n").unwrap();
    let error = reopen(&source, &position).err().unwrap();
    says(&error, &["a.txt` is not the file", "up to byte 8 of 14", "6 bytes"]);
}

#[test]
fn other_content_is_found_right_before_a_far_position() {
    let content = "0123456789abcdef\n".repeat(10_000);
    let (_folder, path) = file(&content);
    let source = Files::at(&path).text();
    let (_, mut reader) = open(&source);
    reader.poll(&mut Batch::default(), 5_000).unwrap();
    let position = reader.position();
    reopen(&source, &position).unwrap();
    let mut other = content.into_bytes();
    other[position.offset as usize - 3] = b'X';
    std::fs::write(&path, other).unwrap();
    says(&reopen(&source, &position).err().unwrap(), &["is not the file"]);
}

#[test]
fn a_copy_of_a_file_goes_on_where_the_first_stood() {
    let (_folder, path) = file("one\ntwo\n");
    let source = Files::at(&path).text();
    let (_, mut reader) = open(&source);
    reader.poll(&mut Batch::default(), 1).unwrap();
    let copy = path.with_extension("copy");
    std::fs::copy(&path, &copy).unwrap();
    std::fs::rename(&copy, &path).unwrap();
    let mut reader = reopen(&source, &reader.position()).unwrap();
    assert_eq!(poll(&mut reader).0, ["two"]);
}

#[test]
fn a_followed_file_that_shrinks_is_an_error() {
    let (_folder, path) = file("one\ntwo\n");
    let (_, mut reader) = open(&Files::at(&path).follow(true).text());
    poll(&mut reader);
    std::fs::write(&path, "one\n").unwrap();
    says(&fails(&mut reader), &["a.txt` was 8 bytes long and is 4 now", "up to byte 8"]);
}

#[test]
fn a_followed_file_that_is_cut_and_written_anew_is_an_error() {
    let (_folder, path) = file("one\ntwo\n");
    let (_, mut reader) = open(&Files::at(&path).follow(true).text());
    poll(&mut reader);
    std::fs::write(&path, "uno\ndos\ntres\n").unwrap();
    says(&fails(&mut reader), &["a.txt` is not the file", "13 bytes"]);
}

#[test]
#[cfg(unix)]
fn a_followed_file_that_is_replaced_is_read_to_its_end_and_then_an_error() {
    let (folder, path) = file("one\n");
    let (_, mut reader) = open(&Files::at(&path).follow(true).text());
    poll(&mut reader);
    append(&path, "two\n");
    let other = write(folder.path(), "other", "one\ntwo\nthree\n");
    std::fs::rename(other, &path).unwrap();
    let mut batch = Batch::default();
    let error = reader.poll(&mut batch, 100).unwrap_err();
    assert_eq!(batch.items, ["two"]);
    says(&error, &["a.txt` is not the file", "another of 14 bytes", "what was added to it since"]);
}

#[test]
#[cfg(unix)]
fn a_followed_file_of_a_folder_that_is_deleted_is_finished_if_it_was_read_to_its_end() {
    let (folder, path) = file("one\n");
    let source = Files::at(folder.path()).follow(true).text();
    let (id, mut reader) = open(&source);
    poll(&mut reader);
    append(&path, "two\n");
    std::fs::remove_file(&path).unwrap();
    assert_eq!(poll(&mut reader), (vec!["two".to_owned()], Poll::Finished));
    assert_eq!(poll(&mut reader), (vec![], Poll::Finished));
    let position = reader.position();
    assert!(!source.has_more(&Split { id: id.clone(), position: position.clone() }).unwrap());
    assert!(source.discover(&[id]).unwrap().new.is_empty());
    says(&reopen(&source, &position).err().unwrap(), &["a.txt` was deleted", "byte 8 of 8"]);
}

/// As rotation does: the writer may not know yet.
#[test]
#[cfg(unix)]
fn the_only_file_that_is_followed_has_no_end_when_it_is_moved_away() {
    let (folder, path) = file("one\n");
    let source = Files::at(&path).follow(true).text();
    let (id, mut reader) = open(&source);
    poll(&mut reader);
    let moved = folder.path().join("a.txt.1");
    std::fs::rename(&path, &moved).unwrap();
    assert_idle(poll(&mut reader).1);
    append(&moved, "two\n");
    assert_eq!(poll(&mut reader).0, ["two"]);
    assert_idle(poll(&mut reader).1);
    let position = reader.position();
    assert!(source.discover(&[id]).unwrap().new.is_empty());
    let gone =
        ["a.txt` was deleted", "byte 8 of 8", "what was added to it since, if anything, is lost"];
    says(&reopen(&source, &position).err().unwrap(), &gone);
    write(folder.path(), "a.txt", "other\n");
    says(&fails(&mut reader), &["a.txt` is not the file", "replaced by another"]);
}

#[test]
#[cfg(unix)]
fn a_followed_file_that_is_deleted_within_a_line_is_an_error() {
    let (_folder, path) = file("one\ntw");
    let (_, mut reader) = open(&Files::at(&path).follow(true).text());
    poll(&mut reader);
    std::fs::remove_file(&path).unwrap();
    says(&fails(&mut reader), &["a.txt` was deleted", "up to byte 4 of 6", "2 bytes"]);
}

#[test]
#[cfg(unix)]
fn a_file_that_is_deleted_while_read_is_read_to_its_end() {
    let (_folder, path) = file("one\ntwo\n");
    let (_, mut reader) = open(&Files::at(&path).text());
    std::fs::remove_file(&path).unwrap();
    assert_eq!(poll(&mut reader), (vec!["one".to_owned(), "two".to_owned()], Poll::Finished));
}

#[test]
fn a_file_that_shrinks_while_read_is_an_error() {
    let (_folder, path) = file(&"0123456789\n".repeat(200_000));
    let (_, mut reader) = open(&Files::at(&path).text());
    reader.poll(&mut Batch::default(), 10).unwrap();
    OpenOptions::new().write(true).open(&path).unwrap().set_len(1_000_000).unwrap();
    let mut batch = Batch::default();
    let error = loop {
        match reader.poll(&mut batch, 10_000) {
            Ok(poll) => assert_eq!(poll, Poll::Ready),
            Err(error) => break error,
        }
    };
    says(&error, &["was 2200000 bytes long and is 1000000 now"]);
    assert!(batch.items.iter().all(|line| line == "0123456789"));
}

#[test]
fn a_range_of_a_file_that_was_replaced_is_an_error() {
    let (_folder, path) = file(&"0123456789\n".repeat(100));
    let source = Files::at(&path).split_bytes(500).text();
    let split = source.discover(&[]).unwrap().new.remove(1);
    std::fs::write(&path, "abcdefghij\n".repeat(100)).unwrap();
    says(&source.open(split).err().unwrap(), &["is not the file"]);
}

#[test]
fn a_file_is_the_same_however_its_path_is_spelled() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "a.txt", "one\n");
    let at = folder.path().to_str().unwrap();
    let spelled = [format!("{at}/a.txt"), format!("{at}/./a.txt"), format!("{at}//a.txt")];
    let ids = |path: &String, known: &[String]| -> Vec<String> {
        let found = Files::at(path).text().discover(known).unwrap();
        found.new.into_iter().map(|split| split.id).collect()
    };
    for first in &spelled {
        let known = ids(first, &[]);
        assert_eq!(known, ids(&spelled[0], &[]), "{first}");
        for then in &spelled {
            assert_eq!(ids(then, &known), Vec::<String>::new(), "{first} {then}");
        }
    }
    // As programs are started from here.
    let inside = Files::at("Cargo.toml").text().discover(&[]).unwrap().new.remove(0);
    let path = std::env::current_dir().unwrap().join("Cargo.toml");
    assert!(inside.id.starts_with(path.to_str().unwrap()), "{}", inside.id);
    // What was written by an earlier version as it was spelled is known too.
    let as_spelled = inside.id.replace(path.to_str().unwrap(), "./Cargo.toml");
    assert_eq!(ids(&path.to_str().unwrap().to_owned(), &[as_spelled]), Vec::<String>::new());
}
