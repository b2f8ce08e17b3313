//! Changes of single objects enter; the view of the whole cluster leaves. Pure.

use std::collections::{BTreeMap, HashMap};

use ipnet::Ipv6Net;

use super::facts::{NodeFacts, PodFacts, PortFacts, ServiceFacts, SliceEndpoint, SliceFacts};
use super::view::{ClusterView, Endpoint, ObjectName, ServicePort, ServiceView};
use crate::ledger::PodUid;

/// A change of one kind of object.
pub(super) enum Change {
    Node(Update<NodeFacts>),
    Pod(Update<PodFacts>),
    Service(Update<ServiceFacts>),
    Slice(Update<SliceFacts>),
}

/// What happened to objects of one kind.
pub(super) enum Update<T> {
    /// One is new or changed.
    Set(ObjectName, T),
    /// One is gone, or of no interest any more.
    Removed(ObjectName),
    /// These are all there are.
    Replaced(Vec<(ObjectName, T)>),
}

/// Everything that is known of the API server's objects. `None`: not listed yet.
#[derive(Default)]
pub(super) struct Objects {
    nodes: Option<HashMap<ObjectName, NodeFacts>>,
    pods: Option<HashMap<ObjectName, PodFacts>>,
    services: Option<HashMap<ObjectName, ServiceFacts>>,
    slices: Option<HashMap<ObjectName, SliceFacts>>,
}

impl Objects {
    /// False when nothing that is kept has changed, as with most changes of a pod's status.
    pub(super) fn apply(&mut self, change: Change) -> bool {
        match change {
            Change::Node(update) => apply(&mut self.nodes, update),
            Change::Pod(update) => apply(&mut self.pods, update),
            Change::Service(update) => apply(&mut self.services, update),
            Change::Slice(update) => apply(&mut self.slices, update),
        }
    }

    /// `None` until every kind has been listed.
    pub(super) fn view(&self) -> Option<ClusterView> {
        let (nodes, pods, services, slices) = (
            self.nodes.as_ref()?,
            self.pods.as_ref()?,
            self.services.as_ref()?,
            self.slices.as_ref()?,
        );
        let mut view = ClusterView {
            nodes: nodes
                .iter()
                .map(|(name, node)| (name.name.clone(), node.addresses.iter().copied().collect()))
                .collect(),
            pods: pods
                .iter()
                .filter(|(_, pod)| !pod.uid.is_empty())
                .map(|(name, pod)| (pod.uid.clone(), name.clone()))
                .collect(),
            ..Default::default()
        };
        for node in nodes.values() {
            view.pod_networks.extend(&node.pod_ranges);
            view.node_addresses.extend(&node.addresses);
        }
        for pod in pods.values() {
            if pod.host_network {
                view.node_addresses.extend(&pod.addresses);
            } else {
                view.pod_networks
                    .extend(pod.addresses.iter().map(|&address| Ipv6Net::from(address)));
            }
        }
        // Objects come in no order, and equal clusters must give equal views.
        view.pod_networks.sort_unstable();
        let mut slices_of: HashMap<(&str, &str), Vec<&SliceFacts>> = HashMap::new();
        for (name, slice) in slices {
            slices_of
                .entry((&name.namespace, &slice.service))
                .or_default()
                .push(slice);
        }
        for (name, service) in services {
            let slices = slices_of
                .get(&(&name.namespace, &name.name))
                .map(Vec::as_slice)
                .unwrap_or_default();
            if !service.has_selector && slices.is_empty() {
                continue;
            }
            let ports = service
                .ports
                .iter()
                .map(|port| service_port(name, port, slices, (nodes, pods)))
                .collect();
            let service = ServiceView {
                external_traffic_policy: service.external_traffic_policy.clone(),
                session_affinity: service.session_affinity.clone(),
                affinity_timeout_seconds: service.affinity_timeout_seconds,
                addresses: service.addresses.clone(),
                ports,
            };
            view.services.insert(name.clone(), service);
        }
        Some(view)
    }
}

