//! What a checkpoint of a large state costs: the operator's longest stop, the work on its thread,
//! the work in the background, and the bytes.
//!
//! ```sh
//! cargo bench --bench checkpoint_cost
//! KEYS_MAX=1000000 cargo bench --bench checkpoint_cost
//! ```
//!
//! Drives the table of one keyed operator as the dataflow does: a freeze, then steps of 4096 keys;
//! a stop is a freeze and the step after it, or a step.

mod support;

use isochrone::connectors::generator::mix;
use isochrone::ids::{Epoch, Generation, JobName, OperatorId, Worker};
use isochrone::keyed::{Map, Outputs, Table};
use isochrone::persistence::Store;
use isochrone::persistence::segment::{self, Identity};
use isochrone::persistence::store::local::LocalStore;
use isochrone::record::hash_of;
use support::{from_env, measure, print_table};

const STEP: usize = 4096;
const BATCH: u64 = 2048;

/// Count and total, as in the account-risk job.
type Spent = (u64, i64);

/// Changes the keys `first..end`, in an order that looks random.
fn change<L>(table: &mut Table<u64, i64, L>, first: u64, end: u64)
where
    L: isochrone::keyed::Logic<u64, i64, Out = Spent>,
{
    let mut out = Outputs::default();
    for start in (first..end).step_by(BATCH as usize) {
        let keys = start..end.min(start + BATCH);
        let mut items: Vec<_> = keys.map(|number| (mix(number), number as i64)).collect();
        let hashes: Vec<_> = items.iter().map(|(key, _)| hash_of(key)).collect();
        table.apply(&mut items, |pair| pair, &hashes, &[], &mut out);
        out.clear();
    }
}

fn identity() -> Identity {
    Identity {
        job: JobName::new("bench").expect("a name"),
        generation: Generation(1),
        epoch: Epoch(1),
        operator: OperatorId::new("spent").expect("an id"),
        worker: Worker(0),
    }
}

fn checkpoint<L>(name: String, table: &mut Table<u64, i64, L>, store: &LocalStore) -> Vec<String>
where
    L: isochrone::keyed::Logic<u64, i64, Out = Spent>,
{
    let (mut longest_s, mut steps_s) = (0.0_f64, 0.0);
    let mut done = false;
    let mut first = true;
    while !done {
        let (cost, complete) = measure(|| {
            if std::mem::take(&mut first) {
                table.freeze();
            }
            table.snapshot_step(STEP)
        });
        longest_s = longest_s.max(cost.wall_s);
        steps_s += cost.wall_s;
        done = complete;
    }
    let rows = table.take_rows();
    let count = rows.len();
    let (encode, bytes) = measure(|| segment::encode(rows, &identity()));
    let (digest, _) = measure(|| segment::reference("bench/d/x", &bytes, &identity()));
    let object = format!("bench/{}", name.to_lowercase().replace([' ', ','], "-"));
    let (put, stored) = measure(|| store.put(&object, &bytes));
    stored.expect("the store takes it");
    vec![
        name,
        count.to_string(),
        format!("{:.0}", longest_s * 1e6),
        format!("{:.1}", steps_s * 1e3),
        format!("{:.1}", encode.wall_s * 1e3),
        format!("{:.1}", digest.wall_s * 1e3),
        format!("{:.1}", put.wall_s * 1e3),
        format!("{:.2}", bytes.len() as f64 / 1e6),
        format!("{:.1}", bytes.len() as f64 / count as f64),
    ]
}

fn main() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = LocalStore::open(folder.path()).expect("a store");
    let mut rows = Vec::new();
    for keys in [1_000_000_u64, 10_000_000] {
        if keys > from_env("KEYS_MAX", u64::MAX) {
            continue;
        }
        let mut table = Table::new(
            128,
            Map::new(|spent: &mut Spent, cents: i64| {
                spent.0 += 1;
                spent.1 += cents;
                *spent
            }),
        );
        change(&mut table, 0, keys);
        let millions = keys / 1_000_000;
        rows.push(checkpoint(format!("{millions} M keys, all new"), &mut table, &store));
        change(&mut table, 0, keys);
        rows.push(checkpoint(format!("{millions} M keys, all changed"), &mut table, &store));
        change(&mut table, 0, keys / 100);
        rows.push(checkpoint(format!("{millions} M keys, 1 percent changed"), &mut table, &store));
    }
    let head = [
        "",
        "rows",
        "longest stop us",
        "on the worker ms",
        "sort and encode ms",
        "digest ms",
        "put ms",
        "MB",
        "bytes a row",
    ];
    print_table("checkpoints of one operator on one worker", &head, &rows);
}
