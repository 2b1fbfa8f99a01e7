//! Threads of the engine: each has a name, and none dies in silence.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{self, JoinHandle};

use crate::{Error, Result};

/// Starts a thread. If its work panics, `on_panic` is told there, with an error that names the thread
/// and says what the panic said; whoever joins it gets `None`.
pub(crate) fn spawn<T: Send + 'static>(
    name: &str,
    on_panic: impl FnOnce(Error) + Send + 'static,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<Option<T>>> {
    start(thread::Builder::new(), name, on_panic, work)
}

/// The same with a stack of its own size, for threads of which there may be many.
pub(crate) fn spawn_small<T: Send + 'static>(
    name: &str,
    stack_bytes: usize,
    on_panic: impl FnOnce(Error) + Send + 'static,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<Option<T>>> {
    start(thread::Builder::new().stack_size(stack_bytes), name, on_panic, work)
}

fn start<T: Send + 'static>(
    builder: thread::Builder,
    name: &str,
    on_panic: impl FnOnce(Error) + Send + 'static,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<Option<T>>> {
    let place = format!("thread `{name}`");
    let guarded = move || match guard(&place, work) {
        Ok(value) => Some(value),
        Err(error) => {
            on_panic(error);
            None
        }
    };
    builder.name(name.to_owned()).spawn(guarded).map_err(|error| {
        Error::unavailable(format!("thread `{name}` could not be started")).with_source(error)
    })
}

/// Does work that may panic; the error names the place and says what the panic said.
pub(crate) fn guard<T>(place: &str, work: impl FnOnce() -> T) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| panicked(place, panic.as_ref()))
}

/// For threads whose end nobody waits for, and which lead nowhere else.
pub(crate) fn note(error: Error) {
    tracing::error!("{}", error.report());
}

/// A panic as an error.
pub(crate) fn panicked(place: &str, panic: &(dyn Any + Send)) -> Error {
    Error::user(format!("{place} panicked: {}", text_of(panic)))
}

/// What a panic said.
pub(crate) fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without text")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn a_panic_is_told_with_the_name_of_its_thread_and_what_it_said() {
        let (told, heard) = crossbeam_channel::unbounded();
        let on_panic = move |error| told.send(error).unwrap();
        let number = 7;
        let thread = spawn("isochrone-test", on_panic, move || {
            if number > 6 {
                panic!("no {number}");
            }
            number
        });
        assert_eq!(thread.unwrap().join().unwrap(), None);
        let error = heard.recv().unwrap();
        assert_eq!(error.kind(), ErrorKind::User);
        assert_eq!(error.to_string(), "thread `isochrone-test` panicked: no 7");
    }

    #[test]
    fn who_does_not_panic_is_joined_with_what_it_answers() {
        let thread = spawn("isochrone-test", note, || 7).unwrap();
        assert_eq!(thread.join().unwrap(), Some(7));
        let small = spawn_small("isochrone-test", 256 << 10, note, || 8).unwrap();
        assert_eq!(small.join().unwrap(), Some(8));
    }
}
