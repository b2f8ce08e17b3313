//! Figures, and the reports and lists made of them.

mod input;
mod parts;

use super::*;
use crate::cluster::{ObjectName, PortName};
use crate::flow::{Protocol, SourceClass};
use crate::ledger::{DoorCounts, LoadRates};
use crate::node::{Degradation, DoorCoverage, NodeLosses, Origin};
use crate::report::{BalancerModel, DoorKind, FindingCode, GoneState, Losses, NodeDegradation, UnservedReason};
use crate::state::sample::{agent, crowded, figures};
use crate::state::{DoorTally, GoneFigures, PortFigures, Tally, UnservedFigures};

#[test]
fn the_crowded_placement() {
    let figures = crowded(1);
    let report = assemble(&figures, &figures.ports[0], 0).unwrap();
    let close = |value: Option<f64>, expected: f64| (value.unwrap() - expected).abs() < 1e-9;
    assert!(close(report.new.peak_ratio, 11.0 / 7.0));
    assert!(close(report.new.max_min, 3.0));
    assert_eq!(report.balancer.model, BalancerModel::EqualPerNode);
    assert_eq!(report.findings[0].code, FindingCode::PlacementSkew);
    assert!(report.losses.none());

    let (crowded, lone) = (&report.endpoints[0], &report.endpoints[10]);
    assert_eq!(
        (crowded.pod.as_str(), crowded.node.as_str(), lone.node.as_str()),
        ("gw-0", "a", "g")
    );
    for (row, share) in [(crowded, 1.0 / 21.0), (lone, 1.0 / 7.0)] {
        assert!(
            close(row.new_share, share) && close(row.established_share, share),
            "{row:?}"
        );
        assert!(
            close(Some(row.expected_share), share) && close(Some(row.ideal_share), 1.0 / 11.0),
            "{row:?}"
        );
    }
    let nodes: Vec<(u32, u64, u64)> = report
        .nodes
        .iter()
        .map(|row| (row.endpoints, row.new, row.established))
        .collect();
    assert_eq!(nodes[..3], [(3, 3000, 2700), (3, 3000, 2700), (1, 3000, 2700)]);
    assert!(
        report
            .nodes
            .iter()
            .all(|row| close(row.new_share, 1.0 / 7.0) && row.agent_reporting)
    );
}

#[test]
fn only_external_flows_have_shares() {
    let mut figures = figures(1, &[("a", 10, 5), ("b", 30, 5)]);
    let opened = &mut figures.ports[0].endpoints[0].tally.opened[0];
    opened[SourceClass::Unclassified.index()] = 100;
    opened[SourceClass::Pod.index()] = 200;
    opened[SourceClass::Node.index()] = 300;
    let report = assemble(&figures, &figures.ports[0], 0).unwrap();
    assert_eq!(report.new.flows, 40);
    assert_eq!(
        (report.endpoints[0].new, report.endpoints[0].new_share),
        (10, Some(0.25))
    );
    assert_eq!(report.endpoints[0].new_other_classes, 600);
    assert_eq!(
        report.losses,
        Losses {
            unclassified: 100,
            ..Default::default()
        }
    );
}

#[test]
fn losses_are_summed_over_the_nodes() {
    let mut figures = figures(1, &[("a", 10, 5), ("b", 30, 5)]);
    let port = &mut figures.ports[0];
    port.nodes[0].losses = NodeLosses {
        ring_full: 1,
        recursion: 2,
        ..Default::default()
    };
    port.nodes[1].losses = NodeLosses {
        entries_dropped: 6,
        ..port.nodes[0].losses
    };
    port.nodes[1].reporting = false;
    port.nodes[1].degradations = vec![Degradation {
        code: "udp".to_owned(),
        sentence: "no UDP".to_owned(),
    }];
    let report = assemble(&figures, &figures.ports[0], 0).unwrap();
    assert_eq!(
        report.losses,
        Losses {
            nodes: NodeLosses {
                ring_full: 2,
                recursion: 4,
                entries_dropped: 6,
                ..Default::default()
            },
            silent_nodes: vec!["b".to_owned()],
            degradations: vec![NodeDegradation {
                node: "b".to_owned(),
                code: "udp".to_owned(),
                sentence: "no UDP".to_owned(),
            }],
            ..Default::default()
        }
    );
    assert_eq!(report.findings[0].code, FindingCode::NodeSilent);
    // In JSON they are one flat object, and what an agent cannot do is no loss.
    let json = serde_json::to_value(&report.losses).unwrap();
    assert_eq!((&json["recursion"], &json["silent_nodes"][0]), (&4.into(), &"b".into()));
    assert_eq!(serde_json::from_value::<Losses>(json).unwrap(), report.losses);
    let only_degraded = Losses {
        degradations: report.losses.degradations,
        ..Default::default()
    };
    assert!(only_degraded.none());
}

#[test]
fn a_service_without_ready_pods_or_flows_has_a_report() {
    let figures = figures(1, &[]);
    let report = assemble(&figures, &figures.ports[0], 0).unwrap();
    assert_eq!(
        (report.endpoints.len(), report.nodes.len(), report.new.peak_ratio),
        (0, 0, None)
    );
    assert!(!report.headline.is_empty());

    let figures = crate::state::sample::figures(1, &[("a", 0, 0), ("b", 0, 0)]);
    let report = assemble(&figures, &figures.ports[0], 0).unwrap();
    assert!(
        report
            .endpoints
            .iter()
            .all(|row| row.new_share.is_none() && row.established_share.is_none())
    );
    assert!(report.nodes.iter().all(|row| row.new_share.is_none()));
}

#[test]
fn the_list_shows_the_port_that_matters() {
    let mut figures = figures(1, &[("a", 500, 500), ("b", 500, 500)]);
    let mut uneven = crowded(1).ports.remove(0);
    uneven.port = 443;
    figures.ports.push(uneven);
    let list = services(&figures).unwrap();
    assert_eq!(list.len(), 1);
    assert_eq!(
        (list[0].namespace.as_str(), list[0].name.as_str()),
        ("telemetry", "gateway")
    );
    let ports: Vec<u16> = list[0].ports.iter().map(|port| port.port).collect();
    assert_eq!(
        (ports, list[0].endpoints, list[0].significant),
        (vec![8883, 443], 11, true)
    );
    assert_eq!(
        list[0].headline,
        assemble(&figures, &figures.ports[1], 0).unwrap().headline
    );
}

#[test]
fn agents_as_they_are() {
    let list = agents(vec![agent("a")]);
    assert_eq!(
        (list[0].epoch, list[0].sequence, list[0].clock_offset_ms),
        (Some(7), Some(3), Some(-4))
    );
    let json = serde_json::to_value(&list[0]).unwrap();
    assert_eq!((&json["origin"], &json["abi_version"]), (&"adopted".into(), &2.into()));
}
