//! A cluster view enters; the same the other way round leaves: whose an address is, and which Service port is dialled.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::Ipv6Addr;
use std::sync::Arc;

use crate::cluster::{ClusterView, Endpoint, PortName, ServicePort, ServiceView};
use crate::flow::{EndpointKey, Protocol};
use crate::ledger::{Endpoints, PodUid};
use crate::report::DoorKind;

/// What a view says, by address.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// By node: its endpoints, and the pod of each.
    endpoints: BTreeMap<String, Endpoints>,
    /// Of pods that run, and of endpoints.
    pods: HashSet<PodUid>,
    /// By node and endpoint: the Service ports that it serves.
    targets: HashMap<String, HashMap<EndpointKey, BTreeSet<Arc<PortName>>>>,
    doors: HashMap<EndpointKey, (Arc<PortName>, DoorKind)>,
    node_ports: HashMap<(u16, Protocol), Arc<PortName>>,
    node_addresses: BTreeSet<Ipv6Addr>,
    /// Ports with front doors that have an endpoint in common.
    shared: HashMap<Arc<PortName>, BTreeSet<Arc<PortName>>>,
}

impl Index {
    pub(super) fn of(view: &ClusterView) -> Self {
        let mut index = Self {
            node_addresses: view.node_addresses.clone(),
            pods: view.pods.keys().cloned().collect(),
            ..Self::default()
        };
        let mut standings: HashMap<(&str, EndpointKey), (bool, bool)> = HashMap::new();
        for (name, service) in &view.services {
            for port in &service.ports {
                let port_name = Arc::new(port.named(name));
                index.add_doors(&port_name, service, port);
                for endpoint in &port.endpoints {
                    index.add_endpoint(&port_name, endpoint, &mut standings);
                }
            }
        }
        for targets in index.targets.values() {
            for ports in targets.values() {
                let with_doors: Vec<&Arc<PortName>> = ports.iter().filter(|port| has_doors(view, port)).collect();
                for port in with_doors.iter().filter(|_| with_doors.len() > 1) {
                    let others = with_doors.iter().filter(|other| *other != port);
                    index
                        .shared
                        .entry(Arc::clone(port))
                        .or_default()
                        .extend(others.map(|other| Arc::clone(other)));
                }
            }
        }
        index
    }

    fn add_doors(&mut self, port_name: &Arc<PortName>, service: &ServiceView, port: &ServicePort) {
        for (kind, address) in service.addresses.iter() {
            let at = EndpointKey {
                address,
                port: port.port,
                protocol: port.protocol,
            };
            // An address that two Services claim is the first one's; kinds come in order of how near the client is.
            self.doors.entry(at).or_insert_with(|| (port_name.clone(), kind));
        }
        if let Some(node_port) = port.node_port {
            self.node_ports
                .entry((node_port, port.protocol))
                .or_insert_with(|| port_name.clone());
        }
    }

    fn add_endpoint<'a>(
        &mut self,
        port: &Arc<PortName>,
        endpoint: &'a Endpoint,
        standings: &mut HashMap<(&'a str, EndpointKey), (bool, bool)>,
    ) {
        self.pods.insert(endpoint.pod_uid.clone());
        for key in endpoint.keys(port.protocol) {
            let targets = self.targets.entry(endpoint.node.clone()).or_default();
            targets.entry(key).or_default().insert(port.clone());
            // While one pod follows another both are listed: the address is that of the one that serves.
            let standing = (endpoint.ready, !endpoint.terminating);
            let best = standings.entry((&endpoint.node, key)).or_insert(standing);
            let owners = self.endpoints.entry(endpoint.node.clone()).or_default();
            if standing > *best || !owners.contains_key(&key) {
                *best = standing;
                owners.insert(key, endpoint.pod_uid.clone());
            }
        }
    }

    /// The endpoints of each node.
    pub(super) fn endpoints(&self) -> &BTreeMap<String, Endpoints> {
        &self.endpoints
    }

    /// True when an endpoint of the node is at this address and port.
    pub(super) fn is_endpoint(&self, node: &str, key: &EndpointKey) -> bool {
        self.endpoints.get(node).is_some_and(|keys| keys.contains_key(key))
    }

    /// True when the cluster has this pod.
    pub(super) fn knows(&self, pod: &PodUid) -> bool {
        self.pods.contains(pod)
    }

