//! How large may the peak ratio be by chance? A sample size and a number of endpoints enter; the noise floor leaves.

use statrs::distribution::{Binomial, ContinuousCDF, DiscreteCDF, Normal};

/// The noise floor is passed by chance this often.
const FLOOR_ALARMS: f64 = 0.01;

/// The peak ratio that even shares stay at or below 99 times of 100: P/X times the smallest k for which at most 1 in
/// 100 samples has an endpoint above k. Counts of endpoints are Binomial(X, 1/P) and negatively associated, so the
/// union bound P * Pr(count > k) is safe, and close at this level (K. Joag-Dev and F. Proschan, Annals of Statistics 11,
/// 1983). None without flows.
///
/// X is the effective number of flows, which need not be whole. A part of a flow says nothing: it is left off, which
/// makes the floor a little higher, never lower.
pub(super) fn noise_floor(effective_flows: f64, endpoints: usize) -> Option<f64> {
    let flows = effective_flows as u64;
    if flows == 0 || endpoints == 0 {
        return None;
    }
    let p = endpoints as f64;
    let count = Binomial::new(1.0 / p, flows).ok()?;
    let rare = |k: u64| count.sf(k) * p <= FLOOR_ALARMS;
    // The tail is dear, so the search begins where it is expected, corrected for skewness (E. A. Cornish and R. A. Fisher, Revue
    // de l'Institut International de Statistique 5, 1938), and doubles its steps.
    let (mean, z) = (flows as f64 / p, -Normal::standard().inverse_cdf(FLOOR_ALARMS / p));
    let guess = mean + z * (mean * (1.0 - 1.0 / p)).sqrt() + (z * z - 1.0) * (1.0 - 2.0 / p) / 6.0;
    // Not above `flows`, where the tail is 0, so rare.
    let (mut low, mut high) = (flows / endpoints as u64, (guess as u64).min(flows));
    let mut step = 1;
    if rare(high) {
        while high > low && high - low > step && rare(high - step) {
            high -= step;
            step = step.saturating_mul(2);
        }
        low = low.max(high.saturating_sub(step));
    } else {
        low = high + 1;
        while low < flows && !rare(low.saturating_add(step).min(flows)) {
            low = low.saturating_add(step).min(flows) + 1;
            step = step.saturating_mul(2);
        }
        high = low.saturating_add(step).min(flows);
    }
    while low < high {
        let middle = low + (high - low) / 2;
        if rare(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    // In the order of Split::peak_ratio, so that a peak exactly at the floor is not above it by rounding.
    Some(low as f64 / flows as f64 * p)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_is_the_least_count_that_is_rare() {
        for endpoints in [1, 2, 3, 11, 100, 1000] {
            for flows in [1_u64, 2, 7, 50, 333, 5_000, 1_000_000] {
                let floor = noise_floor(flows as f64, endpoints).unwrap();
                let k = (floor * flows as f64 / endpoints as f64).round() as u64;
                let count = Binomial::new(1.0 / endpoints as f64, flows).unwrap();
                let alarms = |k| count.sf(k) * endpoints as f64;
                assert!(alarms(k) <= FLOOR_ALARMS, "{flows} flows, {endpoints} endpoints: {k}");
                let least = k == flows / endpoints as u64 || alarms(k - 1) > FLOOR_ALARMS;
                assert!(least, "{flows} flows, {endpoints} endpoints: {k} is not the least");
            }
        }
    }

    #[test]
    fn a_part_of_a_flow_counts_for_nothing() {
        assert_eq!(noise_floor(99.9, 4), noise_floor(99.0, 4));
        assert_eq!((noise_floor(0.9, 4), noise_floor(10.0, 0)), (None, None));
    }
}
