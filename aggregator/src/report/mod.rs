//! The report about one Service port: what the analysis found, in the shape that the JSON API serves, `kubectl-flowskew`
//! prints and programs read. Plain data; unknown values are `null`, never a made-up zero.

mod codes;
mod parts;

use serde::{Deserialize, Serialize};

pub use codes::{BalancerModel, FindingCode};
pub use parts::{
    DoorKind, DoorRow, DoorSum, GoneRow, GoneState, LoadRow, Losses, NodeDegradation, UnservedReason, UnservedRow,
};

use crate::node::{DoorCoverage, Origin};

/// Which flows a figure speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlowKind {
    /// Flows that opened within the window.
    New,
    /// Flows that are open now.
    Established,
}

/// Everything known about one Service port over one window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServiceReport {
    /// Namespace of the Service.
    pub namespace: String,
    /// Name of the Service.
    pub service: String,
    /// Port of the Service.
    pub port: u16,
    /// Name of the port, empty if it has none.
    pub port_name: String,
    /// "TCP" or "UDP".
    pub protocol: String,
    /// `Local` or `Cluster`.
    pub external_traffic_policy: String,
    /// `None` or `ClientIP`.
    pub session_affinity: String,
    /// The window that `new` covers.
    pub window: Window,
    /// One row an endpoint that is ready, ordered by node and pod.
    pub endpoints: Vec<EndpointRow>,
    /// One row a node that has a ready endpoint, ordered by name.
    pub nodes: Vec<NodeRow>,
    /// Skew of the flows that opened within the window; source class external.
    pub new: Skew,
    /// Skew of the flows that are open now; source class external.
    pub established: Skew,
    /// How the load balancer splits new flows over nodes.
    pub balancer: BalancerVerdict,
    /// What is wrong, largest first. Empty when nothing is.
    pub findings: Vec<Finding>,
    /// One sentence for a person: the first finding, or why there is none.
    pub headline: String,
    /// What is missing from the figures.
    pub losses: Losses,
    /// External flows of the ready endpoints by kind of front door.
    #[serde(default)]
    pub front_doors: Vec<DoorSum>,
    /// How many front doors the nodes of the report have looked up, since their epochs began.
    #[serde(default)]
    pub door_coverage: DoorCoverage,
    /// Other Service ports with front doors that have pods and target port in common with this one. When there are any,
    /// all counts are of flows that came through this Service port's own front doors.
    #[serde(default)]
    pub shared_with: Vec<String>,
    /// Attempts of the window that reached no pod, ordered by node.
    #[serde(default)]
    pub unserved: Vec<UnservedRow>,
    /// Flows on endpoints that do not count in the shares, most first. Endpoints without any have no row.
    #[serde(default)]
    pub gone_endpoints: Vec<GoneRow>,
    /// Since when each node of the report has counted, milliseconds since 1970; null while one has not begun.
    #[serde(default)]
    pub counting_since_ms: Option<u64>,
    /// When the ready endpoints last changed, as far as is known, milliseconds since 1970.
    #[serde(default)]
    pub endpoints_changed_ms: Option<u64>,
    /// What limits the figures, in sentences.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// A span of time, by the aggregator's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Start, milliseconds since 1970.
    pub from_ms: u64,
    /// End, milliseconds since 1970.
    pub to_ms: u64,
}

/// One ready endpoint. Counts are of source class external.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EndpointRow {
    /// Name of the pod, or the address when no pod is known.
    pub pod: String,
    /// Name of the node.
    pub node: String,
    /// Address, as people write it.
    pub address: String,
    /// Target port.
    pub port: u16,
    /// Flows opened within the window.
    pub new: u64,
    /// `new` over the sum of the Service; null when the sum is 0.
    pub new_share: Option<f64>,
    /// Share under the load-balancer model of the verdict, or under equal-per-node when there is none.
    pub expected_share: f64,
    /// 1 / number of ready endpoints.
    pub ideal_share: f64,
    /// Flows open now.
    pub established: u64,
    /// `established` over the sum of the Service; null when the sum is 0.
    pub established_share: Option<f64>,
    /// Flows opened since the epoch of the node's agent began.
    pub opened_total: u64,
    /// Flows closed since the epoch began, by any cause.
    pub closed_total: u64,
    /// Flows found already open when the agent began to count.
    pub seeded_total: u64,
    /// Flows opened within the window from pods and nodes of the cluster, or before the agent could tell.
    pub new_other_classes: u64,
    /// Unique id of the pod, empty when not known.
    #[serde(default)]
    pub pod_uid: String,
    /// The front doors that its flows came through, as far as they are known.
    #[serde(default)]
    pub doors: Vec<DoorRow>,
    /// How busy the pod was within the window; null when fewer than two reports tell.
    #[serde(default)]
    pub load: Option<LoadRow>,
}

/// One node that has a ready endpoint of the Service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeRow {
    /// Name of the node.
    pub node: String,
    /// Ready endpoints on it.
    pub endpoints: u32,
    /// Flows opened within the window.
    pub new: u64,
    /// Share of new flows; null when there are none.
    pub new_share: Option<f64>,
    /// Share under equal-per-node, weighted, single-leader (for the node that leads), in this order.
    pub expected: NodeExpectation,
    /// Flows open now.
    pub established: u64,
    /// True when the agent of this node has reported within three of its intervals.
    pub agent_reporting: bool,
    /// Since when its flows are counted without a gap, milliseconds since 1970; null before the first report.
    #[serde(default)]
    pub counting_since_ms: Option<u64>,
    /// How its agent's counters began.
    #[serde(default)]
    pub origin: Origin,
}

/// What each load-balancer model gives a node.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct NodeExpectation {
    /// 1 / nodes.
    pub equal_per_node: f64,
    /// Endpoints on the node / endpoints.
    pub weighted: f64,
    /// 1 for the node with the most new flows, 0 for the others.
    pub single_leader: f64,
}

/// How uneven one kind of flows is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Skew {
    /// New or established.
    pub kind: FlowKind,
    /// Number of flows: the sample size.
    pub flows: u64,
    /// Largest share over ideal share; 1 is even. Null without flows.
    pub peak_ratio: Option<f64>,
    /// Largest over smallest count; null when the smallest is 0.
    pub max_min: Option<f64>,
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
}
