//! The Theil index. Shares enter; the index leaves, in nats, with the three parts that add up to it.

use super::shares::Split;
use crate::report::Theil;

/// T = sum s_e ln(s_e P), and its exact split by s_e P = (S_v N) * (P / (N n_v)) * (s_e n_v / S_v), whose three factors
/// are the load balancer, the placement and the endpoints within a node. None without flows.
///
/// Reference: H. Theil, Economics and Information Theory, 1967, chapter 4: the index is additive over groups.
pub(super) fn theil(split: &Split) -> Option<Theil> {
    (split.flows > 0).then(|| parts(split, &split.shares, &split.node_shares))
}

/// The same without some of the flows: `removed` of each endpoint. None when none are left.
pub(super) fn theil_without(split: &Split, removed: &[f64]) -> Option<Theil> {
    let left = split.counts.iter().zip(removed);
    let mut shares: Vec<f64> = left.map(|(count, gone)| (*count as f64 - gone).max(0.0)).collect();
    let sum: f64 = shares.iter().sum();
    if sum <= 0.0 {
        return None;
    }
    let mut node_shares = vec![0.0; split.node_count()];
    for (share, endpoint) in shares.iter_mut().zip(split.endpoints) {
        *share /= sum;
        node_shares[endpoint.node] += *share;
    }
    Some(parts(split, &shares, &node_shares))
}

fn parts(split: &Split, shares: &[f64], node_shares: &[f64]) -> Theil {
    let (p, n) = (split.endpoint_count() as f64, split.node_count() as f64);
    let nodes = || {
        node_shares
            .iter()
            .zip(&split.node_endpoints)
            .map(|(share, on)| (*share, f64::from(*on)))
    };
    // Each of these is a divergence, hence not negative but for rounding. The placement part is not one, and can be.
    let total = shares.iter().map(|s| s_ln(*s, s * p)).sum::<f64>().max(0.0);
    let load_balancer = nodes().map(|(share, _)| s_ln(share, share * n)).sum::<f64>().max(0.0);
    let placement = nodes().map(|(share, on)| s_ln(share, p / (n * on))).sum();
    let within_node = (0..split.endpoint_count())
        .map(|e| {
            let node = split.endpoints[e].node;
            match split.node_endpoints[node] {
                1 => 0.0,
                on => s_ln(shares[e], shares[e] / node_shares[node] * f64::from(on)),
            }
        })
        .sum::<f64>()
        .max(0.0);
    Theil {
        total,
        load_balancer,
        placement,
        within_node,
    }
}

/// What endpoint `e` adds to the within-node part: s_e ln(s_e n_v / S_v). Positive when it gets more than the others of
/// its node.
pub(super) fn within_term(split: &Split, e: usize) -> f64 {
    let (share, node) = (split.shares[e], split.endpoints[e].node);
    s_ln(
        share,
        share / split.node_shares[node] * f64::from(split.node_endpoints[node]),
    )
}

/// s ln(of), with 0 ln 0 = 0.
fn s_ln(s: f64, of: f64) -> f64 {
    if s > 0.0 { s * of.ln() } else { 0.0 }
}
