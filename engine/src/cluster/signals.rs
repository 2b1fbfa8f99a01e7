//! What a person or an orchestrator asks of a process, as values on a channel.

use crossbeam_channel::Receiver;
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Handle;

use crate::{Error, Result, threads};

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// The first SIGTERM or SIGINT: take a last checkpoint and end.
    Stop,
    /// Each further SIGTERM or SIGINT: end at once.
    Kill,
    /// SIGUSR1: take a checkpoint now.
    Checkpoint,
}

/// Signals of this process, from its installation to its drop; after that SIGTERM, SIGINT and
/// SIGUSR1 do nothing.
///
/// ```
/// use isochrone_engine::cluster::signals::Signals;
/// let signals = Signals::install()?;
/// assert!(signals.receiver().try_recv().is_err());
/// # Ok::<(), isochrone_engine::Error>(())
/// ```
#[derive(Debug)]
pub struct Signals {
    receiver: Receiver<Signal>,
    handle: Handle,
}

impl Signals {
    /// Takes over the three signals.
    pub fn install() -> Result<Signals> {
        let failed = |error: std::io::Error| {
            Error::internal("cannot take over the signals of this process").with_source(error)
        };
        let mut signals =
            signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGUSR1]).map_err(failed)?;
        let handle = signals.handle();
        let (sender, receiver) = crossbeam_channel::unbounded();
        let mut stops = 0;
        let run = move || {
            for number in signals.forever() {
                // Nobody listens only after the drop, which also ends this loop.
                let _nobody_listens = sender.send(meaning(number, &mut stops));
            }
        };
        threads::spawn("isochrone-signals", threads::note, run)?;
        Ok(Signals { receiver, handle })
    }

    /// Where they come out.
    pub fn receiver(&self) -> &Receiver<Signal> {
        &self.receiver
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.handle.close();
    }
}

fn meaning(number: i32, stops: &mut u32) -> Signal {
    if number == SIGUSR1 {
        return Signal::Checkpoint;
    }
    *stops += 1;
    if *stops == 1 { Signal::Stop } else { Signal::Kill }
}
