//! What every source must do.
