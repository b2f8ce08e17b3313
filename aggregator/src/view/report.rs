//! Figures of one Service port enter; its report leaves.

use super::input::input;
use super::notes;
use super::parts::{door_rows, door_sums, gone_rows, load_row, losses, unserved_rows};
use crate::analysis::{self, Analysis, AnalysisError};
use crate::flow::SourceClass;
use crate::node::DoorCoverage;
use crate::report::{EndpointRow, Estimate, NodeRow, ServiceReport};
use crate::state::{EndpointFigures, Figures, PortFigures};

pub(super) const EXTERNAL: usize = SourceClass::External.index();

/// Analyses one port over one of the windows of the figures and puts the report together.
///
/// # Errors
/// When the figures contradict themselves, which is a defect of this program.
pub fn assemble(figures: &Figures, port: &PortFigures, window: usize) -> Result<ServiceReport, AnalysisError> {
    let analysis = analysis::analyse(&input(figures, port, window))?;
    let mut door_coverage = DoorCoverage::default();
    port.nodes
        .iter()
        .for_each(|node| door_coverage.add(&node.door_coverage));
    let mut report = ServiceReport {
        namespace: port.service.namespace.clone(),
        service: port.service.name.clone(),
        port: port.port,
        port_name: port.port_name.clone(),
        protocol: port.protocol.to_string(),
        external_traffic_policy: port.external_traffic_policy.clone(),
        session_affinity: port.session_affinity.clone(),
        window: port.windows[window],
        endpoints: endpoint_rows(port, window, &analysis),
        nodes: node_rows(port, window, &analysis),
        losses: losses(port, window),
        new: analysis.new,
        established: analysis.established,
        balancer: analysis.balancer,
        findings: analysis.findings,
        headline: analysis.headline,
        front_doors: door_sums(port, window),
        door_coverage,
        shared_with: port.shared_with.iter().map(ToString::to_string).collect(),
        unserved: unserved_rows(port, window),
        gone_endpoints: gone_rows(port, window),
        counting_since_ms: counting_since_ms(port),
        endpoints_changed_ms: port.endpoints_changed_ms,
        notes: Vec::new(),
        affinity_timeout_seconds: port.affinity_timeout_seconds,
        asked_from_ms: figures.windows[window].span.from_ms,
        windows: analysis.windows,
        causes: analysis.causes,
        established_causes: analysis.established_causes,
        clients: analysis.clients,
        affinity: analysis.affinity,
        persistence: analysis.persistence,
    };
    report.notes = notes::notes(&report, coverage(port, window));
    let losses = &report.losses;
    let flows = report.new.flows.max(report.established.flows);
    if flows == 0 && losses.unattributed.max(losses.unattributed_established) > 0 {
        // That there are no flows is not what is known.
        report.headline = report.notes.first().cloned().unwrap_or_default();
    }
    Ok(report)
}

fn endpoint_rows(port: &PortFigures, window: usize, analysis: &Analysis) -> Vec<EndpointRow> {
    let row = |((endpoint, &expected_share), &clients): ((&EndpointFigures, &f64), &Option<Estimate>)| {
        let opened = &endpoint.tally.opened[window];
        let external = &endpoint.tally.counts[EXTERNAL];
        EndpointRow {
            pod: endpoint.pod.clone(),
            node: port.nodes[endpoint.node].name.clone(),
            address: endpoint.address.clone(),
            port: endpoint.port,
            new: opened[EXTERNAL],
            new_share: share(opened[EXTERNAL], analysis.new.flows),
            expected_share,
            ideal_share: 1.0 / port.endpoints.len() as f64,
            established: external.established,
            established_share: share(external.established, analysis.established.flows),
            opened_total: external.opened,
            closed_total: external.closed_total(),
            seeded_total: external.seeded,
            new_other_classes: opened.iter().sum::<u64>() - opened[EXTERNAL],
            pod_uid: endpoint.pod_uid.clone(),
            doors: door_rows(&endpoint.tally, window),
            load: endpoint.load_rates[window].as_ref().map(load_row),
            clients,
            ready_since_ms: endpoint.ready_since_ms,
        }
    };
    let expected = port.endpoints.iter().zip(&analysis.expected_shares);
    expected.zip(&analysis.endpoint_clients).map(row).collect()
}

fn node_rows(port: &PortFigures, window: usize, analysis: &Analysis) -> Vec<NodeRow> {
    let mut rows: Vec<NodeRow> = port
        .nodes
        .iter()
        .zip(&analysis.node_expectations)
        .map(|(node, &expected)| NodeRow {
            node: node.name.clone(),
            endpoints: 0,
            new: 0,
            new_share: None,
            expected,
            established: 0,
            agent_reporting: node.reporting,
            counting_since_ms: node.counting_since_ms,
            origin: node.origin,
            zone: node.zone.clone(),
        })
        .collect();
    for endpoint in &port.endpoints {
        let row = &mut rows[endpoint.node];
        row.endpoints += 1;
        row.new += endpoint.tally.opened[window][EXTERNAL];
        row.established = row
            .established
            .saturating_add(endpoint.tally.counts[EXTERNAL].established);
    }
    rows.iter_mut()
        .for_each(|row| row.new_share = share(row.new, analysis.new.flows));
    rows
}

/// The least and the largest part of a pod's new flows whose Service is known; `None` without flows.
fn coverage(port: &PortFigures, window: usize) -> Option<(f64, f64)> {
    let tallies = port.endpoints.iter().map(|endpoint| &endpoint.tally);
    let parts = tallies
        .filter(|tally| tally.of_pod[window] > 0)
        .map(|tally| 1.0 - tally.unattributed[window] as f64 / tally.of_pod[window] as f64);
    parts.fold(None, |range, part| {
        let (least, most) = range.unwrap_or((part, part));
        Some((least.min(part), most.max(part)))
    })
}

/// The latest of the nodes; `None` while one has not begun.
fn counting_since_ms(port: &PortFigures) -> Option<u64> {
    let all: Option<Vec<u64>> = port.nodes.iter().map(|node| node.counting_since_ms).collect();
    all?.into_iter().max()
}

fn share(count: u64, sum: u64) -> Option<f64> {
    (sum > 0).then(|| count as f64 / sum as f64)
}
