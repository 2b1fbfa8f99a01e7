use isochrone_engine::ErrorKind;

use super::super::effect::tests::effect;
use super::super::history::tests::home;
use super::super::view::tests::{claim, marker, view};
use super::*;

fn start(from: Option<u64>, history: Option<&str>, pending: &[KafkaEffect]) -> Start {
    let history = history.map(|turn| of("risk.progress", "id", Some(turn)));
    Start { from, is_new: false, history, pending: pending.to_vec() }
}

fn of(topic: &str, id: &str, turn: Option<&str>) -> History {
    let turn = turn.map(str::to_owned);
    History { home: home(topic, id), turn, run: "run 3".to_owned(), published: Vec::new() }
}

/// The same of a checkpoint whose run began when lanes had published so far.
fn after(start: Start, published: &[(u32, Mark)]) -> Start {
    let history = start.history.map(|history| History { published: published.to_vec(), ..history });
    Start { history, ..start }
}

fn decided(start: &Start, view: &View, accept_duplicates: bool) -> Result<Changes, String> {
    let facts = Facts {
        sink: "sink `out`",
        home: &home("risk.progress", "id"),
        origin: "mine",
        start,
        accept_duplicates,
        fresh: "fresh",
    };
    decide(&facts, view).map_err(|error| {
        assert_eq!(error.kind(), ErrorKind::Invalid);
        error.to_string()
    })
}

fn refusal(from: Option<u64>, pending: &[KafkaEffect], view: &View) -> Option<String> {
    match decided(&start(from, None, pending), view, false) {
        Ok(changes) => {
            assert_eq!(changes, Changes::default());
            None
        }
        Err(refusal) => Some(refusal),
    }
}

fn refused(start: &Start, view: &View, what: &str) {
    let text = decided(start, view, false).expect_err(what);
    assert!(text.contains(what), "{text}");
}

#[test]
fn an_ordinary_history_is_taken_up() {
    let mine = || vec![claim("mine", 2)];
    let pending = [effect(6, 0, 1)];
    assert_eq!(refusal(None, &[], &View::default()), None, "a first start");
    assert_eq!(refusal(None, &[], &view(mine(), [])), None, "killed before any checkpoint");
    assert_eq!(refusal(Some(7), &pending, &view(mine(), [])), None, "nothing published");
    let all = view(mine(), [(0, marker(6, 1))]);
    assert_eq!(refusal(Some(7), &pending, &all), None, "all published");
    assert_eq!(refusal(Some(9), &[], &View::default()), None, "owes nothing: nothing to double");
    let late = view(vec![claim("mine", 1), claim("other", 1)], []);
    assert_eq!(refusal(Some(7), &pending, &late), None, "somebody else was later");
}

/// Output of the epoch that begins with a checkpoint is not part of it: the checkpoint before the
/// newest one is an older one too.
#[test]
fn a_history_that_does_not_fit_is_refused() {
    let pending = [effect(6, 0, 1)];
    let other = view(vec![claim("other", 1), claim("mine", 1)], []);
    let foreign = Marker { origin: "other".to_owned(), ..marker(5, 1) };
    let mixed = view(vec![claim("mine", 1)], [(0, marker(5, 1)), (1, foreign)]);
    let lost = View::default();
    let ahead = view(vec![claim("mine", 1)], [(0, marker(7, 1))]);
    let forked = view(vec![claim("mine", 1)], [(0, marker(6, 2))]);
    let cases: [(_, &[KafkaEffect], _, _); 6] = [
        (Some(7), &[], &other, "belongs to another job"),
        (Some(7), &[], &mixed, "belongs to another job"),
        (Some(7), &pending, &lost, "may have been deleted"),
        (Some(7), &pending, &ahead, "lane 0 has published up to epoch 7"),
        (None, &[], &ahead, "would go on from the beginning"),
        (Some(7), &pending, &forked, "what another run has written"),
    ];
    for (from, pending, view, what) in cases {
        let text = refusal(from, pending, view).expect(what);
        assert!(text.contains(what), "{text}");
    }
}

/// Published up to epoch 10; then a run went on from checkpoint 5, by choice, and published up to
/// epoch 6 of the history that it began.
fn turned() -> View {
    let mut view = view(vec![claim("mine", 1)], [(0, marker(10, 1)), (1, marker(4, 1))]);
    let changes = decided(&start(Some(5), None, &[]), &view, true).expect("it is accepted");
    assert_eq!(changes.back.keys().collect::<Vec<_>>(), [&0], "lane 1 is not ahead");
    let turn = changes.turn.as_ref().expect("a history begins");
    assert_eq!((turn.history.as_str(), turn.from), ("fresh", Some(5)));
    assert_eq!(turn.furthest, marker(10, 1).mark);
    changes.apply(&mut view);
    view.markers.insert(0, marker(6, 3));
    view
}

