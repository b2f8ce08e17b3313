//! Objects as the API server writes them, and the view made of them.

use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};

use super::derive::{Objects, Update};
use super::watch::Watched;
use super::{ClusterView, ObjectName, ServiceView};

/// Lists of (namespace/name, object).
#[derive(Default)]
struct World {
    nodes: Vec<(&'static str, Value)>,
    pods: Vec<(&'static str, Value)>,
    services: Vec<(&'static str, Value)>,
    slices: Vec<(&'static str, Value)>,
}

fn list<K: Watched>(objects: &mut Objects, listed: Vec<(&str, Value)>) {
    let facts = listed.into_iter().filter_map(|(name, object)| {
        let object: K = serde_json::from_value(object).unwrap();
        Some((object_name(name), object.facts()?))
    });
    objects.apply(K::change(Update::Replaced(facts.collect())));
}

fn object_name(name: &str) -> ObjectName {
    let (namespace, name) = name.split_once('/').unwrap_or(("", name));
    ObjectName {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

fn view(world: World) -> ClusterView {
    let mut objects = Objects::default();
    list::<Node>(&mut objects, world.nodes);
    list::<Pod>(&mut objects, world.pods);
    list::<Service>(&mut objects, world.services);
    assert_eq!(objects.view(), None, "one kind is missing");
    list::<EndpointSlice>(&mut objects, world.slices);
    objects.view().unwrap()
}

fn service(ports: Value) -> Value {
    json!({ "spec": { "selector": { "app": "x" }, "ports": ports } })
}

fn slice(service: &str, port: Value, endpoints: Value) -> Value {
    json!({ "metadata": { "labels": { "kubernetes.io/service-name": service } }, "addressType": "IPv4",
            "ports": [port], "endpoints": endpoints })
}

fn endpoint(pod: &str, node: &str, address: &str, ready: bool) -> Value {
    json!({ "addresses": [address], "nodeName": node, "conditions": { "ready": ready },
            "targetRef": { "kind": "Pod", "name": pod, "uid": format!("uid-{pod}") } })
}

/// "pod node addresses:port", and "!" when it is not ready.
fn shown(service: &ServiceView) -> Vec<String> {
    let endpoints = service
        .ports
        .iter()
        .flat_map(|port| port.endpoints.iter().map(move |e| (port.port, e)));
    endpoints
        .map(|(port, e)| {
            let addresses: Vec<String> = e.addresses.iter().map(|a| a.to_canonical().to_string()).collect();
            let ready = if e.ready { "" } else { "!" };
            format!("{port}: {} {} {}:{}{ready}", e.pod, e.node, addresses.join(","), e.port)
        })
        .collect()
}

fn check(services: Value, slices: Vec<(&'static str, Value)>, expected: &[&str]) {
    let pod = json!({ "spec": { "nodeName": "from-pod", "containers": [] } });
    let world = World {
        services: vec![("ns/s", service(services))],
        slices,
        pods: vec![("ns/p", pod)],
        ..Default::default()
    };
    assert_eq!(shown(&view(world).services[&object_name("ns/s")]), expected);
}

#[test]
fn endpoints_of_a_service_port() {
    let http = || json!([{ "name": "http", "port": 80 }]);
    let port = |number: u16| json!({ "name": "http", "port": number });
    let one = |e: Value| json!([e]);
    check(http(), vec![], &[]);
    check(
        http(),
        vec![(
            "ns/1",
            slice("s", port(8080), one(endpoint("p", "n", "10.0.0.1", true))),
        )],
        &["80: p n 10.0.0.1:8080"],
    );
    // While it moves between slices it is in both, and the better condition is the newer one.
    check(
        http(),
        vec![
            (
                "ns/1",
                slice("s", port(8080), one(endpoint("p", "n", "10.0.0.1", false))),
            ),
            (
                "ns/2",
                slice("s", port(8080), one(endpoint("p", "n", "10.0.0.1", true))),
            ),
        ],
        &["80: p n 10.0.0.1:8080"],
    );
    // Two address families of one pod are one endpoint.
    check(
        http(),
        vec![
            (
                "ns/4",
                slice("s", port(8080), one(endpoint("p", "n", "10.0.0.1", true))),
            ),
            ("ns/6", slice("s", port(8080), one(endpoint("p", "n", "fd00::1", true)))),
        ],
        &["80: p n 10.0.0.1,fd00::1:8080"],
    );
    // A named target port can differ from pod to pod.
    check(
        http(),
        vec![
            (
                "ns/1",
                slice("s", port(8080), one(endpoint("p", "n", "10.0.0.1", true))),
            ),
            (
                "ns/2",
                slice("s", port(9090), one(endpoint("q", "m", "10.0.0.2", false))),
            ),
        ],
        &["80: q m 10.0.0.2:9090!", "80: p n 10.0.0.1:8080"],
    );
    // Slices of another Service, another namespace, or none.
    check(
        http(),
        vec![
            (
                "ns/1",
                slice("t", port(8080), one(endpoint("p", "n", "10.0.0.1", true))),
            ),
            (
                "other/1",
                slice("s", port(8080), one(endpoint("p", "n", "10.0.0.1", true))),
            ),
            (
                "ns/2",
                json!({ "metadata": {}, "addressType": "IPv4", "endpoints": [endpoint("p", "n", "10.0.0.1", true)] }),
            ),
        ],
        &[],
    );
    // The pod knows its node when the slice does not; an endpoint outside the cluster has none.
    let without_node =
        |pod: &str, address: &str| json!({ "addresses": [address], "targetRef": { "kind": "Pod", "name": pod } });
    check(
        http(),
        vec![(
            "ns/1",
            slice(
                "s",
                port(8080),
                json!([without_node("p", "10.0.0.1"), without_node("q", "192.0.2.1")]),
            ),
        )],
        &["80: p from-pod 10.0.0.1:8080"],
    );
    // Ready unless told otherwise; named by its address when no pod is known.
    check(
        http(),
        vec![(
            "ns/1",
            slice(
                "s",
                port(8080),
                json!([{ "addresses": ["10.0.0.9", "10.0.0.10"], "nodeName": "n" }]),
            ),
        )],
        &["80: 10.0.0.9 n 10.0.0.9:8080"],
    );
    // A StatefulSet's pod made anew.
    let old = json!({ "addresses": ["10.0.0.1"], "nodeName": "n", "conditions": { "ready": false },
                      "targetRef": { "kind": "Pod", "name": "p", "uid": "old" } });
    check(
        http(),
        vec![(
            "ns/1",
            slice("s", port(8080), json!([old, endpoint("p", "n", "10.0.0.2", true)])),
        )],
        &["80: p n 10.0.0.1:8080!", "80: p n 10.0.0.2:8080"],
    );
}

#[test]
fn ports_by_name_and_protocol() {
    let endpoints = || json!([endpoint("p", "n", "10.0.0.1", true)]);
    let dns = json!([{ "name": "dns", "port": 53, "protocol": "UDP" }, { "name": "dns-tcp", "port": 53 },
                     { "name": "sctp", "port": 9, "protocol": "SCTP" }]);
    check(
        dns,
        vec![
            (
                "ns/1",
                slice(
                    "s",
                    json!({ "name": "dns", "port": 5353, "protocol": "UDP" }),
                    endpoints(),
                ),
            ),
            (
                "ns/2",
                slice(
                    "s",
                    json!({ "name": "dns-tcp", "port": 5354, "protocol": "TCP" }),
                    endpoints(),
                ),
            ),
            (
                "ns/3",
                slice(
                    "s",
                    json!({ "name": "sctp", "port": 9, "protocol": "SCTP" }),
                    endpoints(),
                ),
            ),
        ],
        &["53: p n 10.0.0.1:5353", "53: p n 10.0.0.1:5354"],
    );
}

#[test]
fn impossible_values_count_as_absent() {
    let http = || json!([{ "port": 80 }]);
    let endpoints = || json!([endpoint("p", "n", "10.0.0.1", true)]);
    check(
        http(),
        vec![("ns/1", slice("s", json!({ "port": 70000 }), endpoints()))],
        &[],
    );
    check(
        http(),
        vec![("ns/1", slice("s", json!({ "port": 0 }), endpoints()))],
        &[],
    );
    check(http(), vec![("ns/1", slice("s", json!({}), endpoints()))], &[]);
    check(
        http(),
        vec![(
            "ns/1",
            slice(
                "s",
                json!({ "port": 8080 }),
                json!([endpoint("p", "n", "pod.example", true)]),
            ),
        )],
        &[],
    );
    check(
        http(),
        vec![(
            "ns/1",
            slice("s", json!({ "port": 8080 }), json!([{ "addresses": [] }])),
        )],
        &[],
    );
}

#[test]
fn services_of_interest() {
    let bare = |spec: Value| json!({ "spec": spec });
    let ports = json!([{ "port": 80 }]);
    let found = view(World {
        services: vec![
            (
                "ns/with-selector",
                bare(json!({ "selector": { "a": "b" }, "ports": ports })),
            ),
            ("ns/with-slices", bare(json!({ "ports": ports }))),
            ("ns/with-neither", bare(json!({ "ports": ports }))),
            (
                "ns/without-ports",
                bare(json!({ "selector": { "a": "b" }, "clusterIP": "None" })),
            ),
            (
                "ns/elsewhere",
                bare(json!({ "type": "ExternalName", "externalName": "x.example", "ports": ports })),
            ),
            ("ns/empty", json!({})),
        ],
        slices: vec![("ns/1", slice("with-slices", json!({ "port": 8080 }), json!([])))],
        ..Default::default()
    });
    let names: Vec<String> = found.services.keys().map(ToString::to_string).collect();
    assert_eq!(names, ["ns/with-selector", "ns/with-slices"]);
}

#[test]
fn policies_have_the_defaults_of_the_api() {
    let world = |spec: Value| World {
        services: vec![("ns/s", json!({ "spec": spec }))],
        ..Default::default()
    };
    let policies = |spec: Value| {
        let view = view(world(spec));
        let service = &view.services[&object_name("ns/s")];
        (
            service.external_traffic_policy.clone(),
            service.session_affinity.clone(),
        )
    };
    let spec = json!({ "selector": { "a": "b" }, "ports": [{ "port": 1 }] });
    assert_eq!(policies(spec.clone()), ("Cluster".to_owned(), "None".to_owned()));
    let mut set = spec;
    set["externalTrafficPolicy"] = json!("Local");
    set["sessionAffinity"] = json!("ClientIP");
    assert_eq!(policies(set), ("Local".to_owned(), "ClientIP".to_owned()));
}

#[test]
fn how_long_affinity_lasts() {
    let timeout = |spec: Value| {
        let mut service = service(json!([{ "port": 1 }]));
        service["spec"]
            .as_object_mut()
            .unwrap()
            .extend(spec.as_object().unwrap().clone());
        let world = World {
            services: vec![("ns/s", service)],
            ..Default::default()
        };
        view(world).services[&object_name("ns/s")].affinity_timeout_seconds
    };
    let set = |seconds: i32| json!({ "clientIP": { "timeoutSeconds": seconds } });
    assert_eq!(timeout(json!({})), None);
    assert_eq!(timeout(json!({ "sessionAffinity": "ClientIP" })), Some(10_800));
    let with = |affinity: &str, seconds| {
        timeout(json!({ "sessionAffinity": affinity, "sessionAffinityConfig": set(seconds) }))
    };
    assert_eq!(with("ClientIP", 600), Some(600));
    assert_eq!(with("None", 600), None, "what is configured does not apply");
    assert_eq!(with("ClientIP", -1), Some(10_800), "impossible");
}

#[test]
fn the_zone_of_a_slice_or_else_of_the_node() {
    let mut named = endpoint("p", "n", "10.0.0.1", true);
    named["zone"] = json!("of-slice");
    let found = view(World {
        nodes: vec![
            (
                "n",
                json!({ "metadata": { "labels": { "topology.kubernetes.io/zone": "of-node" } } }),
            ),
            ("unlabelled", json!({})),
        ],
        services: vec![("ns/s", service(json!([{ "port": 80 }])))],
        slices: vec![(
            "ns/1",
            slice(
                "s",
                json!({ "port": 8080 }),
                json!([
                    named,
                    endpoint("q", "n", "10.0.0.2", true),
                    endpoint("r", "unknown", "10.0.0.3", true),
                    endpoint("s", "unlabelled", "10.0.0.4", true)
                ]),
            ),
        )],
        ..Default::default()
    });
    let endpoints = found.services[&object_name("ns/s")].ports[0].endpoints.iter();
    let zones: Vec<(&str, &str)> = endpoints
        .map(|found| (found.pod.as_str(), found.zone.as_str()))
        .collect();
    assert_eq!(zones, [("p", "of-slice"), ("q", "of-node"), ("r", ""), ("s", "")]);
}

#[test]
fn addresses_by_whose_they_are() {
    let pod = |phase: &str, host_network: bool, ips: &[&str]| {
        let ips: Vec<Value> = ips.iter().map(|ip| json!({ "ip": ip })).collect();
        json!({ "spec": { "nodeName": "n", "hostNetwork": host_network, "containers": [] },
                "status": { "phase": phase, "podIP": ips[0]["ip"], "podIPs": ips } })
    };
    let view = view(World {
        nodes: vec![
            (
                "n",
                json!({ "spec": { "podCIDR": "10.244.0.0/24", "podCIDRs": ["10.244.0.0/24", "fd00:10::/64"] },
                          "status": { "addresses": [{ "type": "InternalIP", "address": "192.168.0.1" },
                                                    { "type": "ExternalIP", "address": "203.0.113.1" },
                                                    { "type": "Hostname", "address": "n.example" }] } }),
            ),
            ("m", json!({ "spec": { "podCIDR": "10.244.1.9/24" } })),
            ("bare", json!({})),
        ],
        pods: vec![
            ("ns/plain", pod("Running", false, &["172.16.0.5", "fd00:16::5"])),
            ("ns/host", pod("Running", true, &["192.168.0.9"])),
            ("ns/done", pod("Succeeded", false, &["172.16.0.6"])),
            ("ns/unscheduled", json!({ "spec": { "containers": [] } })),
        ],
        ..Default::default()
    });
    let networks: Vec<String> = view.pod_networks.iter().map(ToString::to_string).collect();
    assert_eq!(
        networks,
        [
            "::ffff:10.244.0.0/120",
            "::ffff:10.244.1.0/120",
            "::ffff:172.16.0.5/128",
            "fd00:10::/64",
            "fd00:16::5/128",
        ]
    );
    let nodes: Vec<String> = view
        .node_addresses
        .iter()
        .map(|a| a.to_canonical().to_string())
        .collect();
    assert_eq!(nodes, ["192.168.0.1", "192.168.0.9", "203.0.113.1"]);
    assert_eq!(view.nodes.len(), 3);
}

#[test]
fn changes_that_change_nothing_are_told() {
    let mut objects = Objects::default();
    let pod = |phase: &str| {
        let object =
            json!({ "spec": { "nodeName": "n", "containers": [] }, "status": { "phase": phase, "podIP": "10.0.0.1" } });
        serde_json::from_value::<Pod>(object).unwrap().facts().unwrap()
    };
    let name = || object_name("ns/p");
    assert!(
        !objects.apply(Pod::change(Update::Set(name(), pod("Pending")))),
        "not listed yet"
    );
    assert!(objects.apply(Pod::change(Update::Replaced(vec![]))));
    assert!(objects.apply(Pod::change(Update::Set(name(), pod("Pending")))));
    assert!(!objects.apply(Pod::change(Update::Set(name(), pod("Running")))));
    assert!(objects.apply(Pod::change(Update::Removed(name()))));
    assert!(!objects.apply(Pod::change(Update::Removed(name()))));
}

#[test]
fn a_slice_without_endpoints_may_say_null() {
    let slice = json!({ "metadata": { "labels": { "kubernetes.io/service-name": "s" } }, "addressType": "IPv4",
                        "ports": null, "endpoints": null });
    let facts = serde_json::from_value::<EndpointSlice>(slice).unwrap().facts().unwrap();
    assert!(facts.endpoints.is_empty() && facts.ports.is_empty());
}

#[test]
fn where_services_can_be_dialled() {
    let service = json!({
        "spec": { "selector": { "a": "b" }, "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1", "fd00:96::1"],
                  "externalIPs": ["198.51.100.7", "no address"],
                  "ports": [{ "port": 443, "nodePort": 30443 }, { "name": "plain", "port": 80 }] },
        "status": { "loadBalancer": { "ingress": [{ "ip": "203.0.113.9" }, { "hostname": "lb.example" }] } } });
    let headless = json!({ "spec": { "selector": { "a": "b" }, "clusterIP": "None", "clusterIPs": ["None"],
                                     "ports": [{ "port": 443 }] } });
    let found = view(World {
        services: vec![("ns/s", service), ("ns/headless", headless)],
        ..Default::default()
    });
    let addresses: Vec<String> = found.services[&object_name("ns/s")]
        .addresses
        .iter()
        .map(|(kind, address)| format!("{} {}", kind.code(), address.to_canonical()))
        .collect();
    assert_eq!(
        addresses,
        [
            "load_balancer 203.0.113.9",
            "external_ip 198.51.100.7",
            "cluster_ip 10.96.0.1",
            "cluster_ip fd00:96::1"
        ]
    );
    let ports: Vec<Option<u16>> = found.services[&object_name("ns/s")]
        .ports
        .iter()
        .map(|port| port.node_port)
        .collect();
    assert_eq!(ports, [Some(30443), None]);
    assert_eq!(found.services[&object_name("ns/headless")].addresses.iter().count(), 0);
}

#[test]
fn pods_have_the_ids_of_their_cgroups() {
    let pod = |uid: &str, annotations: Value| {
        json!({ "metadata": { "uid": uid, "annotations": annotations },
                "spec": { "nodeName": "n", "containers": [] }, "status": { "phase": "Running", "podIP": "10.0.0.1" } })
    };
    let found = view(World {
        services: vec![("ns/s", service(json!([{ "name": "http", "port": 80 }])))],
        slices: vec![(
            "ns/1",
            slice(
                "s",
                json!({ "name": "http", "port": 8080 }),
                json!([
                    endpoint("plain", "n", "10.0.0.1", true),
                    endpoint("static", "n", "10.0.0.2", true),
                    endpoint("renewed", "n", "10.0.0.3", true)
                ]),
            ),
        )],
        pods: vec![
            ("ns/plain", pod("uid-plain", json!({}))),
            (
                "ns/static",
                pod(
                    "uid-static",
                    json!({ "kubernetes.io/config.mirror": "0123456789abcdef0123456789abcdef" }),
                ),
            ),
            // The slice still speaks of the one before.
            (
                "ns/renewed",
                pod("another", json!({ "kubernetes.io/config.mirror": "feed" })),
            ),
        ],
        ..Default::default()
    });
    let ids: Vec<&str> = found.services[&object_name("ns/s")].ports[0]
        .endpoints
        .iter()
        .map(|endpoint| &*endpoint.pod_uid)
        .collect();
    assert_eq!(ids, ["uid-plain", "uid-renewed", "0123456789abcdef0123456789abcdef"]);
    assert_eq!(found.pods["uid-plain"], object_name("ns/plain"));
}
