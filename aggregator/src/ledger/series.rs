//! Counts at moments enter; sums over spans of time leave. Sparse: a bucket without flows takes no memory.

use std::collections::VecDeque;

/// Number of a time bucket: milliseconds since 1970 over the bucket's width.
pub type Tick = u32;

/// Counts by bucket, oldest first. Eight bytes for each bucket that has any.
#[derive(Debug, Clone, Default)]
pub struct Series {
    buckets: VecDeque<(Tick, u32)>,
}

impl Series {
    /// Adds to a bucket, which need not be the newest.
    pub fn add(&mut self, tick: Tick, count: u32) {
        if count == 0 {
            return;
        }
        let position = self.buckets.partition_point(|&(at, _)| at < tick);
        match self.buckets.get_mut(position) {
            Some((at, sum)) if *at == tick => *sum = sum.saturating_add(count),
            _ => self.buckets.insert(position, (tick, count)),
        }
    }

    /// Sum over the buckets of a span, both ends included.
    pub fn sum(&self, from: Tick, to: Tick) -> u64 {
        let start = self.buckets.partition_point(|&(at, _)| at < from);
        self.buckets
            .range(start..)
            .take_while(|&&(at, _)| at <= to)
            .map(|&(_, count)| u64::from(count))
            .sum()
    }

    /// The buckets, newest first.
    pub(super) fn newest_first(&self) -> impl Iterator<Item = (Tick, u32)> {
        self.buckets.iter().rev().copied()
    }

    /// Forgets the buckets before a tick.
    pub fn expire(&mut self, before: Tick) {
        while self.buckets.front().is_some_and(|&(at, _)| at < before) {
            self.buckets.pop_front();
        }
    }

    /// True when nothing is left.
    pub fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_whatever_the_order() {
        let mut series = Series::default();
        for (tick, count) in [(10, 1), (12, 2), (11, 4), (12, 8), (9, 16), (30, 0)] {
            series.add(tick, count);
        }
        let check = |from, to, expected| assert_eq!(series.sum(from, to), expected, "{from}..={to}");
        check(0, Tick::MAX, 31);
        check(10, 11, 5);
        check(12, 12, 10);
        check(13, Tick::MAX, 0);
        assert_eq!(series.buckets.len(), 4);
    }

    #[test]
    fn expiry_forgets_only_what_is_older() {
        let mut series = Series::default();
        series.add(5, 1);
        series.add(6, 2);
        series.expire(6);
        assert_eq!(series.sum(0, Tick::MAX), 2);
        series.expire(7);
        assert!(series.is_empty());
    }

    #[test]
    fn a_full_bucket_stays_full() {
        let mut series = Series::default();
        series.add(1, u32::MAX);
        series.add(1, 1);
        assert_eq!(series.sum(1, 1), u64::from(u32::MAX));
    }
}
