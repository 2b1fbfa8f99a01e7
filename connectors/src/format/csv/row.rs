//! Splits a row into its fields. Rows without quotes are split where they lie; csv-core undoes the
//! quoting of the others.

use memchr::{memchr, memchr_iter};

use crate::format::{Framing, RecordEnd};

/// Splits one row after the other, reusing its buffers.
#[derive(Debug)]
pub(super) struct RowSplitter {
    delimiter: u8,
    parser: csv_core::Reader,
    /// Fields of a quoted row, without quotes, one behind the other.
    unquoted: Vec<u8>,
    /// Where each field ends.
    ends: Vec<usize>,
}

impl RowSplitter {
    pub(super) fn new(delimiter: u8) -> Self {
        let parser = csv_core::ReaderBuilder::new()
            .delimiter(delimiter)
            // The line end is gone; a carriage return elsewhere is data.
            .terminator(csv_core::Terminator::Any(b'\n'))
            .build();
        RowSplitter { delimiter, parser, unquoted: Vec::new(), ends: Vec::new() }
    }

    #[inline]
    pub(super) fn split<'r>(&'r mut self, row: &'r [u8]) -> Result<Fields<'r>, String> {
        if memchr(b'"', row).is_some() {
            return self.split_quoted(row);
        }
        self.ends.clear();
        self.ends.extend(memchr_iter(self.delimiter, row));
        self.ends.push(row.len());
        Ok(Fields { bytes: row, ends: &self.ends, gap: 1 })
    }

    fn split_quoted(&mut self, row: &[u8]) -> Result<Fields<'_>, String> {
        let mut end = RecordEnd::new(Framing::Quoted { delimiter: self.delimiter });
        if end.find(row).is_some() {
            return Err("a line break outside quotes".to_owned());
        }
        if end.is_inside_quotes(row) {
            return Err("a quoted field without its closing quote".to_owned());
        }
        self.unquoted.resize(row.len().max(self.unquoted.len()), 0);
        self.ends.clear();
        self.ends.resize(memchr_iter(self.delimiter, row).count() + 1, 0);
        self.parser.reset();
        let (_, _, written, fields) =
            self.parser.read_record(row, &mut self.unquoted, &mut self.ends);
        // No more input: the last field ends here.
        let (_, _, _, last) =
            self.parser.read_record(&[], &mut self.unquoted[written..], &mut self.ends[fields..]);
        self.ends.truncate(fields + last);
        Ok(Fields { bytes: &self.unquoted, ends: &self.ends, gap: 0 })
    }
}

/// The fields of one row.
#[derive(Clone, Copy)]
pub(super) struct Fields<'r> {
    bytes: &'r [u8],
    ends: &'r [usize],
    /// Bytes between the end of a field and the start of the next.
    gap: usize,
}

impl<'r> Fields<'r> {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    #[inline]
    pub(super) fn get(&self, at: usize) -> &'r [u8] {
        let start = if at == 0 { 0 } else { self.ends[at - 1] + self.gap };
        &self.bytes[start..self.ends[at]]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &'r [u8]> {
        (0..self.len()).map(|at| self.get(at))
    }
}
