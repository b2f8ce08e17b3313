//! What was seen at one moment, from all sides: the clients, `ss` in the pods, the agents, the aggregator. Plain data;
//! `evaluate` compares it with a check, and the JSON output holds it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use flowskew_aggregator::report::ServiceReport;
use serde::Serialize;

/// All sides at one moment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Observation {
    /// One an endpoint that is ready.
    pub pods: Vec<PodCounts>,
    /// The aggregator's report over the window of the check.
    pub report: ServiceReport,
    /// Loss counters of the agents that are not 0, by node and kind.
    pub agent_losses: BTreeMap<String, BTreeMap<String, u64>>,
    /// Attempts of clients that failed, by reason.
    pub failed: BTreeMap<String, u64>,
    /// Nodes whose agent the scenario has killed.
    pub killed: BTreeSet<String>,
}

/// The counts of one pod. Unknown is none, never 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PodCounts {
    /// Name.
    pub pod: String,
    /// Its node.
    pub node: String,
    /// Its address.
    pub address: IpAddr,
    /// Flows that clients opened to it since the agent of its node began to count.
    pub opened: u64,
    /// The same by the agent.
    pub agent_opened: Option<u64>,
    /// The same by the aggregator.
    pub aggregator_opened: Option<u64>,
    /// Flows that `ss` shows in the pod.
    pub established: u64,
    /// The same by the agent.
    pub agent_established: Option<u64>,
    /// The same by the aggregator.
    pub aggregator_established: Option<u64>,
}

impl Observation {
    /// The pods whose counts must be right: those on nodes whose agent runs.
    pub fn counted(&self) -> impl Iterator<Item = &PodCounts> {
        self.pods.iter().filter(|pod| !self.killed.contains(&pod.node))
    }

    /// True when agents and aggregator show for each pod the opened flows that clients count.
    pub fn agrees_on_opened(&self) -> bool {
        self.counted()
            .all(|pod| [pod.agent_opened, pod.aggregator_opened] == [Some(pod.opened); 2])
    }

    /// True when agents and aggregator show for each pod the established flows that `ss` shows.
    pub fn agrees_on_established(&self) -> bool {
        self.counted()
            .all(|pod| [pod.agent_established, pod.aggregator_established] == [Some(pod.established); 2])
    }
}
