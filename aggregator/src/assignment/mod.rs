//! A [`ClusterView`] enters; what each agent is to watch, and how it is to class clients, leaves. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;
use std::sync::Arc;

use ipnet::Ipv6Net;

use crate::clients::ClientKey;
use crate::cluster::{ClusterView, ServicePort, ServiceView};
use crate::flow::{EndpointKey, Protocol, SourceClass};
use crate::report::DoorKind;

/// Endpoints that one agent is told: as many as its kernel map holds.
pub const MAX_ENDPOINTS: usize = 4096;
/// Prefixes that every agent is told: half of what its kernel map holds, and under a megabyte on the wire.
pub const MAX_PREFIXES: usize = 32_768;

/// Front doors that one agent is told, about a megabyte on the wire.
pub const MAX_FRONT_DOORS: usize = 16_384;

/// Addresses of one source class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassPrefix {
    /// The addresses.
    pub network: Ipv6Net,
    /// [`SourceClass::Pod`] or [`SourceClass::Node`].
    pub class: SourceClass,
}

/// What one agent is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// Grows with each change.
    pub version: u64,
    /// The endpoints of its node, ordered.
    pub endpoints: Arc<[EndpointKey]>,
    /// Cluster-wide. The longest prefix of an address decides; an address without one is external.
    pub prefixes: Arc<[ClassPrefix]>,
    /// Where Services can be dialled on any node.
    pub front_doors: FrontDoors,
    /// Addresses of the node, where the node ports are.
    pub node_addresses: BTreeSet<Ipv6Addr>,
    /// How often to report, in milliseconds.
    pub report_interval_ms: u32,
    /// Under which to hash clients, oldest first; none: single flows are not wanted.
    pub client_keys: Arc<[ClientKey]>,
}

impl Assignment {
    /// Where Services can be dialled on this node, at most [`MAX_FRONT_DOORS`]: node ports first, then what comes from
    /// outside, then cluster addresses.
    pub fn front_doors(&self) -> impl Iterator<Item = EndpointKey> {
        let node_ports = self.node_addresses.iter().flat_map(|&address| {
            self.front_doors
                .node_ports
                .iter()
                .map(move |&(port, protocol)| EndpointKey {
                    address,
                    port,
                    protocol,
                })
        });
        node_ports
            .chain(self.front_doors.outside.iter().copied())
            .chain(self.front_doors.inside.iter().copied())
            .take(MAX_FRONT_DOORS)
    }
}

/// Where Services can be dialled. Ordered, and the same for every node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrontDoors {
    /// On every address of every node.
    pub node_ports: Arc<[(u16, Protocol)]>,
    /// Addresses of load balancers, and external addresses.
    pub outside: Arc<[EndpointKey]>,
    /// Cluster addresses.
    pub inside: Arc<[EndpointKey]>,
}

/// The assignments of all nodes, before they have versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// By node; a node without an entry has no endpoint.
    pub endpoints: BTreeMap<String, Arc<[EndpointKey]>>,
    /// The same for every node.
    pub prefixes: Arc<[ClassPrefix]>,
    /// The same for every node.
    pub front_doors: FrontDoors,
    /// By node.
    pub node_addresses: BTreeMap<String, BTreeSet<Ipv6Addr>>,
    /// Endpoints over [`MAX_ENDPOINTS`] of their node. Their flows are counted all the same.
    pub endpoints_left_out: usize,
    /// Prefixes over [`MAX_PREFIXES`]. Their clients are taken for external ones.
    pub prefixes_left_out: usize,
    /// Front doors over [`MAX_FRONT_DOORS`] on the node that has most. Attempts there that reach no pod are not counted.
    pub front_doors_left_out: usize,
}

/// Derives the assignments. Endpoints that are not ready are in it: their flows are still of interest.
pub fn plan(view: &ClusterView) -> Plan {
    let mut by_node: BTreeMap<&str, BTreeSet<EndpointKey>> = BTreeMap::new();
    for port in view.services.values().flat_map(|service| &service.ports) {
        for endpoint in &port.endpoints {
            by_node
                .entry(&endpoint.node)
                .or_default()
                .extend(endpoint.keys(port.protocol));
        }
    }
    let mut endpoints_left_out = 0;
    let endpoints = by_node
        .into_iter()
        .map(|(node, keys)| {
            endpoints_left_out += keys.len().saturating_sub(MAX_ENDPOINTS);
            (node.to_owned(), keys.into_iter().take(MAX_ENDPOINTS).collect())
        })
        .collect();
    let prefixes = prefixes(view);
    let front_doors = front_doors(view);
    let node_addresses: BTreeMap<String, BTreeSet<Ipv6Addr>> = view
        .nodes
        .iter()
        .map(|(node, addresses)| (node.clone(), addresses.iter().copied().filter(is_usable).collect()))
        .collect();
    let most = node_addresses.values().map(BTreeSet::len).max().unwrap_or(0) * front_doors.node_ports.len()
        + front_doors.outside.len()
        + front_doors.inside.len();
    Plan {
        front_doors_left_out: most.saturating_sub(MAX_FRONT_DOORS),
        front_doors,
        node_addresses,
        endpoints,
        endpoints_left_out,
        prefixes_left_out: prefixes.len().saturating_sub(MAX_PREFIXES),
        prefixes: prefixes.into_iter().take(MAX_PREFIXES).collect(),
    }
}

fn front_doors(view: &ClusterView) -> FrontDoors {
    let ports = || {
        view.services
            .values()
            .flat_map(|service| service.ports.iter().map(move |port| (service, port)))
    };
    let doors = |(service, port): (&ServiceView, &ServicePort), inside: bool| {
        service
            .addresses
            .iter()
            .filter(|(kind, _)| (*kind == DoorKind::ClusterIp) == inside)
            .map(|(_, address)| EndpointKey {
                address,
                port: port.port,
                protocol: port.protocol,
            })
            .collect::<Vec<_>>()
    };
    let all = |inside| ports().flat_map(|port| doors(port, inside)).collect::<BTreeSet<_>>();
    FrontDoors {
        node_ports: ports()
            .filter_map(|(_, port)| Some((port.node_port?, port.protocol)))
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect(),
        outside: all(false).into_iter().collect(),
        inside: all(true).into_iter().collect(),
    }
}

/// Nodes first, then pods from the largest range down: what is left out of an excess matters least.
fn prefixes(view: &ClusterView) -> Vec<ClassPrefix> {
    let nodes = view.node_addresses.iter().copied().filter(is_usable).map(Ipv6Net::from);
    let mut prefixes: Vec<ClassPrefix> = nodes
        .map(|network| ClassPrefix {
            network,
            class: SourceClass::Node,
        })
        .collect();
    // Joins neighbours, and drops what lies within another: the ranges cover most pods.
    let mut pods = Ipv6Net::aggregate(&view.pod_networks);
    pods.sort_unstable_by_key(|network| (network.prefix_len(), network.addr()));
    prefixes.extend(
        pods.into_iter()
            .filter(|network| is_usable(&network.addr()))
            // An address that a node has is a node's.
            .filter(|network| network.prefix_len() < 128 || !view.node_addresses.contains(&network.addr()))
            .map(|network| ClassPrefix {
                network,
                class: SourceClass::Pod,
            }),
    );
    prefixes
}

fn is_usable(address: &Ipv6Addr) -> bool {
    !address.is_unspecified()
}

#[cfg(test)]
mod tests;
