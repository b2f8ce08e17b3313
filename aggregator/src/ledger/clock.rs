//! When an agent says it sent, and when that arrived, enter; the agent's moments by our own clock leave.

use std::collections::VecDeque;

/// Messages that the estimate rests on.
const SAMPLES: usize = 32;
/// A difference this much larger or smaller than the estimate means that a clock was set.
const STEP_MS: i64 = 30_000;

/// How far one agent's clock is behind ours: the smallest difference between receiving and sending among the newest
/// messages of a stream, because every delay on the way only adds to it.
#[derive(Debug, Clone, Default)]
pub struct ClockOffset {
    samples: VecDeque<i64>,
}

impl ClockOffset {
    /// Learns from one message. One that was "sent" before its content was taken teaches nothing.
    pub fn observe(&mut self, taken_at_ms: u64, sent_at_ms: u64, received_ms: u64) {
        if sent_at_ms == 0 || sent_at_ms < taken_at_ms {
            return;
        }
        let difference = difference(received_ms, sent_at_ms);
        if self
            .offset_ms()
            .is_some_and(|offset| offset.abs_diff(difference) > STEP_MS.unsigned_abs())
        {
            self.samples.clear();
        }
        if self.samples.len() == SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(difference);
    }

    /// Milliseconds to add to the agent's clock; `None` as long as nothing is known.
    pub fn offset_ms(&self) -> Option<i64> {
        self.samples.iter().copied().min()
    }

    /// A moment of the agent by our clock, never later than its arrival.
    pub fn ours(&self, taken_at_ms: u64, received_ms: u64) -> u64 {
        match self.offset_ms() {
            Some(offset) => taken_at_ms.saturating_add_signed(offset).min(received_ms),
            None => received_ms,
        }
    }
}

fn difference(a: u64, b: u64) -> i64 {
    // Both are far below 2^63 unless an agent talks nonsense.
    i64::try_from(i128::from(a) - i128::from(b)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_delay_wins() {
        let mut clock = ClockOffset::default();
        assert_eq!(clock.ours(500, 7_000), 7_000);
        clock.observe(500, 1_000, 6_300);
        clock.observe(1_500, 2_000, 7_010);
        clock.observe(2_500, 3_000, 8_200);
        assert_eq!(clock.offset_ms(), Some(5_010));
        assert_eq!(clock.ours(2_500, 8_200), 7_510);
    }

    #[test]
    fn a_clock_ahead_of_ours() {
        let mut clock = ClockOffset::default();
        clock.observe(90_000, 90_000, 10_000);
        assert_eq!(clock.ours(90_000, 10_000), 10_000);
        assert_eq!(clock.ours(85_000, 10_000), 5_000);
    }

    #[test]
    fn a_clock_that_was_set_starts_a_new_estimate() {
        let mut clock = ClockOffset::default();
        clock.observe(100_000, 100_000, 100_005);
        clock.observe(10_000, 10_000, 101_005);
        assert_eq!(clock.offset_ms(), Some(91_005));
        clock.observe(102_000, 102_000, 102_005);
        assert_eq!(clock.offset_ms(), Some(5));
    }

    #[test]
    fn nonsense_teaches_nothing() {
        let mut clock = ClockOffset::default();
        clock.observe(5, 0, 1_000);
        clock.observe(9_000, 8_000, 10_000);
        assert_eq!(clock.offset_ms(), None);
        clock.observe(0, u64::MAX, 1_000);
        assert!(clock.ours(u64::MAX, 1_000) <= 1_000);
    }

    #[test]
    fn old_samples_are_forgotten() {
        let mut clock = ClockOffset::default();
        clock.observe(0, 1, 1);
        for i in 0..SAMPLES as u64 {
            clock.observe(0, 1_000 + i, 1_020 + i);
        }
        assert_eq!(clock.offset_ms(), Some(20));
    }
}
