//! Between a stream and a keyed operator: each record gets the hash of its key, and its worker.
//!
//! The key itself stays here: whoever gets the record makes it again, which is cheaper than to move
//! it, above all to a worker that would have to free what another one allocated.
//!
//! Records leave in packets addressed to the worker that owns the key's group. Each receiver says
//! how many it has applied; while too many are outstanding the valve is shut and whatever feeds
//! this stream on this worker waits. Acknowledgements travel without a timestamp, so they never hold
//! a cut back.

use std::rc::Rc;

use isochrone_persistence::ids::KeyGroup;
use timely::dataflow::Stream;
use timely::dataflow::channels::pact::{Exchange, Pipeline};
use timely::dataflow::operators::generic::OutputBuilder;
use timely::dataflow::operators::generic::builder_rc::OperatorBuilder;
use timely::progress::operate::FrontierInterest;

use super::Edge;
use super::packet::{Body, Packet, Packets, Records, send};
use super::worker::{Site, guarded};
use crate::record::{Key, Record, group_of, hash_of, owner};

/// Records that may be on their way from one worker to the instances of one keyed operator.
const OUTSTANDING_RECORDS_MAX: u64 = 64 * 1024;

/// How many records of which sender a receiver has applied: (sender, records).
pub(crate) type Ack = (u64, u64);

/// A routing operator whose acknowledgements are still to be connected.
pub(crate) struct Routed<'s, T> {
    pub(crate) stream: Edge<'s, T>,
    finish: Box<dyn FnOnce(Stream<'s, u64, Vec<Ack>>) + 's>,
}

impl<'s, T: Record> Routed<'s, T> {
    pub(crate) fn new<K, F>(site: &Site, input: Edge<'s, T>, key: Rc<F>) -> Self
    where
        K: Key,
        F: Fn(&T) -> K + 'static,
    {
        let mut builder = OperatorBuilder::new("key_by".to_owned(), input.scope());
        let mut input = builder.new_input(input, Pipeline);
        let (output, stream) = builder.new_output::<Packet<T>>();
        let mut output = OutputBuilder::<u64, Packets<T>>::from(output);
        let mut router = Router::new(site, key);
        let mut valve = site.pressure.valve();
        let control = site.control.clone();
        let finish = move |acks: Stream<'s, u64, Vec<Ack>>| {
            let exchange = Exchange::new(|ack: &Ack| ack.0);
            let mut acks = builder.new_input_connection(acks, exchange, []);
            builder.set_notify_for(0, FrontierInterest::Never);
            builder.set_notify_for(1, FrontierInterest::Never);
            builder.build(move |capabilities| {
                drop(capabilities);
                let mut outstanding = 0u64;
                move |_| {
                    acks.for_each(|_, acks| {
                        outstanding -= acks.drain(..).map(|(_, records)| records).sum::<u64>();
                    });
                    let mut output = output.activate();
                    input.for_each(|capability, packet| {
                        let capability = capability.retain_least(0).expect("packets carry a time");
                        let body = std::mem::take(packet).body;
                        let routed = guarded(&control, "key_by", || router.route(body));
                        outstanding += routed.unwrap_or(0);
                        for packet in router.ready.drain(..) {
                            send(&mut output, &capability, packet);
                        }
                    });
                    valve.set(outstanding > OUTSTANDING_RECORDS_MAX);
                }
            });
        };
        Routed { stream, finish: Box::new(finish) }
    }

    pub(crate) fn acknowledged_by(self, acks: Stream<'s, u64, Vec<Ack>>) {
        (self.finish)(acks);
    }
}

/// Splits packets by the owner of each record's key.
struct Router<T, F> {
    me: u32,
    workers: u32,
    groups: u16,
    /// The worker that owns each key group.
    owners: Vec<usize>,
    key: Rc<F>,
    ready: Vec<Packet<T>>,
}

impl<T: Record, F> Router<T, F> {
    fn new(site: &Site, key: Rc<F>) -> Self {
        Router {
            me: site.worker,
            workers: site.peers,
            groups: site.groups,
            owners: (0..site.groups)
                .map(|group| owner(KeyGroup(group), site.groups, site.peers).0 as usize)
                .collect(),
            key,
            ready: Vec::new(),
        }
    }

    /// Leaves packets in `ready` and answers how many records they hold.
    fn route<K: Key>(&mut self, body: Body<T>) -> crate::Result<u64>
    where
        F: Fn(&T) -> K,
    {
        match body {
            Body::Mark(mark) => {
                let to_all = (0..self.workers).map(|to| Packet {
                    to,
                    from: self.me,
                    body: Body::Mark(mark),
                });
                self.ready.extend(to_all);
                Ok(0)
            }
            Body::Records(records) => {
                let count = records.items.len() as u64;
                match self.workers {
                    1 => self.keep(records),
                    _ => self.split(records),
                }
                Ok(count)
            }
        }
    }

    fn keep<K: Key>(&mut self, mut records: Records<T>)
    where
        F: Fn(&T) -> K,
    {
        records.hashes = records.items.iter().map(|item| hash_of(&(self.key)(item))).collect();
        self.ready.push(Packet::local(self.me, Body::Records(records)));
    }

    fn split<K: Key>(&mut self, records: Records<T>)
    where
        F: Fn(&T) -> K,
    {
        let share = records.items.len() / self.workers as usize * 5 / 4 + 8;
        let mut parts: Vec<Records<T>> = Vec::new();
        parts.resize_with(self.workers as usize, || Records {
            items: Vec::with_capacity(share),
            hashes: Vec::with_capacity(share),
            times: Vec::new(),
        });
        let timed = !records.times.is_empty();
        for (index, item) in records.items.into_iter().enumerate() {
            let hash = hash_of(&(self.key)(&item));
            let part = &mut parts[self.owners[group_of(hash, self.groups).0 as usize]];
            part.hashes.push(hash);
            part.items.push(item);
            if timed {
                part.times.push(records.times[index]);
            }
        }
        for (to, part) in (0..).zip(parts) {
            self.ready.push(Packet { to, from: self.me, body: Body::Records(part) });
        }
    }
}
