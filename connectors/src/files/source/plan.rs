//! Cuts a file into splits at record boundaries.
//!
//! The cut depends on the file and the settings only. Lines are found from any place on; quoted
//! rows only from the start of the file, since a quote means opening or closing by those before.

use isochrone_engine::Result;
use isochrone_engine::connector::Split;

use super::Settings;
use super::blocks::Blocks;
use super::header::{pass_byte_order_mark, take_header};
use super::position::FilePosition;
use super::record::{count_lines, line_feeds};
use crate::format::{Format, Framing, RecordEnd};

/// The splits of a file that was not known before.
pub(super) fn splits_of<F: Format>(
    path: &str,
    settings: &Settings,
    format: &F,
) -> Result<Vec<Split<FilePosition>>> {
    let mut blocks = Blocks::open(path, 0, None, 0)?;
    let mut positions =
        vec![FilePosition { file: blocks.identity(), ..FilePosition::at_start(path) }];
    if !settings.follow && blocks.size() > settings.split_bytes {
        add_boundaries(&mut blocks, &mut positions, settings, format)?;
    }
    Ok(positions.into_iter().map(FilePosition::into_split).collect())
}

fn add_boundaries<F: Format>(
    blocks: &mut Blocks,
    positions: &mut Vec<FilePosition>,
    settings: &Settings,
    format: &F,
) -> Result<()> {
    let size = blocks.size();
    let mut line = Some(1);
    while !pass_byte_order_mark(blocks) && blocks.fill()? {}
    let header = if format.has_header() {
        let Some(header) = read_header(blocks, format, settings, &mut line)? else { return Ok(()) };
        Some(header)
    } else {
        None
    };
    let mut target = settings.split_bytes;
    while target < size {
        let Some(boundary) = next_boundary(blocks, format.framing(), target, &mut line)? else {
            break;
        };
        if boundary >= size {
            break;
        }
        let last = positions.last_mut().expect("the first position is there from the start");
        last.end = Some(boundary);
        positions.push(FilePosition {
            offset: boundary,
            line,
            header: header.clone(),
            file: blocks.identity(),
            ..FilePosition::at_start(blocks.path())
        });
        target = (boundary / settings.split_bytes + 1) * settings.split_bytes;
    }
    Ok(())
}

/// Goes to the first start of a record at or behind `target`.
fn next_boundary(
    blocks: &mut Blocks,
    framing: Framing,
    target: u64,
    line: &mut Option<u64>,
) -> Result<Option<u64>> {
    if framing == Framing::Lines {
        // The line before may end right at the target.
        *blocks = Blocks::open(blocks.path(), target - 1, None, blocks.size())?;
        *line = None;
    }
    let mut end = RecordEnd::new(framing);
    loop {
        if framing != Framing::Lines && blocks.offset() >= target && end.is_at_start() {
            return Ok(Some(blocks.offset()));
        }
        match end.find(blocks.unread()) {
            Some(at) => {
                count_lines(line, &end, &blocks.unread()[..=at]);
                blocks.consume(at + 1);
                end.reset();
                if framing == Framing::Lines {
                    return Ok(Some(blocks.offset()));
                }
            }
            None => {
                let dropped = end.droppable();
                let passed = line_feeds(&blocks.unread()[..dropped]);
                *line = line.map(|line| line + passed);
                blocks.consume(dropped);
                if !blocks.fill()? {
                    return Ok(None);
                }
            }
        }
    }
}

/// The header, unless the file ends before it does: then it has no records.
fn read_header<F: Format>(
    blocks: &mut Blocks,
    format: &F,
    settings: &Settings,
    line: &mut Option<u64>,
) -> Result<Option<String>> {
    let mut end = RecordEnd::new(format.framing());
    loop {
        let header = take_header(blocks, &mut end, line, settings.record_bytes_max, false)?;
        if header.is_some() || !blocks.fill()? {
            return Ok(header);
        }
    }
}
