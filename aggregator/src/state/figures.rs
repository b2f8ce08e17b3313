//! The view and the ledgers enter; plain figures for each Service port leave, for the analysis to work on elsewhere.

use std::collections::{BTreeMap, HashSet};

use super::State;
use super::messages::{Scope, WindowStart};
use crate::cluster::{ClusterView, Endpoint, ObjectName, ServicePort, ServiceView};
use crate::flow::{AgentLosses, ByClass, Counts, EndpointKey, Protocol, SourceClass};
use crate::ledger::{NodeLedger, Tick};
use crate::millis;
use crate::report::Window;

/// Reports about the last flows of an endpoint may arrive this many report intervals after it is gone.
const LATE_REPORTS: u64 = 2;

/// Figures at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Figures {
    /// The windows, as asked for, each begun at the start of a bucket.
    pub windows: Vec<Window>,
    /// TCP ports, ordered by Service, then as the Service orders them.
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
    /// External flows on endpoints that are gone or not ready, one figure a window.
    pub gone: Vec<u64>,
}

/// Figures of one ready endpoint.
#[derive(Debug, Clone, PartialEq)]
pub struct EndpointFigures {
    /// Name of the pod.
    pub pod: String,
    /// Its node, as an index into [`PortFigures::nodes`].
    pub node: usize,
    /// Its address, or addresses, as people write them.
    pub address: String,
    /// Target port.
    pub port: u16,
    /// Flows opened, one figure a window and class.
    pub opened: Vec<ByClass<u64>>,
    /// Counters of the epoch, by class.
    pub counts: ByClass<Counts>,
}

/// Figures of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeFigures {
    /// Its name.
    pub name: String,
    /// Its agent reports.
    pub reporting: bool,
    /// What its agent lost since the start of the epoch.
    pub losses: AgentLosses,
    /// Ledger entries of one report that were not kept.
    pub entries_dropped: u64,
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
    let ports = services
        .flat_map(|(name, service)| service.ports.iter().map(move |port| (name, service, port)))
        // Agents count TCP flows; a UDP port would look like one without any.
        .filter(|(_, _, port)| port.protocol == Protocol::Tcp)
        .map(|(name, service, port)| port_figures(state, name, service, port, &windows, now_ms))
        .collect();
    Figures { windows, ports }
}

fn port_figures(
    state: &State,
    name: &ObjectName,
    service: &ServiceView,
    port: &ServicePort,
    windows: &[Window],
    now_ms: u64,
) -> PortFigures {
    let ready: Vec<&Endpoint> = port.endpoints.iter().filter(|endpoint| endpoint.ready).collect();
    let mut positions = BTreeMap::new();
    for endpoint in &ready {
        let next = positions.len();
        // Endpoints are ordered by node, so positions grow with names.
        positions.entry(endpoint.node.as_str()).or_insert(next);
    }
    let nodes = positions
        .keys()
        .map(|&node| {
            let ledger = state.nodes.get(node).map(|node| &node.ledger);
            NodeFigures {
                name: node.to_owned(),
                reporting: state.nodes.is_reporting(node, now_ms),
                losses: ledger.map(NodeLedger::losses).unwrap_or_default(),
                entries_dropped: ledger.map_or(0, NodeLedger::entries_dropped),
            }
        })
        .collect();
    PortFigures {
        service: name.clone(),
        port: port.port,
        port_name: port.name.clone(),
        protocol: port.protocol,
        external_traffic_policy: service.external_traffic_policy.clone(),
        session_affinity: service.session_affinity.clone(),
        gone: windows
            .iter()
            .map(|window| flows_on_gone(state, name, port, window))
            .collect(),
        endpoints: ready
            .iter()
            .map(|endpoint| endpoint_figures(state, port, endpoint, positions[endpoint.node.as_str()], windows))
            .collect(),
        nodes,
    }
}

fn endpoint_figures(
    state: &State,
    port: &ServicePort,
    endpoint: &Endpoint,
    node: usize,
    windows: &[Window],
) -> EndpointFigures {
    let mut counts = ByClass::<Counts>::default();
    let mut opened = vec![ByClass::default(); windows.len()];
    if let Some(ledger) = state.nodes.get(&endpoint.node).map(|node| &node.ledger) {
        for key in endpoint.keys(port.protocol) {
            counts
                .iter_mut()
                .zip(ledger.counts(&key))
                .for_each(|(sum, more)| sum.add(&more));
            for (sums, window) in opened.iter_mut().zip(windows) {
                let more = ledger.opened(&key, ledger.tick(window.from_ms), Tick::MAX);
                sums.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
            }
        }
    }
    let addresses: Vec<String> = endpoint
        .addresses
        .iter()
        .map(|ip| ip.to_canonical().to_string())
        .collect();
    EndpointFigures {
        pod: endpoint.pod.clone(),
        node,
        address: addresses.join(","),
        port: endpoint.port,
        opened,
        counts,
    }
}

fn flows_on_gone(state: &State, name: &ObjectName, port: &ServicePort, window: &Window) -> u64 {
    let external = |node: &str, key: &EndpointKey, until_ms: Option<u64>| {
        state.nodes.get(node).map_or(0, |node| {
            let until = until_ms.map_or(Tick::MAX, |ms| node.ledger.tick(ms));
            node.ledger.opened(key, node.ledger.tick(window.from_ms), until)[SourceClass::External.index()]
        })
    };
    // An address can come back with another pod of the Service; its flows are in the shares then.
    let ready: HashSet<(&str, EndpointKey)> = port
        .endpoints
        .iter()
        .filter(|e| e.ready)
        .flat_map(|e| node_keys(e, port))
        .collect();
    let not_ready = port
        .endpoints
        .iter()
        .filter(|e| !e.ready)
        .flat_map(|e| node_keys(e, port))
        .map(|(node, key)| (node, key, None));
    // What comes later on the address of a gone endpoint belongs to somebody else.
    let grace_ms = millis(state.settings.report_interval) * LATE_REPORTS;
    let gone = state
        .gone
        .of(name, port)
        .iter()
        .map(|gone| (gone.node.as_str(), gone.key, Some(gone.gone_ms + grace_ms)));
    not_ready
        .chain(gone)
        .filter(|(node, key, _)| !ready.contains(&(*node, *key)))
        .map(|(node, key, until_ms)| external(node, &key, until_ms))
        .sum()
}

fn node_keys<'a>(endpoint: &'a Endpoint, port: &ServicePort) -> impl Iterator<Item = (&'a str, EndpointKey)> + use<'a> {
    endpoint.keys(port.protocol).map(|key| (endpoint.node.as_str(), key))
}
