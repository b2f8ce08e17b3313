//! The Kubernetes objects of a lab. Names and addresses enter; Node, Pod, Service and EndpointSlice leave, with the
//! fields that a reader of a real cluster relies on.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::{
    ClientIPConfig, Container, ContainerPort, HostIP, LoadBalancerIngress, LoadBalancerStatus, Node, NodeAddress,
    NodeCondition, NodeSpec, NodeStatus, ObjectReference, Pod, PodCondition, PodIP, PodSpec, PodStatus, Service,
    ServicePort, ServiceSpec, ServiceStatus, SessionAffinityConfig,
};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use k8s_openapi::jiff::Timestamp;

use crate::net::{Protocol, ServicePlan, TrafficPolicy};

/// So far behind the node port is the one on which a real kube-proxy would tell its number of local endpoints. Nothing
/// listens there in the lab.
const HEALTH_CHECK_NODE_PORT: i32 = 100;

/// A pod as the API tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodView {
    /// Name.
    pub name: String,
    /// Another one each time that a pod of this name starts.
    pub uid: String,
    /// Name of its node.
    pub node: String,
    /// Address of its node.
    pub host_ip: IpAddr,
    /// Its own address, or that of its node.
    pub ip: IpAddr,
    /// Where it listens.
    pub port: u16,
    /// It has the network namespace of its node.
    pub host_network: bool,
    /// True until it is asked to end.
    pub ready: bool,
    /// Zone of its node.
    pub zone: Option<String>,
}

/// A Node that is ready.
pub fn node(name: &str, address: IpAddr, pod_cidr: IpNet, zone: Option<&String>) -> Node {
    let cidr = pod_cidr.to_string();
    let mut labels = BTreeMap::from([("kubernetes.io/hostname".to_owned(), name.to_owned())]);
    labels.extend(zone.map(|zone| ("topology.kubernetes.io/zone".to_owned(), zone.clone())));
    Node {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            uid: Some(format!("node-{name}")),
            labels: Some(labels),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec {
            pod_cidr: Some(cidr.clone()),
            pod_cidrs: Some(vec![cidr]),
            ..NodeSpec::default()
        }),
        status: Some(NodeStatus {
            addresses: Some(vec![
                NodeAddress {
                    type_: "InternalIP".to_owned(),
                    address: address.to_string(),
                },
                NodeAddress {
                    type_: "Hostname".to_owned(),
                    address: name.to_owned(),
                },
            ]),
            conditions: Some(vec![NodeCondition {
                type_: "Ready".to_owned(),
                status: "True".to_owned(),
                ..NodeCondition::default()
            }]),
            ..NodeStatus::default()
        }),
    }
}

