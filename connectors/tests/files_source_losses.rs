//! A source of files that may lose: what is gone is counted and said, and it goes on with what there is.
#![expect(clippy::unwrap_used, reason = "a failure fails the test")]

mod common;

use std::path::{Path, PathBuf};

use common::{read_split, write};
use isochrone_connectors::files::{FilePosition, FileSource, Files};
use isochrone_connectors::format::Text;
use isochrone_connectors::{OnDataLoss, conformance};
use isochrone_engine::connector::{Batch, Source, Split};
use tempfile::TempDir;

fn continuing(path: &Path) -> FileSource<String, Text> {
    Files::at(path).on_data_loss(OnDataLoss::ContinueFromEarliest).text()
}

/// A file of three lines of four bytes, of which one is read.
fn read_one() -> (TempDir, PathBuf, Split<FilePosition>) {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "a.txt", "one\ntwo\n333\n");
    let source = Files::at(&path).text();
    let split = source.discover(&[]).unwrap().new.remove(0);
    let id = split.id.clone();
    let mut reader = source.open(split).unwrap();
    reader.poll(&mut Batch::default(), 1).unwrap();
    let position = reader.position();
    assert_eq!((position.offset, position.file.size), (4, 12));
    (folder, path, Split { id, position })
}

/// Reads on; gives the records, and where the split stands then.
fn go_on(path: &Path, split: &Split<FilePosition>) -> (Vec<String>, Split<FilePosition>) {
    let mut batch = Batch::default();
    let position = read_split(&continuing(path), split.clone(), &mut batch).unwrap();
    (batch.items, Split { id: split.id.clone(), position })
}

fn lost(split: &Split<FilePosition>) -> (u64, u32) {
    (split.position.lost, split.position.losses)
}

/// What comes after a loss is as safe as before.
fn assert_settled(path: &Path, split: &Split<FilePosition>) {
    let source = Files::at(path).text();
    assert!(!source.has_more(split).unwrap());
    assert!(!continuing(path).has_more(split).unwrap());
}

#[test]
fn what_replaces_a_file_is_read_from_its_beginning_and_what_was_not_read_is_counted() {
    for content in ["uno\ndos\ntres\n", "uno\ndos\n333\n", "uno\n", "u\n", ""] {
        let (_folder, path, split) = read_one();
        std::fs::write(&path, content).unwrap();
        let error = Files::at(&path).text().open(split.clone()).err().unwrap().to_string();
        assert!(error.contains("8 bytes") && error.contains("ContinueFromEarliest"), "{error}");
        let (items, split) = go_on(&path, &split);
        assert_eq!(items, content.lines().collect::<Vec<_>>(), "{content:?}");
        assert_eq!(lost(&split), (8, 1), "{content:?}");
        let shown = continuing(&path).show(&split.position);
        assert!(shown.ends_with(", 8 bytes lost before"), "{shown}");
        assert_settled(&path, &split);
    }
}

#[test]
fn of_a_file_that_was_cut_behind_what_was_read_the_rest_is_read() {
    let (_folder, path, split) = read_one();
    std::fs::write(&path, "one\ntwo\n").unwrap();
    let (items, split) = go_on(&path, &split);
    assert_eq!(items, ["two"]);
    assert_eq!(lost(&split), (4, 1));
    assert_settled(&path, &split);
    // It happens again; all is counted.
    std::fs::write(&path, "one\ntwo\n3\n4\n").unwrap();
    assert!(continuing(&path).has_more(&split).unwrap());
    std::fs::write(&path, "new\n").unwrap();
    let (items, split) = go_on(&path, &split);
    assert_eq!((items, lost(&split)), (vec!["new".to_owned()], (4, 1)));
    assert_settled(&path, &split);
}

