//! How uneven flows are, which balancer fits, and what causes it: the figures of the analysis, as they are served.

use serde::{Deserialize, Serialize};

use super::{BalancerModel, Confidence, FindingCode, FlowKind, Window};

/// What each load-balancer model gives a node.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct NodeExpectation {
    /// 1 / nodes.
    pub equal_per_node: f64,
    /// Endpoints on the node / endpoints.
    pub weighted: f64,
    /// 1 for the node with the most new flows, 0 for the others.
    pub single_leader: f64,
    /// 1 / (zones * nodes of its zone); null when the zone of a node is not known, or there is only one.
    #[serde(default)]
    pub zone_equal: Option<f64>,
}

/// How uneven one kind of flows is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Skew {
    /// New or established.
    pub kind: FlowKind,
    /// Number of flows: the sample size.
    pub flows: u64,
    /// So many independent flows say as much: fewer than `flows` when flows of one client stay together. Equal to `flows` when
    /// clients are not known.
    #[serde(default)]
    pub effective_flows: f64,
    /// Largest share over ideal share; 1 is even. Null without flows.
    pub peak_ratio: Option<f64>,
    /// Largest over smallest count; null when the smallest is 0.
    pub max_min: Option<f64>,
    /// Coefficient of variation of the endpoints' counts; null without flows.
    #[serde(default)]
    pub cv: Option<f64>,
    /// Gini coefficient of the endpoints' counts, 0 to 1 - 1/P; null without flows.
    #[serde(default)]
    pub gini: Option<f64>,
    /// Jain's fairness index, 1/P to 1. Null without flows.
    pub jain: Option<f64>,
    /// Theil index in nats and the three parts that add up to it. Null without flows.
    pub theil: Option<Theil>,
    /// More than chance? Null when there are too few flows to test.
    pub test: Option<GTest>,
    /// The peak ratio that chance alone would stay below 99 times of 100 at this sample size; null without flows.
    pub noise_floor: Option<f64>,
    /// True when `test` rejects chance and the peak ratio is above the noise floor.
    pub significant: bool,
}

/// Theil index T and its exact split, in nats.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Theil {
    /// sum s ln(s P).
    pub total: f64,
    /// Nodes not equal: sum S_v ln(S_v N).
    pub load_balancer: f64,
    /// Nodes equal but unequal in endpoints: sum S_v ln(P / (N n_v)). Can be negative.
    pub placement: f64,
    /// Endpoints of one node not equal.
    pub within_node: f64,
}

/// Likelihood-ratio test of equal shares.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct GTest {
    /// G = 2 X T.
    pub g: f64,
    /// Degrees of freedom, endpoints - 1.
    pub degrees: u32,
    /// Probability of a G this large by chance.
    pub p_value: f64,
}

/// How the load balancer splits new flows over nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BalancerVerdict {
    /// The verdict.
    pub model: BalancerModel,
    /// Natural logarithm of the Bayes factor of the winner against the runner-up; null when not compared.
    pub log_bayes_factor: Option<f64>,
    /// Flows that the verdict rests on.
    pub flows: u64,
    /// Why, in a sentence.
    pub reason: String,
    /// Every model that was compared, likeliest first.
    #[serde(default)]
    pub candidates: Vec<BalancerCandidate>,
}

/// How well one model fits.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BalancerCandidate {
    /// The model.
    pub model: BalancerModel,
    /// Natural logarithm of its Bayes factor against the likeliest model: 0 for that one, negative for all others.
    pub log_bayes_factor: f64,
    /// p-value of the G-test of the node sums against it.
    pub p_value: f64,
}

/// One cause of skew.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Stable code, for programs.
    pub code: FindingCode,
    /// For people: names, numbers, and what it means.
    pub sentence: String,
    /// The part of the Theil index of `kind` that this finding explains, 0 to 1; null when not of that kind.
    pub share_of_skew: Option<f64>,
    /// Which flows it speaks of.
    pub kind: FlowKind,
    /// Flows that it rests on.
    pub flows: u64,
    /// How sure it is.
    #[serde(default)]
    pub confidence: Confidence,
    /// What it rests on, a sentence each.
    #[serde(default)]
    pub evidence: Vec<String>,
}

/// One part of the Theil index and its cause. Parts of all causes add up to the index.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Cause {
    /// The cause; null: what chance explains, or nothing that is known.
    pub code: Option<FindingCode>,
    /// The part, in nats; negative when this evens out what other causes bring about.
    pub nats: f64,
    /// The part over the index; null when the index is 0.
    pub share: Option<f64>,
}

/// Skew of new flows over one window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WindowSkew {
    /// Length of the window that was meant, in seconds.
    pub seconds: u64,
    /// What it covers.
    pub window: Window,
    /// The skew.
    pub new: Skew,
}

/// A figure with its 95 % confidence interval. Exact: all three are equal.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Best estimate.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Estimate {
    /// A figure without error.
    pub const fn exact(value: f64) -> Self {
        Self {
            value,
            low: value,
            high: value,
        }
    }
}
