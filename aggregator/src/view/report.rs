//! Figures of one Service port enter; its report leaves.

use crate::analysis::{self, Analysis, AnalysisError, EndpointInput, NodeInput, ServiceInput};
use crate::flow::SourceClass;
use crate::report::{EndpointRow, Losses, NodeRow, ServiceReport, Window};
use crate::state::{EndpointFigures, Figures, PortFigures};

const EXTERNAL: usize = SourceClass::External.index();

/// Analyses one port over one of the windows of the figures and puts the report together.
///
/// # Errors
/// When the figures contradict themselves, which is a defect of this program.
pub fn assemble(figures: &Figures, port: &PortFigures, window: usize) -> Result<ServiceReport, AnalysisError> {
    let span = figures.windows[window];
    let analysis = analysis::analyse(&input(port, span, window))?;
    Ok(ServiceReport {
        namespace: port.service.namespace.clone(),
        service: port.service.name.clone(),
        port: port.port,
        port_name: port.port_name.clone(),
        protocol: port.protocol.to_string(),
        external_traffic_policy: port.external_traffic_policy.clone(),
        session_affinity: port.session_affinity.clone(),
        window: span,
        endpoints: endpoint_rows(port, window, &analysis),
        nodes: node_rows(port, window, &analysis),
        losses: losses(port, window),
        new: analysis.new,
        established: analysis.established,
        balancer: analysis.balancer,
        findings: analysis.findings,
        headline: analysis.headline,
    })
}

fn input(port: &PortFigures, span: Window, window: usize) -> ServiceInput {
    let nodes = port.nodes.iter().map(|node| NodeInput {
        name: node.name.clone(),
        reporting: node.reporting,
    });
    let endpoints = port.endpoints.iter().map(|endpoint| EndpointInput {
        pod: endpoint.pod.clone(),
        node: endpoint.node,
        new: endpoint.opened[window][EXTERNAL],
        established: endpoint.counts[EXTERNAL].established,
    });
    ServiceInput {
        service: port.service.to_string(),
        window_seconds: span.to_ms.saturating_sub(span.from_ms) / 1000,
        nodes: nodes.collect(),
        endpoints: endpoints.collect(),
    }
}

fn endpoint_rows(port: &PortFigures, window: usize, analysis: &Analysis) -> Vec<EndpointRow> {
    let row = |(endpoint, &expected_share): (&EndpointFigures, &f64)| {
        let opened = &endpoint.opened[window];
        let external = &endpoint.counts[EXTERNAL];
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
        }
    };
    port.endpoints.iter().zip(&analysis.expected_shares).map(row).collect()
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
        })
        .collect();
    for endpoint in &port.endpoints {
        let row = &mut rows[endpoint.node];
        row.endpoints += 1;
        row.new += endpoint.opened[window][EXTERNAL];
        row.established += endpoint.counts[EXTERNAL].established;
    }
    rows.iter_mut()
        .for_each(|row| row.new_share = share(row.new, analysis.new.flows));
    rows
}

fn losses(port: &PortFigures, window: usize) -> Losses {
    let mut losses = Losses {
        silent_nodes: port
            .nodes
            .iter()
            .filter(|node| !node.reporting)
            .map(|node| node.name.clone())
            .collect(),
        flows_on_gone_endpoints: port.gone[window],
        unclassified: port
            .endpoints
            .iter()
            .map(|e| {
                let open = e.counts[SourceClass::Unclassified.index()].established;
                e.opened[window][SourceClass::Unclassified.index()].max(open)
            })
            .sum(),
        ..Losses::default()
    };
    for node in &port.nodes {
        losses.ring_full += node.losses.ring_full;
        losses.flows_full += node.losses.flows_full;
        losses.ledger_full += node.losses.ledger_full;
        losses.orphan_close += node.losses.orphan_close;
        losses.orphan_flow += node.losses.orphan_flow;
        losses.reports_dropped += node.losses.reports_dropped;
        losses.entries_dropped += node.entries_dropped;
    }
    losses
}

fn share(count: u64, sum: u64) -> Option<f64> {
    (sum > 0).then(|| count as f64 / sum as f64)
}
