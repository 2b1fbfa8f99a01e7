//! Topics to read that are not as simple as a file: written in transactions, cut by retention.

use std::collections::{BTreeMap, BTreeSet};

use crate::job::Purchase;
use crate::place::{Place, was_killed};
use crate::support::kafka::{Broker, Transaction, row};

/// A purchase that its producer takes back.
fn taken_back(number: u32) -> crate::support::kafka::Row {
    let account = format!("a{}", number % 40);
    let event_id = format!("taken-back-{number}");
    let purchase = Purchase { event_id, account, note: String::new() };
    row(&purchase.account, serde_json::to_vec(&purchase).unwrap())
}

/// Gaps, aborted records and marks lie between the records, and at the end of each partition.
fn write_in_transactions(place: &mut Place, transactions: u32) {
    let broker = Broker::shared();
    for number in 0..transactions {
        let mut transaction = Transaction::begin(broker, "loader");
        let aborts = number % 3 == 1 || number + 1 == transactions;
        if aborts {
            let rows = (0..40).map(|n| taken_back(number * 40 + n));
            transaction.write(&place.input, rows);
            transaction.abort();
        } else {
            let rows = place.rows(50, 0);
            transaction.write(&place.input, rows);
            transaction.commit();
        }
    }
}

#[test]
fn what_was_taken_back_in_the_input_is_not_counted_whenever_the_job_dies() {
    let mut place = Place::new("transactional-input");
    write_in_transactions(&mut place, 12);
    for point in ["manifest-due", "manifest-written", "kafka-marked", "kafka-committed"] {
        let mut job = place.job().workers(2).crash(point).start();
        let end = job.end();
        assert!(was_killed(end), "{point}: {end}: {}", job.errors());
        write_in_transactions(&mut place, 5);
        place.check_so_far(point);
    }
    place.job().workers(3).ends_well();
    place.check();
}

#[test]
fn retention_that_has_passed_the_checkpoint_stops_the_job_unless_it_may_lose() {
    const PARTITION: i32 = 2;
    let mut place = Place::new("retention");
    place.feed(600);
    place.job().workers(2).ends_well();
    let (_, read) = place.input.watermarks(PARTITION);
    place.feed(600);
    let kept_from = read + 30;
    let lost: BTreeSet<String> = place
        .input
        .read()
        .records
        .iter()
        .filter(|r| r.partition == PARTITION && (read..kept_from).contains(&r.offset))
        .map(|record| serde_json::from_str::<Purchase>(&record.text()).unwrap().event_id)
        .collect();
    assert_eq!(lost.len(), 30);
    place.input.delete_records(PARTITION, kept_from);

    let said = place.job().workers(2).fails_with(2);
    let what = format!(
        "offset {read} is to be read next, and the oldest record there is has offset {kept_from}"
    );
    assert!(said.contains(&what) && said.contains("up to 30 records"), "{said}");

    place.job().workers(1).with("--accept-loss").ends_well();
    let mut counts = BTreeMap::<String, u64>::new();
    place.expected.retain_mut(|(account, (events, event_id))| {
        let is_kept = !lost.contains(event_id);
        let count = counts.entry(account.clone()).or_default();
        *count += u64::from(is_kept);
        *events = *count;
        is_kept
    });
    place.check();
}
