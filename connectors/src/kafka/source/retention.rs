//! Whether retention is about to pass what is to be read next: said while something can still be done.
//! Facts in, verdict out: nothing is asked here.

/// What was last seen of one partition.
#[derive(Debug, Default)]
pub(super) struct Retention {
    looked_ms: u64,
    /// How many offsets lay between the oldest one kept and the next one to read.
    gap: Option<i64>,
    was_told: bool,
}

impl Retention {
    /// Whether it is time for another look.
    #[inline]
    pub(super) fn is_due(&mut self, now_ms: u64, every_ms: u64) -> bool {
        let is_due = now_ms >= self.looked_ms.saturating_add(every_ms);
        if is_due {
            self.looked_ms = now_ms;
        }
        is_due
    }

    /// At each look, `kept` being the oldest offset that is kept and the one behind the last: says
    /// once that the next look may come too late, if the gap shrinks as it did since the last one. Who
    /// has read nearly all has nothing to fear: what is unread then is younger than what is taken.
    pub(super) fn look(&mut self, next: i64, kept: (i64, i64)) -> Option<String> {
        let (low, high) = kept;
        let (gap, unread) = (next - low, high - next);
        let shrunk = self.gap.replace(gap)? - gap;
        if self.was_told || gap < 0 || gap >= shrunk || unread <= gap {
            return None;
        }
        self.was_told = true;
        Some(format!(
            "retention comes near: offset {next} is to be read next, {unread} records or so are \
             still to be read, and the oldest one kept has come within {gap} offsets, {shrunk} \
             nearer than at the last look; raise `retention.ms` or `retention.bytes`, or read \
             faster, or records will be deleted before they are read"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks at a partition of 1000 records: what is next, and the oldest that is kept.
    fn told(looks: &[(i64, i64)]) -> Vec<bool> {
        let mut retention = Retention::default();
        looks.iter().map(|(next, low)| retention.look(*next, (*low, 1000)).is_some()).collect()
    }

    #[test]
    fn it_is_told_once_when_the_next_look_may_be_too_late() {
        // It has come nearer by 100, and 100 are left; by 110, and 90 are.
        assert_eq!(told(&[(200, 0), (200, 100)]), [false; 2]);
        assert_eq!(told(&[(200, 0), (200, 110), (200, 199)]), [false, true, false]);
        assert_eq!(told(&[(200, 0), (210, 120), (220, 200)]), [false, true, false]);
        // At the same distance.
        assert_eq!(told(&[(10, 5), (110, 105), (210, 205)]), [false; 3]);
        // All but a few are read: an old segment was taken, and nothing is in danger.
        assert_eq!(told(&[(990, 0), (990, 950)]), [false; 2]);
        // It has passed: that is an error, and another's to tell.
        assert_eq!(told(&[(200, 0), (200, 300)]), [false; 2]);
    }

    #[test]
    fn a_look_is_due_every_so_often() {
        let mut retention = Retention::default();
        let due = [0, 99, 100, 150, 199, 200].map(|now_ms| retention.is_due(now_ms, 100));
        assert_eq!(due, [false, false, true, false, false, true]);
    }
}
