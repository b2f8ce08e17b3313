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
    /// Each zone gets the same, and within a zone each node.
    ZoneEqual,
    /// Each client keeps its node.
    SourceHash,
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
            Self::ZoneEqual => "zone-equal",
            Self::SourceHash => "source-hash",
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
    /// Nodes have unequal numbers of endpoints and the balancer does not weight them by it.
    PlacementSkew,
    /// One node gets all new flows while other healthy ones are silent.
    LbSingleLeader,
    /// Nodes get unequal shares that no model explains.
    LbUneven,
    /// The balancer weights nodes by their endpoints, and so evens out an uneven placement. Not a fault.
    LbWeighted,
    /// Clients are bound to pods, and too few to even out.
    AffinityPinning,
    /// Session affinity is configured and does not hold.
    AffinityBroken,
    /// A few clients open most flows, and each is bound to a pod or a node.
    ClientConcentration,
    /// Established flows are skewed although new ones are not: they predate a change.
    Persistence,
    /// A ready endpoint gets next to no new flows while others of its node do.
    EndpointIdle,
    /// Endpoints of one node get unequal shares, and none of the causes that are known explains it.
    WithinNodeSkew,
    /// An agent of a node with endpoints does not report: figures lack that node.
    NodeSilent,
    /// Too little is known to say anything. Not a fault.
    InsufficientData,
    /// No more skew than chance, or too little to matter. Not a fault.
    Even,
}

impl FindingCode {
    /// The stable code, as in JSON.
    pub const fn code(self) -> &'static str {
        match self {
            Self::PlacementSkew => "placement-skew",
            Self::LbSingleLeader => "lb-single-leader",
            Self::LbUneven => "lb-uneven",
            Self::LbWeighted => "lb-weighted",
            Self::AffinityPinning => "affinity-pinning",
            Self::AffinityBroken => "affinity-broken",
            Self::ClientConcentration => "client-concentration",
            Self::Persistence => "persistence",
            Self::EndpointIdle => "endpoint-idle",
            Self::WithinNodeSkew => "within-node-skew",
            Self::NodeSilent => "node-silent",
            Self::InsufficientData => "insufficient-data",
            Self::Even => "even",
        }
    }

    /// True when something is wrong.
    pub const fn is_fault(self) -> bool {
        !matches!(self, Self::LbWeighted | Self::InsufficientData | Self::Even)
    }
}

/// How sure a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// The best explanation of what is known, not shown by itself.
    #[default]
    Likely,
    /// Chance would look like this in fewer than 1 of 1,000 cases.
    High,
    /// Read off, not inferred.
    Certain,
}

impl Confidence {
    /// The stable code, as in JSON.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Likely => "likely",
            Self::High => "high",
            Self::Certain => "certain",
        }
    }
}
