//! Files as input and output.

mod source;

pub use source::{FileIdentity, FilePosition, FileSource, Files};
