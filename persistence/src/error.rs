//! The one error of the workspace: a kind that says what to do next, and a message for people.
//!
//! A kind is added only when callers would act differently; everything else is text. Messages are
//! lowercase, say what was found, where, and what to do, and never repeat their source.

use std::fmt;

/// What the caller does next.
///
/// ```
/// use isochrone_persistence::ErrorKind;
/// assert_eq!(ErrorKind::Fenced.exit_code(), 6);
/// assert!(ErrorKind::Unavailable.is_retriable());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Fix the job, its settings or its input.
    Invalid,
    /// The checkpoint and the job do not fit: add an upgrade, a rename or a drop.
    Incompatible,
    /// A store, file or peer did not answer: try again later.
    Unavailable,
    /// Bytes are not what was written: restore an older checkpoint.
    Corrupt,
    /// A newer generation of the job runs: stop.
    Fenced,
    /// A closure of the user failed; the message names operator and key.
    User,
    /// A fault of this library: report it.
    Internal,
}

impl ErrorKind {
    /// The process exit code of a job that ends with this kind.
    pub fn exit_code(self) -> u8 {
        match self {
            ErrorKind::Invalid => 2,
            ErrorKind::Incompatible => 3,
            ErrorKind::Unavailable => 4,
            ErrorKind::Corrupt => 5,
            ErrorKind::Fenced => 6,
            ErrorKind::User => 7,
            ErrorKind::Internal => 70,
        }
    }

    /// The kind that an exit code stands for, if any.
    pub fn from_exit_code(code: i32) -> Option<ErrorKind> {
        use ErrorKind::*;
        [Invalid, Incompatible, Unavailable, Corrupt, Fenced, User, Internal]
            .into_iter()
            .find(|kind| i32::from(kind.exit_code()) == code)
    }

    /// Whether a new run of the same job may succeed without anybody changing anything.
    pub fn is_retriable(self) -> bool {
        matches!(self, ErrorKind::Unavailable | ErrorKind::Internal)
    }
}

/// An error with its kind, a message and, where there is one, its source.
///
/// ```
/// use isochrone_persistence::{Error, ErrorKind};
/// let error = Error::invalid("flag `--workers` is 0; give 1 or more");
/// assert_eq!(error.kind(), ErrorKind::Invalid);
/// assert_eq!(error.to_string(), "flag `--workers` is 0; give 1 or more");
/// ```
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    message: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// A result with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error of the given kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error(Box::new(Inner { kind, message: message.into(), source: None }))
    }

    /// Shorthand for [`ErrorKind::Invalid`].
    pub fn invalid(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Invalid, message)
    }

    /// Shorthand for [`ErrorKind::Incompatible`].
    pub fn incompatible(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Incompatible, message)
    }

    /// Shorthand for [`ErrorKind::Unavailable`].
    pub fn unavailable(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Unavailable, message)
    }

    /// Shorthand for [`ErrorKind::Corrupt`].
    pub fn corrupt(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Corrupt, message)
    }

    /// Shorthand for [`ErrorKind::Fenced`].
    pub fn fenced(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Fenced, message)
    }

    /// Shorthand for [`ErrorKind::User`].
    pub fn user(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::User, message)
    }

    /// Shorthand for [`ErrorKind::Internal`].
    pub fn internal(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Internal, message)
    }

    /// The same error with the lower-level one that caused it.
    #[must_use]
    pub fn with_source(
        mut self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// The same error, its message saying first what it happened in.
    ///
    /// ```
    /// use isochrone_persistence::Error;
    /// let error = Error::invalid("there is no such topic").within("source `purchases`");
    /// assert_eq!(error.to_string(), "source `purchases`: there is no such topic");
    /// ```
    #[must_use]
    pub fn within(mut self, place: &str) -> Self {
        self.0.message = format!("{place}: {}", self.0.message);
        self
    }

    /// What to do next.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The message followed by those of all its sources, for a log line or a terminal.
    pub fn report(&self) -> String {
        let mut text = self.0.message.clone();
        let mut next = std::error::Error::source(self);
        while let Some(cause) = next {
            text = format!("{text}: {cause}");
            next = cause.source();
        }
        text
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

/// `main` of a job prints an error through `Debug`, so this is the readable report.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?})", self.report(), self.0.kind)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}