fn apply<T: PartialEq>(objects: &mut Option<HashMap<ObjectName, T>>, update: Update<T>) -> bool {
    // A watch lists before it tells changes; without a list there is nothing to change.
    match (update, objects) {
        (Update::Replaced(all), objects) => {
            *objects = Some(all.into_iter().collect());
            true
        }
        (Update::Set(name, facts), Some(objects)) if objects.get(&name) != Some(&facts) => {
            objects.insert(name, facts);
            true
        }
        (Update::Removed(name), Some(objects)) => objects.remove(&name).is_some(),
        (Update::Set(..), Some(_)) | (_, None) => false,
    }
}

/// Slice ports belong to the Service port of the same name; each slice has its own target port.
fn service_port(
    service: &ObjectName,
    port: &PortFacts,
    slices: &[&SliceFacts],
    (nodes, pods): (&HashMap<ObjectName, NodeFacts>, &HashMap<ObjectName, PodFacts>),
) -> ServicePort {
    // By unique id also: a StatefulSet's pod that is made anew has the name of the one before it.
    let mut endpoints: BTreeMap<(String, String, PodUid, u16), Endpoint> = BTreeMap::new();
    for slice in slices {
        let targets = slice
            .ports
            .iter()
            .filter(|p| p.name == port.name && p.protocol == port.protocol);
        for (target, found) in targets.flat_map(|target| slice.endpoints.iter().map(move |found| (target.port, found)))
        {
            let pod = if found.pod.is_empty() {
                found.address.to_canonical().to_string()
            } else {
                found.pod.clone()
            };
            let Some(node) = node_of(service, found, pods) else {
                continue;
            };
            let pod_uid = uid_of(service, found, pods);
            let key = (node.to_owned(), pod.clone(), pod_uid.clone(), target);
            let endpoint = endpoints.entry(key).or_insert_with(|| Endpoint {
                pod,
                pod_uid,
                node: node.to_owned(),
                addresses: Default::default(),
                port: target,
                ready: false,
                serving: false,
                terminating: true,
                zone: zone_of(node, found, nodes),
            });
            // While an endpoint moves between slices it is in both, one of them stale: the better condition is the
            // newer one, as kube-proxy also decides.
            endpoint.addresses.insert(found.address);
            endpoint.ready |= found.ready;
            endpoint.serving |= found.serving;
            endpoint.terminating &= found.terminating;
        }
    }
    ServicePort {
        port: port.port,
        name: port.name.clone(),
        protocol: port.protocol,
        node_port: port.node_port,
        endpoints: endpoints.into_values().collect(),
    }
}

/// The node that the slice names, else that of the pod.
fn node_of<'a>(
    service: &ObjectName,
    endpoint: &'a SliceEndpoint,
    pods: &'a HashMap<ObjectName, PodFacts>,
) -> Option<&'a str> {
    if !endpoint.node.is_empty() {
        return Some(&endpoint.node);
    }
    pod_of(service, endpoint, pods).map(|pod| pod.node.as_str())
}

/// The zone that the slice names, else that of the node.
fn zone_of(node: &str, endpoint: &SliceEndpoint, nodes: &HashMap<ObjectName, NodeFacts>) -> String {
    if !endpoint.zone.is_empty() {
        return endpoint.zone.clone();
    }
    let name = ObjectName {
        namespace: String::new(),
        name: node.to_owned(),
    };
    nodes.get(&name).map(|node| node.zone.clone()).unwrap_or_default()
}

/// The id that the slice names, in the form that agents tell it.
fn uid_of(service: &ObjectName, endpoint: &SliceEndpoint, pods: &HashMap<ObjectName, PodFacts>) -> PodUid {
    let pod = pod_of(service, endpoint, pods).filter(|pod| pod.api_uid == endpoint.pod_uid);
    pod.map_or(&endpoint.pod_uid, |pod| &pod.uid).clone()
}

fn pod_of<'a>(
    service: &ObjectName,
    endpoint: &SliceEndpoint,
    pods: &'a HashMap<ObjectName, PodFacts>,
) -> Option<&'a PodFacts> {
    pods.get(&ObjectName {
        namespace: service.namespace.clone(),
        name: endpoint.pod.clone(),
    })
}
