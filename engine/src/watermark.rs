//! Watermarks: the least promise of several senders, and of the splits of a source.

use std::time::Duration;

use crate::time::EventTime;

/// What a sender says that has nothing to read now and may get something later: others are not to
/// wait for it. If nobody has anything to read, that is no promise.
pub(crate) const IDLE: EventTime = EventTime(i64::MAX - 1);

/// One promise for each of several senders, and the least of them.
///
/// A sender's promise may fall (one that was idle gets something to read); the combined one never
/// does.
#[derive(Clone, Debug)]
pub(crate) struct Watermarks {
    senders: Vec<EventTime>,
    combined: EventTime,
}

impl Watermarks {
    pub(crate) fn new(senders: usize) -> Self {
        Watermarks::restored(senders, EventTime::MIN)
    }

    /// The senders have promised so much together before, and will say again what each does.
    pub(crate) fn restored(senders: usize, combined: EventTime) -> Self {
        Watermarks { senders: vec![EventTime::MIN; senders], combined }
    }

    /// Takes a sender's promise; answers the combined one if it rose.
    pub(crate) fn update(&mut self, sender: usize, mark: EventTime) -> Option<EventTime> {
        self.senders[sender] = mark;
        let least = self.senders.iter().copied().min().unwrap_or(EventTime::MAX);
        (least > self.combined && least != IDLE).then(|| {
            self.combined = least;
            least
        })
    }
}

/// The promise of one split: so far behind the newest record seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SplitWatermark {
    mark: EventTime,
    out_of_order: Duration,
}

impl SplitWatermark {
    pub(crate) fn new(restored: Option<EventTime>, out_of_order: Duration) -> Self {
        SplitWatermark { mark: restored.unwrap_or(EventTime::MIN), out_of_order }
    }

    pub(crate) fn saw(&mut self, newest: EventTime) {
        self.mark = self.mark.max(newest.minus(self.out_of_order));
    }

    pub(crate) fn mark(self) -> EventTime {
        self.mark
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combined_watermark_is_the_least_and_never_falls() {
        let mut marks = Watermarks::new(2);
        assert_eq!(marks.update(0, EventTime(5)), None);
        assert_eq!(marks.update(1, EventTime(3)), Some(EventTime(3)));
        assert_eq!(marks.update(1, EventTime::MAX), Some(EventTime(5)));
        assert_eq!(marks.update(1, EventTime(4)), None);
        assert_eq!(marks.update(0, EventTime(6)), None);
        assert_eq!(marks.update(1, EventTime(9)), Some(EventTime(6)));
    }

    #[test]
    fn an_idle_sender_holds_nobody_back_and_promises_nothing() {
        let mut marks = Watermarks::new(2);
        assert_eq!(marks.update(0, IDLE), None);
        assert_eq!(marks.update(1, IDLE), None);
        assert_eq!(marks.update(1, EventTime(7)), Some(EventTime(7)));
        assert_eq!(marks.update(0, EventTime(3)), None);
        assert_eq!(marks.update(0, EventTime::MAX), None);
        assert_eq!(marks.update(1, IDLE), None);
        assert_eq!(marks.update(1, EventTime::MAX), Some(EventTime::MAX));
    }

    #[test]
    fn split_watermark_stays_behind_the_newest_record() {
        let mut split = SplitWatermark::new(None, Duration::from_millis(10));
        split.saw(EventTime(100));
        split.saw(EventTime(50));
        assert_eq!(split.mark(), EventTime(90));
    }
}
