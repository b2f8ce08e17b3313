//! Models of a load balancer. A split enters; the share that each model gives each node and endpoint leaves.

use super::shares::Split;
use crate::report::{BalancerModel, NodeExpectation, Theil};
use std::collections::BTreeMap;

/// Shares nearer than this are the same, but for rounding.
const SAME: f64 = 1e-12;

/// 1 / N for each node.
pub(super) fn equal(split: &Split) -> Vec<f64> {
    vec![1.0 / split.node_count() as f64; split.node_count()]
}

/// n_v / P for each node.
pub(super) fn weighted(split: &Split) -> Vec<f64> {
    let share = |on: &u32| f64::from(*on) / split.endpoint_count() as f64;
    split.node_endpoints.iter().map(share).collect()
}

/// 1 / (Z N_z) for each node, with Z zones and N_z nodes in its zone. None when the zone of a node is not known, or there is
/// only one.
pub(super) fn zone_equal(split: &Split) -> Option<Vec<f64>> {
    let mut zones: BTreeMap<&str, u32> = BTreeMap::new();
    for node in split.nodes {
        *zones.entry(&node.zone).or_default() += 1;
    }
    if zones.len() < 2 || zones.contains_key("") {
        return None;
    }
    let share = |zone: &str| 1.0 / (zones.len() as f64 * f64::from(zones[zone]));
    Some(split.nodes.iter().map(|node| share(&node.zone)).collect())
}

/// The leader gets all but `leak`, which the others share. At least 2 nodes, or no leak.
pub(super) fn leader(split: &Split, leader: usize, leak: f64) -> Vec<f64> {
    let other = if leak > 0.0 {
        leak / (split.node_count() - 1) as f64
    } else {
        0.0
    };
    (0..split.node_count())
        .map(|node| if node == leader { 1.0 - leak } else { other })
        .collect()
}

/// True when both give each node the same.
pub(super) fn same(a: &[f64], b: &[f64]) -> bool {
    a.iter().zip(b).all(|(a, b)| (a - b).abs() < SAME)
}

/// Share of each endpoint under `model`, equal-per-node when it names no split. Adds up to 1.
pub(super) fn expected_shares(model: BalancerModel, split: &Split) -> Vec<f64> {
    let node_shares = match (model, split.leader()) {
        (BalancerModel::Weighted, _) => weighted(split),
        (BalancerModel::SingleLeader, Some(node)) => leader(split, node, 0.0),
        (BalancerModel::ZoneEqual, _) => zone_equal(split).unwrap_or_else(|| equal(split)),
        _ => equal(split),
    };
    let share = |node: usize| node_shares[node] / f64::from(split.node_endpoints[node]);
    split.endpoints.iter().map(|endpoint| share(endpoint.node)).collect()
}

/// What each model gives each node. Without flows nobody leads.
pub(super) fn node_expectations(split: &Split) -> Vec<NodeExpectation> {
    let (equal, weighted, zones) = (equal(split), weighted(split), zone_equal(split));
    let leader = split.leader();
    let of = |node: usize| NodeExpectation {
        equal_per_node: equal[node],
        weighted: weighted[node],
        single_leader: if leader == Some(node) { 1.0 } else { 0.0 },
        zone_equal: zones.as_ref().map(|shares| shares[node]),
    };
    (0..split.node_count()).map(of).collect()
}

/// The node shares from which the balancer's part of the skew is measured: equal, or weighted when the placement part is
/// negative, which shows that the balancer leans toward nodes with more endpoints.
pub(super) fn lb_reference(split: &Split, theil: &Theil) -> Vec<f64> {
    if theil.placement < 0.0 {
        weighted(split)
    } else {
        equal(split)
    }
}
