//! The progress topic: gone, made anew, unfit, or another one.

use crate::history::{bring_back, copy, died_at};
use crate::job::Settle;
use crate::place::{Place, Run, verdict, was_killed};
use crate::support::kafka::{Broker, Topic};

#[test]
fn a_progress_topic_that_is_gone_while_output_is_pending_is_missed() {
    let place = died_at("progress-deleted", "manifest-written@2");
    place.progress().delete();
    let said = place.job().fails_with(2);
    for what in ["topic `progress-deleted.progress`", "deleted and made anew", "abort_pending"] {
        assert!(said.contains(what), "{said}");
    }
    place.job().try_settle(Settle::Abort).unwrap_err();
    assert!(!place.job().with("--accept-duplicates").settle(Settle::Abort).is_empty());
    // It is given up, and nothing else.
    place.job().workers(2).ends_well();
    let found = verdict(&place.expected, &place.output.read());
    let others = [found.doubled, found.out_of_order, found.foreign, found.moved];
    assert!(found.lost > 0 && others == [0; 4], "{found:#?}");
}

/// Nothing is owed, but the checkpoint could be older than what was published.
#[test]
fn a_progress_topic_that_is_gone_after_a_good_end_is_made_again_by_choice() {
    let mut place = Place::new("progress-made-again");
    place.feed(600);
    place.job().workers(2).ends_well();
    place.progress().delete();
    place.feed(600);
    let said = place.job().fails_with(2);
    for what in ["deleted and made anew", "is older than what was published", "accept_duplicates"] {
        assert!(said.contains(what), "{said}");
    }
    place.job().workers(2).with("--accept-duplicates").ends_well();
    place.feed(600);
    place.job().workers(2).ends_well();
    place.check();
}

/// The store was brought back from a backup, and with it another progress topic would not know what
/// was published since.
#[test]
fn an_older_store_is_refused_with_another_progress_topic_too() {
    let mut place = Place::new("progress-backup");
    place.feed(300);
    place.job().workers(2).ends_well();
    let copied = place.folder.path().join("copied");
    copy(&place.store(), &copied);
    place.feed(300);
    place.job().workers(2).ends_well();
    bring_back(&place, &copied);
    let said = place.job().fails_with(2);
    assert!(said.contains("has published up to epoch"), "{said}");
    let said = with_progress(&place, "progress-backup.other").fails_with(2);
    assert!(said.contains("kept its progress in topic `progress-backup.progress`"), "{said}");
    place.check();
}

#[test]
fn a_progress_topic_that_would_forget_is_refused() {
    let cases = [
        ("forgets", 1, "delete", "its `cleanup.policy` is `delete` instead of `compact`"),
        ("two-parts", 2, "compact", "it has 2 partitions instead of 1"),
    ];
    for (name, partitions, policy, what) in cases {
        let mut place = Place::new(name);
        place.feed(100);
        let (broker, topic) = (Broker::shared(), place.progress().name);
        let policy = [("cleanup.policy", policy)];
        let progress = Topic::create_with(broker, &topic, partitions, &policy);
        let said = place.job().fails_with(2);
        assert!(said.contains(what) && said.contains("progress_topic"), "{said}");
        progress.delete();
        place.job().ends_well();
        place.check();
    }
}

/// A run that keeps its progress in the topic of this name.
fn with_progress<'p>(place: &'p Place, topic: &str) -> Run<'p> {
    place.job().workers(2).flag("--progress-topic", topic)
}

/// Owes output, some of which the one topic proves to be published. What the other knows is
/// of before.
fn owes_with_another(name: &str) -> (Place, [String; 2]) {
    let mut place = Place::new(name);
    let topics = ["progress", "other"].map(|which| format!("{name}.{which}"));
    place.feed(300);
    with_progress(&place, &topics[0]).ends_well();
    place.feed(300);
    // By choice, since nothing is owed.
    with_progress(&place, &topics[1]).with("--accept-duplicates").ends_well();
    place.feed(300);
    let back = with_progress(&place, &topics[0]).with("--accept-duplicates");
    let mut job = back.crash("kafka-committed@2").start();
    let end = place.feed_until_it_ends(&mut job);
    assert!(was_killed(end), "{end}: {}", job.errors());
    (place, topics)
}

#[test]
fn output_that_is_owed_is_not_published_by_the_progress_of_another_topic() {
    let (mut place, [a, b]) = owes_with_another("progress-switched");
    for _ in 0..2 {
        let said = with_progress(&place, &b).fails_with(2);
        for what in [format!("kept its progress in topic `{a}`"), format!("not in `{b}`")] {
            assert!(said.contains(&what), "{said}");
        }
    }
    let refusal = with_progress(&place, &b).try_settle(Settle::Commit).unwrap_err();
    assert!(refusal.to_string().contains(&a), "{refusal}");
    place.check_so_far("refused");
    // It ends well with the one, and owes nothing then that could be doubled.
    place.feed(300);
    with_progress(&place, &a).ends_well();
    place.feed(300);
    with_progress(&place, &b).with("--accept-duplicates").ends_well();
    place.check();
}

#[test]
fn output_that_is_owed_may_be_settled_before_the_progress_topic_changes() {
    let (mut place, [a, b]) = owes_with_another("progress-settled");
    with_progress(&place, &a).settle(Settle::Commit);
    place.feed(300);
    with_progress(&place, &b).with("--accept-duplicates").ends_well();
    place.check();
}

/// By choice it goes on with another one: what is owed comes again, once, wherever that run dies.
#[test]
fn duplicates_that_are_accepted_with_another_progress_topic_are_so_for_once() {
    for (number, step) in ["kafka-turned", "kafka-committed"].iter().enumerate() {
        let (mut place, [_, b]) = owes_with_another(&format!("progress-accepted-{number}"));
        let mut job = with_progress(&place, &b).with("--accept-duplicates").crash(step).start();
        assert!(was_killed(job.end()), "{step}: {}", job.errors());
        place.feed(300);
        with_progress(&place, &b).ends_well();
        let found = verdict(&place.expected, &place.output.read());
        let clean = [found.lost, found.out_of_order, found.foreign, found.moved];
        assert!(clean == [0; 4] && found.doubled > 0, "{step}: {found:#?}");
        place.feed(300);
        with_progress(&place, &b).ends_well();
        let then = verdict(&place.expected, &place.output.read());
        assert_eq!((then.lost, then.doubled), (0, found.doubled), "{step}: {then:#?}");
    }
}

/// A topic of the same name is another one: what the one before it said is gone.
#[test]
fn a_progress_topic_that_was_made_anew_and_used_is_not_the_one_that_knows() {
    let mut place = died_at("progress-anew", "kafka-committed@2");
    let copied = place.folder.path().join("copied");
    copy(&place.store(), &copied);
    place.job().settle(Settle::Commit);
    place.progress().delete();
    let mut job = place.job().with("--accept-duplicates").crash("kafka-committed@2").start();
    assert!(was_killed(place.feed_until_it_ends(&mut job)), "{}", job.errors());
    bring_back(&place, &copied);
    let said = place.job().fails_with(2);
    assert!(said.contains("is not the one of that name"), "{said}");
}
