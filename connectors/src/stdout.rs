//! Lines on standard output, at least once.
//!
//! A terminal or a pipe cannot take anything back, and holding an epoch's lines until its
//! checkpoint exists would take memory without bound: so lines are written at once.

use std::io::{ErrorKind, Write};
use std::marker::PhantomData;

use isochrone_engine::connector::{Committer, Prepare, Readiness, Sink, SinkContext, Writer};
use isochrone_engine::ids::Epoch;
use isochrone_engine::{Error, Result};
use serde::Serialize;

use crate::files::{json_line, text_line};
use crate::immediate::{Nothing, NothingToCommit, nothing_to_prepare};

/// Writes records to standard output as lines, **at least once**: after a crash, the lines since
/// the last checkpoint are written again.
///
/// ```
/// use isochrone_connectors::Stdout;
/// let as_json = Stdout::json::<(String, u64)>();
/// let as_text = Stdout::text::<String>();
/// ```
pub struct Stdout;

impl Stdout {
    /// One JSON value a line.
    pub fn json<T: Serialize + 'static>() -> StdoutSink<T> {
        StdoutSink { line: json_line, item: PhantomData }
    }

    /// One text a line.
    pub fn text<T: AsRef<str> + 'static>() -> StdoutSink<T> {
        StdoutSink { line: text_line, item: PhantomData }
    }
}

type Line<T> = fn(&T, &mut Vec<u8>) -> Result<()>;

/// The sink that [`Stdout`] describes.
pub struct StdoutSink<T> {
    line: Line<T>,
    item: PhantomData<fn(T)>,
}

impl<T: 'static> Sink for StdoutSink<T> {
    type Item = T;
    type Effect = NothingToCommit;

    fn writer(&self, _context: &SinkContext) -> Result<Box<dyn Writer<T, NothingToCommit>>> {
        Ok(Box::new(LineWriter { line: self.line, buffer: Vec::new(), out: std::io::stdout() }))
    }

    fn committer(&self, _context: &SinkContext) -> Result<Box<dyn Committer<NothingToCommit>>> {
        Ok(Box::new(Nothing))
    }
}

const BUFFER_BYTES: usize = 64 * 1024;

struct LineWriter<T, W> {
    line: Line<T>,
    buffer: Vec<u8>,
    out: W,
}

impl<T, W: Write> LineWriter<T, W> {
    /// Writes whole lines only, in one call: lines of several workers never mix.
    fn write_out(&mut self) -> Result<()> {
        let written = self.out.write_all(&self.buffer).and_then(|()| self.out.flush());
        self.buffer.clear();
        written.map_err(|e| match e.kind() {
            ErrorKind::BrokenPipe => Error::invalid(
                "standard output was closed by what reads it; keep it open while the job runs",
            ),
            _ => Error::unavailable("cannot write to standard output").with_source(e),
        })
    }
}

impl<T: 'static, W: Write + 'static> Writer<T, NothingToCommit> for LineWriter<T, W> {
    fn write(&mut self, batch: &mut Vec<T>, _epoch: Epoch) -> Result<Readiness> {
        for item in batch.drain(..) {
            (self.line)(&item, &mut self.buffer)?;
            if self.buffer.len() >= BUFFER_BYTES {
                self.write_out()?;
            }
        }
        self.write_out()?;
        Ok(Readiness::Ready)
    }

    fn prepare(&mut self, _epoch: Epoch) -> Result<Prepare<NothingToCommit>> {
        Ok(nothing_to_prepare())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::io;
    use std::rc::Rc;

    use isochrone_engine::ErrorKind as Kind;

    use super::*;

    #[derive(Clone, Default)]
    struct Terminal(Rc<RefCell<Vec<u8>>>);

    impl Write for Terminal {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.borrow_mut().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct ClosedPipe;

    impl Write for ClosedPipe {
        fn write(&mut self, _bytes: &[u8]) -> io::Result<usize> {
            Err(ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_are_out_when_write_returns_and_nothing_is_left_to_commit() {
        let terminal = Terminal::default();
        let sink = Stdout::json::<(String, u32)>();
        let mut writer = LineWriter { line: sink.line, buffer: Vec::new(), out: terminal.clone() };
        let mut batch = vec![("a\"b".to_owned(), 1), ("c".to_owned(), 2)];
        assert_eq!(writer.write(&mut batch, Epoch(1)).unwrap(), Readiness::Ready);
        assert!(batch.is_empty());
        assert_eq!(*terminal.0.borrow(), b"[\"a\\\"b\",1]\n[\"c\",2]\n");
        assert!(writer.prepare(Epoch(1)).unwrap()().unwrap().is_none());
    }

    #[test]
    fn text_is_written_as_it_is() {
        let terminal = Terminal::default();
        let line = Stdout::text::<&str>().line;
        let mut writer = LineWriter { line, buffer: Vec::new(), out: terminal.clone() };
        writer.write(&mut vec!["one", "two"], Epoch(1)).unwrap();
        assert_eq!(*terminal.0.borrow(), b"one\ntwo\n");
    }

    #[test]
    fn a_closed_pipe_is_not_worth_a_retry() {
        let line = Stdout::text::<&str>().line;
        let mut writer = LineWriter { line, buffer: Vec::new(), out: ClosedPipe };
        let error = writer.write(&mut vec!["one"], Epoch(1)).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid);
    }
}
