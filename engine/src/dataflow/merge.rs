//! Several streams of one type as one; its watermark is the least of theirs.

use timely::dataflow::channels::pact::Pipeline;
use timely::dataflow::operators::generic::OutputBuilder;
use timely::dataflow::operators::generic::builder_rc::OperatorBuilder;
use timely::progress::operate::FrontierInterest;

use super::Edge;
use super::packet::{Body, Packet, Packets, send};
use super::worker::Site;
use crate::record::Record;
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
        builder.set_notify_for(index, FrontierInterest::Never);
    }
    let me = site.worker;
    builder.build(move |capabilities| {
        drop(capabilities);
        let mut marks = Watermarks::new(inputs.len());
        move |_| {
            let mut output = output.activate();
            for (index, input) in inputs.iter_mut().enumerate() {
                input.for_each(|capability, packet| {
                    let capability = capability.retain_least(0).expect("packets carry a time");
                    let body = match std::mem::take(packet).body {
                        Body::Mark(mark) => marks.update(index, mark).map(Body::Mark),
                        records => Some(records),
                    };
                    if let Some(body) = body {
                        send(&mut output, &capability, Packet::local(me, body));
                    }
                });
            }
        }
    });
    stream
}
