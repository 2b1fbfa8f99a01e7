//! The processes of a run as they find each other, before anything is under way.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};
use isochrone_persistence::{Error, ErrorKind, Result};

use super::conductor::{Call, failed_to};
use super::message::Report;
use super::wire::{Downward, Upward};
use crate::cluster::{Hub, Link, LinkEvent, Member};
use crate::threads;

/// How long all processes together may take to find each other, and then to connect.
pub(crate) const GATHER_TIMEOUT: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 60 });

/// The other processes of a run, as process 0 has them.
pub(crate) struct Company {
    pub(crate) me: Member,
    pub(super) links: Vec<Link>,
    pub(super) events: Receiver<LinkEvent>,
    pub(super) listener: TcpListener,
    address: SocketAddr,
}

impl Company {
    /// Waits for the others at the hub.
    pub(crate) fn gather(me: Member, hub: Hub) -> Result<Company> {
        let (events, received) = crossbeam_channel::unbounded();
        let links = hub.gather(&me, GATHER_TIMEOUT, &events)?;
        let (listener, address) = hub.into_listener();
        Ok(Company { me, links, events: received, listener, address })
    }

    /// Where each takes data connections, as it says when it has joined.
    pub(super) fn addresses(&self) -> Result<Vec<SocketAddr>> {
        let others = self.hear(Some(GATHER_TIMEOUT), |said| match said {
            Upward::Listening { address } => Some(address),
            _ => None,
        })?;
        Ok(std::iter::once(self.address).chain(others).collect())
    }

    /// Waits until each has its share of the checkpoint. That takes as long as it takes: who is lost
    /// meanwhile, or cannot have it, says so.
    pub(super) fn loaded(&self) -> Result<()> {
        let heard = self.hear(None, |said| matches!(said, Upward::Loaded).then_some(()));
        heard.map(drop)
    }

    /// What each of the others says, in their order; the wait for each next one is bounded if so said.
    fn hear<T>(
        &self,
        timeout: Option<Duration>,
        pick: impl Fn(Upward) -> Option<T>,
    ) -> Result<Vec<T>> {
        let mut heard: Vec<Option<T>> = self.links.iter().map(|_| None).collect();
        while let Some(missing) = heard.iter().position(Option::is_none) {
            let event = match timeout {
                Some(timeout) => self.events.recv_timeout(timeout).ok(),
                None => self.events.recv().ok(),
            };
            match event {
                Some(LinkEvent::Frame { process, bytes }) => match Upward::decode(&bytes)? {
                    Upward::Report(Report::Failed(failure)) => return Err(failure.into()),
                    said => {
                        let seat = &mut heard[process as usize - 1];
                        *seat = pick(said).or(seat.take());
                    }
                },
                Some(LinkEvent::Lost { process, reason }) => {
                    return Err(Error::unavailable(format!(
                        "process {process} was lost before the start: {reason}"
                    )));
                }
                None => {
                    return Err(Error::unavailable(format!(
                        "process {} has joined and says nothing",
                        missing + 1
                    )));
                }
            }
        }
        Ok(heard.into_iter().flatten().collect())
    }

    /// Fails with `Invalid` if the message is too long. A link that is lost is told by its own event.
    pub(super) fn tell(links: &[Link], message: &Downward) -> Result<()> {
        let bytes = message.encode();
        for link in links {
            match link.deliver(&bytes) {
                Err(error) if error.kind() == ErrorKind::Invalid => return Err(error),
                Err(error) => {
                    tracing::debug!(%error, process = link.process(), "an order was not sent");
                }
                Ok(()) => {}
            }
        }
        Ok(())
    }
}

/// Waits for other processes on a thread of its own, and hears meanwhile what is asked of this one.
///
/// `None`: it is to stop. Nothing is under way yet, so it may leave at once; the thread finds that
/// nobody waits for it, and lets go of whoever has come. What else is asked is kept for the run.
pub(super) fn unless_stopped<T: Send + 'static>(
    calls: &(Sender<Call>, Receiver<Call>),
    awaited: &str,
    wait: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<Option<T>> {
    let (sender, inbox) = calls;
    let (done, result) = crossbeam_channel::bounded(1);
    let panicked = done.clone();
    let on_panic = move |error| drop(panicked.send(Err(error)));
    threads::spawn("isochrone-gathering", on_panic, move || drop(done.send(wait())))?;
    let mut kept = Vec::new();
    let end = loop {
        crossbeam_channel::select! {
            recv(result) -> end => break end.unwrap_or_else(|_| Err(Error::internal("no answer"))),
            recv(inbox) -> call => match call {
                Ok(Call::Stop) => return Ok(None),
                Ok(Call::Awaited { answer }) => drop(answer.send(awaited.to_owned())),
                Ok(call) => kept.push(call),
                Err(_) => return Err(Error::internal("nobody can ask anything any more")),
            },
        }
    };
    kept.into_iter().for_each(|call| drop(sender.send(call)));
    end.map(Some)
}

