//! Kubernetes objects enter; the few fields that are used leave. A field with an impossible value counts as absent.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};

use ipnet::{IpNet, Ipv6Net};
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;

use super::derive::{Change, Update};
use super::view::ServiceAddresses;
use super::watch::Watched;
use crate::flow::{Protocol, mapped};
use crate::ledger::{PodUid, pod_uid};

const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";
const STATIC_POD_ANNOTATION: &str = "kubernetes.io/config.mirror";
const ZONE_LABEL: &str = "topology.kubernetes.io/zone";
/// What the API server writes when a Service with `ClientIP` names no timeout.
const DEFAULT_AFFINITY_SECONDS: u32 = 10_800;

/// Of a Node.
#[derive(PartialEq, Eq)]
pub(super) struct NodeFacts {
    pub(super) pod_ranges: Vec<Ipv6Net>,
    pub(super) addresses: Vec<Ipv6Addr>,
    /// Empty when the node has no such label.
    pub(super) zone: String,
}

/// Of a Pod that has an address or a node.
#[derive(PartialEq, Eq)]
pub(super) struct PodFacts {
    /// As the API server has it; empty when not known.
    pub(super) api_uid: PodUid,
    /// As agents tell it, who read it from the name of the pod's cgroup.
    pub(super) uid: PodUid,
    pub(super) node: String,
    pub(super) host_network: bool,
    pub(super) addresses: Vec<Ipv6Addr>,
}

/// Of a Service.
#[derive(PartialEq, Eq)]
pub(super) struct ServiceFacts {
    pub(super) has_selector: bool,
    pub(super) external_traffic_policy: String,
    pub(super) session_affinity: String,
    pub(super) affinity_timeout_seconds: Option<u32>,
    pub(super) addresses: ServiceAddresses,
    pub(super) ports: Vec<PortFacts>,
}

/// Of a port.
#[derive(PartialEq, Eq)]
pub(super) struct PortFacts {
    pub(super) port: u16,
    pub(super) name: String,
    pub(super) protocol: Protocol,
    /// Of a Service's port, if it has one.
    pub(super) node_port: Option<u16>,
}

/// Of an EndpointSlice that belongs to a Service. Its `port` is the target port.
#[derive(PartialEq, Eq)]
pub(super) struct SliceFacts {
    pub(super) service: String,
    pub(super) ports: Vec<PortFacts>,
    pub(super) endpoints: Vec<SliceEndpoint>,
}

/// Of an endpoint.
#[derive(PartialEq, Eq)]
pub(super) struct SliceEndpoint {
    pub(super) address: Ipv6Addr,
    pub(super) pod: String,
    pub(super) pod_uid: PodUid,
    pub(super) node: String,
    pub(super) zone: String,
    pub(super) ready: bool,
    pub(super) serving: bool,
    pub(super) terminating: bool,
}

impl Watched for Node {
    type Facts = NodeFacts;

    fn facts(self) -> Option<NodeFacts> {
        let mut labels = self.metadata.labels.unwrap_or_default();
        let spec = self.spec.unwrap_or_default();
        let ranges = spec
            .pod_cidrs
            .filter(|ranges| !ranges.is_empty())
            .unwrap_or_else(|| spec.pod_cidr.into_iter().collect());
        let addresses = self.status.and_then(|status| status.addresses).unwrap_or_default();
        Some(NodeFacts {
            pod_ranges: ranges.iter().filter_map(|range| parse_range(range)).collect(),
            // A Hostname is kept when it is an address.
            addresses: addresses
                .iter()
                .filter_map(|address| parse_address(&address.address))
                .collect(),
            zone: labels.remove(ZONE_LABEL).unwrap_or_default(),
        })
    }

    fn change(update: Update<NodeFacts>) -> Change {
        Change::Node(update)
    }
}

impl Watched for Pod {
    type Facts = PodFacts;

    fn facts(self) -> Option<PodFacts> {
        let spec = self.spec.unwrap_or_default();
        let status = self.status.unwrap_or_default();
        // The addresses of a pod that has ended may already be another's.
        if matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) {
            return None;
        }
        let listed = status.pod_ips.unwrap_or_default().into_iter().map(|ip| ip.ip);
        let mut addresses: Vec<Ipv6Addr> = listed
            .chain(status.pod_ip)
            .filter_map(|ip| parse_address(&ip))
            .collect();
        addresses.sort_unstable();
        addresses.dedup();
        // The API server's copy of a static pod has an id of its own; the kubelet names the cgroup after this one.
        let annotations = self.metadata.annotations.unwrap_or_default();
        let hash = annotations.get(STATIC_POD_ANNOTATION);
        let api_uid = uid(self.metadata.uid.as_deref());
        Some(PodFacts {
            uid: hash.map_or_else(|| api_uid.clone(), |hash| uid(Some(hash))),
            api_uid,
            node: spec.node_name?,
            host_network: spec.host_network.unwrap_or_default(),
            addresses,
        })
    }

    fn change(update: Update<PodFacts>) -> Change {
        Change::Pod(update)
    }
}

impl Watched for Service {
    type Facts = ServiceFacts;

