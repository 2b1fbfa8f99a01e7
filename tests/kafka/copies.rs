//! Copies of a store, each with a run that takes itself for the only one.

use std::time::Duration;

use crate::history::copy;
use crate::place::Place;
use crate::support::{stored, wait};

/// What the refused one says: that it has met the other's output, in a run or at its start.
fn assert_met_the_other(said: &str) {
    let what = ["has published what another run has written", "has published up to epoch"];
    assert!(what.iter().any(|what| said.contains(what)), "{said}");
}

#[test]
fn of_two_runs_on_copies_of_a_store_the_first_to_publish_goes_on() {
    for time in 0..3 {
        let mut place = Place::new(&format!("copies-{time}"));
        place.feed(300);
        let mut first = place.job().workers(2).start();
        place.await_all(&first);
        let other = place.folder.path().join("other-store");
        copy(&place.store(), &other);
        let manifests = || stored::manifests(&other, &place.name).len();
        let before = manifests();
        let mut second = place.job().workers(2).flag("--store", other.to_str().unwrap()).start();
        assert!(wait::soon(|| manifests() > before), "{}", second.errors());
        // It has to recover before it can publish.
        wait::pause(Duration::from_secs(2));
        place.feed(300);
        let ended = || [first.ended(), second.ended()];
        let (is_first, end) = wait::until(wait::SOON, {
            let mut ended = ended;
            move || match ended() {
                [Some(end), _] => Some((true, end)),
                [_, Some(end)] => Some((false, end)),
                _ => None,
            }
        })
        .expect("one of them ends");
        let (refused, goes_on) = if is_first { (&first, &second) } else { (&second, &first) };
        assert_eq!(end.code(), Some(2), "{}", refused.errors());
        assert_met_the_other(&refused.errors());
        place.feed(300);
        place.await_all(goes_on);
        drop((first, second));
        // From here on the store of the one that was refused is not gone on from.
        let (its, others) = match is_first {
            true => (place.store(), other.clone()),
            false => (other.clone(), place.store()),
        };
        let on = |store: &std::path::Path| place.job().flag("--store", store.to_str().unwrap());
        assert_met_the_other(&on(&its).fails_with(2));
        on(&others).ends_well();
        place.check();
    }
}
