//! Reading a whole source as the engine would.
#![allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]

use std::path::{Path, PathBuf};

use isochrone_engine::Result;
use isochrone_engine::connector::{Batch, Malformed, Poll, Source, Split};

/// What a source gave.
#[derive(Debug, PartialEq)]
pub struct Reading<T> {
    pub items: Vec<T>,
    pub malformed: Vec<Malformed>,
}

pub fn write(folder: &Path, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, content).unwrap();
    path
}

/// Reads all splits, one after the other.
pub fn read<S: Source>(source: &S) -> Result<Reading<S::Item>> {
    let mut batch = Batch::default();
    for split in source.discover(&[])?.new {
        read_split(source, split, &mut batch)?;
    }
    Ok(Reading { items: batch.items, malformed: batch.malformed })
}

pub fn read_split<S: Source>(
    source: &S,
    split: Split<S::Position>,
    batch: &mut Batch<S::Item>,
) -> Result<S::Position> {
    let mut reader = source.open(split)?;
    while reader.poll(batch, 3)? == Poll::Ready {}
    Ok(reader.position())
}
