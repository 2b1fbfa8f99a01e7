//! Reads an output with a client that is not ours and compares each record with what it has to be.

use rdkafka::Message;

use super::super::kafka::{Topic, each_committed};
use super::purchases::{Assessment, Purchases};

/// What is in an output.
#[derive(Clone, Debug, Default)]
pub(crate) struct Checked {
    pub(crate) records: u64,
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
    pub(crate) wrong: u64,
    /// Not the next one of its account.
    pub(crate) out_of_order: u64,
    /// In another partition than the account's record before, or with another key.
    pub(crate) moved: u64,
    /// Partitions that an open transaction holds back.
    pub(crate) hanging: u64,
    /// When the broker took them, in order.
    pub(crate) appended_ms: Vec<i64>,
}

impl Checked {
    pub(crate) fn word(&self) -> String {
        let Checked { records, lost, doubled, wrong, out_of_order, moved, hanging, .. } = self;
        if [lost, doubled, wrong, out_of_order, moved, hanging].into_iter().all(|n| *n == 0) {
            return "exact".to_owned();
        }
        format!(
            "WRONG: {records} records, {lost} lost, {doubled} doubled, {wrong} wrong, \
             {out_of_order} out of order, {moved} moved, {hanging} partitions hang"
        )
    }

    /// The time by which this share of the output was there.
    pub(crate) fn appended(&self, share: f64) -> i64 {
        let last = self.appended_ms.len().saturating_sub(1);
        self.appended_ms.get((last as f64 * share) as usize).copied().unwrap_or(0)
    }
}

/// Compares an output with what `0..records` purchases have to give.
pub(crate) fn check(output: &Topic, purchases: &Purchases, records: u64) -> Checked {
    let expected = purchases.assessments(records);
    let mut seen = vec![false; expected.len()];
    let mut accounts = vec![(-1_i32, 0_u64); Purchases::accounts()];
    let mut checked = Checked::default();
    let hanging = each_committed(output, |message| {
        checked.records += 1;
        checked.appended_ms.extend(message.timestamp().to_millis());
        let value = message.payload().and_then(|value| serde_json::from_slice(value).ok());
        let known = value.and_then(|found: Assessment| {
            let expected = *expected.get(usize::try_from(found.id).ok()?)?;
            (expected == found).then_some(found)
        });
        let Some(found) = known else {
            checked.wrong += 1;
            return;
        };
        if std::mem::replace(&mut seen[found.id as usize], true) {
            checked.doubled += 1;
        }
        let (partition, count) = &mut accounts[found.account as usize];
        checked.out_of_order += u64::from(found.count != *count + 1);
        *count = found.count;
        let key_is_right = message.key() == Some(found.account.to_string().as_bytes());
        let has_moved = *partition >= 0 && *partition != message.partition();
        checked.moved += u64::from(has_moved || !key_is_right);
        *partition = message.partition();
    });
    checked.hanging = hanging.len() as u64;
    checked.lost = seen.iter().filter(|seen| !**seen).count() as u64;
    checked.appended_ms.sort_unstable();
    checked
}
