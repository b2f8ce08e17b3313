//! What agents tell beside flows: whose pods they are, by which door, how busy, what reached none. Over real streams.

use crate::common::Aggregator;
use crate::common::agent::{Agent, bytes, entry, hello, report};
use crate::common::kube_api::{KubeApi, SERVICES, SLICES, service, slice};
use flowskew_aggregator::report::{DoorKind, GoneState, UnservedReason};
use flowskew_proto::v1;
use flowskew_proto::v1::agent_message::Message;
use serde_json::{Value, json};

const A: &str = "10.244.0.7";
const BALANCER: &str = "203.0.113.9";

/// A Service of the same pods, with a balancer.
fn with_balancer(address: &str, port: u16) -> Value {
    let mut service = service();
    service["spec"]["ports"][0]["port"] = json!(port);
    service["status"] = json!({ "loadBalancer": { "ingress": [{ "ip": address }] } });
    service
}

fn door(address: &str, port: u32, opened: u64) -> v1::DoorCounts {
    v1::DoorCounts {
        address: bytes(address),
        port,
        source_class: v1::SourceClass::External.into(),
        opened,
        established: opened,
        closed: 0,
    }
}

#[tokio::test]
async fn two_services_of_the_same_pods() {
    let api = KubeApi::with_service().await;
    api.put(SERVICES, "telemetry/gateway", with_balancer(BALANCER, 8883));
    api.put(SERVICES, "telemetry/internal", with_balancer("203.0.113.10", 80));
    let mut same = slice(&[("gw-0", "a", A)]);
    same["metadata"]["labels"]["kubernetes.io/service-name"] = json!("internal");
    api.put(SLICES, "telemetry/internal-1", same);
    let aggregator = Aggregator::ready(&api.url).await;
    let mut a = Agent::connect(&aggregator.grpc, "a").await;
    let assignment = a.assignment().await;
    let doors: Vec<(Vec<u8>, u32)> = assignment
        .front_doors
        .iter()
        .map(|door| (door.address.clone(), door.port))
        .collect();
    assert_eq!(doors, [(bytes(BALANCER), 8883), (bytes("203.0.113.10"), 80)]);

    let entries = vec![v1::LedgerEntry {
        pod_uid: "uid-gw-0".to_owned(),
        doors: vec![door(BALANCER, 8883, 6), door("203.0.113.10", 80, 3)],
        ..entry(A, 10, 10)
    }];
    a.report(report(7, 1, entries)).await;
    let shown = aggregator.report("").await;
    assert_eq!((shown.endpoints[0].new, shown.endpoints[0].established), (6, 6));
    assert_eq!(shown.endpoints[0].doors[0].kind, DoorKind::LoadBalancer);
    assert_eq!(shown.endpoints[0].pod_uid, "uid-gw-0");
    assert_eq!(
        (shown.losses.unattributed, shown.losses.unattributed_established),
        (1, 1)
    );
    assert_eq!(shown.shared_with, ["telemetry/internal 80/TCP"]);
    assert!(shown.notes[0].contains("telemetry/internal"), "{:?}", shown.notes);
    aggregator.stop().await;
}

#[tokio::test]
async fn udp_flows_count_and_are_stale_when_their_pod_is_gone() {
    let api = KubeApi::with_service().await;
    let udp = |pods: &[(&str, &str, &str)]| {
        let mut slice = slice(pods);
        slice["ports"] = json!([{ "name": "dns", "port": 18883, "protocol": "UDP" },
                                { "name": "dns-tcp", "port": 18883 }]);
        slice
    };
    let mut dns = service();
    dns["spec"]["ports"] = json!([{ "name": "dns", "port": 53, "protocol": "UDP" }, { "name": "dns-tcp", "port": 53 }]);
    api.put(SERVICES, "telemetry/gateway", dns);
    api.put(
        SLICES,
        "telemetry/gateway-1",
        udp(&[("gw-0", "a", A), ("gw-1", "b", "10.244.1.7")]),
    );
    let aggregator = Aggregator::ready(&api.url).await;
    let mut a = Agent::connect(&aggregator.grpc, "a").await;
    let protocols: Vec<i32> = a
        .assignment()
        .await
        .endpoints
        .iter()
        .map(|found| found.protocol)
        .collect();
    assert_eq!(protocols, [6, 17]);
    let entry = v1::LedgerEntry {
        protocol: v1::Protocol::Udp.into(),
        pod_uid: "UID-gw-0".to_owned(),
        ..entry(A, 9, 4)
    };
    a.report(report(7, 1, vec![entry.clone()])).await;
    let (status, body) = aggregator
        .get("/api/v1/services/telemetry/gateway/report?port=53")
        .await;
    assert!(
        status == 400 && body.contains("53/UDP (dns), 53/TCP (dns-tcp)"),
        "{body}"
    );
    let shown = aggregator.report("?port=53/udp").await;
    assert_eq!((shown.protocol.as_str(), shown.endpoints[0].new), ("UDP", 9));
    assert_eq!(aggregator.report("?port=dns-tcp").await.new.flows, 0);

    api.put(SLICES, "telemetry/gateway-1", udp(&[("gw-1", "b", "10.244.1.7")]));
    a.report(report(7, 2, vec![entry])).await;
    aggregator
        .eventually("/api/v1/services/telemetry/gateway/report?port=dns", |_, body| {
            let report: flowskew_aggregator::report::ServiceReport = serde_json::from_str(body).unwrap();
            report.gone_endpoints.first().is_some_and(|gone| {
                gone.stale && gone.state == GoneState::Gone && (gone.pod.as_str(), gone.established) == ("gw-0", 4)
            })
        })
        .await;
    aggregator.stop().await;
}

