//! The store for crash tests does what its plan says, no more and no less.

use std::sync::{Arc, mpsc};

use isochrone_persistence::store::faulty::{Effect, FaultyStore, Operation, Plan};
use isochrone_persistence::store::memory::MemoryStore;
use isochrone_persistence::{Created, ErrorKind, Store};

fn store(plan: Plan) -> (MemoryStore, FaultyStore<MemoryStore>) {
    let inner = MemoryStore::new();
    (inner.clone(), FaultyStore::new(inner, plan))
}

fn is_unavailable<T>(result: isochrone_persistence::Result<T>) -> bool {
    result.is_err_and(|error| error.kind() == ErrorKind::Unavailable)
}

#[test]
fn a_failure_before_applies_nothing_and_one_after_applies_all() {
    for (effect, expected) in [(Effect::FailBefore, None), (Effect::FailAfter, Some(b"1".to_vec()))]
    {
        let (inner, faulty) = store(Plan::at_operation(1, effect));
        assert!(is_unavailable(faulty.put("a", b"1")));
        assert_eq!(inner.get("a").unwrap(), expected, "put, {effect:?}");

        let (inner, faulty) = store(Plan::at_operation(1, effect));
        assert!(is_unavailable(faulty.put_if_absent("a", b"1")));
        assert_eq!(inner.get("a").unwrap(), expected, "put_if_absent, {effect:?}");

        let (inner, faulty) = store(Plan::at_operation(1, effect));
        inner.put("a", b"1").unwrap();
        assert!(is_unavailable(faulty.delete("a")));
        assert_eq!(inner.get("a").unwrap().is_none(), expected.is_some(), "delete, {effect:?}");
        assert!(faulty.put("a", b"2").is_ok(), "only the first operation fails");
    }
}

#[test]
fn a_write_of_ones_own_can_be_reported_as_a_rivals() {
    let (inner, faulty) = store(Plan::at_write(1, Effect::Exists));
    assert_eq!(faulty.get("a").unwrap(), None);
    assert_eq!(faulty.put_if_absent("a", b"mine").unwrap(), Created::Exists);
    assert_eq!(inner.get("a").unwrap().as_deref(), Some(&b"mine"[..]));
}

#[test]
fn a_tear_leaves_a_beginning_and_says_that_all_is_well() {
    let (inner, faulty) = store(Plan::at_write(2, Effect::Tear { keep: 2 }));
    faulty.put("a", b"whole").unwrap();
    assert_eq!(faulty.put_if_absent("b", b"whole").unwrap(), Created::Yes);
    assert_eq!(inner.get("a").unwrap().as_deref(), Some(&b"whole"[..]));
    assert_eq!(inner.get("b").unwrap().as_deref(), Some(&b"wh"[..]));

    let (inner, faulty) = store(Plan::at_operation(1, Effect::Tear { keep: 2 }));
    inner.put("a", b"whole").unwrap();
    assert_eq!(faulty.get("a").unwrap().as_deref(), Some(&b"wh"[..]));
    assert_eq!(faulty.get("a").unwrap().as_deref(), Some(&b"whole"[..]));
}

#[test]
fn after_a_crash_nothing_works_and_nothing_is_applied() {
    for (effect, applied) in [(Effect::CrashBefore, false), (Effect::CrashAfter, true)] {
        let (inner, faulty) = store(Plan::at_write(2, effect));
        faulty.put("a", b"1").unwrap();
        assert!(!faulty.is_crashed());
        assert!(is_unavailable(faulty.put("b", b"1")));
        assert!(faulty.is_crashed());
        let left = inner.snapshot();
        assert_eq!(left.contains_key("b"), applied, "{effect:?}");
        assert!(is_unavailable(faulty.get("a")));
        assert!(is_unavailable(faulty.get_range("a", 0..1)));
        assert!(is_unavailable(faulty.put("c", b"1")));
        assert!(is_unavailable(faulty.put_if_absent("c", b"1")));
        assert!(is_unavailable(faulty.delete("a")));
        assert!(is_unavailable(faulty.list("")));
        assert_eq!(inner.snapshot(), left);
        assert_eq!(faulty.operations(), 2, "calls of the dead are not counted");
    }
}

