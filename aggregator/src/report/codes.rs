//! The stable codes of verdicts and findings, for programs.

use serde::{Deserialize, Serialize};

/// Code of a load-balancer verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BalancerModel {
    /// Each node with a ready endpoint gets the same.
    EqualPerNode,
    /// Each node gets in proportion to its ready endpoints.
    Weighted,
    /// One node gets all.
    SingleLeader,
    /// Each model is rejected.
    NoneFits,
    /// The data cannot tell.
    Undetermined,
}

impl BalancerModel {
    /// The stable code, as in JSON.
    pub const fn code(self) -> &'static str {
        match self {
            Self::EqualPerNode => "equal-per-node",
            Self::Weighted => "weighted",
            Self::SingleLeader => "single-leader",
            Self::NoneFits => "none-fits",
            Self::Undetermined => "undetermined",
        }
    }
}

/// Stable code of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingCode {
    /// Nodes have unequal numbers of endpoints and the balancer gives each node the same.
    PlacementSkew,
    /// One node gets all new flows while other healthy ones are silent.
    LbSingleLeader,
    /// Nodes get unequal shares that no model explains.
    LbUneven,
    /// Endpoints of one node get unequal shares: affinity or heavy clients.
    WithinNodeSkew,
    /// Established flows are skewed although new ones are not: they predate a change.
    Persistence,
    /// An agent of a node with endpoints does not report: figures lack that node.
    NodeSilent,
}

impl FindingCode {
    /// The stable code, as in JSON.
    pub const fn code(self) -> &'static str {
        match self {
            Self::PlacementSkew => "placement-skew",
            Self::LbSingleLeader => "lb-single-leader",
            Self::LbUneven => "lb-uneven",
            Self::WithinNodeSkew => "within-node-skew",
            Self::Persistence => "persistence",
            Self::NodeSilent => "node-silent",
        }
    }
}
