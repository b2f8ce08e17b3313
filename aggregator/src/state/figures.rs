//! The view and the ledgers enter; plain figures for each Service port leave, for the analysis to work on elsewhere.

use std::collections::BTreeMap;

use super::State;
use super::claims::{Claim, Settled, Standing, settle};
use super::messages::{Scope, WindowStart};
use super::tally::{self, Tally};
use super::unserved::{self, UnservedFigures};
use crate::cluster::{ClusterView, ObjectName, PortName, ServicePort, ServiceView};
use crate::flow::{EndpointKey, Protocol};
use crate::ledger::{LoadRates, NodeLedger, PodLoad, PodUid};
use crate::millis;
use crate::node::{Degradation, DoorCoverage, NodeLosses, Origin};
use crate::report::{GoneState, Window};

/// Figures at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Figures {
    /// The windows, as asked for, each begun at the start of a bucket.
    pub windows: Vec<Window>,
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
    /// Its flows.
    pub tally: Tally,
}

/// Figures of one node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeFigures {
    /// Its name.
    pub name: String,
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

pub(super) fn figures(
    state: &State,
    view: &ClusterView,
    scope: &Scope,
    windows: &[WindowStart],
    now_ms: u64,
) -> Figures {
    let bucket_ms = millis(state.settings.bucket).max(1);
    let windows: Vec<Window> = windows
        .iter()
        .map(|&start| {
            let from_ms = match start {
                WindowStart::Ago(ms) => now_ms.saturating_sub(ms),
                WindowStart::At(ms) => ms.min(now_ms),
            };
            Window {
                from_ms: from_ms - from_ms % bucket_ms,
                to_ms: now_ms,
            }
        })
        .collect();
    let services: Box<dyn Iterator<Item = (&ObjectName, &ServiceView)>> = match scope {
        Scope::All => Box::new(view.services.iter()),
        Scope::Service(name) => Box::new(view.services.get_key_value(name).into_iter()),
    };
    let mut unserved = unserved::by_port(state, &windows);
    let ports = services
        .flat_map(|(name, service)| service.ports.iter().map(move |port| (name, service, port)))
        .map(|(name, service, port)| {
            let unserved = unserved.remove(&port.named(name)).unwrap_or_default();
            let mut figures = port_figures(state, (name, service, port), &windows, now_ms);
            figures.unserved = unserved;
            figures
        })
        .collect();
    Figures { windows, ports }
}

fn port_figures(
    state: &State,
    (name, service, port): (&ObjectName, &ServiceView, &ServicePort),
    windows: &[Window],
    now_ms: u64,
) -> PortFigures {
    let mut positions = BTreeMap::new();
    for endpoint in port.endpoints.iter().filter(|endpoint| endpoint.ready) {
        let next = positions.len();
        // Endpoints are ordered by node, so positions grow with names.
        positions.entry(endpoint.node.as_str()).or_insert(next);
    }
    let bucket_ms = millis(state.settings.bucket).max(1);
    let port_name = port.named(name);
    let scope = tally::Scope {
        port: &port_name,
        index: &state.index,
        shared_with: state.index.shared_with(&port_name).into_iter().flatten().collect(),
        windows: windows
            .iter()
            .map(|window| u32::try_from(window.from_ms / bucket_ms).unwrap_or(u32::MAX))
            .collect(),
    };
    let Settled { claims, of_no_pod } = settle(state, port, &scope);
    let (ready, rest): (Vec<Claim>, Vec<Claim>) =
        claims.into_iter().partition(|claim| claim.standing == Standing::Ready);
    PortFigures {
        service: name.clone(),
        port: port.port,
        port_name: port.name.clone(),
        protocol: port.protocol,
        external_traffic_policy: service.external_traffic_policy.clone(),
        session_affinity: service.session_affinity.clone(),
        endpoints: ready
            .into_iter()
            .map(|claim| endpoint_figures(state, positions[claim.node.as_str()], claim, windows))
            .collect(),
        nodes: positions.keys().map(|node| node_figures(state, node, now_ms)).collect(),
        gone: rest.into_iter().filter_map(gone_figures).collect(),
        of_no_pod,
        unserved: Vec::new(),
        shared_with: scope.shared_with.iter().map(|other| (***other).clone()).collect(),
        endpoints_changed_ms: state.changes.changed_ms(&port_name),
    }
}

fn endpoint_figures(state: &State, node: usize, claim: Claim, windows: &[Window]) -> EndpointFigures {
    let ledger = state.nodes.get(&claim.node).map(|node| &node.ledger);
    let pod: &PodUid = &claim.pod_uid;
    let rates = |window: &Window| ledger?.load_since(pod, window.from_ms);
    EndpointFigures {
        node,
        address: addresses(&claim.keys),
        port: claim.keys.first().map_or(0, |key| key.port),
        load: ledger.and_then(|ledger| ledger.load(pod)),
        load_rates: windows.iter().map(rates).collect(),
        pod: claim.pod,
        pod_uid: claim.pod_uid.to_string(),
        tally: claim.tally,
    }
}

fn gone_figures(claim: Claim) -> Option<GoneFigures> {
    Some(GoneFigures {
        state: claim.standing.state()?,
        gone_ms: match claim.standing {
            Standing::Gone(gone_ms) => Some(gone_ms),
            Standing::Ready | Standing::NotReady | Standing::Stranger => None,
        },
        address: addresses(&claim.keys),
        port: claim.keys.first().map_or(0, |key| key.port),
        pod: claim.pod,
        pod_uid: claim.pod_uid.to_string(),
        node: claim.node,
        tally: claim.tally,
    })
}

fn node_figures(state: &State, name: &str, now_ms: u64) -> NodeFigures {
    let node = state.nodes.get(name);
    let ledger = node.map(|node| &node.ledger);
    NodeFigures {
        name: name.to_owned(),
        reporting: state.nodes.is_reporting(name, now_ms),
        losses: ledger.map(NodeLedger::losses).unwrap_or_default(),
        origin: node.map(|node| node.origin()).unwrap_or_default(),
        counting_since_ms: ledger.and_then(NodeLedger::counting_since_ms),
        door_coverage: ledger.map(NodeLedger::door_coverage).unwrap_or_default(),
        degradations: ledger.map(|ledger| ledger.degradations().to_vec()).unwrap_or_default(),
    }
}

fn addresses(keys: &[EndpointKey]) -> String {
    let addresses: Vec<String> = keys.iter().map(|key| key.address.to_canonical().to_string()).collect();
    addresses.join(",")
}
