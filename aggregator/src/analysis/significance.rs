//! Is it more than chance? Counts and a model of their shares enter; the G-test and the noise floor leave, and with
//! them the whole [`Skew`] of one kind of flows.

use super::shares::Split;
use super::theil::theil;
use crate::report::{GTest, Skew};
use statrs::distribution::{Binomial, ChiSquared, ContinuousCDF, DiscreteCDF};

/// A test rejects below this p-value. Stricter than the noise floor, because a Service is looked at again and again.
pub(super) const REJECT: f64 = 0.001;

/// The noise floor is passed by chance this often.
const FLOOR_ALARMS: f64 = 0.01;

/// Below this many flows nothing is tested and no balancer is named, however few the endpoints.
pub(super) const MIN_FLOWS: u64 = 50;

/// Below this many flows an endpoint on average, the chi-square approximation is not good enough even when corrected.
/// Cochran's rule (Biometrics 10, 1954). With it the corrected test keeps its level within a factor of 1.5.
const MIN_FLOWS_PER_ENDPOINT: u64 = 5;

/// Flows needed to test `endpoints` endpoints for even shares.
pub(super) fn flows_needed(endpoints: usize) -> u64 {
    MIN_FLOWS.max((endpoints as u64).saturating_mul(MIN_FLOWS_PER_ENDPOINT))
}

/// All figures of one kind of flows. Without `testable` the counts are known to be incomplete: the figures stand as
/// counted, but nothing is tested.
pub(super) fn skew(split: &Split, testable: bool) -> Skew {
    let p = split.endpoint_count();
    let tested = testable && p > 1 && split.flows >= flows_needed(p);
    let test = tested.then(|| g_test(&split.counts, &vec![1.0 / p as f64; p]));
    let (peak_ratio, noise_floor) = (split.peak_ratio(), noise_floor(split.flows, p));
    let above_floor = peak_ratio.zip(noise_floor).is_some_and(|(peak, floor)| peak > floor);
    Skew {
        kind: split.kind,
        flows: split.flows,
        effective_flows: split.flows as f64,
        cv: None,
        gini: None,
        peak_ratio,
        max_min: split.max_min(),
        jain: split.jain(),
        theil: theil(split),
        significant: above_floor && test.is_some_and(|t| t.p_value < REJECT),
        test,
        noise_floor,
    }
}

/// Likelihood-ratio test of `counts` against `model`, whose shares are positive and add up to 1; the same length, at
/// least 2. For equal shares G is 2 X T.
///
/// The p-value is of G after Williams' correction. Without it G rejects too often: at 5 flows a cell and 100 cells
/// three times as often as it should.
pub(super) fn g_test(counts: &[u64], model: &[f64]) -> GTest {
    let flows: f64 = counts.iter().map(|c| *c as f64).sum();
    let g = divergence(counts, flows, model);
    let degrees = counts.len().saturating_sub(1);
    let corrected = g / williams(model, flows, degrees, 1.0);
    GTest {
        g,
        degrees: degrees as u32,
        p_value: tail(corrected, degrees),
    }
}

/// p-value of one split for both: do `a` and `b`, counts over the same cells, follow the same shares? Two-sample G-test
/// with Williams' correction. 1 when either is empty or all flows are in one cell.
pub(super) fn same_split(a: &[u64], b: &[u64]) -> f64 {
    let pairs: Vec<(u64, u64)> = a
        .iter()
        .copied()
        .zip(b.iter().copied())
        .filter(|(a, b)| *a > 0 || *b > 0)
        .collect();
    let (a, b): (Vec<u64>, Vec<u64>) = pairs.into_iter().unzip();
    let sum = |counts: &[u64]| counts.iter().map(|c| *c as f64).sum::<f64>();
    let (flows_a, flows_b, degrees) = (sum(&a), sum(&b), a.len().saturating_sub(1));
    if flows_a == 0.0 || flows_b == 0.0 || degrees == 0 {
        return 1.0;
    }
    let all = flows_a + flows_b;
    let pooled: Vec<f64> = a.iter().zip(&b).map(|(a, b)| (*a as f64 + *b as f64) / all).collect();
    let g = divergence(&a, flows_a, &pooled) + divergence(&b, flows_b, &pooled);
    let rows = all / flows_a + all / flows_b - 1.0;
    tail(g / williams(&pooled, all, degrees, rows), degrees)
}

/// p-value of equal shares within each node, over nodes with several endpoints and enough flows. 1 when there is none.
pub(super) fn within_node_p_value(split: &Split) -> f64 {
    let (mut g, mut degrees) = (0.0, 0);
    for node in 0..split.node_count() {
        let on_node = split
            .endpoints
            .iter()
            .zip(&split.counts)
            .filter(|(e, _)| e.node == node);
        let counts: Vec<u64> = on_node.map(|(_, count)| *count).collect();
        let flows = split.node_counts[node];
        if counts.len() > 1 && flows >= MIN_FLOWS_PER_ENDPOINT.saturating_mul(counts.len() as u64) {
            let (even, flows, free) = (
                vec![1.0 / counts.len() as f64; counts.len()],
                flows as f64,
                counts.len() - 1,
            );
            g += divergence(&counts, flows, &even) / williams(&even, flows, free, 1.0);
            degrees += free;
        }
    }
    tail(g, degrees)
}

/// The peak ratio that even shares stay at or below 99 times of 100: P/X times the smallest k for which at most 1 in
/// 100 samples has an endpoint above k. Counts of endpoints are Binomial(X, 1/P) and negatively associated, so the
/// union bound P * Pr(count > k) is safe, and close at this level. None without flows.
pub(super) fn noise_floor(flows: u64, endpoints: usize) -> Option<f64> {
    if flows == 0 || endpoints == 0 {
        return None;
    }
    let p = endpoints as f64;
    let count = Binomial::new(1.0 / p, flows).ok()?;
    let (mut low, mut high) = (flows / endpoints as u64, flows);
    while low < high {
        let middle = low + (high - low) / 2;
        if count.sf(middle) * p <= FLOOR_ALARMS {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    // In the order of Split::peak_ratio, so that a peak exactly at the floor is not above it by rounding.
    Some(low as f64 / flows as f64 * p)
}

/// 2 sum x ln(x / (X m)), with 0 ln 0 = 0; not negative but for rounding.
fn divergence(counts: &[u64], flows: f64, model: &[f64]) -> f64 {
    let term = |(count, m): (&u64, &f64)| match *count {
        0 => 0.0,
        count => count as f64 * (count as f64 / (flows * m)).ln(),
    };
    (2.0 * counts.iter().zip(model).map(term).sum::<f64>()).max(0.0)
}

/// Williams' correction q = 1 + rows (sum 1/model - 1) / (6 X degrees), by which G is divided (D. A. Williams,
/// Biometrika 63, 1976). `rows` is 1 for one sample against a model, and sum X/X_i - 1 for several samples.
fn williams(model: &[f64], flows: f64, degrees: usize, rows: f64) -> f64 {
    let inverse: f64 = model.iter().map(|m| 1.0 / m).sum();
    1.0 + rows * (inverse - 1.0) / (6.0 * flows * degrees as f64)
}

/// Probability that chi-square with `degrees` is `g` or more; 1 with no degrees, where nothing can differ.
fn tail(g: f64, degrees: usize) -> f64 {
    ChiSquared::new(degrees as f64).map_or(1.0, |chi_square| chi_square.sf(g))
}
