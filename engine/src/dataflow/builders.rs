//! How the workers of a process reach one another.

use std::any::Any;
use std::net::TcpStream;

use isochrone_persistence::{Error, Result};
use timely::CommunicationConfig;
pub(crate) use timely::communication::AllocatorBuilder;
use timely::communication::Hooks;
use timely::communication::allocator::ProcessBuilder;
use timely::communication::allocator::zero_copy::initialize::initialize_networking_from_sockets;

/// What makes each worker's part of the connections, and what keeps them alive.
pub(crate) type Allocators = (Vec<AllocatorBuilder>, Box<dyn Any + Send>);

/// All workers in one process; with `in_bytes`, what they say to one another is encoded.
pub(crate) fn in_process(workers: u32, in_bytes: bool) -> Result<Allocators> {
    let config = match workers {
        n if in_bytes => CommunicationConfig::ProcessBinary(n as usize),
        1 => CommunicationConfig::Thread,
        n => CommunicationConfig::Process(n as usize),
    };
    config.try_build().map_err(|error| Error::unavailable(format!("workers: {error}")))
}

/// Workers of several processes, over sockets that have been opened and proven.
pub(crate) fn across(sockets: Vec<Option<TcpStream>>, me: u32, workers: u32) -> Result<Allocators> {
    let (me, threads) = (me as usize, workers as usize);
    let processes = ProcessBuilder::new_typed_vector(threads, Hooks::default().refill, None);
    let (builders, guard) =
        initialize_networking_from_sockets(processes, sockets, me, threads, Hooks::default())
            .map_err(|error| {
                Error::unavailable("the connections between processes cannot be used")
                    .with_source(error)
            })?;
    Ok((builders.into_iter().map(AllocatorBuilder::Tcp).collect(), Box::new(guard)))
}
