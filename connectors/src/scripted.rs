//! A source whose steps are data, for tests.
