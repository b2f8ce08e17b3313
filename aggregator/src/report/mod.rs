//! The report about one Service port: what the analysis found, in the shape that the JSON API serves, `kubectl-flowskew`
//! prints and programs read. Plain data; unknown values are `null`, never a made-up zero.

mod clients;
mod codes;
mod parts;
mod persistence;
mod skew;

use serde::{Deserialize, Serialize};

pub use clients::{
    Affinity, AffinityBreaks, AffinityCode, Clients, HeavyClient, NodeStickiness, Rank, SharedAddresses, Stickiness,
};
pub use codes::{BalancerModel, Confidence, FindingCode};
pub use parts::{
    DoorKind, DoorRow, DoorSum, GoneRow, GoneState, LoadRow, Losses, NodeDegradation, UnservedReason, UnservedRow,
};

pub use persistence::{EndpointAges, Persistence};
pub use skew::{
    BalancerCandidate, BalancerVerdict, Cause, Estimate, Finding, GTest, NodeExpectation, Skew, Theil, WindowSkew,
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
    /// How long a client keeps its pod with `ClientIP`, in seconds; null without.
    #[serde(default)]
    pub affinity_timeout_seconds: Option<u32>,
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
    /// Start of the window that was asked for, milliseconds since 1970. `window` begins later when the endpoints have changed
    /// since, or when a node has counted for less long: what came before would show a skew that is none.
    #[serde(default)]
    pub asked_from_ms: u64,
    /// Skew of new flows over the last 1, 5, 15 and 60 minutes, each begun later for the same reasons.
    #[serde(default)]
    pub windows: Vec<WindowSkew>,
    /// The causes whose parts add up to the Theil index of new flows, largest first. Empty without flows.
    #[serde(default)]
    pub causes: Vec<Cause>,
    /// The same of established flows.
    #[serde(default)]
    pub established_causes: Vec<Cause>,
    /// Who the clients are, as far as concentration goes; null when no agent tells single flows.
    #[serde(default)]
    pub clients: Option<Clients>,
    /// Do clients keep their pod and their node? Null when no agent tells single flows.
    #[serde(default)]
    pub affinity: Option<Affinity>,
    /// How old the established flows are, and when they will be even; null when their ages are not known.
    #[serde(default)]
    pub persistence: Option<Persistence>,
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
    /// Distinct clients that opened flows within the window; null when they are not known.
    #[serde(default)]
    pub clients: Option<Estimate>,
    /// Since when it has been ready, milliseconds since 1970; null: since before the aggregator began to watch.
    #[serde(default)]
    pub ready_since_ms: Option<u64>,
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
    /// Zone, empty when not known.
    #[serde(default)]
    pub zone: String,
}