/// Passes on what the other processes say, on a thread that ends with their links.
pub(super) fn listen_to(events: Receiver<LinkEvent>, calls: Sender<Call>) -> Result<()> {
    let on_panic = failed_to(calls.clone());
    let pass_on = move || {
        for event in events {
            let call = match event {
                LinkEvent::Frame { process, bytes } => match Upward::decode(&bytes) {
                    Ok(Upward::Report(report)) => Call::Report(report),
                    Ok(Upward::Listening { .. } | Upward::Loaded) => continue,
                    Err(error) => Call::Lost { process: process as usize, reason: error.report() },
                },
                LinkEvent::Lost { process, reason } => {
                    Call::Lost { process: process as usize, reason: reason.to_string() }
                }
            };
            if calls.send(call).is_err() {
                return;
            }
        }
    };
    threads::spawn("isochrone-listener", on_panic, pass_on).map(drop)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::ops::Range;
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;

    use isochrone_persistence::Store;
    use isochrone_persistence::store::Created;
    use isochrone_persistence::store::memory::MemoryStore;

    use super::*;
    use crate::args::RunArgs;
    use crate::cluster::deadline::pause;
    use crate::job::{Checkpoint, Job};
    use crate::summary::{Outcome, Summary};
    use crate::testing::Script;

    /// A store that gives out segments after `delay`, or fails to.
    #[derive(Clone, Default)]
    struct Slow {
        store: MemoryStore,
        delay: Duration,
        is_broken: bool,
    }

    impl Store for Slow {
        fn get(&self, name: &str) -> Result<Option<Vec<u8>>> {
            if name.ends_with(".seg") {
                pause(self.delay);
                if self.is_broken {
                    return Err(Error::unavailable("the store is away"));
                }
            }
            self.store.get(name)
        }

        fn get_range(&self, name: &str, range: Range<u64>) -> Result<Option<Vec<u8>>> {
            self.store.get_range(name, range)
        }

        fn put(&self, name: &str, bytes: &[u8]) -> Result<()> {
            self.store.put(name, bytes)
        }

        fn put_if_absent(&self, name: &str, bytes: &[u8]) -> Result<Created> {
            self.store.put_if_absent(name, bytes)
        }

        fn list(&self, prefix: &str) -> Result<Vec<String>> {
            self.store.list(prefix)
        }

        fn delete(&self, name: &str) -> Result<()> {
            self.store.delete(name)
        }

        fn describe(&self) -> String {
            self.store.describe()
        }
    }

    /// Counts the first numbers; answers with the sum of all counts that it has seen, since it began.
    fn run(store: Slow, args: RunArgs, numbers: u64) -> (Result<Summary>, u64) {
        let seen = Arc::new(AtomicU64::new(0));
        let sum = seen.clone();
        let job = Job::new("loads").checkpoint(Checkpoint::store(store));
        let end = job.run(args, move |flow| {
            let sum = sum.clone();
            let _counts = flow
                .source("numbers", Script::new(1, vec![(0..numbers).collect()]))
                .key_by(|number| number % 10)
                .state::<u64>("counts")
                .map(move |count, _| {
                    *count += 1;
                    sum.fetch_add(*count, Ordering::SeqCst)
                });
            Ok(())
        });
        (end, seen.load(Ordering::SeqCst))
    }

    fn seat(process: u32, hosts: &Path) -> RunArgs {
        let hosts = Some(hosts.to_owned());
        RunArgs { process: Some(process), hosts, quiet: true, ..RunArgs::default() }
    }

    /// A checkpoint, and then two processes that go on from it, the second with this store.
    fn go_on(second: Slow) -> [(Result<Summary>, u64); 2] {
        let store = second.store.clone();
        let first = Slow { store, ..Slow::default() };
        run(first.clone(), RunArgs { quiet: true, ..RunArgs::default() }, 100).0.unwrap();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let free = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let hosts = free.map(|listener| listener.local_addr().unwrap().to_string());
        file.write_all(hosts.join("\n").as_bytes()).unwrap();
        thread::scope(|scope| {
            let runs = [(0, first), (1, second)].map(|(process, store)| {
                let args = seat(process, file.path());
                scope.spawn(|| run(store, args, 200))
            });
            runs.map(|run| run.join().unwrap())
        })
    }

    /// Finding each other is bounded; what there is to load is not.
    #[test]
    fn a_process_that_loads_for_longer_than_they_may_take_to_meet_is_waited_for() {
        let delay = GATHER_TIMEOUT + Duration::from_secs(1);
        let [(first, seen), (second, seen_by_second)] = go_on(Slow { delay, ..Slow::default() });
        let summary = first.unwrap();
        assert_eq!((summary.outcome, summary.read), (Outcome::InputEnded, 100));
        assert_eq!(second.unwrap().outcome, Outcome::ShareDone);
        let expected: u64 = (11..=20).sum::<u64>() * 10;
        assert_eq!(seen + seen_by_second, expected, "each key's count goes on at 10");
        assert!(seen > 0 && seen_by_second > 0, "{seen} {seen_by_second}");
    }

    /// And the reason is told where the summary would be.
    #[test]
    fn a_process_that_cannot_load_its_share_ends_all_at_once() {
        let [(first, _), (second, _)] = go_on(Slow { is_broken: true, ..Slow::default() });
        for error in [first.unwrap_err(), second.unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            assert!(error.report().contains("the store is away"), "{}", error.report());
        }
    }
}