/// A Pod of the main Service, owned by a StatefulSet of the same name. One that is not ready is about to go.
pub fn pod(service: &ServicePlan, view: &PodView) -> Pod {
    let address = view.ip.to_string();
    let condition = |type_: &str, is: bool| PodCondition {
        type_: type_.to_owned(),
        status: if is { "True" } else { "False" }.to_owned(),
        ..PodCondition::default()
    };
    let container = Container {
        name: "server".to_owned(),
        image: Some("lab".to_owned()),
        ports: Some(vec![ContainerPort {
            container_port: i32::from(view.port),
            name: port_name(service),
            protocol: Some(protocol(service)),
            ..ContainerPort::default()
        }]),
        ..Container::default()
    };
    Pod {
        metadata: ObjectMeta {
            name: Some(view.name.clone()),
            namespace: Some(service.namespace.clone()),
            uid: Some(view.uid.clone()),
            labels: Some(selector(&service.name)),
            deletion_timestamp: (!view.ready).then(|| Time(Timestamp::now())),
            owner_references: Some(vec![OwnerReference {
                api_version: "apps/v1".to_owned(),
                kind: "StatefulSet".to_owned(),
                name: service.name.clone(),
                uid: format!("statefulset-{}", service.name),
                controller: Some(true),
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            node_name: Some(view.node.clone()),
            host_network: view.host_network.then_some(true),
            containers: vec![container],
            ..PodSpec::default()
        }),
        status: Some(PodStatus {
            phase: Some("Running".to_owned()),
            host_ip: Some(view.host_ip.to_string()),
            host_ips: Some(vec![HostIP {
                ip: view.host_ip.to_string(),
            }]),
            pod_ip: Some(address.clone()),
            pod_ips: Some(vec![PodIP { ip: address }]),
            conditions: Some(vec![
                condition("PodScheduled", true),
                condition("Initialized", true),
                condition("ContainersReady", view.ready),
                condition("Ready", view.ready),
            ]),
            ..PodStatus::default()
        }),
    }
}

/// A Service: LoadBalancer, with the traffic policy and the affinity of the plan. It selects the pods of the Service `main`.
pub fn service(plan: &ServicePlan, main: &str) -> Service {
    let cluster_ip = plan.cluster_ip.to_string();
    let affinity = plan.affinity_timeout_seconds.map(|seconds| SessionAffinityConfig {
        client_ip: Some(ClientIPConfig {
            timeout_seconds: i32::try_from(seconds).ok(),
        }),
    });
    let policy = match plan.policy {
        TrafficPolicy::Local => "Local",
        TrafficPolicy::Cluster => "Cluster",
    };
    Service {
        metadata: ObjectMeta {
            name: Some(plan.name.clone()),
            namespace: Some(plan.namespace.clone()),
            uid: Some(format!("service-{}", plan.name)),
            ..ObjectMeta::default()
        },
        spec: Some(ServiceSpec {
            type_: Some("LoadBalancer".to_owned()),
            selector: Some(selector(main)),
            cluster_ip: Some(cluster_ip.clone()),
            cluster_ips: Some(vec![cluster_ip]),
            ip_families: Some(vec![address_type(plan.cluster_ip).to_owned()]),
            ports: Some(vec![ServicePort {
                name: port_name(plan),
                port: i32::from(plan.port),
                protocol: Some(protocol(plan)),
                target_port: Some(IntOrString::Int(i32::from(plan.target_port))),
                node_port: Some(i32::from(plan.node_port)),
                ..ServicePort::default()
            }]),
            external_traffic_policy: Some(policy.to_owned()),
            internal_traffic_policy: Some("Cluster".to_owned()),
            health_check_node_port: (plan.policy == TrafficPolicy::Local)
                .then(|| i32::from(plan.node_port) + HEALTH_CHECK_NODE_PORT),
            session_affinity: Some(if affinity.is_some() { "ClientIP" } else { "None" }.to_owned()),
            session_affinity_config: affinity,
            ..ServiceSpec::default()
        }),
        status: Some(ServiceStatus {
            load_balancer: Some(LoadBalancerStatus {
                ingress: Some(vec![LoadBalancerIngress {
                    ip: Some(plan.load_balancer_ip.to_string()),
                    ..LoadBalancerIngress::default()
                }]),
            }),
            ..ServiceStatus::default()
        }),
    }
}

/// The EndpointSlice of the pods of a Service that listen on one port: the lab has fewer of them than fill a slice.
pub fn endpoint_slice(service: &ServicePlan, port: u16, pods: &[PodView]) -> EndpointSlice {
    let endpoint = |view: &PodView| Endpoint {
        addresses: vec![view.ip.to_string()],
        conditions: Some(EndpointConditions {
            ready: Some(view.ready),
            serving: Some(true),
            terminating: Some(!view.ready),
        }),
        node_name: Some(view.node.clone()),
        zone: view.zone.clone(),
        target_ref: Some(ObjectReference {
            kind: Some("Pod".to_owned()),
            namespace: Some(service.namespace.clone()),
            name: Some(view.name.clone()),
            uid: Some(view.uid.clone()),
            ..ObjectReference::default()
        }),
        ..Endpoint::default()
    };
    EndpointSlice {
        metadata: ObjectMeta {
            name: Some(format!("{}-lab-{port}", service.name)),
            namespace: Some(service.namespace.clone()),
            labels: Some(BTreeMap::from([
                ("kubernetes.io/service-name".to_owned(), service.name.clone()),
                (
                    "endpointslice.kubernetes.io/managed-by".to_owned(),
                    "endpointslice-controller.k8s.io".to_owned(),
                ),
            ])),
            ..ObjectMeta::default()
        },
        address_type: address_type(service.cluster_ip).to_owned(),
        endpoints: pods.iter().map(endpoint).collect(),
        ports: Some(vec![EndpointPort {
            name: Some(service.port_name.clone()),
            port: Some(i32::from(port)),
            protocol: Some(protocol(service)),
            ..EndpointPort::default()
        }]),
    }
}

fn selector(main: &str) -> BTreeMap<String, String> {
    BTreeMap::from([("app".to_owned(), main.to_owned())])
}

/// The protocol as Kubernetes spells it.
fn protocol(service: &ServicePlan) -> String {
    match service.protocol {
        Protocol::Tcp => "TCP",
        Protocol::Udp => "UDP",
    }
    .to_owned()
}

fn port_name(service: &ServicePlan) -> Option<String> {
    (!service.port_name.is_empty()).then(|| service.port_name.clone())
}

/// The address family as Kubernetes spells it.
fn address_type(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}
