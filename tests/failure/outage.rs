//! A store that does not take a manifest, or does not say whether it has.

use super::*;

/// What a store does to manifests of checkpoints, while it is switched on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// No write is applied.
    Silent,
    /// They are not taken; other manifests are.
    Refused,
    /// They are taken, but nothing is answered, and nothing is read.
    Deaf,
}

#[derive(Clone)]
struct Troubled {
    store: MemoryStore,
    on: Arc<AtomicBool>,
    fault: Fault,
}

impl Troubled {
    fn new(fault: Fault) -> Troubled {
        Troubled { store: MemoryStore::new(), on: Arc::default(), fault }
    }

    fn is(&self, fault: Fault) -> bool {
        self.on.load(Ordering::SeqCst) && self.fault == fault
    }
}

fn no_answer<T>() -> Result<T> {
    Err(Error::unavailable("no answer"))
}

impl Store for Troubled {
    fn get(&self, name: &str) -> Result<Option<Vec<u8>>> {
        if self.is(Fault::Deaf) { no_answer() } else { self.store.get(name) }
    }
    fn get_range(&self, name: &str, range: std::ops::Range<u64>) -> Result<Option<Vec<u8>>> {
        self.store.get_range(name, range)
    }
    fn put(&self, name: &str, bytes: &[u8]) -> Result<()> {
        if self.is(Fault::Silent) { no_answer() } else { self.store.put(name, bytes) }
    }
    fn put_if_absent(&self, name: &str, bytes: &[u8]) -> Result<Created> {
        let is_checkpoint = String::from_utf8_lossy(bytes).contains("\"step\": \"checkpoint\"");
        if self.is(Fault::Silent) || self.is(Fault::Refused) && is_checkpoint {
            return no_answer();
        }
        let created = self.store.put_if_absent(name, bytes);
        if self.is(Fault::Deaf) { no_answer() } else { created }
    }
    fn list(&self, prefix: &str) -> Result<Vec<String>> {
        self.store.list(prefix)
    }
    fn delete(&self, name: &str) -> Result<()> {
        self.store.delete(name)
    }
    fn describe(&self) -> String {
        "a store in trouble".to_owned()
    }
}

/// Takes a checkpoint; one more in trouble, which ends after some time; and finishes. Answers what
/// became of the second checkpoint and of the job.
fn in_trouble(
    store: &Troubled,
    timeout: Duration,
    trouble: Option<Duration>,
) -> (Result<isochrone::ids::Epoch>, Result<Summary>, Collected<(u64, u64)>) {
    let mut gated = Gated::on(MemoryStore::new());
    let checkpoint = Checkpoint::store(store.clone()).not_by_time().timeout(timeout);
    gated.job = gated.job.checkpoint(checkpoint);
    let (handle, script, counted, on) =
        (gated.job.handle(), gated.script.clone(), gated.counted.clone(), store.on.clone());
    let sink = gated.sink.clone();
    let driver = thread::spawn(move || {
        Gated::await_hundreds(&counted, 1);
        handle.checkpoint(None).unwrap();
        // There is no new data, so that the manifest is the first thing that is not taken.
        on.store(true, Ordering::SeqCst);
        let asked = thread::spawn(move || handle.checkpoint(None));
        if let Some(trouble) = trouble {
            wait::pause(trouble);
            on.store(false, Ordering::SeqCst);
        }
        let answer = asked.join().unwrap();
        on.store(false, Ordering::SeqCst);
        (0..HUNDREDS).for_each(|_| script.open_gates());
        answer
    });
    let end = gated.run();
    (driver.join().unwrap(), end, sink)
}

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(600);

/// A second was all the patience there was.
#[test]
fn a_store_that_is_away_for_some_seconds_does_not_end_the_job() {
    let store = Troubled::new(Fault::Silent);
    let (answer, end, sink) = in_trouble(&store, LONG, Some(Duration::from_millis(2500)));
    assert!(answer.is_ok(), "{answer:?}");
    assert_eq!(end.unwrap().checkpoints.failed, 0);
    assert_eq!(sink.items().len() as u64, HUNDREDS * 100);
}

#[test]
fn a_manifest_that_is_proved_not_to_exist_drops_its_checkpoint_and_the_job_goes_on() {
    let store = Troubled::new(Fault::Refused);
    let (answer, end, sink) = in_trouble(&store, SHORT, None);
    let error = answer.unwrap_err();
    assert!(error.to_string().contains("the store did not take it in time"), "{error}");
    let summary = end.unwrap();
    assert_eq!(summary.checkpoints.failed, 1);
    assert!(summary.to_string().contains("1 checkpoint dropped"), "{summary}");
    assert_eq!(sink.items().len() as u64, HUNDREDS * 100);
    let manifest = stored::newest(&store.store, "gated").unwrap();
    let counts = stored::state::<u64, u64>(&store.store, &manifest, "counts");
    assert_eq!(counts, (0..10).map(|digit| (digit, HUNDREDS * 10)).collect());
}

/// Neither dropped nor published: the next run finds out.
#[test]
fn a_manifest_of_which_nothing_is_known_in_time_ends_the_job_and_the_next_run_finds_out() {
    for (fault, exists) in [(Fault::Silent, false), (Fault::Deaf, true)] {
        let store = Troubled::new(fault);
        let (answer, end, sink) = in_trouble(&store, SHORT, None);
        assert!(answer.is_err());
        let error = end.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        for part in ["whether it has checkpoint 2", "may or may not exist", "no answer"] {
            assert!(error.report().contains(part), "{error:?}");
        }
        assert_eq!(sink.items().len(), 100, "as the first checkpoint left it");
        let newest = stored::newest(&store.store, "gated").unwrap();
        assert_eq!(newest.epoch.0, if exists { 2 } else { 1 });
    }
}
