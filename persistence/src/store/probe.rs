//! The question asked of a store before anything is entrusted to it: does it keep its word?
//!
//! Some servers accept a conditional write and ignore the condition; two runs of a job would then
//! both believe that they own it. The probe finds those, and stores that answer from stale copies.
//! It cannot prove the contract: a race that is lost one time in a million is not seen here.

use std::sync::Barrier;

use crate::{Created, Error, Result, Store};

/// How many writers want the same name at once.
const RIVALS: u8 = 4;

/// Writes, reads, lists and removes objects `<prefix>probe-<random>..` and fails with `Invalid`,
/// naming the store and what happened, when an answer breaks the contract of [`Store`].
///
/// `prefix` is put before the name as it is (`orders/`, or nothing). An error of the store itself is
/// passed on. A write whose answer is lost is settled by reading back, as everywhere.
///
/// ```
/// use isochrone_persistence::store::{memory::MemoryStore, probe::probe};
/// probe(&MemoryStore::new(), "orders/")?;
/// # Ok::<(), isochrone_persistence::Error>(())
/// ```
pub fn probe(store: &dyn Store, prefix: &str) -> Result<()> {
    let nonce = getrandom::u64().map_err(|error| {
        Error::unavailable("the system gives no random number; try again").with_source(error)
    })?;
    let name = format!("{prefix}probe-{nonce:016x}");
    let raced = format!("{name}-race");
    let outcome = one_after_another(store, &name).and_then(|()| at_once(store, &raced));
    // Removed in any case; the first failure is the one to report.
    let removed = removes(store, &name).and(removes(store, &raced));
    outcome.and(removed)
}

fn one_after_another(store: &dyn Store, name: &str) -> Result<()> {
    let (first, second) = (b"first".as_slice(), b"other".as_slice());
    // `Exists` for a fresh random name is our own write, repeated by a client on its own.
    store.put_if_absent(name, first)?;
    reads(store, name, first, "right after it was created")?;
    if store.put_if_absent(name, second)? == Created::Yes {
        return Err(refused(store, name, "was created twice: the store ignores the condition"));
    }
    reads(store, name, first, "after a second attempt to create it was refused")?;
    if !store.list(name)?.iter().any(|listed| listed == name) {
        return Err(refused(store, name, "is missing from the list right after it was created"));
    }
    Ok(())
}

fn reads(store: &dyn Store, name: &str, expected: &[u8], when: &str) -> Result<()> {
    match store.get(name)? {
        Some(bytes) if bytes == expected => Ok(()),
        Some(_) => Err(refused(store, name, &format!("has other bytes {when}"))),
        None => Err(refused(store, name, &format!("cannot be read {when}"))),
    }
}

/// Rivals create one name: no more than one may win, and its bytes are those that stay.
fn at_once(store: &dyn Store, name: &str) -> Result<()> {
    let start = &Barrier::new(usize::from(RIVALS));
    let answers: Vec<Result<Created>> = std::thread::scope(|scope| {
        let create = |rival: u8| {
            scope.spawn(move || {
                start.wait();
                store.put_if_absent(name, &[rival])
            })
        };
        let rivals: Vec<_> = (0..RIVALS).map(create).collect();
        rivals.into_iter().map(|rival| rival.join().unwrap_or_else(|_| Err(panicked()))).collect()
    });
    let answers = answers.into_iter().collect::<Result<Vec<Created>>>()?;
    let won = |(rival, answer): (u8, &Created)| (*answer == Created::Yes).then_some(rival);
    let winners: Vec<u8> = (0..RIVALS).zip(&answers).filter_map(won).collect();
    match winners[..] {
        // All told `Exists`: the winner's client repeated its write on its own.
        [] => Ok(()),
        [winner] => reads(store, name, &[winner], "after it was created in a race"),
        _ => {
            let what = format!("was created by {} writers at once", winners.len());
            Err(refused(store, name, &what))
        }
    }
}

fn removes(store: &dyn Store, name: &str) -> Result<()> {
    store.delete(name)?;
    match store.get(name)? {
        None => Ok(()),
        Some(_) => Err(refused(store, name, "can still be read after it was deleted")),
    }
}

fn refused(store: &dyn Store, name: &str, what: &str) -> Error {
    Error::invalid(format!(
        "{} cannot be used: object {name} {what}; use a store that has conditional writes and \
         shows every write at once",
        store.describe()
    ))
}

fn panicked() -> Error {
    Error::internal("a store panicked during the probe")
}