#[test]
fn a_call_under_way_at_the_crash_is_not_acknowledged() {
    let (reached, at_gate) = mpsc::channel();
    let (open, gate) = mpsc::channel::<()>();
    let gate = std::sync::Mutex::new(gate);
    let faulty = FaultyStore::new(MemoryStore::new(), Plan::at_operation(2, Effect::CrashBefore));
    let faulty = Arc::new(faulty.with_latency(move |call| {
        if call.name == "slow" {
            reached.send(()).unwrap();
            gate.lock().unwrap().recv().unwrap();
        }
    }));
    let slow = std::thread::spawn({
        let faulty = faulty.clone();
        move || faulty.put("slow", b"1")
    });
    at_gate.recv().unwrap();
    assert!(is_unavailable(faulty.put("fatal", b"1")));
    open.send(()).unwrap();
    assert!(is_unavailable(slow.join().unwrap()));
}

#[test]
fn calls_are_counted_by_kind_and_noted_in_order() {
    let (_, faulty) = store(Plan::at_operation(2, Effect::FailBefore));
    faulty.put("a", b"1").unwrap();
    assert!(faulty.get("a").is_err());
    faulty.put_if_absent("a", b"2").unwrap();
    faulty.list("pre").unwrap();
    faulty.get_range("a", 0..1).unwrap();
    faulty.delete("a").unwrap();
    faulty.delete("b").unwrap();
    let calls: Vec<(Operation, String)> =
        faulty.calls().into_iter().map(|call| (call.operation, call.name)).collect();
    let expected = [
        (Operation::Put, "a"),
        (Operation::Get, "a"),
        (Operation::PutIfAbsent, "a"),
        (Operation::List, "pre"),
        (Operation::GetRange, "a"),
        (Operation::Delete, "a"),
        (Operation::Delete, "b"),
    ];
    assert_eq!(calls, expected.map(|(operation, name)| (operation, name.to_owned())));
    assert_eq!(faulty.calls()[1].effect, Some(Effect::FailBefore));
    assert_eq!(faulty.count(Operation::Delete), 2);
    assert_eq!((faulty.operations(), faulty.writes()), (7, 4));
}

#[test]
fn threads_together_meet_each_planned_fault_once() {
    let plan = Plan::at_write(40, Effect::FailAfter).and_at_write(80, Effect::FailBefore);
    let (inner, faulty) = store(plan);
    let failed: usize = std::thread::scope(|scope| {
        let write = |thread: usize| {
            let faulty = &faulty;
            move || (0..20).filter(|n| faulty.put(&format!("{thread}/{n}"), b"").is_err()).count()
        };
        let threads: Vec<_> = (0..8).map(|thread| scope.spawn(write(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(failed, 2);
    assert_eq!((faulty.writes(), inner.list("").unwrap().len()), (160, 159));
}

#[test]
fn a_random_plan_uses_all_its_effects_about_as_often_as_asked() {
    let (_, faulty) = store(Plan::random(42, 10));
    for n in 0..10_000 {
        let _any_answer = faulty.put_if_absent(&format!("{n}"), b"");
    }
    let calls = faulty.calls();
    for effect in [Effect::FailBefore, Effect::FailAfter, Effect::Exists] {
        let met = calls.iter().filter(|call| call.effect == Some(effect)).count();
        assert!((233..=433).contains(&met), "{effect:?} {met} times");
    }
}

#[test]
fn a_random_plan_of_one_in_zero_never_fails() {
    let (_, faulty) = store(Plan::random(1, 0));
    assert!((0..1000).all(|_| faulty.put("a", b"").is_ok()));
}
