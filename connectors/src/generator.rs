//! Records computed from their number: for examples, benchmarks and trials.
