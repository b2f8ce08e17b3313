//! Reports, and what a person sees of them.

mod evidence;

use clap::Parser;

use super::client::near_names;
use super::*;
use crate::node::NodeLosses;
use crate::report::{
    BalancerModel, BalancerVerdict, DoorKind, DoorSum, EndpointRow, Finding, FindingCode, FlowKind, GTest, GoneRow,
    GoneState, LoadRow, Losses, NodeDegradation, NodeExpectation, NodeRow, ServiceReport, Skew, Theil, UnservedReason,
    UnservedRow, Window,
};
use crate::view::ServiceSummary;

fn skew(kind: FlowKind, flows: u64) -> Skew {
    Skew {
        kind,
        flows,
        effective_flows: flows as f64,
        cv: None,
        gini: None,
        peak_ratio: Some(1.4999),
        max_min: Some(2.0),
        jain: Some(0.9),
        theil: Some(Theil {
            total: 0.0589,
            load_balancer: 0.0,
            placement: 0.0588,
            within_node: 0.0001,
        }),
        test: Some(GTest {
            g: 2356.0,
            degrees: 2,
            p_value: 0.0,
        }),
        noise_floor: Some(1.02),
        significant: true,
    }
}

fn endpoint(pod: &str, node: &str, new: u64, share: f64) -> EndpointRow {
    EndpointRow {
        pod: pod.to_owned(),
        node: node.to_owned(),
        address: "10.0.0.1".to_owned(),
        port: 8883,
        new,
        new_share: Some(share),
        expected_share: share,
        ideal_share: 1.0 / 3.0,
        established: new / 2,
        established_share: Some(share),
        opened_total: new,
        ..Default::default()
    }
}

fn node(name: &str, endpoints: u32) -> NodeRow {
    NodeRow {
        node: name.to_owned(),
        endpoints,
        new: 10_000,
        new_share: Some(0.5),
        expected: NodeExpectation {
            equal_per_node: 0.5,
            weighted: 0.5,
            single_leader: 0.0,
            zone_equal: None,
        },
        established: 5000,
        agent_reporting: true,
        counting_since_ms: None,
        origin: Default::default(),
        zone: String::new(),
    }
}

fn report() -> ServiceReport {
    ServiceReport {
        namespace: "telemetry".to_owned(),
        service: "gateway".to_owned(),
        port: 8883,
        port_name: "mqtts".to_owned(),
        protocol: "TCP".to_owned(),
        external_traffic_policy: "Local".to_owned(),
        session_affinity: "None".to_owned(),
        window: Window {
            from_ms: 1_767_225_600_000,
            to_ms: 1_767_225_900_000,
        },
        endpoints: vec![
            endpoint("gw-0", "worker-1", 5000, 0.25),
            endpoint("gw-1", "worker-1", 5000, 0.25),
            endpoint("gw-2", "worker-2", 10_000, 0.5),
        ],
        nodes: vec![node("worker-1", 2), node("worker-2", 1)],
        new: skew(FlowKind::New, 20_000),
        established: skew(FlowKind::Established, 10_000),
        balancer: BalancerVerdict {
            model: BalancerModel::EqualPerNode,
            log_bayes_factor: Some(100.0),
            flows: 20_000,
            reason: "each node gets half".to_owned(),
            candidates: vec![],
        },
        findings: vec![Finding {
            code: FindingCode::PlacementSkew,
            sentence: "gw-2 is alone on its node.".to_owned(),
            share_of_skew: Some(0.99),
            kind: FlowKind::New,
            flows: 20_000,
            confidence: Default::default(),
            evidence: vec![],
        }],
        headline: "gw-2 is alone on its node.".to_owned(),
        losses: Losses::default(),
        front_doors: vec![],
        door_coverage: Default::default(),
        shared_with: vec![],
        unserved: vec![],
        gone_endpoints: vec![],
        counting_since_ms: None,
        endpoints_changed_ms: None,
        notes: vec![],
        affinity_timeout_seconds: None,
        asked_from_ms: 1_767_225_600_000,
        windows: vec![],
        causes: vec![],
        established_causes: vec![],
        clients: None,
        affinity: None,
        persistence: None,
    }
}

