//! The job as one writes it here: exactly once, state in checkpoints on the local disk.

use isochrone::connectors::kafka::Kafka;
use isochrone::prelude::*;

use super::contender::Place;
use super::purchases::{Assessment, Purchase};

#[derive(Default, PartialEq, Serialize, Deserialize)]
struct Spent {
    count: u64,
    total: i64,
}

impl State for Spent {
    const VERSION: u16 = 1;
}

/// Ends only when it is told to.
pub(crate) fn run(place: &Place) {
    // How many workers share the work; the others that are compared work on one thread.
    let workers = std::env::var("WORKERS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let checkpoint = Checkpoint::dir(&place.store).every(place.interval);
    let args = RunArgs { workers, quiet: true, ..RunArgs::default() };
    let place = place.clone();
    let ended = Job::new("account-risk").checkpoint(checkpoint).run(args, move |flow| {
        let kafka = Kafka::at(&place.broker)?;
        let sink = kafka.sink(&place.output).progress_topic(&format!("{}.progress", place.output));
        flow.source("purchases", kafka.source(&place.input).json::<Purchase>())
            .key_by(|purchase| purchase.account)
            .state::<Spent>("spent")
            .map(|spent, Purchase { account, id, cents }| {
                spent.count += 1;
                spent.total += cents;
                Assessment { account, id, count: spent.count, total: spent.total }
            })
            .sink("assessments", sink.json().key_of(|a: &Assessment| a.account.to_string()));
        Ok(())
    });
    panic!("the job has ended: {ended:?}");
}
