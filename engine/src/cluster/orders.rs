//! What a supervisor says to its children through their standard input, one word a line, and how a
//! child notices that the supervisor is gone: the pipe ends.

use std::io::{BufRead, BufReader, Read};

use crate::{Result, threads};

/// What a child is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Take a last checkpoint and end with exit code 0.
    Stop,
    /// Take a checkpoint soon.
    Checkpoint,
    /// End at once. Process 0 leaves what the job is waiting for; the others need do nothing.
    Kill,
    /// The supervisor is gone: end at once, since a new set may start any moment. Comes last.
    Orphaned,
}

impl Order {
    /// The line that stands for it; there is none for [`Order::Orphaned`].
    pub(crate) fn line(self) -> &'static str {
        match self {
            Order::Stop => "stop\n",
            Order::Checkpoint => "checkpoint\n",
            Order::Kill => "kill\n",
            Order::Orphaned => "",
        }
    }

    fn of(line: &str) -> Option<Order> {
        let spoken = [Order::Stop, Order::Checkpoint, Order::Kill];
        spoken.into_iter().find(|order| order.line().trim() == line.trim())
    }
}

/// Reads orders from the standard input on a thread of its own; for a process that has an
/// [`Assignment`](super::Assignment), and only for such.
///
/// ```no_run
/// use isochrone_engine::cluster::orders::{self, Order};
/// let (orders, received) = crossbeam_channel::unbounded();
/// orders::watch_stdin(move |order| match order {
///     Order::Orphaned => std::process::exit(4),
///     order => drop(orders.send(order)),
/// })?;
/// # Ok::<(), isochrone_engine::Error>(())
/// ```
pub fn watch_stdin(on_order: impl FnMut(Order) + Send + 'static) -> Result<()> {
    watch(std::io::stdin(), on_order)
}

/// Reads orders from `input` on a thread of its own, until it ends; [`Order::Orphaned`] is the last.
///
/// ```
/// use isochrone_engine::cluster::orders::{self, Order};
/// let (told, orders) = crossbeam_channel::unbounded();
/// orders::watch("stop\n".as_bytes(), move |order| told.send(order).unwrap())?;
/// assert_eq!(orders.iter().collect::<Vec<_>>(), [Order::Stop, Order::Orphaned]);
/// # Ok::<(), isochrone_engine::Error>(())
/// ```
pub fn watch(
    input: impl Read + Send + 'static,
    mut on_order: impl FnMut(Order) + Send + 'static,
) -> Result<()> {
    let read = move || {
        for line in BufReader::new(input).lines().map_while(std::io::Result::ok) {
            match Order::of(&line) {
                Some(order) => on_order(order),
                None => tracing::warn!(line, "unknown order ignored"),
            }
        }
        on_order(Order::Orphaned);
    };
    threads::spawn("isochrone-orders", threads::note, read).map(drop)
}
