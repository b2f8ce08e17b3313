//! Flows that opened and closed at one place enter, by bucket; how many did so within a span, and how many were open
//! meanwhile, leave.
//!
//! How many are open is known for now only, so it is walked back from there: before a bucket those were open that are
//! open after it, less those that opened in it, and those that closed in it. What was found open when counting began,
//! or is older than all that is known, has neither opened nor closed here, and was open all the time.

use super::series::{Series, Tick};

/// Flows by bucket, of one class and one place.
#[derive(Debug, Clone, Default)]
pub struct Flows {
    /// Those that opened.
    pub opened: Series,
    /// Those that closed. Kept of external flows only.
    pub closed: Series,
}

/// Buckets as time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Buckets {
    /// Width of a bucket, in milliseconds.
    pub width_ms: u64,
    /// Now, milliseconds since 1970: the end of every span.
    pub now_ms: u64,
}

impl Flows {
    /// Flow-milliseconds since the start of a bucket: the flows open at each moment, summed over time.
    ///
    /// A bucket's flows count as opened and closed when it begins: the reports that it holds tell what happened in the
    /// interval before each. That counts a flow of a second as nothing or as an interval, and right on average. Where
    /// counts are off, fewer than none were open at some time: then none were.
    pub fn open_ms(&self, open_now: u64, from: Tick, buckets: Buckets) -> u128 {
        let (mut opened, mut closed) = (
            self.opened.newest_first().peekable(),
            self.closed.newest_first().peekable(),
        );
        let mut open = i128::from(open_now);
        let mut end_ms = buckets.now_ms;
        let mut sum = 0;
        loop {
            let newest = opened.peek().map(|bucket| bucket.0);
            let next = newest
                .max(closed.peek().map(|bucket| bucket.0))
                .filter(|tick| *tick >= from);
            let start_ms = u64::from(next.unwrap_or(from))
                .saturating_mul(buckets.width_ms)
                .min(end_ms);
            sum += open.max(0).unsigned_abs() * u128::from(end_ms - start_ms);
            end_ms = start_ms;
            let Some(tick) = next else { return sum };
            open -= opened
                .next_if(|bucket| bucket.0 == tick)
                .map_or(0, |bucket| i128::from(bucket.1));
            open += closed
                .next_if(|bucket| bucket.0 == tick)
                .map_or(0, |bucket| i128::from(bucket.1));
        }
    }

    /// Forgets the buckets before a tick.
    pub(super) fn expire(&mut self, before: Tick) {
        self.opened.expire(before);
        self.closed.expire(before);
    }

    /// True when nothing is left.
    pub(super) fn is_empty(&self) -> bool {
        self.opened.is_empty() && self.closed.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Changes as (bucket, opened, closed).
    fn flows(changes: &[(Tick, u32, u32)]) -> Flows {
        let mut flows = Flows::default();
        for &(tick, opened, closed) in changes {
            flows.opened.add(tick, opened);
            flows.closed.add(tick, closed);
        }
        flows
    }

    #[test]
    fn open_flows_are_walked_back() {
        let changes = [(10, 4, 0), (12, 1, 3), (13, 0, 2)];
        let check = |open_now, from, now_ms, expected: u128| {
            let buckets = Buckets { width_ms: 1000, now_ms };
            let got = flows(&changes).open_ms(open_now, from, buckets);
            assert_eq!(got, expected, "{open_now} open at {now_ms}, from {from}");
        };
        // Open within bucket 13 and after: 5. Within 12: 5 + 2 = 7. Within 10 and 11: 7 - 1 + 3 = 9. Before: 9 - 4 = 5.
        check(5, 14, 14_000, 0);
        check(5, 13, 13_500, 2_500);
        check(5, 13, 14_000, 5_000);
        check(5, 12, 14_000, 12_000);
        check(5, 11, 14_000, 21_000);
        check(5, 10, 14_000, 30_000);
        check(5, 8, 14_000, 40_000);
        // A span that has not begun.
        check(5, 20, 14_000, 0);
        check(5, Tick::MAX, 14_000, 0);
        // Nothing is open now: 0, 2, 4, 4, and -1 would be open before, which is none.
        check(0, 8, 14_000, 2_000 + 4_000 + 4_000);
        check(u64::MAX, 14, 16_000, u128::from(u64::MAX) * 2_000);
    }

    proptest! {
        /// Asked at the end of each of two adjacent spans, and once at the end of both: the sums are the same.
        #[test]
        fn adjacent_spans_add_up(
            changes in prop::collection::vec((0u32..40, 0u32..50, 0u32..50), 0..60),
            found_open in 0u64..1_000,
            cut in 1u32..40,
            from in 0u32..40,
        ) {
            let from = from.min(cut);
            // Whatever order they come in, so many are open that none is ever missing.
            let all_closed: u64 = changes.iter().map(|change| u64::from(change.2)).sum();
            let open_at = |end: Tick| {
                let before = changes.iter().filter(|change| change.0 < end);
                before.fold(found_open + all_closed, |open, change| open + u64::from(change.1) - u64::from(change.2))
            };
            let buckets = |end: Tick| Buckets { width_ms: 1000, now_ms: u64::from(end) * 1000 };
            let early: Vec<_> = changes.iter().copied().filter(|change| change.0 < cut).collect();
            let (early, all) = (flows(&early), flows(&changes));
            let first = early.open_ms(open_at(cut), from, buckets(cut));
            let second = all.open_ms(open_at(40), cut, buckets(40));
            prop_assert_eq!(first + second, all.open_ms(open_at(40), from, buckets(40)));
            let sums = |flows: &Flows, from| (flows.opened.sum(from, 39), flows.closed.sum(from, 39));
            let (first, second, both) = (sums(&early, from), sums(&all, cut), sums(&all, from));
            prop_assert_eq!((first.0 + second.0, first.1 + second.1), both);
        }

        /// As if each millisecond were looked at.
        #[test]
        fn open_flows_are_summed_over_time(
            changes in prop::collection::vec((0u32..12, 0u32..9, 0u32..9), 0..20),
            open_now in 0u64..60,
            from in 0u32..14,
            now_ms in 110u64..140,
        ) {
            let open_at = |ms: u64| {
                let later = changes.iter().filter(|change| u64::from(change.0) * 10 > ms);
                later.fold(i64::try_from(open_now).unwrap(), |open, change| open - i64::from(change.1) + i64::from(change.2))
            };
            let expected: i64 = (u64::from(from) * 10..now_ms).map(|ms| open_at(ms).max(0)).sum();
            let got = flows(&changes).open_ms(open_now, from, Buckets { width_ms: 10, now_ms });
            prop_assert_eq!(got, u128::try_from(expected).unwrap());
        }
    }
}
