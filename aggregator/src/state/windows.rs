//! The windows that are asked for enter; those that may be analysed leave.
//!
//! Flows from before a change of the ready endpoints would show a skew that is none: a pod that came later has fewer,
//! and those of a pod that left are not in the shares. So would flows from before a node's agent began to count. A window
//! begins after both, or where it was asked to, whichever is later.

use std::time::Duration;

use super::messages::WindowStart;
use crate::ledger::Tick;
use crate::millis;
use crate::report::Window;

/// Windows that every port is analysed over beside those that are asked for, and their names.
pub const STANDARD_WINDOWS: [(Duration, &str); 4] = [
    (Duration::from_secs(60), "1m"),
    (Duration::from_secs(300), "5m"),
    (Duration::from_secs(900), "15m"),
    (Duration::from_secs(3600), "60m"),
];

/// A window before any port's changes are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AskedWindow {
    /// Begun at the start of a bucket.
    pub span: Window,
    /// The very moment that it was asked to begin at, milliseconds since 1970.
    pub at_ms: u64,
    /// Its length in seconds, if it is one of [`STANDARD_WINDOWS`].
    pub seconds: Option<u64>,
}

/// A window that may be analysed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cut {
    /// Its first bucket, which may not have begun yet.
    pub(super) first: Tick,
    /// What it covers so far.
    pub(super) span: Window,
}

/// How time is told by the ledgers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grain {
    /// Width of a bucket.
    pub(super) bucket_ms: u64,
    /// A report's flows are booked at the time of the report: they opened within this time before.
    pub(super) interval_ms: u64,
}

/// The windows that are asked for, in their order, and the standard ones after them.
pub(super) fn all(asked: &[WindowStart], grain: Grain, now_ms: u64) -> Vec<AskedWindow> {
    let begin = |at_ms: u64, seconds| AskedWindow {
        span: Window {
            from_ms: at_ms - at_ms % grain.bucket_ms,
            to_ms: now_ms,
        },
        at_ms,
        seconds,
    };
    let standard = STANDARD_WINDOWS
        .iter()
        .map(|(length, _)| begin(now_ms.saturating_sub(millis(*length)), Some(length.as_secs())));
    asked
        .iter()
        .map(|&start| match start {
            WindowStart::Ago(ms) => begin(now_ms.saturating_sub(ms), None),
            WindowStart::At(ms) => begin(ms.min(now_ms), None),
        })
        .chain(standard)
        .collect()
}

impl AskedWindow {
    /// The part of the window after the last of these moments.
    ///
    /// One that is not within the window changes nothing, even if flows from before it are booked in the window: who asks
    /// for a moment knows what was then.
    pub(super) fn cut(&self, moments: impl Iterator<Item = u64>, grain: Grain) -> Cut {
        let last = moments.filter(|moment| *moment > self.at_ms).max();
        // All that opened before has been booked by then, in this bucket or one before.
        let from_ms = last.map_or(self.span.from_ms, |last| {
            let booked_ms = last.saturating_add(grain.interval_ms);
            booked_ms.div_ceil(grain.bucket_ms).saturating_mul(grain.bucket_ms)
        });
        Cut {
            first: tick(from_ms, grain),
            span: Window {
                from_ms: from_ms.min(self.span.to_ms),
                to_ms: self.span.to_ms,
            },
        }
    }

    /// All of it.
    pub(super) fn first(&self, grain: Grain) -> Tick {
        tick(self.span.from_ms, grain)
    }
}

fn tick(at_ms: u64, grain: Grain) -> Tick {
    Tick::try_from(at_ms / grain.bucket_ms).unwrap_or(Tick::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRAIN: Grain = Grain {
        bucket_ms: 1_000,
        interval_ms: 2_000,
    };
    const NOW_MS: u64 = 100_500;

    /// Where a window that is asked to begin at `at_ms` begins, and its first bucket.
    fn check(at_ms: u64, moments: &[u64], from_ms: u64, first: Tick) {
        let asked = all(&[WindowStart::At(at_ms)], GRAIN, NOW_MS)[0];
        let cut = asked.cut(moments.iter().copied(), GRAIN);
        assert_eq!((cut.span.from_ms, cut.first), (from_ms, first), "{at_ms}, {moments:?}");
        assert_eq!((cut.span.to_ms, asked.span.to_ms), (NOW_MS, NOW_MS));
        assert!(cut.span.from_ms >= asked.span.from_ms);
    }

    #[test]
    fn windows_are_cut() {
        // Nothing has changed: as asked, to a bucket.
        check(50_000, &[], 50_000, 50);
        check(50_999, &[], 50_000, 50);
        // Before the window, in the same bucket too, and at the very moment.
        check(50_000, &[12, 49_999], 50_000, 50);
        check(50_700, &[50_300], 50_000, 50);
        check(50_700, &[50_700], 50_000, 50);
        // Within: reports until 62.3 s tell flows of before, and their bucket ends at 63 s.
        check(50_000, &[60_300], 63_000, 63);
        check(50_000, &[60_000], 62_000, 62);
        check(50_000, &[60_001], 63_000, 63);
        // A moment after it was asked for.
        check(50_700, &[50_701], 53_000, 53);
        // An agent that starts late, after a change or before it: the last counts.
        check(50_000, &[60_300, 70_100], 73_000, 73);
        check(50_000, &[70_100, 60_300], 73_000, 73);
        // Endpoints that come and go: the newest flows that may be told begin at a bucket that has not begun.
        check(50_000, &[97_000, 98_000, 99_000], NOW_MS, 101);
        check(50_000, &[100_500], NOW_MS, 103);
        check(50_000, &[97_000, 98_000], 100_000, 100);
        // Asked for what is to come.
        check(200_000, &[], 100_000, 100);
        check(0, &[], 0, 0);
    }

    #[test]
    fn the_standard_windows_come_last() {
        let windows = all(&[WindowStart::Ago(10_000)], GRAIN, 4_000_500);
        let shown: Vec<_> = windows
            .iter()
            .map(|window| (window.seconds, window.span.from_ms))
            .collect();
        assert_eq!(
            shown,
            [
                (None, 3_990_000),
                (Some(60), 3_940_000),
                (Some(300), 3_700_000),
                (Some(900), 3_100_000),
                (Some(3600), 400_000)
            ]
        );
        // Before 1970 there is nothing.
        assert_eq!(all(&[], GRAIN, NOW_MS)[3].span.from_ms, 0);
    }
}