#[test]
fn a_file_that_is_gone_is_finished_and_read_when_there_is_one_again() {
    let (_folder, path, split) = read_one();
    std::fs::remove_file(&path).unwrap();
    let (items, split) = go_on(&path, &split);
    assert!(items.is_empty());
    assert_eq!(lost(&split), (8, 1));
    assert_settled(&path, &split);
    // Also for a run that may lose nothing, and that finds the split before it was told as finished.
    let mut nothing = Batch::default();
    let position = read_split(&Files::at(&path).text(), split.clone(), &mut nothing).unwrap();
    assert_eq!((nothing.items.len(), &position), (0, &split.position));
    std::fs::write(&path, "a\nb\n").unwrap();
    assert!(Files::at(&path).text().has_more(&split).unwrap());
    let (items, split) = go_on(&path, &split);
    assert_eq!((items, lost(&split)), (vec!["a".to_owned(), "b".to_owned()], (8, 1)));
}

#[test]
fn a_file_read_to_its_end_may_be_replaced_and_nothing_is_lost() {
    let (_folder, path, split) = read_one();
    let (_, split) = go_on(&path, &split);
    std::fs::write(&path, "uno\ndos\ntres\n").unwrap();
    assert!(continuing(&path).has_more(&split).unwrap());
    let (items, split) = go_on(&path, &split);
    assert_eq!(items, ["uno", "dos", "tres"]);
    assert_eq!(lost(&split), (0, 0));
    assert_settled(&path, &split);
}

/// Each record of the new file is read once, whichever ranges were read of the old one.
#[test]
fn of_a_file_read_in_ranges_the_first_reads_what_replaces_it_and_the_others_end() {
    let folder = tempfile::tempdir().unwrap();
    let old: String = (0..30).map(|n| format!("old {n:03}\n")).collect();
    let new: String = (0..50).map(|n| format!("new {n:03}\n")).collect();
    let path = write(folder.path(), "a.txt", &old);
    let mut splits = Files::at(&path).split_bytes(80).text().discover(&[]).unwrap().new;
    assert_eq!(splits.len(), 3);
    // One is read to its end, one in part, one not at all.
    let mut batch = Batch::default();
    let source = Files::at(&path).text();
    splits[0].position = read_split(&source, splits[0].clone(), &mut batch).unwrap();
    assert_eq!(batch.items.len(), 10);
    let mut reader = source.open(splits[1].clone()).unwrap();
    reader.poll(&mut batch, 4).unwrap();
    splits[1].position = reader.position();

    std::fs::write(&path, &new).unwrap();
    let mut read = Vec::new();
    for (split, expected) in splits.iter_mut().zip([(0, 0), (48, 1), (80, 1)]) {
        let (items, now) = go_on(&path, split);
        read.extend(items);
        assert_eq!(lost(&now), expected, "{}", now.id);
        *split = now;
    }
    assert_eq!(read, new.lines().collect::<Vec<_>>());
    for split in &splits {
        assert_settled(&path, split);
    }
}

#[test]
fn of_a_file_read_in_ranges_that_was_cut_each_keeps_what_is_left_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let text: String = (0..30).map(|n| format!("row {n:03}\n")).collect();
    let path = write(folder.path(), "a.txt", &text);
    let splits = Files::at(&path).split_bytes(80).text().discover(&[]).unwrap().new;
    std::fs::write(&path, &text[..120]).unwrap();
    let mut read = Vec::new();
    for (split, expected) in splits.iter().zip([(0, 0), (40, 1), (80, 1)]) {
        let (items, split) = go_on(&path, split);
        read.extend(items);
        assert_eq!(lost(&split), expected, "{}", split.id);
        assert_settled(&path, &split);
    }
    assert_eq!(read, text[..120].lines().collect::<Vec<_>>());
}

#[test]
fn a_source_that_may_lose_keeps_the_contract_of_sources() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "a.txt", "one\ntwo\n333\n");
    let lines = ["one", "two", "333"].map(str::to_owned);
    conformance::check_source(|| continuing(&path), &lines);
}