#[test]
fn a_turn_is_for_once() {
    let mut view = turned();
    let same = |from, pending: &[KafkaEffect]| {
        after(start(from, Some("fresh"), pending), &[(1, marker(4, 1).mark)])
    };
    let own = |epoch| KafkaEffect { generation: 3, run: "run 3".to_owned(), ..effect(epoch, 0, 1) };
    assert_eq!(decided(&same(Some(7), &[own(6)]), &view, false), Ok(Changes::default()));
    assert_eq!(decided(&same(Some(8), &[own(7)]), &view, true), Ok(Changes::default()));
    refused(&same(Some(6), &[]), &view, "lane 0 has published up to epoch 6");
    // Killed before its first checkpoint: what it began with is still the newest in the store.
    view.markers.insert(0, marker(4, 1));
    assert_eq!(decided(&start(Some(5), None, &[]), &view, false), Ok(Changes::default()));
}

/// Checkpoints that the run before the turn took: their epochs say nothing about the marks.
#[test]
fn a_checkpoint_of_the_history_before_a_turn_is_measured_by_all_that_was_published() {
    let mut view = turned();
    let old = |from, pending: &[KafkaEffect]| start(Some(from), None, pending);
    // Epochs 8 to 10 would be there twice, though the marks are not beyond 6 now.
    refused(&old(8, &[]), &view, "not of the history");
    // What is owed has perhaps been published, whatever the marks say.
    refused(&old(11, &[effect(10, 0, 1)]), &view, "not of the history");
    // Now they say of an epoch 10 that it has been: of another one.
    view.markers
        .insert(0, Marker { mark: Mark { worker: 1, ..marker(10, 3).mark }, ..marker(10, 3) });
    refused(&old(11, &[effect(10, 0, 1)]), &view, "not of the history");
    let accepted = decided(&old(11, &[effect(10, 0, 1)]), &view, true).expect("it is accepted");
    let mut then = view.clone();
    accepted.apply(&mut then);
    assert_eq!(effect(10, 0, 1).done(then.published(0)), 0, "it is not taken for published");
    assert_eq!(then.markers[&0].generation, 1);

    // Behind everything nothing is doubled, and nothing is owed that could be.
    let behind = decided(&old(12, &[effect(11, 0, 1)]), &view, false).expect("it fits");
    assert_eq!(behind.back, BTreeMap::new());
    assert_eq!(behind.turn.expect("a history begins").furthest, view.furthest());
}

/// What was owed had been published, and then more, of a run whose checkpoint is passed over.
#[test]
fn a_run_that_goes_back_behind_what_was_owed_may_die_before_its_first_checkpoint() {
    let later = Marker { generation: 2, run: "run 2".to_owned(), ..marker(5, 2) };
    let mut view = view(vec![claim("mine", 1)], [(0, later)]);
    let owes = start(Some(5), None, &[effect(4, 0, 1)]);
    decided(&owes, &view, true).expect("it is accepted").apply(&mut view);
    assert_eq!(effect(4, 0, 1).done(view.published(0)), 1, "it is there");
    assert_eq!(decided(&owes, &view, false), Ok(Changes::default()));
}

/// The furthest place is remembered over several turns.
#[test]
fn a_second_turn_remembers_what_was_published_before_the_first() {
    let mut view = turned();
    let again = decided(&start(Some(6), Some("fresh"), &[]), &view, true).expect("it is accepted");
    again.apply(&mut view);
    let turn = view.turn.clone().expect("a history begins");
    assert_eq!(
        (turn.before, turn.furthest.epoch),
        (Some(of("risk.progress", "id", Some("fresh"))), 10)
    );
    refused(&start(Some(8), None, &[]), &view, "not of the history");
    refused(&start(Some(7), Some("elsewhere"), &[]), &view, "not of the history");
}

