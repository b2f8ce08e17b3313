//! Figures, and the reports and lists made of them.

use super::*;
use crate::flow::{AgentLosses, SourceClass};
use crate::report::{BalancerModel, FindingCode, Losses};
use crate::state::sample::{agent, crowded, figures};

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
    let opened = &mut figures.ports[0].endpoints[0].opened[0];
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
    port.gone = vec![9];
    port.nodes[0].losses = AgentLosses {
        ring_full: 1,
        flows_full: 2,
        ledger_full: 3,
        orphan_close: 4,
        orphan_flow: 5,
        reports_dropped: 5,
    };
    port.nodes[1].losses = port.nodes[0].losses;
    port.nodes[1].entries_dropped = 6;
    port.nodes[1].reporting = false;
    let report = assemble(&figures, &figures.ports[0], 0).unwrap();
    assert_eq!(
        report.losses,
        Losses {
            ring_full: 2,
            flows_full: 4,
            ledger_full: 6,
            orphan_close: 8,
            orphan_flow: 10,
            reports_dropped: 10,
            entries_dropped: 6,
            silent_nodes: vec!["b".to_owned()],
            flows_on_gone_endpoints: 9,
            unclassified: 0,
        }
    );
    assert_eq!(report.findings[0].code, FindingCode::NodeSilent);
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
}
