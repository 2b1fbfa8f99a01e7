//! What the tests of whole programs share.

pub(crate) mod example;