/// Nobody can tell whether the checkpoint comes after what the sink published, or is one of before
/// it was there.
#[test]
fn a_sink_that_comes_back_is_refused_until_somebody_says_which_it_is() {
    let mut view = view(vec![claim("mine", 1)], [(0, marker(10, 1))]);
    let back = Start { is_new: true, ..start(Some(20), None, &[]) };
    for what in ["checkpoint 20 does not know", "up to epoch 10", "new id", "accept_duplicates"] {
        refused(&back, &view, what);
    }
    decided(&back, &view, true).expect("it is accepted").apply(&mut view);
    assert_eq!(view.published(0), Some(Mark::default()));
    // Killed before its first checkpoint, and after it.
    assert_eq!(decided(&back, &view, false), Ok(Changes::default()));
    let next = after(start(Some(21), Some("fresh"), &[]), &[(0, Mark::default())]);
    assert_eq!(decided(&next, &view, false), Ok(Changes::default()));
    // One that never published is nobody's concern.
    let unused = Start { is_new: true, ..start(Some(20), None, &[]) };
    assert_eq!(decided(&unused, &View::default(), false), Ok(Changes::default()));
}

/// Published up to epoch 10 with this topic, then with another one, now with this one again: what it
/// says is of before.
#[test]
fn what_was_owed_while_another_topic_kept_the_progress_is_published_by_choice_only() {
    let mut view = view(vec![claim("mine", 1)], [(0, marker(10, 1))]);
    for other in [of("other.progress", "1", None), of("risk.progress", "of another cluster", None)]
    {
        let owes =
            Start { history: Some(other.clone()), ..start(Some(21), None, &[effect(20, 0, 1)]) };
        for view in [&view, &View::default()] {
            let named = match other.home.topic == "risk.progress" {
                true => "made anew, or this is another cluster",
                false => "kept its progress in topic `other.progress` (id 1), not in",
            };
            for what in [named, "`risk.progress` (id id)", "abort_pending", "accept_duplicates"] {
                refused(&owes, view, what);
            }
            // By choice it is; and killed before its first checkpoint, the marks of here are believed.
            let mut then = view.clone();
            decided(&owes, view, true).expect("it is accepted").apply(&mut then);
            assert_eq!(effect(20, 0, 1).done(then.published(0)), 0);
            then.claims = vec![claim("mine", 1)];
            then.markers.insert(0, marker(20, 1));
            assert_eq!(decided(&owes, &then, false), Ok(Changes::default()));
        }
        // What owes nothing may be older than what was published there.
        let owes_nothing =
            |from| Start { history: Some(other.clone()), ..start(Some(from), None, &[]) };
        refused(&owes_nothing(21), &view, "whether checkpoint 21 is older");
        refused(&owes_nothing(21), &View::default(), "nothing is there twice");
        let changes = decided(&owes_nothing(21), &view, true).expect("it is accepted");
        assert_eq!(changes.back, BTreeMap::new());
        assert_eq!(changes.turn.expect("a history begins").before, Some(other.clone()));
    }
    // A broker that gives no ids is believed by name.
    let unnamed = Start {
        history: Some(History { run: "run 1".to_owned(), ..of("risk.progress", "", None) }),
        ..start(Some(11), None, &[effect(10, 0, 1)])
    };
    assert_eq!(decided(&unnamed, &view, false), Ok(Changes::default()));
    view.turn = decided(&start(Some(5), None, &[]), &view, true).expect("it is accepted").turn;
    refused(&unnamed, &view, "not of the history");
}

/// A checkpoint of run 3, which began when lane 0 had published up to epoch 5 and lane 1 nothing.
fn known(from: u64, pending: &[KafkaEffect]) -> Start {
    let history = Some(of("risk.progress", "id", None));
    after(Start { history, ..start(Some(from), None, pending) }, &[(0, marker(5, 2).mark)])
}

fn of_run(run: u64, effect: KafkaEffect) -> KafkaEffect {
    KafkaEffect { generation: run, run: format!("run {run}"), ..effect }
}

/// A run on a copy of the store takes the same job, origin and numbers.
#[test]
fn marks_of_a_run_on_a_copy_of_the_store_are_told_from_own_ones() {
    let mine = |markers: &[(u32, Marker)]| view(vec![claim("mine", 2)], markers.to_vec());
    let owed = [of_run(3, effect(7, 0, 2))];
    // As it was when the run began, and as that run has written it.
    for fits in [marker(5, 2), marker(6, 3), marker(7, 3)] {
        assert_eq!(decided(&known(8, &owed), &mine(&[(0, fits)]), false), Ok(Changes::default()));
    }
    let twin = "what another run has written";
    for number in [2, 3, 4] {
        let of_a_copy = |epoch| Marker { run: "of a copy".to_owned(), ..marker(epoch, number) };
        for (lane, epoch) in [(0, 6), (0, 7), (1, 4), (1, 7)] {
            let before = (0, marker(5, 2));
            let view = mine(&[before, (lane, of_a_copy(epoch))]);
            refused(&known(8, &owed), &view, twin);
            refused(&known(8, &[]), &view, twin);
            decided(&known(8, &owed), &view, true).expect("it is accepted");
        }
    }
}

