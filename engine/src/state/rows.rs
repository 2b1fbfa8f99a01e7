//! Rows of a snapshot: the segment buffer of the persistence crate.

pub use isochrone_persistence::segment::Rows;
