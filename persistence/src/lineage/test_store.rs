//! A store for the tests of this crate's protocol: a map that counts calls, fails at a chosen one
//! and lets a rival in before a chosen one.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;

use crate::{Created, Error, Result, Store};

/// What happens at a chosen call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The call is not applied and nothing works afterwards: the process is dead.
    CrashBefore,
    /// The call is applied and nothing works afterwards.
    CrashAfter,
    /// The call is not applied; its caller is told nothing.
    NoAnswerBefore,
    /// The call is applied; its caller is told nothing.
    NoAnswerAfter,
    /// The call is applied; a conditional write is told that the object exists.
    AppliedToldExists,
}

type Rival = Box<dyn FnOnce(&MapStore) + Send>;

#[derive(Default)]
pub(crate) struct MapStore {
    objects: Mutex<BTreeMap<String, Vec<u8>>>,
    calls: Mutex<usize>,
    fault: Mutex<Option<(usize, Fault)>>,
    rival: Mutex<Option<(usize, Rival)>>,
}

impl MapStore {
    pub(crate) fn fail_at(&self, call: usize, fault: Fault) {
        *self.calls.lock().unwrap() = 0;
        *self.fault.lock().unwrap() = Some((call, fault));
    }

    pub(crate) fn heal(&self) {
        *self.fault.lock().unwrap() = None;
    }

    /// Calls since the last `fail_at` or `before_call`.
    pub(crate) fn calls(&self) -> usize {
        *self.calls.lock().unwrap()
    }

    pub(crate) fn before_call(&self, call: usize, rival: impl FnOnce(&MapStore) + Send + 'static) {
        *self.calls.lock().unwrap() = 0;
        *self.rival.lock().unwrap() = Some((call, Box::new(rival)));
    }

    pub(crate) fn objects(&self) -> BTreeMap<String, Vec<u8>> {
        self.objects.lock().unwrap().clone()
    }

    fn call<T>(
        &self,
        apply: impl FnOnce(&mut BTreeMap<String, Vec<u8>>) -> T,
        told_exists: impl FnOnce(T) -> T,
    ) -> Result<T> {
        let call = {
            let mut calls = self.calls.lock().unwrap();
            *calls += 1;
            *calls - 1
        };
        let due = self.rival.lock().unwrap().take_if(|(at, _)| *at == call);
        if let Some((_, rival)) = due {
            rival(self);
        }
        let fault = *self.fault.lock().unwrap();
        let lost = || Error::unavailable(format!("call {call} got no answer"));
        let mut objects = self.objects.lock().unwrap();
        match fault {
            Some((at, Fault::CrashBefore)) if call >= at => Err(lost()),
            Some((at, Fault::CrashAfter)) if call > at => Err(lost()),
            Some((at, Fault::NoAnswerBefore)) if call == at => Err(lost()),
            Some((at, Fault::CrashAfter | Fault::NoAnswerAfter)) if call == at => {
                apply(&mut objects);
                Err(lost())
            }
            Some((at, Fault::AppliedToldExists)) if call == at => {
                Ok(told_exists(apply(&mut objects)))
            }
            _ => Ok(apply(&mut objects)),
        }
    }

    fn plain<T>(&self, apply: impl FnOnce(&mut BTreeMap<String, Vec<u8>>) -> T) -> Result<T> {
        self.call(apply, |same| same)
    }
}

impl Store for MapStore {
    fn get(&self, name: &str) -> Result<Option<Vec<u8>>> {
        self.plain(|objects| objects.get(name).cloned())
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Option<Vec<u8>>> {
        self.plain(|objects| {
            objects.get(name).map(|bytes| {
                let end = (range.end as usize).min(bytes.len());
                bytes[(range.start as usize).min(end)..end].to_vec()
            })
        })
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<()> {
        self.plain(|objects| drop(objects.insert(name.to_owned(), bytes.to_vec())))
    }

    fn put_if_absent(&self, name: &str, bytes: &[u8]) -> Result<Created> {
        let create = |objects: &mut BTreeMap<String, Vec<u8>>| match objects.contains_key(name) {
            true => Created::Exists,
            false => {
                objects.insert(name.to_owned(), bytes.to_vec());
                Created::Yes
            }
        };
        self.call(create, |_| Created::Exists)
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>> {
        self.plain(|objects| {
            objects.keys().filter(|name| name.starts_with(prefix)).cloned().collect()
        })
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.plain(|objects| drop(objects.remove(name)))
    }

    fn describe(&self) -> String {
        "map in memory".to_owned()
    }
}
