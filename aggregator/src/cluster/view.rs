//! The cluster as the rest of the aggregator sees it: plain types.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::Ipv6Addr;

use ipnet::Ipv6Net;

use crate::flow::{EndpointKey, Protocol};

/// Namespace and name of an object; the namespace of a Node is empty.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectName {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Everything of the cluster that counts are joined with, at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterView {
    /// Names of the nodes.
    pub nodes: BTreeSet<String>,
    /// Services that have a selector or EndpointSlices, and a TCP or UDP port.
    pub services: BTreeMap<ObjectName, ServiceView>,
    /// Addresses of pods: the nodes' pod ranges and the single addresses of running pods, which may overlap. Pods of the
    /// host network are not among them.
    pub pod_networks: Vec<Ipv6Net>,
    /// Addresses of nodes, those of pods of the host network included.
    pub node_addresses: BTreeSet<Ipv6Addr>,
}

/// One Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceView {
    /// `Local` or `Cluster`.
    pub external_traffic_policy: String,
    /// `None` or `ClientIP`.
    pub session_affinity: String,
    /// Its TCP and UDP ports, in the order of the Service.
    pub ports: Vec<ServicePort>,
}

/// One port of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServicePort {
    /// Port that clients use.
    pub port: u16,
    /// Name, empty if it has none.
    pub name: String,
    /// Protocol.
    pub protocol: Protocol,
    /// Its endpoints, ordered by node and pod; also those that are not ready.
    pub endpoints: Vec<Endpoint>,
}

/// One pod behind a Service port. A pod with an IPv4 and an IPv6 address is one endpoint, and its counts are summed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Name of the pod, or the address when no pod is known.
    pub pod: String,
    /// Unique id of the pod, empty when not known.
    pub pod_uid: String,
    /// Its node. An endpoint that is on no node has no agent, and is left out of the view.
    pub node: String,
    /// Its addresses; at least one.
    pub addresses: BTreeSet<Ipv6Addr>,
    /// Target port.
    pub port: u16,
    /// Receives new flows.
    pub ready: bool,
    /// Could serve, even when terminating.
    pub serving: bool,
    /// Is being deleted.
    pub terminating: bool,
    /// Zone, empty when not known.
    pub zone: String,
}

impl Endpoint {
    /// Where its flows arrive, one key for each of its addresses.
    pub fn keys(&self, protocol: Protocol) -> impl Iterator<Item = EndpointKey> + use<'_> {
        self.addresses.iter().map(move |&address| EndpointKey {
            address,
            port: self.port,
            protocol,
        })
    }
}
