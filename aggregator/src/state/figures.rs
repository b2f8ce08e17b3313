//! Plain figures for each Service port, for the analysis to work on away from the owner of the state.

use std::sync::Arc;

use super::tally::Tally;
use super::unserved::UnservedFigures;
use super::windows::AskedWindow;
use crate::clients::Batch;
use crate::cluster::{ObjectName, PortName};
use crate::flow::Protocol;
use crate::ledger::{FlowAges, LoadRates, PodLoad};
use crate::node::{Degradation, DoorCoverage, NodeLosses, Origin};
use crate::report::{GoneState, Window};

/// Figures at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Figures {
    /// The windows: those that were asked for, in their order, then the standard ones.
    pub windows: Vec<AskedWindow>,
    /// The key under which clients are named; `None` before there is one.
    pub client_key: Option<u32>,
    /// Ports, ordered by Service, then as the Service orders them.
    pub ports: Vec<PortFigures>,
}

/// Figures of one Service port.
#[derive(Debug, Clone, PartialEq)]
pub struct PortFigures {
    /// The Service.
    pub service: ObjectName,
    /// Port that clients use.
    pub port: u16,
    /// Name of the port.
    pub port_name: String,
    /// Protocol.
    pub protocol: Protocol,
    /// `Local` or `Cluster`.
    pub external_traffic_policy: String,
    /// `None` or `ClientIP`.
    pub session_affinity: String,
    /// How long a client keeps its pod with `ClientIP`, in seconds; `None` without.
    pub affinity_timeout_seconds: Option<u32>,
    /// What is analysed of each of the windows: it holds no change of the ready endpoints, and each node that reports has
    /// counted all of it.
    pub windows: Vec<Window>,
    /// The ready endpoints, ordered by node and pod.
    pub endpoints: Vec<EndpointFigures>,
    /// The nodes of those endpoints, ordered by name.
    pub nodes: Vec<NodeFigures>,
    /// Endpoints that are gone, not ready, or of a pod that nobody knows.
    pub gone: Vec<GoneFigures>,
    /// External flows of processes that are no pod's, one figure a window.
    pub of_no_pod: Vec<u64>,
    /// Attempts that reached no pod.
    pub unserved: Vec<UnservedFigures>,
    /// Other Service ports with the same pods and target port.
    pub shared_with: Vec<PortName>,
    /// When the ready endpoints last changed, milliseconds since 1970.
    pub endpoints_changed_ms: Option<u64>,
}

/// Figures of one ready endpoint.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EndpointFigures {
    /// Name of the pod.
    pub pod: String,
    /// Its unique id, empty when not known.
    pub pod_uid: String,
    /// Its node, as an index into [`PortFigures::nodes`].
    pub node: usize,
    /// Its address, or addresses, as people write them.
    pub address: String,
    /// Target port.
    pub port: u16,
    /// Its flows.
    pub tally: Tally,
    /// The newest counters of its load.
    pub load: Option<PodLoad>,
    /// How busy it was, one figure a window.
    pub load_rates: Vec<Option<LoadRates>>,
    /// Since when it has been ready; `None`: since before anybody watched.
    pub ready_since_ms: Option<u64>,
    /// How old its open flows are, by ledger key. Empty when nobody looked, or other Services have the same pods.
    pub ages: Vec<Arc<FlowAges>>,
    /// What its clients did since the first window that was asked for began. Empty when other Services have the same pods.
    pub activity: Vec<Arc<Batch>>,
}

/// Flows on an endpoint that does not count in the shares.
#[derive(Debug, Clone, PartialEq)]
pub struct GoneFigures {
    /// Name of the pod.
    pub pod: String,
    /// Its unique id, empty when not known.
    pub pod_uid: String,
    /// Name of its node.
    pub node: String,
    /// Its address, or addresses, as people write them.
    pub address: String,
    /// Target port.
    pub port: u16,
    /// Why it does not count.
    pub state: GoneState,
    /// When it was seen to be gone.
    pub gone_ms: Option<u64>,
    /// Since when it has not been ready, as far as is known.
    pub unready_since_ms: Option<u64>,
    /// Its flows.
    pub tally: Tally,
    /// External flows opened since each window was asked to begin: what opened while it was ready, it opened before the
    /// window that is analysed.
    pub new_since_asked: Vec<u64>,
    /// As in [`EndpointFigures::activity`].
    pub activity: Vec<Arc<Batch>>,
}

/// Figures of one node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeFigures {
    /// Its name.
    pub name: String,
    /// Its zone, empty when not known.
    pub zone: String,
    /// Its agent reports.
    pub reporting: bool,
    /// What its agent lost since the start of the epoch.
    pub losses: NodeLosses,
    /// How its agent's counters began.
    pub origin: Origin,
    /// Since when its flows are counted without a gap, milliseconds since 1970.
    pub counting_since_ms: Option<u64>,
    /// How many front doors were looked up.
    pub door_coverage: DoorCoverage,
    /// What its agent cannot do.
    pub degradations: Vec<Degradation>,
}
