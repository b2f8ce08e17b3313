//! A [`ClusterView`] enters; what each agent is to watch, and how it is to class clients, leaves. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;
use std::sync::Arc;

use ipnet::Ipv6Net;

use crate::cluster::ClusterView;
use crate::flow::{EndpointKey, SourceClass};

/// Endpoints that one agent is told: as many as its kernel map holds.
pub const MAX_ENDPOINTS: usize = 4096;
/// Prefixes that every agent is told: half of what its kernel map holds, and under a megabyte on the wire.
pub const MAX_PREFIXES: usize = 32_768;

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
    /// How often to report, in milliseconds.
    pub report_interval_ms: u32,
}

/// The assignments of all nodes, before they have versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// By node; a node without an entry has no endpoint.
    pub endpoints: BTreeMap<String, Arc<[EndpointKey]>>,
    /// The same for every node.
    pub prefixes: Arc<[ClassPrefix]>,
    /// Endpoints over [`MAX_ENDPOINTS`] of their node. Their flows are counted all the same.
    pub endpoints_left_out: usize,
    /// Prefixes over [`MAX_PREFIXES`]. Their clients are taken for external ones.
    pub prefixes_left_out: usize,
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
    Plan {
        endpoints,
        endpoints_left_out,
        prefixes_left_out: prefixes.len().saturating_sub(MAX_PREFIXES),
        prefixes: prefixes.into_iter().take(MAX_PREFIXES).collect(),
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
mod tests {
    use super::*;
    use crate::cluster::{Endpoint, ObjectName, ServicePort, ServiceView};
    use crate::flow::{Protocol, mapped};

    fn ip(text: &str) -> Ipv6Addr {
        mapped(text.parse().unwrap())
    }

    fn net(text: &str) -> Ipv6Net {
        let (address, length) = text.split_once('/').unwrap();
        let length: u8 = length.parse().unwrap();
        Ipv6Net::new(ip(address), if text.contains(':') { length } else { length + 96 }).unwrap()
    }

    fn endpoint(node: &str, addresses: &[&str], ready: bool) -> Endpoint {
        Endpoint {
            pod: format!("pod-{}", addresses[0]),
            pod_uid: String::new(),
            node: node.to_owned(),
            addresses: addresses.iter().map(|a| ip(a)).collect(),
            port: 8883,
            ready,
            serving: ready,
            terminating: false,
            zone: String::new(),
        }
    }

    fn service(endpoints: Vec<Endpoint>) -> ServiceView {
        ServiceView {
            external_traffic_policy: "Local".to_owned(),
            session_affinity: "None".to_owned(),
            ports: vec![ServicePort {
                port: 443,
                name: String::new(),
                protocol: Protocol::Tcp,
                endpoints,
            }],
        }
    }

    fn view(services: Vec<ServiceView>) -> ClusterView {
        let name = |i: usize| ObjectName {
            namespace: "ns".to_owned(),
            name: format!("s{i}"),
        };
        ClusterView {
            services: services
                .into_iter()
                .enumerate()
                .map(|(i, service)| (name(i), service))
                .collect(),
            ..Default::default()
        }
    }

    #[test]
    fn each_node_gets_its_own_endpoints_once_and_in_order() {
        let shared = || endpoint("b", &["10.1.0.9"], true);
        let plan = plan(&view(vec![
            service(vec![
                endpoint("a", &["10.0.0.2", "fd00::2"], true),
                endpoint("a", &["10.0.0.1"], false),
                shared(),
            ]),
            service(vec![shared()]),
        ]));
        let addresses = |node: &str| -> Vec<String> {
            plan.endpoints[node]
                .iter()
                .map(|key| key.address.to_canonical().to_string())
                .collect()
        };
        assert_eq!(addresses("a"), ["10.0.0.1", "10.0.0.2", "fd00::2"]);
        assert_eq!(addresses("b"), ["10.1.0.9"]);
    }

    #[test]
    fn classes_by_prefix() {
        let check = |pods: &[&str], nodes: &[&str], expected: &[(&str, SourceClass)]| {
            let view = ClusterView {
                pod_networks: pods.iter().map(|text| net(text)).collect(),
                node_addresses: nodes.iter().map(|text| ip(text)).collect(),
                ..Default::default()
            };
            let expected: Vec<ClassPrefix> = expected
                .iter()
                .map(|&(text, class)| ClassPrefix {
                    network: net(text),
                    class,
                })
                .collect();
            assert_eq!(*plan(&view).prefixes, *expected, "{pods:?} {nodes:?}");
        };
        use SourceClass::{Node, Pod};
        check(&[], &[], &[]);
        check(&["10.244.1.0/24", "10.244.1.7/32"], &[], &[("10.244.1.0/24", Pod)]);
        check(&["10.9.0.8/32", "10.9.0.9/32"], &[], &[("10.9.0.8/31", Pod)]);
        check(
            &["10.244.1.0/24", "10.9.0.7/32"],
            &["192.168.0.4", "192.168.0.4"],
            &[("192.168.0.4/32", Node), ("10.244.1.0/24", Pod), ("10.9.0.7/32", Pod)],
        );
        check(&["192.168.0.4/32"], &["192.168.0.4"], &[("192.168.0.4/32", Node)]);
        check(
            &["fd00:1::/64"],
            &["fd00::4"],
            &[("fd00::4/128", Node), ("fd00:1::/64", Pod)],
        );
    }

    #[test]
    fn an_excess_is_left_out_and_counted() {
        let ips: Vec<String> = (0..MAX_ENDPOINTS + 3)
            .map(|i| format!("10.7.{}.{}", i / 250, i % 250))
            .collect();
        let endpoints = ips.iter().map(|ip| endpoint("a", &[ip], true)).collect();
        let plan = plan(&view(vec![service(endpoints)]));
        assert_eq!(plan.endpoints["a"].len(), MAX_ENDPOINTS);
        assert_eq!(plan.endpoints_left_out, 3);

        // Every second address, so that nothing can be joined.
        let far = |i: u32| Ipv6Net::from(mapped(std::net::IpAddr::V4((i * 2).into())));
        let many = 1..=u32::try_from(MAX_PREFIXES).unwrap() + 5;
        let plan = super::plan(&ClusterView {
            pod_networks: many.map(far).collect(),
            ..Default::default()
        });
        assert_eq!((plan.prefixes.len(), plan.prefixes_left_out), (MAX_PREFIXES, 5));
    }
}
