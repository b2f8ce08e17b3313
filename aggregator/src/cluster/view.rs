//! The cluster as the rest of the aggregator sees it: plain types.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::Ipv6Addr;

use ipnet::Ipv6Net;

use crate::flow::{EndpointKey, Protocol};
use crate::ledger::PodUid;
use crate::report::DoorKind;

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
    /// The nodes by name, with their addresses.
    pub nodes: BTreeMap<String, BTreeSet<Ipv6Addr>>,
    /// Names of the pods that run or are about to, by unique id.
    pub pods: BTreeMap<PodUid, ObjectName>,
    /// Services that have a selector or EndpointSlices, and a TCP or UDP port.
    pub services: BTreeMap<ObjectName, ServiceView>,
    /// Addresses of pods: the nodes' pod ranges and the single addresses of running pods, which may overlap. Pods of the
    /// host network are not among them.
    pub pod_networks: Vec<Ipv6Net>,
    /// Addresses of nodes, those of pods of the host network included.
    pub node_addresses: BTreeSet<Ipv6Addr>,
}

/// One Service.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServiceView {
    /// `Local` or `Cluster`.
    pub external_traffic_policy: String,
    /// `None` or `ClientIP`.
    pub session_affinity: String,
    /// How long a client keeps its pod with `ClientIP`, in seconds; `None` without.
    pub affinity_timeout_seconds: Option<u32>,
    /// Where it can be dialled, beside the nodes' addresses.
    pub addresses: ServiceAddresses,
    /// Its TCP and UDP ports, in the order of the Service.
    pub ports: Vec<ServicePort>,
}

/// The addresses that a Service can be dialled at.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServiceAddresses {
    /// Of its load balancer.
    pub load_balancer: BTreeSet<Ipv6Addr>,
    /// That its owner has named.
    pub external: BTreeSet<Ipv6Addr>,
    /// Within the cluster.
    pub cluster: BTreeSet<Ipv6Addr>,
}

impl ServiceAddresses {
    /// All, each with its kind.
    pub fn iter(&self) -> impl Iterator<Item = (DoorKind, Ipv6Addr)> + use<'_> {
        let of = |kind, addresses: &'_ BTreeSet<Ipv6Addr>| {
            addresses
                .iter()
                .map(move |&address| (kind, address))
                .collect::<Vec<_>>()
        };
        [
            of(DoorKind::LoadBalancer, &self.load_balancer),
            of(DoorKind::ExternalIp, &self.external),
            of(DoorKind::ClusterIp, &self.cluster),
        ]
        .into_iter()
        .flatten()
    }
}

/// A port of a Service, as a name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortName {
    /// The Service.
    pub service: ObjectName,
    /// Port that clients use.
    pub port: u16,
    /// Protocol.
    pub protocol: Protocol,
}

impl fmt::Display for PortName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.service, self.port, self.protocol)
    }
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
    /// Port on every node, if it has one.
    pub node_port: Option<u16>,
    /// Its endpoints, ordered by node and pod; also those that are not ready.
    pub endpoints: Vec<Endpoint>,
}

impl ServicePort {
    /// Its name, within the Service.
    pub fn named(&self, service: &ObjectName) -> PortName {
        PortName {
            service: service.clone(),
            port: self.port,
            protocol: self.protocol,
        }
    }
}

/// One pod behind a Service port. A pod with an IPv4 and an IPv6 address is one endpoint, and its counts are summed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Name of the pod, or the address when no pod is known.
    pub pod: String,
    /// Unique id of the pod, empty when not known. Of a static pod: the one that its cgroup is named after.
    pub pod_uid: PodUid,
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
    /// Its zone, else that of its node; empty when neither is known.
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
