//! Tables: a check, what was seen, and the rows that do not hold.

use std::collections::{BTreeMap, BTreeSet};

use flowskew_aggregator::node::DoorCoverage;
use flowskew_aggregator::report::{
    BalancerModel, BalancerVerdict, Cause, EndpointRow, Finding, FindingCode, FlowKind, Losses, ServiceReport, Skew,
    Theil, Window,
};

use super::super::observe::{Flows, ServiceCounts};
use super::*;

fn skew(kind: FlowKind, peak_ratio: f64) -> Skew {
    Skew {
        effective_flows: 100.0,
        cv: None,
        gini: None,
        kind,
        flows: 100,
        peak_ratio: Some(peak_ratio),
        max_min: Some(2.0),
        jain: None,
        theil: Some(Theil {
            total: 0.1,
            load_balancer: 0.002,
            placement: 0.097,
            within_node: 0.001,
        }),
        test: None,
        noise_floor: None,
        significant: true,
    }
}

fn unexplained(nats: f64) -> Cause {
    Cause {
        code: None,
        nats,
        share: Some(1.0),
    }
}

fn endpoint(pod: &str, address: &str, share: f64) -> EndpointRow {
    EndpointRow {
        pod: pod.to_owned(),
        node: "a".to_owned(),
        address: address.to_owned(),
        port: 80,
        new_share: Some(share),
        expected_share: 0.25,
        ideal_share: 0.5,
        ..EndpointRow::default()
    }
}

pub(in crate::run) fn flows(opened: u64) -> Flows {
    Flows {
        opened,
        closed: 5,
        established: opened - 5,
    }
}

pub(in crate::run) fn of_service(truth: Flows) -> ServiceCounts {
    ServiceCounts {
        service: "web".to_owned(),
        truth,
        aggregator: Some(truth),
    }
}

fn pod(pod: &str, node: &str, address: &str, opened: u64) -> PodCounts {
    PodCounts {
        pod: pod.to_owned(),
        node: node.to_owned(),
        address: address.parse().unwrap(),
        port: 80,
        truth: flows(opened),
        agent: Some(flows(opened)),
        services: vec![of_service(flows(opened))],
    }
}

/// Two pods, p on node a and q on node b, with 25 and 75 flows; all sides agree.
pub(in crate::run) fn seen() -> Observation {
    Observation {
        pods: vec![pod("p", "a", "10.0.0.1", 25), pod("q", "b", "10.0.0.2", 75)],
        report: ServiceReport {
            namespace: "default".to_owned(),
            service: "web".to_owned(),
            port: 80,
            port_name: String::new(),
            protocol: "TCP".to_owned(),
            external_traffic_policy: "Local".to_owned(),
            session_affinity: "None".to_owned(),
            window: Window { from_ms: 0, to_ms: 1 },
            endpoints: vec![endpoint("p", "10.0.0.1", 0.25), endpoint("q", "10.0.0.2", 0.75)],
            nodes: Vec::new(),
            new: skew(FlowKind::New, 1.5),
            established: skew(FlowKind::Established, 1.2),
            balancer: BalancerVerdict {
                model: BalancerModel::EqualPerNode,
                log_bayes_factor: None,
                flows: 100,
                reason: String::new(),
                candidates: Vec::new(),
            },
            findings: vec![Finding {
                code: FindingCode::PlacementSkew,
                sentence: String::new(),
                share_of_skew: None,
                kind: FlowKind::New,
                flows: 100,
                confidence: Default::default(),
                evidence: Vec::new(),
            }],
            headline: String::new(),
            losses: Losses::default(),
            front_doors: Vec::new(),
            door_coverage: DoorCoverage::default(),
            shared_with: Vec::new(),
            unserved: Vec::new(),
            gone_endpoints: Vec::new(),
            counting_since_ms: None,
            endpoints_changed_ms: None,
            notes: Vec::new(),
            affinity_timeout_seconds: None,
            asked_from_ms: 0,
            windows: Vec::new(),
            causes: vec![unexplained(0.1)],
            established_causes: vec![unexplained(0.1)],
            clients: None,
            affinity: None,
            persistence: None,
        },
        gone: Vec::new(),
        unserved: Vec::new(),
        report_losses: BTreeMap::new(),
        agent_losses: BTreeMap::new(),
        losses_due: BTreeMap::new(),
        clients: None,
        failed: BTreeMap::new(),
        killed: BTreeSet::new(),
    }
}

