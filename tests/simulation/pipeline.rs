//! The simulated job: every kind of operator, two sources, two sinks.

use std::time::Duration;

use isochrone::keyed::{Context, Process};
use isochrone::state::State;
use isochrone::time::EventTime;
use isochrone::{Flow, Result};
use serde::{Deserialize, Serialize};

use crate::input::{Event, Input, Origin, Output, source};
use crate::shaky::Shaky;

/// How long an id is remembered.
pub(crate) const REMEMBERED: Duration = Duration::from_millis(120);
/// Length of a window in milliseconds.
pub(crate) const WINDOW: i64 = 50;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sum {
    pub(crate) events: u64,
    pub(crate) total: u64,
}

impl State for Sum {
    const VERSION: u16 = 1;
}

/// A record on its way: `nth` of its account in the first source, 0 in the second.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Fact {
    pub(crate) event: Event,
    pub(crate) nth: u64,
}

/// What the job makes visible.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) enum Effect {
    Seen { account: u16, origin: Origin, nth: u64 },
    Window { account: u16, end: i64, events: u64, total: u64 },
}

/// What is counted: effects of a kind and account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Counted {
    pub(crate) window: bool,
    pub(crate) account: u16,
}

impl Effect {
    pub(crate) fn counted(&self) -> Counted {
        match *self {
            Effect::Seen { account, .. } => Counted { window: false, account },
            Effect::Window { account, .. } => Counted { window: true, account },
        }
    }
}

/// Open windows of an account: end, events, total.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Open(Vec<(i64, u64, u64)>);

impl State for Open {
    const VERSION: u16 = 1;
}

pub(crate) fn end_of_window(at: i64) -> i64 {
    (at.div_euclid(WINDOW) + 1) * WINDOW
}

struct Windows;

impl Process<u16, Fact> for Windows {
    type State = Open;
    type Out = Effect;

    fn on_record(
        &self,
        mut cx: Context<'_, u16, Open>,
        fact: Fact,
    ) -> impl IntoIterator<Item = Effect> {
        let end = end_of_window(cx.now.0);
        let open = &mut cx.state.0;
        if !open.iter().any(|(known, ..)| *known == end) {
            open.push((end, 0, 0));
            cx.timer.set(EventTime(end));
        }
        for (_, events, total) in open.iter_mut().filter(|(known, ..)| *known == end) {
            *events += 1;
            *total += fact.event.amount;
        }
        Some(Effect::Seen { account: *cx.key, origin: fact.event.origin, nth: fact.nth })
    }

    fn on_timer(&self, cx: Context<'_, u16, Open>) -> impl IntoIterator<Item = Effect> {
        let (account, due) = (*cx.key, cx.now.0);
        let closed: Vec<_> = cx.state.0.extract_if(.., |(end, ..)| *end == due).collect();
        let effect = move |(end, events, total)| Effect::Window { account, end, events, total };
        closed.into_iter().map(effect)
    }
}

pub(crate) fn build(flow: &Flow<'_>, input: &Input, output: &Output, shaky: &Shaky) -> Result<()> {
    let first = flow
        .source("first", source(input.seed, &input.first))
        .map(|event| Event { amount: event.amount * 2, ..event })
        .key_by(|event: &Event| event.id)
        .dedup("ids", REMEMBERED)
        .key_by(|event: &Event| event.account)
        .state::<Sum>("sums")
        .map(|sum, event| {
            sum.events += 1;
            sum.total += event.amount;
            Fact { event, nth: sum.events }
        });
    let second = flow
        .source("second", source(input.seed ^ 1, &input.second))
        .map(|event| Fact { event, nth: 0 });
    let effects =
        first.merge(&second).key_by(|fact: &Fact| fact.event.account).process("windows", Windows);
    effects.sink("effects", shaky.around(output.effects.clone()));
    effects
        .key_by(Effect::counted)
        .count("counts")
        .sink("counted", shaky.around(output.counts.clone()));
    Ok(())
}
