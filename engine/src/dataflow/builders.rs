//! How the workers of a process reach one another.

use std::any::Any;

use isochrone_persistence::{Error, Result};
use timely::CommunicationConfig;
pub(crate) use timely::communication::AllocatorBuilder;

/// All workers in one process.
pub(crate) fn in_process(workers: u32) -> Result<(Vec<AllocatorBuilder>, Box<dyn Any + Send>)> {
    let config = match workers {
        1 => CommunicationConfig::Thread,
        n => CommunicationConfig::Process(n as usize),
    };
    config.try_build().map_err(|error| Error::unavailable(format!("workers: {error}")))
}
