//! A store that panics: whichever thread calls it, in whichever process, the job ends with an error that
//! says so.

use super::*;

/// What the store does when it panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    /// At the start of a run.
    List,
    /// A segment, by the uploader.
    Put,
    /// A manifest, by the coordinator.
    PutIfAbsent,
    /// A segment, by the merger.
    Get,
}

/// A store with a mistake.
struct Mistaken<S> {
    store: S,
    call: Option<Call>,
}

impl<S> Mistaken<S> {
    fn may_panic(&self, call: Call, name: &str) {
        let is_data = name.contains("/d/");
        let is_it = self.call == Some(call) && (is_data || !matches!(call, Call::Put | Call::Get));
        assert!(!is_it, "the store is wrong");
    }
}

impl<S: Store> Store for Mistaken<S> {
    fn get(&self, name: &str) -> Result<Option<Vec<u8>>> {
        self.may_panic(Call::Get, name);
        self.store.get(name)
    }
    fn get_range(&self, name: &str, range: std::ops::Range<u64>) -> Result<Option<Vec<u8>>> {
        self.store.get_range(name, range)
    }
    fn put(&self, name: &str, bytes: &[u8]) -> Result<()> {
        self.may_panic(Call::Put, name);
        self.store.put(name, bytes)
    }
    fn put_if_absent(&self, name: &str, bytes: &[u8]) -> Result<Created> {
        if String::from_utf8_lossy(bytes).contains("\"step\": \"checkpoint\"") {
            self.may_panic(Call::PutIfAbsent, name);
        }
        self.store.put_if_absent(name, bytes)
    }
    fn list(&self, prefix: &str) -> Result<Vec<String>> {
        self.may_panic(Call::List, prefix);
        self.store.list(prefix)
    }
    fn delete(&self, name: &str) -> Result<()> {
        self.store.delete(name)
    }
    fn describe(&self) -> String {
        "a store with a mistake".to_owned()
    }
}

fn counting_job(store: impl Store, args: RunArgs) -> Result<Summary> {
    let checkpoint = Checkpoint::store(store).every(Duration::from_millis(20));
    Job::new("counting").checkpoint(checkpoint).run(args, |flow| {
        let counts = flow.source("numbers", endless()).key_by(|number| number % 10).count("counts");
        counts.sink("out", Callback::new(|_: &(u64, u64)| ()));
        Ok(())
    })
}

#[test]
fn a_store_that_panics_ends_the_job_whichever_thread_calls_it() {
    for (call, place) in [
        (Call::List, "this process"),
        (Call::Put, "the uploader"),
        (Call::PutIfAbsent, "the coordinator"),
        (Call::Get, "thread `isochrone-merger`"),
    ] {
        let store = Mistaken { store: MemoryStore::new(), call: Some(call) };
        let error = counting_job(store, quiet(2)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::User, "{call:?}: {error:?}");
        assert_eq!(error.to_string(), format!("{place} panicked: the store is wrong"));
    }
}

const OTHER: &str = "panics::a_store_that_panics_in_another_process_ends_all_and_is_told";

#[test]
fn a_store_that_panics_in_another_process_ends_all_and_is_told() {
    play(|flags| {
        let call = std::env::var("ISOCHRONE_PROCESS").is_ok_and(|process| process == "1");
        let store = LocalStore::open(Path::new(&flags[1])).unwrap();
        let store = Mistaken { store, call: call.then_some(Call::Put) };
        counting_job(store, RunArgs { processes: Some(2), ..RunArgs::default() })
    });
    let folder = TempDir::new().unwrap();
    let flags = [folder.path().join("state").to_str().unwrap().to_owned()];
    let mut job = child::Job::start(OTHER, &flags, &folder.path().join("errors"));
    assert_eq!(job.end().code(), Some(ErrorKind::User.exit_code().into()), "{}", job.errors());
    let told = job.errors().matches(": the uploader panicked: the store is wrong").count();
    assert_eq!(told, 1, "{}", job.errors());
}
