//! Several streams of one type as one; its watermark is the least of theirs.
//!
//! A promise made behind a cut says nothing of records before it: another stream may be an epoch
//! behind. So a watermark waits, with its capability, until no stream can send before its epoch;
//! sent with the other stream's older one it would overtake the records that it was waiting for.

use timely::dataflow::channels::pact::Pipeline;
use timely::dataflow::operators::generic::OutputBuilder;
use timely::dataflow::operators::generic::builder_rc::OperatorBuilder;
use timely::progress::frontier::MutableAntichain;
use timely::progress::operate::FrontierInterest;

use super::Edge;
use super::packet::{Body, Packet, Packets, send};
use super::worker::Site;
use crate::record::Record;
use crate::time::EventTime;
use crate::watermark::Watermarks;

/// Merges streams. Each keeps its order; among them there is none.
pub(crate) fn merge<'s, T: Record>(site: &Site, inputs: Vec<Edge<'s, T>>) -> Edge<'s, T> {
    let scope = inputs.first().expect("a merge has at least one input").scope();
    let mut builder = OperatorBuilder::new("merge".to_owned(), scope);
    let mut inputs: Vec<_> =
        inputs.into_iter().map(|input| builder.new_input(input, Pipeline)).collect();
    let (output, stream) = builder.new_output::<Packet<T>>();
    let mut output = OutputBuilder::<u64, Packets<T>>::from(output);
    for index in 0..inputs.len() {
        builder.set_notify_for(index, FrontierInterest::IfCapability);
    }
    let me = site.worker;
    builder.build(move |capabilities| {
        drop(capabilities);
        let mut marks = Marks::new(inputs.len());
        move |frontiers| {
            let mut output = output.activate();
            for (index, input) in inputs.iter_mut().enumerate() {
                input.for_each(|capability, packet| {
                    let capability = capability.retain_least(0).expect("packets carry a time");
                    match std::mem::take(packet).body {
                        Body::Mark(mark) => marks.waiting.push(Waiting {
                            epoch: *capability.time(),
                            hold: capability,
                            input: index,
                            mark,
                        }),
                        records => send(&mut output, &capability, Packet::local(me, records)),
                    }
                });
            }
            marks.settle(frontiers, |capability, mark| {
                send(&mut output, capability, Packet::local(me, Body::Mark(mark)));
            });
        }
    });
    stream
}

/// Watermarks told and those that wait. `H` is what keeps a watermark's epoch open: its capability.
struct Marks<H> {
    told: Watermarks,
    /// In the order of arrival, which is that of epochs for each input.
    waiting: Vec<Waiting<H>>,
}

struct Waiting<H> {
    epoch: u64,
    hold: H,
    input: usize,
    mark: EventTime,
}

impl<H> Marks<H> {
    fn new(inputs: usize) -> Self {
        Marks { told: Watermarks::new(inputs), waiting: Vec::new() }
    }

    /// Takes what need not wait any longer, epoch by epoch.
    fn settle(&mut self, frontiers: &[MutableAntichain<u64>], mut tell: impl FnMut(&H, EventTime)) {
        let passed = |epoch: u64| !frontiers.iter().any(|frontier| frontier.less_than(&epoch));
        self.waiting.sort_by_key(|waiting| waiting.epoch);
        let due = self.waiting.partition_point(|waiting| passed(waiting.epoch));
        for Waiting { hold, input, mark, .. } in self.waiting.drain(..due) {
            if let Some(mark) = self.told.update(input, mark) {
                tell(&hold, mark);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found by simulation. The second stream was behind the cut and at its end, the first one was
    /// not. The end of the first was taken for the end of both, in the epoch before the cut, where
    /// it overtook what the second had sent behind it.
    #[test]
    fn a_watermark_behind_a_cut_waits_for_streams_before_it() {
        let at = |epoch| MutableAntichain::from_elem(epoch);
        let mut marks = Marks::<u64>::new(2);
        let waiting = |epoch, input, mark| Waiting { epoch, hold: epoch, input, mark };
        let settle = |marks: &mut Marks<u64>, frontiers: [MutableAntichain<u64>; 2]| {
            let mut told = Vec::new();
            marks.settle(&frontiers, |epoch, mark| told.push((*epoch, mark)));
            told
        };
        marks.waiting.push(waiting(0, 1, EventTime(50)));
        assert_eq!(settle(&mut marks, [at(0), at(0)]), []);
        marks.waiting.push(waiting(1, 1, EventTime::MAX));
        assert_eq!(settle(&mut marks, [at(0), at(1)]), []);
        marks.waiting.push(waiting(0, 0, EventTime::MAX));
        assert_eq!(settle(&mut marks, [at(0), at(1)]), [(0, EventTime(50))]);
        assert_eq!(settle(&mut marks, [at(1), at(1)]), [(1, EventTime::MAX)]);
    }
}
