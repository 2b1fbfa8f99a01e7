//! What travels along an edge: records with their event times, or a watermark.
//!
//! A packet is addressed: `to` is the worker that shall get it on an exchanging edge, `from` the
//! worker that sent it, so that a receiver can keep one watermark per sender. Records and
//! watermarks of one sender stay in order.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use timely::Accountable;
use timely::bytes::arc::Bytes;
use timely::communication::Push;
use timely::container::NoopBuilder;
use timely::dataflow::channels::pushers::exchange::Distributor;
use timely::dataflow::channels::{ContainerBytes, Message};
use timely::dataflow::operators::Capability;
use timely::dataflow::operators::generic::OutputBuilderSession;
use timely::progress::Stamp;

use crate::record::KeyHash;
use crate::time::EventTime;

/// Sends packets as they are.
pub(crate) type Packets<T> = NoopBuilder<Packet<T>>;

/// Records of one sender, or its watermark.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Packet<T> {
    pub(crate) to: u32,
    pub(crate) from: u32,
    pub(crate) body: Body<T>,
}

/// Content of a packet.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Body<T> {
    Records(Records<T>),
    Mark(EventTime),
}

/// Records in the order of their sender. `times` and `hashes` are either empty or as long as
/// `items`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Records<T> {
    pub(crate) items: Vec<T>,
    pub(crate) times: Vec<EventTime>,
    pub(crate) hashes: Vec<KeyHash>,
}

impl<T> Default for Records<T> {
    fn default() -> Self {
        Records { items: Vec::new(), times: Vec::new(), hashes: Vec::new() }
    }
}

impl<T> Default for Packet<T> {
    fn default() -> Self {
        Packet { to: 0, from: 0, body: Body::Records(Records::default()) }
    }
}

impl<T> Packet<T> {
    pub(crate) fn local(worker: u32, body: Body<T>) -> Self {
        Packet { to: worker, from: worker, body }
    }
}

/// A watermark counts as one record, so that it too is in flight until it has been seen.
impl<T> Accountable for Packet<T> {
    fn record_count(&self) -> i64 {
        match &self.body {
            Body::Records(records) => {
                i64::try_from(records.items.len()).expect("a packet holds fewer than 2^63 records")
            }
            Body::Mark(_) => 1,
        }
    }
}

/// Between processes a packet is bincode behind its length, padded to a multiple of 8.
impl<T: Serialize + DeserializeOwned> ContainerBytes for Packet<T> {
    fn from_bytes(bytes: Bytes) -> Self {
        let (length, rest) = bytes.split_at(8);
        let length = u64::from_le_bytes(length.try_into().expect("split at 8 bytes"));
        let length = usize::try_from(length).expect("a packet fits in memory");
        let decoded =
            bincode::serde::decode_from_slice(&rest[..length], bincode::config::standard());
        decoded.expect("peers run the same program, which was checked when they connected").0
    }

    fn length_in_bytes(&self) -> usize {
        8 + encoded_len(self).next_multiple_of(8)
    }

    fn into_bytes<W: std::io::Write>(&self, writer: &mut W) {
        let length = encoded_len(self);
        let padding = length.next_multiple_of(8) - length;
        let sent = writer
            .write_all(&(length as u64).to_le_bytes())
            .map_err(failed)
            .and_then(|()| {
                bincode::serde::encode_into_std_write(
                    self,
                    &mut *writer,
                    bincode::config::standard(),
                )
            })
            .and_then(|_| writer.write_all(&[0; 8][..padding]).map_err(failed));
        sent.expect("timely hands in a buffer of the length it asked for");
    }
}

fn failed(inner: std::io::Error) -> bincode::error::EncodeError {
    bincode::error::EncodeError::Io { inner, index: 0 }
}

fn encoded_len<T: Serialize>(packet: &Packet<T>) -> usize {
    let mut counter = Counter(0);
    bincode::serde::encode_into_std_write(packet, &mut counter, bincode::config::standard())
        .expect("counting bytes does not fail, and records are plain serde data")
}

struct Counter(usize);

impl std::io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Delivers each packet to the worker that it is addressed to.
pub(crate) struct ByAddress;

impl<T: 'static> Distributor<Packet<T>> for ByAddress {
    fn partition<S: Clone, P: Push<Message<S, Packet<T>>>>(
        &mut self,
        packet: &mut Packet<T>,
        stamp: &Stamp<S>,
        pushers: &mut [P],
    ) {
        let to = packet.to as usize;
        Message::push_at(packet, stamp.clone(), &mut pushers[to]);
    }

    fn flush<S: Clone, P: Push<Message<S, Packet<T>>>>(&mut self, _: &Stamp<S>, _: &mut [P]) {}
}

/// Sends one packet under a capability; empty ones are not sent, since timely counts records.
pub(crate) fn send<T: Clone + 'static>(
    output: &mut OutputBuilderSession<'_, u64, Packets<T>>,
    capability: &Capability<u64>,
    mut packet: Packet<T>,
) {
    if packet.record_count() > 0 {
        output.session_with_builder(capability).give_container(&mut packet);
    }
}