    fn facts(self) -> Option<ServiceFacts> {
        let spec = self.spec?;
        if spec.type_.as_deref() == Some("ExternalName") {
            return None;
        }
        let ports: Vec<PortFacts> = spec
            .ports
            .unwrap_or_default()
            .into_iter()
            .filter_map(|p| {
                let node_port = p.node_port.and_then(number);
                Some(PortFacts {
                    node_port,
                    ..port(p.name, Some(p.port), p.protocol)?
                })
            })
            .collect();
        if ports.is_empty() {
            return None;
        }
        let balancer = self.status.and_then(|status| status.load_balancer).unwrap_or_default();
        let ingress = balancer.ingress.unwrap_or_default();
        let session_affinity = spec.session_affinity.unwrap_or_else(|| "None".to_owned());
        let timeout = spec
            .session_affinity_config
            .and_then(|config| config.client_ip?.timeout_seconds);
        let timeout = timeout.and_then(|seconds| u32::try_from(seconds).ok().filter(|&seconds| seconds > 0));
        Some(ServiceFacts {
            addresses: ServiceAddresses {
                load_balancer: addresses(ingress.iter().filter_map(|point| point.ip.as_deref())),
                external: addresses(spec.external_ips.iter().flatten().map(String::as_str)),
                // "None" of a headless Service is no address.
                cluster: addresses(
                    spec.cluster_ips
                        .iter()
                        .flatten()
                        .chain(&spec.cluster_ip)
                        .map(String::as_str),
                ),
            },
            has_selector: spec.selector.is_some_and(|selector| !selector.is_empty()),
            external_traffic_policy: spec.external_traffic_policy.unwrap_or_else(|| "Cluster".to_owned()),
            affinity_timeout_seconds: (session_affinity == "ClientIP")
                .then(|| timeout.unwrap_or(DEFAULT_AFFINITY_SECONDS)),
            session_affinity,
            ports,
        })
    }

    fn change(update: Update<ServiceFacts>) -> Change {
        Change::Service(update)
    }
}

impl Watched for EndpointSlice {
    type Facts = SliceFacts;

    fn facts(mut self) -> Option<SliceFacts> {
        let service = self.metadata.labels.as_mut()?.remove(SERVICE_NAME_LABEL)?;
        let ports = self.ports.unwrap_or_default();
        Some(SliceFacts {
            service,
            ports: ports
                .into_iter()
                .filter_map(|p| port(p.name, p.port, p.protocol))
                .collect(),
            endpoints: self.endpoints.into_iter().filter_map(endpoint).collect(),
        })
    }

    fn change(update: Update<SliceFacts>) -> Change {
        Change::Slice(update)
    }
}

/// Conditions that are not set mean what the API says they mean: ready and serving yes, terminating no.
fn endpoint(endpoint: k8s_openapi::api::discovery::v1::Endpoint) -> Option<SliceEndpoint> {
    let conditions = endpoint.conditions.unwrap_or_default();
    let pod = endpoint
        .target_ref
        .filter(|target| target.kind.as_deref() == Some("Pod"))
        .unwrap_or_default();
    let ready = conditions.ready.unwrap_or(true);
    Some(SliceEndpoint {
        // Several addresses of one endpoint are interchangeable, and only the first is used by kube-proxy.
        address: parse_address(endpoint.addresses.first()?)?,
        pod: pod.name.unwrap_or_default(),
        pod_uid: uid(pod.uid.as_deref()),
        node: endpoint.node_name.unwrap_or_default(),
        zone: endpoint.zone.unwrap_or_default(),
        ready,
        serving: conditions.serving.unwrap_or(ready),
        terminating: conditions.terminating.unwrap_or(false),
    })
}

/// `None` for SCTP, and for a slice's port without a number.
fn port(name: Option<String>, port: Option<i32>, protocol: Option<String>) -> Option<PortFacts> {
    let protocol = match protocol.as_deref() {
        None | Some("TCP" | "") => Protocol::Tcp,
        Some("UDP") => Protocol::Udp,
        Some(_) => return None,
    };
    Some(PortFacts {
        port: number(port?)?,
        name: name.unwrap_or_default(),
        protocol,
        node_port: None,
    })
}

fn number(port: i32) -> Option<u16> {
    u16::try_from(port).ok().filter(|&port| port != 0)
}

fn uid(text: Option<&str>) -> PodUid {
    text.and_then(pod_uid).unwrap_or_else(|| "".into())
}

fn addresses<'a>(texts: impl Iterator<Item = &'a str>) -> BTreeSet<Ipv6Addr> {
    texts
        .filter_map(parse_address)
        .filter(|address| !address.to_canonical().is_unspecified())
        .collect()
}

fn parse_address(text: &str) -> Option<Ipv6Addr> {
    text.parse::<IpAddr>().ok().map(mapped)
}

fn parse_range(text: &str) -> Option<Ipv6Net> {
    match text.parse::<IpNet>().ok()? {
        IpNet::V4(v4) => Ipv6Net::new(v4.addr().to_ipv6_mapped(), v4.prefix_len() + 96).ok(),
        IpNet::V6(v6) => Some(v6),
    }
    .map(|range| range.trunc())
}