fn check(yaml: &str) -> Check {
    serde_saphyr::from_str(yaml).unwrap()
}

/// The rows that do not hold, as `what: got`.
pub(in crate::run) fn broken(yaml: &str, seen: &Observation) -> Vec<String> {
    let rows = evaluate(&check(yaml), seen);
    rows.into_iter()
        .filter(|row| !row.pass)
        .map(|row| format!("{}: {}", row.what, row.got))
        .collect()
}

#[test]
fn what_holds_holds() {
    let all = "
peak_ratio: {new: {value: 1.571, within: 0.08}, established: {at_most: 1.2}}
max_min: {new: {value: 2, within: 0}}
significant: {new: true, established: true}
theil: {placement: {at_least: 95}, load_balancer: {at_most: 3}, within_node: {at_most: 1}}
shares:
  - {pods: [p], new: 25.5, expected: 25, within: 0.5}
  - {nodes: [b], new: 75}
balancer: equal-per-node
findings: [placement-skew]
";
    let rows = evaluate(&check(all), &seen());
    assert_eq!(
        rows.iter().filter(|row| !row.pass).collect::<Vec<_>>(),
        Vec::<&Row>::new()
    );
    // Six counts, losses, failures, two sums of causes, and each line above.
    assert_eq!(rows.len(), 10 + 2 + 1 + 2 + 3 + 3 + 1 + 1);
}

#[test]
fn what_does_not_hold_is_told() {
    let table = [
        (
            "peak_ratio: {new: {value: 1.571, within: 0.07}}",
            "peak ratio, new: 1.500",
        ),
        (
            "peak_ratio: {established: {at_least: 1.3}}",
            "peak ratio, established: 1.200",
        ),
        ("max_min: {established: {at_most: 1.9}}", "max/min, established: 2.000"),
        ("significant: {new: false}", "skew of new flows: more than chance"),
        (
            "theil: {placement: {at_least: 98}}",
            "placement part of the skew: 97.000 %",
        ),
        ("shares: [{pods: [p], new: 27, within: 1}]", "new share of p: 25.00 %"),
        (
            "shares: [{pods: [p, q], new: 50, within: 24}]",
            "new share of p to q (2 pods): 25.00 to 75.00 %",
        ),
        (
            "shares: [{pods: [p], established: 25, within: 99}]",
            "established share of p: unknown for some",
        ),
        ("balancer: weighted", "load balancer: equal-per-node"),
        ("findings: [even]", "findings: placement-skew"),
        ("findings: [placement-skew, persistence]", "findings: placement-skew"),
    ];
    for (yaml, expected) in table {
        assert_eq!(broken(yaml, &seen()), [expected], "{yaml}");
    }
}

#[test]
fn a_report_without_flows_fails_expectations_on_them() {
    let mut seen = seen();
    seen.report.new.peak_ratio = None;
    seen.report.new.theil = Some(Theil {
        total: 0.0,
        load_balancer: 0.0,
        placement: 0.0,
        within_node: 0.0,
    });
    seen.report.causes.clear();
    let yaml = "{peak_ratio: {new: {at_most: 9}}, theil: {placement: {at_least: 0}}}";
    let unknown = "unknown";
    assert_eq!(
        broken(yaml, &seen),
        [
            format!("peak ratio, new: {unknown}"),
            format!("placement part of the skew: {unknown}")
        ]
    );
}

#[test]
fn a_share_belongs_to_the_address_not_to_the_name() {
    // The aggregator still shows the pod at its address before the move.
    let mut seen = seen();
    seen.pods[0].address = "10.0.9.9".parse().unwrap();
    assert_eq!(
        broken("shares: [{pods: [p], new: 25}]", &seen),
        ["new share of p: unknown for some"]
    );
}
