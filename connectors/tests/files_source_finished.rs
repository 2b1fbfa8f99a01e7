//! Files that were read to their end by an earlier run: grown, gone, or no longer the same.
#![expect(clippy::unwrap_used, reason = "a failure fails the test")]

mod common;

use std::path::PathBuf;

use common::write;
use isochrone_connectors::files::{FilePosition, FileSource, Files};
use isochrone_connectors::format::Text;
use isochrone_engine::ErrorKind;
use isochrone_engine::connector::{Batch, Poll, Source, Split};
use tempfile::TempDir;

/// A file of three lines, read to its end.
fn finished() -> (TempDir, PathBuf, FileSource<String, Text>, Split<FilePosition>) {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "a.txt", "one\ntwo\nthree\n");
    let source = Files::at(&path).text();
    let split = source.discover(&[]).unwrap().new.remove(0);
    let id = split.id.clone();
    let mut reader = source.open(split).unwrap();
    while reader.poll(&mut Batch::default(), 100).unwrap() != Poll::Finished {}
    let position = reader.position();
    (folder, path, source, Split { id, position })
}

#[test]
fn a_finished_file_that_stays_or_goes_has_no_more_and_one_that_grows_has() {
    let (_folder, path, source, split) = finished();
    assert!(!source.has_more(&split).unwrap());
    std::fs::write(&path, "one\ntwo\nthree\nfour\n").unwrap();
    assert!(source.has_more(&split).unwrap());
    std::fs::remove_file(&path).unwrap();
    assert!(!source.has_more(&split).unwrap());
}

/// A finished file that was written anew was taken for done, and what stood in it was lost.
#[test]
fn a_finished_file_that_is_no_longer_the_same_is_an_error() {
    for content in ["", "one\n", "1\n2\n3\n4\n5\n6\n7\n", "eno\nowt\neerht\n"] {
        let (_folder, path, source, split) = finished();
        std::fs::write(&path, content).unwrap();
        let error = source.has_more(&split).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{content:?}: {error}");
        assert!(error.to_string().contains("a.txt"), "{error}");
    }
}
