//! Where a record of a file ends. One automaton for planning splits and for reading them, so that
//! they cannot disagree.

use memchr::{memchr, memchr2};

/// How records are told apart in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Every line feed ends a record.
    Lines,
    /// A line feed ends a record unless it is inside a field that begins with a double quote.
    Quoted {
        /// Between two fields.
        delimiter: u8,
    },
}

/// Looks for the end of one record in bytes that arrive piece by piece, each byte once.
///
/// ```
/// use isochrone_connectors::format::{Framing, RecordEnd};
/// let mut end = RecordEnd::new(Framing::Quoted { delimiter: b',' });
/// assert_eq!(end.find(b"1,\"two\n"), None);
/// assert_eq!(end.find(b"1,\"two\nlines\"\n2,x\n"), Some(13));
/// ```
#[derive(Clone, Debug)]
pub struct RecordEnd {
    framing: Framing,
    /// Bytes from the start of the record that need no second look.
    seen: usize,
    inside_quotes: bool,
    quoted: bool,
    /// Where the last quoted field began.
    opened: usize,
}

impl RecordEnd {
    /// At the start of a record.
    pub fn new(framing: Framing) -> Self {
        RecordEnd { framing, seen: 0, inside_quotes: false, quoted: false, opened: 0 }
    }

    /// The index of the line feed that ends the record at the start of `data`, if it is there.
    /// Called again with more data of the same record, it goes on where it stopped.
    #[inline]
    pub fn find(&mut self, data: &[u8]) -> Option<usize> {
        match self.framing {
            Framing::Lines => self.find_line_end(data),
            Framing::Quoted { delimiter } => self.find_row_end(data, delimiter),
        }
    }

    /// Ready for the next record.
    #[inline]
    pub fn reset(&mut self) {
        self.seen = 0;
        self.inside_quotes = false;
        self.quoted = false;
    }

    /// Whether nothing of the record was looked at yet.
    pub fn is_at_start(&self) -> bool {
        self.seen == 0
    }

    /// Whether the record has a quoted field, and so perhaps line feeds.
    #[inline]
    pub fn has_quotes(&self) -> bool {
        self.quoted
    }

    /// Whether the bytes so far end inside a quoted field.
    pub fn is_inside_quotes(&self, data: &[u8]) -> bool {
        // A quote that is the very last byte closes its field.
        self.inside_quotes && data[self.seen..].is_empty()
    }

    /// The index of the quote that began the field inside which the bytes so far end. Not to be asked
    /// once bytes were dropped.
    ///
    /// ```
    /// use isochrone_connectors::format::{Framing, RecordEnd};
    /// let mut end = RecordEnd::new(Framing::Quoted { delimiter: b',' });
    /// assert_eq!(end.find(b"1,\"two\n3,4\n"), None);
    /// assert_eq!(end.open_quote(b"1,\"two\n3,4\n"), Some(2));
    /// ```
    pub fn open_quote(&self, data: &[u8]) -> Option<usize> {
        self.is_inside_quotes(data).then_some(self.opened)
    }

    /// How many of the bytes seen so far are not needed to find the end. They may be dropped by a
    /// caller who does not keep the record.
    pub fn droppable(&mut self) -> usize {
        // The last byte tells whether a quote after it begins a field.
        let dropped = self.seen.saturating_sub(1);
        self.seen -= dropped;
        dropped
    }

    #[inline]
    fn find_line_end(&mut self, data: &[u8]) -> Option<usize> {
        match memchr(b'\n', &data[self.seen..]) {
            Some(at) => Some(self.seen + at),
            None => {
                self.seen = data.len();
                None
            }
        }
    }

    #[inline]
    fn find_row_end(&mut self, data: &[u8], delimiter: u8) -> Option<usize> {
        loop {
            if self.inside_quotes && !self.leave_quotes(data) {
                return None;
            }
            let Some(at) = memchr2(b'\n', b'"', &data[self.seen..]) else {
                self.seen = data.len();
                return None;
            };
            let at = self.seen + at;
            if data[at] == b'\n' {
                return Some(at);
            }
            // Elsewhere in a field a quote is a character like any other.
            self.inside_quotes = at == 0 || data[at - 1] == delimiter;
            self.quoted |= self.inside_quotes;
            self.opened = at;
            self.seen = at + 1;
        }
    }

    /// Goes behind the closing quote, if it is there for sure.
    fn leave_quotes(&mut self, data: &[u8]) -> bool {
        while let Some(at) = memchr(b'"', &data[self.seen..]) {
            let at = self.seen + at;
            match data.get(at + 1) {
                // Perhaps the first half of a doubled quote.
                None => {
                    self.seen = at;
                    return false;
                }
                Some(b'"') => self.seen = at + 2,
                Some(_) => {
                    self.seen = at + 1;
                    self.inside_quotes = false;
                    return true;
                }
            }
        }
        self.seen = data.len();
        false
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Byte after byte, keeping all flags by hand.
    fn naive_end(data: &[u8]) -> Option<usize> {
        let (mut quoted, mut at) = (false, 0);
        let mut start_of_field = true;
        while at < data.len() {
            let doubled = quoted && data[at] == b'"' && data.get(at + 1) == Some(&b'"');
            match data[at] {
                b'"' if doubled => at += 1,
                b'"' if quoted => quoted = false,
                b'"' if start_of_field => quoted = true,
                b'\n' if !quoted => return Some(at),
                _ => {}
            }
            start_of_field = !quoted && data[at] == b',';
            at += 1;
        }
        None
    }

    proptest! {
        #[test]
        fn the_end_of_a_record_is_the_same_however_its_bytes_arrive(
            data in prop::collection::vec(prop::sample::select(&b"\"\"\"\n,a"[..]), 0..40),
            piece in 1usize..5,
            drop in any::<bool>(),
        ) {
            let mut end = RecordEnd::new(Framing::Quoted { delimiter: b',' });
            let (mut from, mut to, mut found) = (0, 0, None);
            while to < data.len() && found.is_none() {
                to = data.len().min(to + piece);
                found = end.find(&data[from..to]).map(|at| from + at);
                if drop && found.is_none() {
                    from += end.droppable();
                }
            }
            prop_assert_eq!(found, naive_end(&data));
        }
    }
}
