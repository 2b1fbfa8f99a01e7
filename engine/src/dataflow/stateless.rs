//! Operators that keep nothing: a packet in, a packet out, watermarks passed on.

use timely::container::NoopBuilder;
use timely::dataflow::channels::pact::Pipeline;
use timely::dataflow::operators::generic::OutputBuilder;
use timely::dataflow::operators::generic::builder_rc::OperatorBuilder;
use timely::progress::operate::FrontierInterest;

use super::Edge;
use super::packet::{Body, Packet, Records, send};
use super::worker::Site;
use crate::Result;
use crate::record::Record;

/// Applies `f` to each packet's records.
pub(crate) fn each<'s, T, U, F>(
    site: &Site,
    name: &'static str,
    input: Edge<'s, T>,
    f: F,
) -> Edge<'s, U>
where
    T: Record,
    U: Record,
    F: Fn(Records<T>) -> Records<U> + 'static,
{
    fallible(site, name, input, move |records| Ok(f(records)))
}

/// Applies `f` to each packet's records; an error, or a panic, stops the job.
pub(crate) fn fallible<'s, T, U, F>(
    site: &Site,
    name: &'static str,
    input: Edge<'s, T>,
    f: F,
) -> Edge<'s, U>
where
    T: Record,
    U: Record,
    F: Fn(Records<T>) -> Result<Records<U>> + 'static,
{
    let mut builder = OperatorBuilder::new(name.to_owned(), input.scope());
    let mut input = builder.new_input(input, Pipeline);
    let (output, stream) = builder.new_output::<Packet<U>>();
    let mut output = OutputBuilder::<u64, NoopBuilder<Packet<U>>>::from(output);
    builder.set_notify_for(0, FrontierInterest::Never);
    let (me, control) = (site.worker, site.control.clone());
    builder.build(move |capabilities| {
        drop(capabilities);
        move |_| {
            let mut output = output.activate();
            input.for_each(|capability, packet| {
                let capability = capability.retain_least(0).expect("packets carry a time");
                if control.has_failed() {
                    return;
                }
                let body = match std::mem::take(packet).body {
                    Body::Mark(mark) => Some(Body::Mark(mark)),
                    Body::Records(records) => {
                        super::worker::guarded(&control, name, || f(records)).map(Body::Records)
                    }
                };
                if let Some(body) = body {
                    send(&mut output, &capability, Packet::local(me, body));
                }
            });
        }
    });
    stream
}
