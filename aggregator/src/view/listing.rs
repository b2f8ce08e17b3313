//! Figures and node states enter; the lists that the JSON API serves leave.

use serde::{Deserialize, Serialize};

use super::assemble;
use crate::analysis::AnalysisError;
use crate::node::{Degradation, DoorCoverage, NodeLosses, Origin};
use crate::report::ServiceReport;
use crate::state::{Figures, NodeSnapshot};

/// One Service, in a line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceSummary {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Its ports.
    pub ports: Vec<PortSummary>,
    /// Ready endpoints of the port that has most.
    pub endpoints: usize,
    /// Of the first port whose skew is significant, else of the first port.
    pub headline: String,
    /// The skew of new or established flows of any port is more than chance.
    pub significant: bool,
}

/// One port of a Service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortSummary {
    /// Port that clients use.
    pub port: u16,
    /// Name, empty if it has none.
    pub name: String,
    /// "TCP" or "UDP".
    pub protocol: String,
}

/// The state of one node's agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentState {
    /// Name of the node.
    pub node: String,
    /// The API server knows a Node of this name.
    pub known: bool,
    /// Its agent has a stream open.
    pub connected: bool,
    /// Its agent has reported within three of its intervals.
    pub reporting: bool,
    /// Version of the agent, empty before it has ever connected.
    pub agent_version: String,
    /// Kernel of the node, empty before.
    pub kernel_release: String,
    /// Epoch of the newest report.
    pub epoch: Option<u64>,
    /// Sequence of the newest report.
    pub sequence: Option<u64>,
    /// When the newest report arrived, milliseconds since 1970.
    pub last_report_ms: Option<u64>,
    /// How far the agent's clock is behind the aggregator's.
    pub clock_offset_ms: Option<i64>,
    /// Reports that were impossible and not counted.
    pub reports_rejected: u64,
    /// What its agent lost since the start of the epoch.
    pub losses: NodeLosses,
    /// How its counters began.
    #[serde(default)]
    pub origin: Origin,
    /// Version of the records that it shares with the kernel programs; 0 before it has ever connected.
    #[serde(default)]
    pub abi_version: u32,
    /// Since when its flows are counted without a gap, milliseconds since 1970.
    #[serde(default)]
    pub counting_since_ms: Option<u64>,
    /// How many front doors it has looked up since the start of the epoch.
    #[serde(default)]
    pub door_coverage: DoorCoverage,
    /// What it cannot do.
    #[serde(default)]
    pub degradations: Vec<Degradation>,
}

/// Lists the Services, by the first window of the figures.
///
/// # Errors
/// When the figures contradict themselves, which is a defect of this program.
pub fn services(figures: &Figures) -> Result<Vec<ServiceSummary>, AnalysisError> {
    figures
        .ports
        .chunk_by(|a, b| a.service == b.service)
        .map(|ports| {
            let reports: Vec<ServiceReport> = ports
                .iter()
                .map(|port| assemble(figures, port, 0))
                .collect::<Result<_, _>>()?;
            let significant = |report: &&ServiceReport| report.new.significant || report.established.significant;
            let telling = reports.iter().find(significant).or(reports.first());
            Ok(ServiceSummary {
                namespace: ports[0].service.namespace.clone(),
                name: ports[0].service.name.clone(),
                ports: reports
                    .iter()
                    .map(|report| PortSummary {
                        port: report.port,
                        name: report.port_name.clone(),
                        protocol: report.protocol.clone(),
                    })
                    .collect(),
                endpoints: ports.iter().map(|port| port.endpoints.len()).max().unwrap_or(0),
                headline: telling.map(|report| report.headline.clone()).unwrap_or_default(),
                significant: telling.as_ref().is_some_and(significant),
            })
        })
        .collect()
}

/// Lists the agents.
pub fn agents(nodes: Vec<NodeSnapshot>) -> Vec<AgentState> {
    nodes
        .into_iter()
        .map(|node| AgentState {
            node: node.node,
            known: node.known,
            connected: node.connected,
            reporting: node.reporting,
            agent_version: node.agent_version,
            kernel_release: node.kernel_release,
            epoch: node.epoch,
            sequence: node.sequence,
            last_report_ms: node.last_report_ms,
            clock_offset_ms: node.clock_offset_ms,
            reports_rejected: node.reports_rejected,
            losses: node.losses,
            origin: node.origin,
            abi_version: node.abi_version,
            counting_since_ms: node.counting_since_ms,
            door_coverage: node.door_coverage,
            degradations: node.degradations,
        })
        .collect()
}
