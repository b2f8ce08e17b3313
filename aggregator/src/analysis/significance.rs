//! Is it more than chance? Counts, a model of their shares and a design effect enter; the G-test leaves, and with the noise
//! floor the whole [`Skew`] of one kind of flows.
//!
//! Flows of one client that stay together say less than as many independent ones. A test of X flows with design effect
//! d counts as one of X / d flows with the same shares: its statistic is G / d (J. N. K. Rao and A. J. Scott, Journal of the
//! American Statistical Association 76, 1981).

use super::floor::noise_floor;
use super::shares::Split;
use super::theil::theil;
use crate::report::{GTest, Skew};
use statrs::distribution::{ChiSquared, ContinuousCDF};

/// A test rejects below this p-value. Stricter than the noise floor, because a Service is looked at again and again.
pub(super) const REJECT: f64 = 0.001;

/// Below this many effective flows nothing is tested and no balancer is named, however few the endpoints.
pub(super) const MIN_FLOWS: u64 = 50;

/// Below this many flows an endpoint on average, the chi-square approximation is not good enough even when corrected.
/// Cochran's rule (Biometrics 10, 1954). With it the corrected test keeps its level within a factor of 1.5.
const MIN_FLOWS_PER_ENDPOINT: u64 = 5;

/// Effective flows needed to test `endpoints` endpoints for even shares.
pub(super) fn flows_needed(endpoints: usize) -> u64 {
    MIN_FLOWS.max((endpoints as u64).saturating_mul(MIN_FLOWS_PER_ENDPOINT))
}

/// All figures of one kind of flows, whose design effect is `deff`. Without `testable` the counts are known to be
/// incomplete: the figures stand as counted, but nothing is tested.
pub(super) fn skew(split: &Split, deff: f64, testable: bool) -> Skew {
    let p = split.endpoint_count();
    let effective_flows = split.flows as f64 / deff;
    let tested = testable && p > 1 && effective_flows >= flows_needed(p) as f64;
    let theil = theil(split);
    let test = theil
        .filter(|_| tested)
        .map(|theil| even_test(2.0 * effective_flows * theil.total, effective_flows, p));
    let (peak_ratio, noise_floor) = (split.peak_ratio(), noise_floor(effective_flows, p));
    let above_floor = peak_ratio.zip(noise_floor).is_some_and(|(peak, floor)| peak > floor);
    Skew {
        kind: split.kind,
        flows: split.flows,
        effective_flows,
        cv: split.cv(),
        gini: split.gini(),
        peak_ratio,
        max_min: split.max_min(),
        jain: split.jain(),
        theil,
        significant: above_floor && test.is_some_and(|t| t.p_value < REJECT),
        test,
        noise_floor,
    }
}

/// The G-test of equal shares over `cells` cells, at least 2, of which G = 2 X T is known.
fn even_test(g: f64, flows: f64, cells: usize) -> GTest {
    GTest {
        g,
        degrees: (cells - 1) as u32,
        // Williams' correction as below, for equal shares.
        p_value: tail(g / even_williams(flows, cells as f64), cells - 1),
    }
}

/// Likelihood-ratio test of `counts` against `model`, whose shares are positive and add up to 1; the same length, at
/// least 2. For equal shares G is 2 X T, X the effective flows.
///
/// The p-value is of G after Williams' correction. Without it G rejects too often: at 5 flows a cell and 100 cells
/// three times as often as it should.
pub(super) fn g_test(counts: &[u64], model: &[f64], deff: f64) -> GTest {
    let flows: f64 = counts.iter().map(|c| *c as f64).sum();
    let g = divergence(counts, flows, model) / deff;
    let degrees = counts.len().saturating_sub(1);
    let corrected = g / williams(model, flows / deff, degrees, 1.0);
    GTest {
        g,
        degrees: degrees as u32,
        p_value: tail(corrected, degrees),
    }
}

/// p-value of one split for both: do `a` and `b`, counts over the same cells, follow the same shares? Two-sample G-test
/// with Williams' correction, both with the design effect `deff`. 1 when either is empty or all flows are in one cell.
pub(super) fn same_split(a: &[u64], b: &[u64], deff: f64) -> f64 {
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
    let g = (divergence(&a, flows_a, &pooled) + divergence(&b, flows_b, &pooled)) / deff;
    let rows = all / flows_a + all / flows_b - 1.0;
    tail(g / williams(&pooled, all / deff, degrees, rows), degrees)
}

/// p-value of equal shares within each node, over nodes with several endpoints and enough effective flows. 1 when there
/// is none.
pub(super) fn within_node_p_value(split: &Split, deff: f64) -> f64 {
    // Per node: half of G against equal shares.
    let mut halves = vec![0.0; split.node_count()];
    for (endpoint, count) in split.endpoints.iter().zip(&split.counts) {
        let node = endpoint.node;
        let even = split.node_counts[node] as f64 / f64::from(split.node_endpoints[node]);
        if *count > 0 && split.node_endpoints[node] > 1 {
            halves[node] += *count as f64 * (*count as f64 / even).ln();
        }
    }
    let (mut g, mut degrees) = (0.0, 0);
    for (node, half) in halves.iter().enumerate() {
        let (on, flows) = (
            f64::from(split.node_endpoints[node]),
            split.node_counts[node] as f64 / deff,
        );
        if on > 1.0 && flows >= MIN_FLOWS_PER_ENDPOINT as f64 * on {
            g += (2.0 * half / deff).max(0.0) / even_williams(flows, on);
            degrees += on as usize - 1;
        }
    }
    tail(g, degrees)
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

/// The same for one sample against equal shares of `cells` cells, where sum 1/model is cells^2.
fn even_williams(flows: f64, cells: f64) -> f64 {
    1.0 + (cells + 1.0) / (6.0 * flows)
}

/// Probability that chi-square with `degrees` is `g` or more; 1 with no degrees, where nothing can differ.
fn tail(g: f64, degrees: usize) -> f64 {
    ChiSquared::new(degrees as f64).map_or(1.0, |chi_square| chi_square.sf(g))
}