#[test]
fn the_table() {
    let expected = "\
Service telemetry/gateway, port 8883/TCP (mqtts), externalTrafficPolicy Local, sessionAffinity None
Window 5m to 2026-01-01 00:05:00Z: 20,000 new flows, 10,000 established now, 3 ready pods on 2 nodes

 POD   NODE         NEW   SHARE  EXPECTED   IDEAL  ESTABLISHED   SHARE
 gw-0  worker-1   5,000  25.0 %    25.0 %  33.3 %        2,500  25.0 %
 gw-1  worker-1   5,000  25.0 %    25.0 %  33.3 %        2,500  25.0 %
 gw-2  worker-2  10,000  50.0 %    50.0 %  33.3 %        5,000  50.0 %

Shares of new flows by node: worker-1 50.0 % (2 pods), worker-2 50.0 % (1 pod)
New flows: peak ratio 1.500 (chance alone: up to 1.020), max/min 2.00, Jain 0.900; more than chance, p < 0.0001
  Theil 0.0589 = load balancer 0.0000 + placement 0.0588 + within node 0.0001
Established flows: peak ratio 1.500 (chance alone: up to 1.020), max/min 2.00, Jain 0.900; more than chance, p < 0.0001
  Theil 0.0589 = load balancer 0.0000 + placement 0.0588 + within node 0.0001
Load balancer: equal-per-node, each node gets half

gw-2 is alone on its node.
losses: none
";
    assert_eq!(render_table(&report()), expected);
}

#[test]
fn a_report_without_pods_or_flows() {
    let mut report = report();
    report.endpoints.clear();
    report.nodes.clear();
    report.headline = "It has no ready pod.".to_owned();
    report.findings.clear();
    report.new.flows = 0;
    let text = render_table(&report);
    assert!(
        text.ends_with("0 ready pods on 0 nodes\n\nIt has no ready pod.\nlosses: none\n"),
        "{text}"
    );

    let mut report = self::report();
    for row in &mut report.endpoints {
        (row.new, row.new_share) = (0, None);
    }
    report.new = Skew {
        theil: None,
        flows: 0,
        ..report.new
    };
    let text = render_table(&report);
    assert!(text.contains("\nNew flows: none\n"), "{text}");
    assert!(text.contains(" gw-0  worker-1    0      -    25.0 %"), "{text}");
}

#[test]
fn losses_and_further_findings_are_told() {
    let mut report = report();
    report.nodes[1].agent_reporting = false;
    report.losses = Losses {
        nodes: NodeLosses {
            flows_full: 1200,
            ..Default::default()
        },
        silent_nodes: vec!["worker-2".to_owned()],
        ..Default::default()
    };
    report.findings.push(Finding {
        sentence: "And another thing.".to_owned(),
        ..report.findings[0].clone()
    });
    let text = render_table(&report);
    for part in [
        "worker-2 50.0 % (1 pod, agent silent)",
        "gw-2 is alone on its node.\nAlso: And another thing.\n",
        "losses: 1,200 flows not tracked; no reports from worker-2\n",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

#[test]
fn a_large_service_fits_a_screen() {
    let mut report = report();
    report.endpoints = (0..500)
        .map(|n| endpoint(&format!("pod-{n:03}"), "worker-1", n, 0.002))
        .collect();
    report.nodes = (0..50).map(|n| node(&format!("worker-{n}"), 10)).collect();
    let text = render_table(&report);
    assert!(text.lines().count() < 60);
    assert!(text.contains("pod-000") && text.contains("pod-499") && !text.contains("pod-250"));
    assert!(
        text.contains("(460 pods with shares between these left out; -o json has all)"),
        "{text}"
    );
    assert!(text.contains("worker-11 50.0 % (10 pods), and 38 more\n"), "{text}");
}

#[test]
fn near_names_come_first() {
    let service = |namespace: &str, name: &str| ServiceSummary {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        ports: vec![],
        endpoints: 0,
        headline: String::new(),
        significant: false,
    };
    let services = [
        service("kube-system", "dns"),
        service("a", "mqtt-gateway"),
        service("b", "gateway"),
        service("c", "gatway"),
    ];
    assert_eq!(
        near_names(&services, "gateway"),
        ["b/gateway", "c/gatway", "a/mqtt-gateway"]
    );
    assert!(near_names(&services, "postgres").is_empty());
}

#[test]
fn moments_and_windows() {
    let parse = |args: &[&str]| Args::try_parse_from([&["kubectl-flowskew", "report", "x"], args].concat());
    let since = |text: &str| match parse(&["--since", text]) {
        Ok(Args {
            command: Command::Report(report),
        }) => report.since,
        Err(_) => None,
    };
    assert_eq!(since("2026-01-01T00:00:00Z"), Some(1_767_225_600_000));
    assert_eq!(since("1767225600000"), Some(1_767_225_600_000));
    assert_eq!(since("yesterday"), None);
    assert!(parse(&["--window", "15m"]).is_ok());
    assert!(parse(&["--window", "15m", "--since", "1"]).is_err());
    assert!(parse(&["--window", "soon"]).is_err());
}
