//! What is known of clients, in the shape in which shares, balancer and causes use it. Plain data.

use crate::report::{Affinity, Clients, Estimate, Stickiness};

/// How much less the flows say than as many independent ones would, by tier; 1 where clients are not known.
///
/// Kish's design effect for clusters of unequal size, 1 + kappa (sum c^2 / X - 1), c the flows of a client and kappa the
/// part of them that stays together (L. Kish, Survey Sampling, 1965, chapter 5).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Design {
    /// For endpoints: the larger of the other two.
    pub whole: f64,
    /// For nodes: flows of a client that keeps its node.
    pub nodes: f64,
    /// For the endpoints of one node: flows of a client that keeps its pod.
    pub within: f64,
}

impl Default for Design {
    fn default() -> Self {
        Self {
            whole: 1.0,
            nodes: 1.0,
            within: 1.0,
        }
    }
}

impl Design {
    /// The design effects of `to` flows of the clients of which `from` flows are known: of another window, or of the
    /// established flows.
    ///
    /// When clients keep their shares q of the flows, (sum c^2 / X - 1) / (X - 1) estimates sum q^2 without bias at any X
    /// (E. H. Simpson, Nature 163, 1949). So what exceeds 1 grows as X - 1.
    pub fn scaled(&self, from: u64, to: u64) -> Self {
        if from < 2 || to < 1 {
            return Self::default();
        }
        let factor = (to - 1) as f64 / (from - 1) as f64;
        let scale = |deff: f64| 1.0 + (deff - 1.0) * factor;
        Self {
            whole: scale(self.whole),
            nodes: scale(self.nodes),
            within: scale(self.within),
        }
    }
}

/// What is known of clients, for the attribution.
pub(super) struct ClientView {
    pub clients: Clients,
    pub affinity: Affinity,
    /// Distinct clients of each endpoint.
    pub endpoint_clients: Vec<Option<Estimate>>,
    pub design: Design,
    /// Flows of the heavy clients at each endpoint, within the window; all 0 without heavy clients.
    pub heavy: Vec<f64>,
    /// Clients that come back to a node keep their pod: kappa is significantly above 0.5.
    pub pods_sticky: bool,
    /// Clients that come back keep their node, likewise.
    pub nodes_sticky: bool,
    /// Consecutive opens of one client: how many pairs, and how many of them on one node.
    pub node_pairs: (u64, u64),
}

impl ClientView {
    /// True when clients that come back to a node are seen to keep their pod, or none was ever seen elsewhere.
    pub fn pods_kept(&self) -> bool {
        self.pods_sticky || always_same(self.affinity.pod_tier)
    }

    /// The same of nodes.
    pub fn nodes_kept(&self) -> bool {
        self.nodes_sticky || always_same(self.affinity.node_tier)
    }
}

/// With all flows in one place chance is 1 and there is no kappa; but nobody moved either.
fn always_same(tier: Option<Stickiness>) -> bool {
    tier.is_some_and(|tier| tier.pairs > 0 && tier.kappa.is_none() && tier.observed >= 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_design_effect_grows_with_the_flows_of_each_client() {
        // 10 clients of 10 flows each, all kept: 100 flows say as much as 10.
        let design = Design {
            whole: 10.0,
            nodes: 1.0,
            within: 10.0,
        };
        assert_eq!(design.scaled(100, 100), design);
        // 200 flows of 10 equal clients are still about 10: sum c^2 / X - 1 is 199 * 9/99.
        let twice = design.scaled(100, 200);
        assert!((twice.whole - (1.0 + 199.0 / 11.0)).abs() < 1e-12, "{twice:?}");
        assert_eq!(twice.nodes, 1.0);
        assert_eq!(design.scaled(100, 1), Design::default());
        assert_eq!(design.scaled(0, 50), Design::default());
    }
}
