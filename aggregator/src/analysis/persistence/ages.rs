//! Ages of open flows in buckets enter; which age a part of them exceeds, and how many are older than a change, leave, with what the
//! width of the buckets leaves open.

use super::super::input::AgesInput;
use crate::report::Estimate;

const MS: f64 = 1000.0;

/// Flows whose ages were looked at, with those that are older than all that is known.
pub(super) fn flows(ages: &AgesInput) -> u64 {
    known(ages).saturating_add(ages.unknown)
}

fn known(ages: &AgesInput) -> u64 {
    ages.buckets
        .iter()
        .fold(0, |sum, (_, _, flows)| sum.saturating_add(*flows))
}

/// The age in seconds below which `part` of the flows are, as the bucket that holds it; flows are taken as spread evenly over
/// their bucket. `None` without flows, or when it is among those of unknown age, which are older than all others.
pub(super) fn quantile(ages: &AgesInput, part: f64) -> Option<Estimate> {
    let mut left = flows(ages) as f64 * part;
    for (low, high, flows) in &ages.buckets {
        let flows = *flows as f64;
        if flows > 0.0 && left <= flows {
            return Some(Estimate {
                value: (low + (high - low) * left / flows) / MS,
                low: low / MS,
                high: high / MS,
            });
        }
        left -= flows;
    }
    None
}

/// Flows that opened before `changed_ms`.
pub(super) fn before(ages: &AgesInput, changed_ms: u64) -> Estimate {
    // Older than this when they were looked at.
    let age = ages.read_at_ms as f64 - changed_ms as f64;
    let mut older = Estimate::exact(ages.unknown as f64);
    for (low, high, flows) in &ages.buckets {
        let flows = *flows as f64;
        let part = if *low >= age {
            1.0
        } else if *high <= age {
            0.0
        } else {
            (high - age) / (high - low)
        };
        older.value += flows * part;
        older.low += flows * part.floor();
        older.high += flows * part.ceil();
    }
    older
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ages() -> AgesInput {
        AgesInput {
            read_at_ms: 100_000,
            buckets: vec![(0.0, 1_000.0, 4), (1_000.0, 2_000.0, 0), (2_000.0, 4_000.0, 4)],
            unknown: 2,
        }
    }

    #[test]
    fn quantiles_lie_in_their_bucket() {
        // Of 10 flows the 5th is the first of the four in the last bucket.
        let median = quantile(&ages(), 0.5).unwrap();
        assert_eq!((median.low, median.value, median.high), (2.0, 2.5, 4.0));
        let third = quantile(&ages(), 0.2).unwrap();
        assert_eq!((third.low, third.value, third.high), (0.0, 0.5, 1.0));
        assert_eq!(quantile(&ages(), 0.9), None, "older than all that is known");
        assert_eq!(quantile(&AgesInput::default(), 0.5), None);
    }

    #[test]
    fn a_change_within_a_bucket_leaves_its_flows_open() {
        let of = |changed| {
            let before = before(&ages(), changed);
            (before.low, before.value, before.high)
        };
        // 3 s old: half of the last bucket is older, and all of unknown age.
        assert_eq!(of(97_000), (2.0, 4.0, 6.0));
        assert_eq!(of(98_000), (6.0, 6.0, 6.0));
        assert_eq!(of(96_000), (2.0, 2.0, 2.0));
        // Looked at before the change.
        assert_eq!(of(200_000), (10.0, 10.0, 10.0));
    }
}
