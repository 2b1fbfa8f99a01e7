//! The outer end of a job's program: what it prints and the exit code that tells a script, or a
//! supervisor, what to do next. Knows nothing of how a job runs.

use std::process::ExitCode;

use crate::summary::Summary;
use crate::{Error, Result};

/// Runs the program of a job: prints the summary, or the error, to standard error, and ends with the code of the error's kind ([`ErrorKind::exit_code`]).
///
/// ```
/// use std::process::ExitCode;
/// use isochrone_engine::{Error, ErrorKind, Job, RunArgs};
///
/// let code = isochrone_engine::main(|| {
///     Job::new("no").run(RunArgs::default(), |_| Err(Error::invalid("no input was named")))
/// });
/// assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::from(ErrorKind::Invalid.exit_code())));
/// ```
///
/// [`ErrorKind::exit_code`]: crate::ErrorKind::exit_code
pub fn main(run: impl FnOnce() -> Result<Summary>) -> ExitCode {
    match run() {
        Ok(summary) => {
            eprintln!("{summary}");
            ExitCode::SUCCESS
        }
        Err(error) => fail(&error),
    }
}

fn fail(error: &Error) -> ExitCode {
    eprintln!("error: {}", error.report());
    ExitCode::from(error.kind().exit_code())
}
