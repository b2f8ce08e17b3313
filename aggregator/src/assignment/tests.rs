//! Clusters, and what their agents are told.

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
        pod_uid: "".into(),
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
            node_port: None,
            endpoints,
        }],
        ..Default::default()
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

/// What a node with these addresses is told, for people.
fn doors(plan: &Plan, node: &str) -> Vec<String> {
    let assignment = Assignment {
        version: 1,
        endpoints: Arc::from([]),
        prefixes: Arc::from([]),
        front_doors: plan.front_doors.clone(),
        node_addresses: plan.node_addresses[node].clone(),
        report_interval_ms: 0,
        client_keys: Arc::from([]),
    };
    assignment
        .front_doors()
        .map(|door| format!("{} {}/{}", door.address.to_canonical(), door.port, door.protocol))
        .collect()
}

#[test]
fn front_doors_are_where_services_can_be_dialled() {
    let mut first = service(vec![]);
    first.addresses.load_balancer = [ip("203.0.113.9")].into();
    first.addresses.external = [ip("198.51.100.7")].into();
    first.addresses.cluster = [ip("10.96.0.1"), ip("fd00:96::1")].into();
    first.ports[0].node_port = Some(30443);
    let mut dns = service(vec![]);
    dns.addresses.cluster = [ip("10.96.0.10")].into();
    (dns.ports[0].port, dns.ports[0].protocol) = (53, Protocol::Udp);
    let mut view = view(vec![first, dns]);
    view.nodes = [
        ("a".to_owned(), [ip("192.168.0.1"), ip("fd00::1")].into()),
        ("b".to_owned(), [].into()),
    ]
    .into();
    let plan = plan(&view);
    let everywhere = [
        "198.51.100.7 443/TCP",
        "203.0.113.9 443/TCP",
        "10.96.0.1 443/TCP",
        "10.96.0.10 53/UDP",
        "fd00:96::1 443/TCP",
    ];
    assert_eq!(doors(&plan, "b"), everywhere);
    let a = ["192.168.0.1 30443/TCP", "fd00::1 30443/TCP"];
    assert_eq!(doors(&plan, "a"), [&a[..], &everywhere[..]].concat());
    assert_eq!(plan.front_doors_left_out, 0);
}

#[test]
fn an_excess_of_front_doors_is_left_out_and_counted() {
    let services = (0..u32::try_from(MAX_FRONT_DOORS).unwrap() + 5).map(|i| {
        let mut service = service(vec![]);
        service.addresses.cluster = [mapped(std::net::IpAddr::V4((0x0a60_0000 + i).into()))].into();
        service
    });
    let mut view = view(services.collect());
    view.nodes = [("a".to_owned(), [].into())].into();
    let plan = plan(&view);
    assert_eq!(plan.front_doors_left_out, 5);
    assert_eq!(doors(&plan, "a").len(), MAX_FRONT_DOORS);
}