#[test]
fn marks_that_are_gone_are_missed() {
    let mine = |markers: &[(u32, Marker)]| view(vec![claim("mine", 2)], markers.to_vec());
    for (fewer, found) in [(mine(&[]), "says nothing"), (mine(&[(0, marker(4, 2))]), "epoch 4")] {
        refused(&known(8, &[]), &fewer, "has published up to epoch 5");
        refused(&known(8, &[]), &fewer, found);
        decided(&known(8, &[]), &fewer, true).expect("it is accepted");
    }
    // Written by the run since it began.
    let first = of_run(3, effect(6, 0, 1));
    let second = KafkaEffect { after: Some(first.end()), ..of_run(3, effect(7, 0, 1)) };
    let as_it_began = mine(&[(0, marker(5, 2))]);
    let both = known(8, &[first, second.clone()]);
    assert_eq!(decided(&both, &as_it_began, false), Ok(Changes::default()));
    let owed = std::slice::from_ref(&second);
    refused(&known(8, owed), &as_it_began, "has published up to epoch 6");
    let published = mine(&[(0, marker(6, 3))]);
    assert_eq!(decided(&known(8, owed), &published, false), Ok(Changes::default()));
}

/// In the midst of a run, after a doubt.
#[test]
fn a_lane_goes_on_from_marks_that_are_as_they_were_or_its_own() {
    let parts = [of_run(3, effect(7, 0, 2)), of_run(3, effect(8, 0, 1))];
    let verdict = |known: Option<Mark>, marker: Option<Marker>| {
        let lane = Lane { own: "mine", parts: &parts, known, marker: marker.as_ref() };
        check_lane("sink `out`", "risk.progress", &lane).map_err(|error| error.to_string())
    };
    let [five, six] = [marker(5, 2), marker(6, 3)];
    for (known, found) in [
        (None, None),
        (None, Some(marker(7, 3))),
        (Some(five.mark), Some(five.clone())),
        (Some(six.mark), Some(six.clone())),
        (Some(six.mark), Some(marker(8, 3))),
    ] {
        assert_eq!(verdict(known, found.clone()), Ok(()), "{known:?} {found:?}");
    }
    let foreign = Marker { origin: "other".to_owned(), ..five.clone() };
    let copied =
        |epoch, generation| Marker { run: "of a copy".to_owned(), ..marker(epoch, generation) };
    for (known, found, what) in [
        (Some(five.mark), Some(foreign), "another job"),
        (None, Some(marker(9, 3)), "another run"),
        (None, Some(copied(5, 2)), "another run"),
        (Some(five.mark), Some(copied(6, 2)), "another run"),
        (Some(five.mark), Some(copied(7, 3)), "another run"),
        (Some(six.mark), Some(copied(7, 4)), "another run"),
        (Some(six.mark), Some(five), "has lost records"),
        (Some(six.mark), None, "has lost records"),
    ] {
        let said = verdict(known, found.clone()).expect_err(what);
        assert!(said.contains(what), "{known:?} {found:?}: {said}");
    }
}

/// What is told at once is told whole: the turn, and each lane that goes back with it.
#[test]
fn a_turn_and_the_marks_that_it_takes_back_are_one_list() {
    let view = view(vec![claim("mine", 2)], [(0, marker(10, 1)), (1, marker(9, 1))]);
    let changes = decided(&start(Some(5), None, &[]), &view, true).expect("it is accepted");
    let entries = changes.entries();
    let kinds: Vec<_> =
        entries.iter().map(|(lane, entry)| (*lane, matches!(entry, Entry::Turn(_)))).collect();
    assert_eq!(kinds, [(0, true), (0, false), (1, false)]);
    // Whoever reads them sees what this run goes on with.
    let (mut told, mut applied) = (view.clone(), view);
    for (lane, entry) in entries {
        match entry {
            Entry::Turn(turn) => told.turn = Some(turn),
            Entry::Published(marker) => drop(told.markers.insert(lane, marker)),
            other => panic!("{other:?}"),
        }
    }
    changes.apply(&mut applied);
    assert_eq!(told, applied);
}