#[tokio::test]
async fn loads_attempts_and_what_an_agent_cannot_do() {
    let api = KubeApi::with_service().await;
    api.put(SERVICES, "telemetry/gateway", with_balancer(BALANCER, 8883));
    let aggregator = Aggregator::ready(&api.url).await;
    let mut a = Agent::silent(&aggregator.grpc).await;
    let greeting = v1::Hello {
        abi_version: 2,
        origin: v1::Origin::Migrated.into(),
        ..hello("a")
    };
    a.say(Message::Hello(greeting)).await;
    let busy = |sequence, cpu_usage_us, attempts, taken_ms: u64| {
        let plain = report(7, sequence, vec![entry(A, sequence, 1)]);
        v1::Report {
            taken_at_ms: plain.taken_at_ms - taken_ms,
            pods: vec![v1::PodLoad {
                pod_uid: "uid-gw-0".to_owned(),
                cpu_usage_us: Some(cpu_usage_us),
                listen_overflows: Some(sequence),
                ..Default::default()
            }],
            unserved: vec![v1::Unserved {
                address: bytes(BALANCER),
                port: 8883,
                protocol: v1::Protocol::Tcp.into(),
                reason: v1::UnservedReason::Dropped.into(),
                attempts,
                source_class: v1::SourceClass::External.into(),
            }],
            degradations: vec![v1::Degradation {
                code: "front-door".to_owned(),
                sentence: "Mount\nit.".to_owned(),
            }],
            door_coverage: Some(v1::DoorCoverage {
                found: 5,
                not_found: 1,
                skipped: 2,
            }),
            losses: Some(v1::Losses {
                recursion: 3,
                ..Default::default()
            }),
            ..plain
        }
    };
    // Ten seconds and one report apart.
    a.report(busy(1, 0, 0, 10_000)).await;
    assert_eq!(aggregator.report("").await.endpoints[0].load, None);
    a.report(busy(2, 20_000_000, 12, 0)).await;
    let shown = aggregator.report("").await;
    let load = shown.endpoints[0].load.unwrap();
    assert!((load.cpu_cores.unwrap() - 2.0).abs() < 0.2, "{load:?}");
    assert_eq!(load.listen_overflows, Some(1));
    let unserved: Vec<_> = shown
        .unserved
        .iter()
        .map(|row| (row.reason, row.attempts, row.endpoints))
        .collect();
    assert_eq!(unserved, [(UnservedReason::Dropped, 12, 1)]);
    assert_eq!(shown.losses.nodes.recursion, 3);
    assert_eq!(shown.losses.degradations[0].sentence, "Mountit.");
    assert_eq!(shown.door_coverage.skipped, 2);
    assert!(shown.nodes[0].counting_since_ms.is_some());

    let (_, nodes) = aggregator.get("/api/v1/nodes").await;
    let nodes: Value = serde_json::from_str(&nodes).unwrap();
    let a = &nodes[0];
    assert_eq!((&a["origin"], &a["abi_version"]), (&json!("migrated"), &json!(2)));
    assert_eq!(
        (&a["losses"]["recursion"], &a["door_coverage"]["found"]),
        (&json!(3), &json!(5))
    );
    assert_eq!(a["degradations"][0]["code"], "front-door");
    let (_, metrics) = aggregator.get("/metrics").await;
    let attempts = r#"flowskew_unserved_attempts_total{namespace="telemetry",service="gateway",port="8883",protocol="TCP",node="a",reason="dropped"} 12"#;
    for series in [
        attempts,
        r#"flowskew_losses_total{node="a",kind="recursion"} 3"#,
        r#"abi_version="2",origin="migrated"} 1"#,
    ] {
        assert!(metrics.contains(series), "{series} is not in {metrics}");
    }
    aggregator.stop().await;
}
