//! Counts to shares. One kind of flows of a Service enters; its shares over endpoints and over nodes leave, with the
//! figures that need nothing else: peak ratio, max/min, coefficient of variation, Gini and Jain.

use super::{EndpointInput, NodeInput, ServiceInput};
use crate::report::FlowKind;

/// One kind of flows, split over the endpoints and nodes of a Service.
///
/// With P endpoints and N nodes: every `Vec` over endpoints has length P, every `Vec` over nodes length N. Without
/// flows all shares are 0.
pub(super) struct Split<'a> {
    pub kind: FlowKind,
    pub nodes: &'a [NodeInput],
    pub endpoints: &'a [EndpointInput],
    /// X, the number of flows.
    pub flows: u64,
    /// x_e, flows of each endpoint.
    pub counts: Vec<u64>,
    /// s_e = x_e / X.
    pub shares: Vec<f64>,
    /// Flows of each node.
    pub node_counts: Vec<u64>,
    /// S_v, the share of each node.
    pub node_shares: Vec<f64>,
    /// n_v, endpoints on each node; at least 1.
    pub node_endpoints: Vec<u32>,
}

impl<'a> Split<'a> {
    /// Splits the flows of `kind`. The input must be valid: each node index in range.
    pub fn of(input: &'a ServiceInput, kind: FlowKind) -> Self {
        let count = |e: &EndpointInput| match kind {
            FlowKind::New => e.new,
            FlowKind::Established => e.established,
        };
        Self::of_counts(input, kind, input.endpoints.iter().map(count).collect())
    }

    /// Splits `counts`, one an endpoint.
    pub fn of_counts(input: &'a ServiceInput, kind: FlowKind, counts: Vec<u64>) -> Self {
        // Sums in 128 bits: counters are 64 bits wide, and a sum that wraps would be a wrong share.
        let mut node_sums = vec![0u128; input.nodes.len()];
        let mut node_endpoints = vec![0u32; input.nodes.len()];
        for (endpoint, count) in input.endpoints.iter().zip(&counts) {
            node_sums[endpoint.node] += u128::from(*count);
            node_endpoints[endpoint.node] += 1;
        }
        let total: u128 = node_sums.iter().sum();
        // Without flows all shares are 0.
        let whole = (total as f64).max(f64::MIN_POSITIVE);
        Self {
            kind,
            nodes: &input.nodes,
            endpoints: &input.endpoints,
            flows: saturate(total),
            shares: counts.iter().map(|count| *count as f64 / whole).collect(),
            counts,
            node_shares: node_sums.iter().map(|sum| *sum as f64 / whole).collect(),
            node_counts: node_sums.into_iter().map(saturate).collect(),
            node_endpoints,
        }
    }

    /// P.
    pub fn endpoint_count(&self) -> usize {
        self.endpoints.len()
    }

    /// N.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// True when every node has the same number of endpoints: equal-per-node and weighted are then one model.
    pub fn placement_is_even(&self) -> bool {
        self.node_endpoints.windows(2).all(|pair| pair[0] == pair[1])
    }

    /// Largest share over the ideal share 1/P; None without flows.
    pub fn peak_ratio(&self) -> Option<f64> {
        let largest = self.shares.iter().copied().fold(0.0, f64::max);
        (self.flows > 0).then_some(largest * self.endpoint_count() as f64)
    }

    /// Largest over smallest count; None when the smallest is 0 or there is none.
    pub fn max_min(&self) -> Option<f64> {
        let (min, max) = (self.counts.iter().min()?, self.counts.iter().max()?);
        (*min > 0).then_some(*max as f64 / *min as f64)
    }

    /// Coefficient of variation: the standard deviation of the counts (of all P, not of a sample) over their mean, which is
    /// sqrt(P sum s^2 - 1); None without flows.
    pub fn cv(&self) -> Option<f64> {
        // Through deviations: the difference would cancel where shares are nearly even.
        let p = self.endpoint_count() as f64;
        let squares: f64 = self.shares.iter().map(|s| (s * p - 1.0).powi(2)).sum();
        (self.flows > 0).then(|| (squares / p).sqrt())
    }

    /// Gini coefficient sum (2i - P - 1) s_(i) / P over the shares s_(1) to s_(P) in ascending order, i from 1; None without flows.
    ///
    /// C. Gini, Variabilita e mutabilita, 1912; in this form A. Sen, On Economic Inequality, 1973.
    pub fn gini(&self) -> Option<f64> {
        if self.flows == 0 {
            return None;
        }
        let mut sorted = self.counts.clone();
        sorted.sort_unstable();
        let (p, flows) = (
            self.endpoint_count() as f64,
            sorted.iter().map(|count| *count as f64).sum::<f64>(),
        );
        let term = |(i, count): (usize, &u64)| (2.0 * i as f64 + 1.0 - p) * (*count as f64 / flows);
        let sum: f64 = sorted.iter().enumerate().map(term).sum();
        // Not negative but for rounding.
        Some((sum / p).max(0.0))
    }

    /// Jain's fairness index (sum x)^2 / (P sum x^2), which is 1 / (P sum s^2); None without flows.
    pub fn jain(&self) -> Option<f64> {
        let squares: f64 = self.shares.iter().map(|s| s * s).sum();
        (self.flows > 0).then(|| 1.0 / (squares * self.endpoint_count() as f64))
    }

    /// The node with the most flows; on a tie the first by name. None without flows.
    pub fn leader(&self) -> Option<usize> {
        let by_flows = |a: &usize, b: &usize| {
            let order = self.node_counts[*a].cmp(&self.node_counts[*b]);
            order.then_with(|| self.nodes[*b].name.cmp(&self.nodes[*a].name))
        };
        if self.flows == 0 {
            None
        } else {
            (0..self.node_count()).max_by(by_flows)
        }
    }
}

fn saturate(sum: u128) -> u64 {
    u64::try_from(sum).unwrap_or(u64::MAX)
}
