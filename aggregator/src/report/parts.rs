//! The parts of a report beside shares and skew: front doors, loads, attempts that reached no pod, endpoints that are
//! gone, and what is missing.

use serde::{Deserialize, Serialize};

use crate::node::NodeLosses;

/// What kind of address clients dialled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DoorKind {
    /// An address of the Service's load balancer.
    LoadBalancer,
    /// One of the Service's external addresses.
    ExternalIp,
    /// The Service's cluster address.
    ClusterIp,
    /// An address of a node, and the Service's node port.
    NodePort,
    /// The endpoint itself. Flows that another node has forwarded look like this too.
    Direct,
    /// An address that is none of the Service's.
    Other,
    /// Not looked up, or not found.
    Unknown,
}

impl DoorKind {
    /// The stable code, as in JSON.
    pub const fn code(self) -> &'static str {
        match self {
            Self::LoadBalancer => "load_balancer",
            Self::ExternalIp => "external_ip",
            Self::ClusterIp => "cluster_ip",
            Self::NodePort => "node_port",
            Self::Direct => "direct",
            Self::Other => "other",
            Self::Unknown => "unknown",
        }
    }
}

/// External flows of one endpoint through one front door.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoorRow {
    /// What kind of address it is.
    pub kind: DoorKind,
    /// The address, as people write it.
    pub address: String,
    /// The port.
    pub port: u16,
    /// Flows opened within the window.
    pub new: u64,
    /// Flows opened since the epoch of the node's agent began.
    pub opened: u64,
    /// Flows open now.
    pub established: u64,
}

/// External flows of a Service port through one kind of front door.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoorSum {
    /// The kind.
    pub kind: DoorKind,
    /// Flows opened within the window.
    pub new: u64,
    /// Flows opened since the epochs of the nodes' agents began.
    pub opened: u64,
    /// Flows open now.
    pub established: u64,
}

/// How busy a pod was. Null is not known.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LoadRow {
    /// Time that the figures cover, within the window.
    pub seconds: f64,
    /// CPUs used, on average.
    pub cpu_cores: Option<f64>,
    /// Part of the time in which its CPU limit kept it waiting, 0 to 1.
    pub throttled_share: Option<f64>,
    /// Connections that found an accept queue full.
    pub listen_overflows: Option<u64>,
    /// Connections dropped at a listener for any reason.
    pub listen_drops: Option<u64>,
    /// SYN cookies sent.
    pub syn_cookies: Option<u64>,
    /// The pod uses the node's network: the last three are of the whole node.
    pub shares_network: bool,
}

/// Why attempts reached no pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnservedReason {
    /// Dropped by the node's rules: no endpoint for this front door there.
    Dropped,
    /// Nothing listened at the endpoint.
    Refused,
}

impl UnservedReason {
    /// The stable code, as in JSON.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Dropped => "dropped",
            Self::Refused => "refused",
        }
    }
}

/// Attempts that reached no pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnservedRow {
    /// Name of the node where they ended.
    pub node: String,
    /// Why.
    pub reason: UnservedReason,
    /// How many since the window was asked to begin.
    pub attempts: u64,
    /// Ready endpoints on that node now.
    pub endpoints: u32,
}

/// Why an endpoint does not count in the shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GoneState {
    /// It is no endpoint of the Service any more.
    Gone,
    /// It is one that is not ready.
    NotReady,
    /// A pod that the cluster does not know had the address of an endpoint.
    OtherPod,
}

/// Flows on an endpoint that does not count in the shares. Counts are of source class external.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GoneRow {
    /// Name of the pod, else its unique id, else the address.
    pub pod: String,
    /// Unique id of the pod, empty when not known.
    pub pod_uid: String,
    /// Name of the node.
    pub node: String,
    /// Address, as people write it.
    pub address: String,
    /// Target port.
    pub port: u16,
    /// Why it does not count.
    pub state: GoneState,
    /// When it was seen to be gone, milliseconds since 1970; null when it is not, or nobody saw it.
    pub gone_ms: Option<u64>,
    /// Flows opened since the window was asked to begin.
    pub new: u64,
    /// Flows open now.
    pub established: u64,
    /// Flows opened since the epoch of the node's agent began.
    pub opened_total: u64,
    /// Flows closed since the epoch began.
    pub closed_total: u64,
    /// The endpoint is gone, and clients still send to it: open flows of a protocol that has no end of its own.
    pub stale: bool,
}

/// Something that the agent of a node cannot do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeDegradation {
    /// Name of the node.
    pub node: String,
    /// Stable, for programs.
    pub code: String,
    /// For people.
    pub sentence: String,
}

/// What is missing from the figures of a report.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Losses {
    /// Sum over the nodes of the report.
    #[serde(flatten)]
    pub nodes: NodeLosses,
    /// Nodes with ready endpoints whose agent does not report.
    pub silent_nodes: Vec<String>,
    /// External flows of the window on endpoints that are gone or not ready, left out of the shares.
    pub flows_on_gone_endpoints: u64,
    /// Flows of the window, or open now, that opened before their agent could tell their source class; left out of the shares.
    pub unclassified: u64,
    /// External flows of the window on pods that the Service shares with another, and whose front door is not known or is
    /// no Service's; left out of the shares.
    pub unattributed: u64,
    /// The same of flows that are open now.
    pub unattributed_established: u64,
    /// External flows of the window at an address and port of an endpoint that went to a process of no pod; left out of
    /// the shares.
    pub flows_of_no_pod: u64,
    /// What the agents of the report's nodes cannot do. No loss by itself.
    pub degradations: Vec<NodeDegradation>,
}

impl Losses {
    /// True when no loss can have changed a figure of the report.
    pub fn none(&self) -> bool {
        let Self {
            nodes,
            silent_nodes,
            flows_on_gone_endpoints,
            unclassified,
            unattributed,
            unattributed_established,
            flows_of_no_pod,
            degradations: _,
        } = self;
        let counts = [
            flows_on_gone_endpoints,
            unclassified,
            unattributed,
            unattributed_established,
            flows_of_no_pod,
        ];
        *nodes == NodeLosses::default() && silent_nodes.is_empty() && counts.iter().all(|count| **count == 0)
    }
}