    /// The Service ports that an endpoint of a node serves.
    pub(super) fn ports_at(&self, node: &str, key: &EndpointKey) -> impl Iterator<Item = &PortName> {
        let ports = self.targets.get(node).and_then(|targets| targets.get(key));
        ports.into_iter().flatten().map(|port| &**port)
    }

    /// The Service port that is dialled at an address and port, and what kind of door that is.
    pub(super) fn door(&self, at: &EndpointKey) -> Option<(&PortName, DoorKind)> {
        if let Some((port, kind)) = self.doors.get(at) {
            return Some((port, *kind));
        }
        let port = self.node_ports.get(&(at.port, at.protocol))?;
        self.node_addresses
            .contains(&at.address)
            .then_some((&**port, DoorKind::NodePort))
    }

    /// The Service ports with front doors that have an endpoint in common with this one.
    pub(super) fn shared_with(&self, port: &PortName) -> Option<&BTreeSet<Arc<PortName>>> {
        self.shared.get(port)
    }
}

fn has_doors(view: &ClusterView, port: &PortName) -> bool {
    let Some(service) = view.services.get(&port.service) else {
        return false;
    };
    let mut ports = service.ports.iter();
    let has_node_port =
        ports.any(|found| found.port == port.port && found.protocol == port.protocol && found.node_port.is_some());
    has_node_port || service.addresses.iter().next().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::mapped;
    use crate::state::tests::{endpoint, key, name, view_of};

    fn at(address: &str, port: u16) -> EndpointKey {
        EndpointKey {
            address: mapped(address.parse().unwrap()),
            port,
            protocol: Protocol::Tcp,
        }
    }

    fn ports(names: &[(&str, u16)]) -> Vec<PortName> {
        let port = |&(service, port): &(&str, u16)| PortName {
            service: name(service),
            port,
            protocol: Protocol::Tcp,
        };
        names.iter().map(port).collect()
    }

    #[test]
    fn doors_and_those_who_share() {
        let mut view = view_of(&[
            ("both", 443, vec![endpoint("a", 1), endpoint("a", 2)]),
            ("first", 443, vec![endpoint("a", 1)]),
            ("headless", 443, vec![endpoint("a", 1)]),
        ]);
        view.node_addresses = [mapped("192.0.2.1".parse().unwrap())].into();
        let balancer = mapped("203.0.113.9".parse().unwrap());
        view.services.get_mut(&name("both")).unwrap().addresses.load_balancer = [balancer].into();
        view.services.get_mut(&name("first")).unwrap().ports[0].node_port = Some(30443);
        let index = Index::of(&view);
        let door = |address: &str, port| index.door(&at(address, port)).map(|(port, kind)| (port.clone(), kind));
        let names = ports(&[("both", 443), ("first", 443), ("headless", 443)]);
        assert_eq!(
            door("203.0.113.9", 443),
            Some((names[0].clone(), DoorKind::LoadBalancer))
        );
        assert_eq!(door("192.0.2.1", 30443), Some((names[1].clone(), DoorKind::NodePort)));
        assert_eq!(door("192.0.2.2", 30443), None, "no node has this address");
        assert_eq!(door("203.0.113.9", 80), None);
        let shared = |port: &PortName| -> Vec<PortName> {
            let others = index.shared_with(port).into_iter().flatten();
            others.map(|other| (**other).clone()).collect()
        };
        assert_eq!(shared(&names[0]), ports(&[("first", 443)]));
        assert_eq!(shared(&names[1]), ports(&[("both", 443)]));
        assert!(shared(&names[2]).is_empty(), "nobody dials a headless Service");
        let serves: Vec<&PortName> = index.ports_at("a", &key(1)).collect();
        assert_eq!(serves.len(), 3);
    }

    #[test]
    fn an_address_belongs_to_the_pod_that_serves() {
        let mut old = endpoint("a", 1);
        (old.pod_uid, old.ready, old.terminating) = ("old".into(), false, true);
        let mut new = endpoint("a", 1);
        new.pod_uid = "new".into();
        for endpoints in [vec![old.clone(), new.clone()], vec![new, old]] {
            let index = Index::of(&view_of(&[("s", 443, endpoints)]));
            assert_eq!(&*index.endpoints()["a"][&key(1)], "new");
        }
    }
}
