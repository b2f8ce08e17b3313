//! What was seen at one moment, from all sides: the clients, `ss` in the pods, the agents, the aggregator. Plain data;
//! `evaluate` compares it with a check, and the JSON output holds it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use flowskew_aggregator::report::ServiceReport;
use serde::Serialize;

use super::client_truth::ClientTruth;

/// All sides at one moment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Observation {
    /// The pods that run, without those about to go.
    pub pods: Vec<PodCounts>,
    /// Pods that have ended, and whose flows belong into the window of the report.
    pub gone: Vec<GoneCounts>,
    /// Attempts that reached no pod.
    pub unserved: Vec<UnservedCounts>,
    /// The aggregator's report about the Service of the check, over its window.
    pub report: ServiceReport,
    /// Who opened the flows of the window, by the clients' own count, as far as the lab was asked to find out.
    pub clients: Option<ClientTruth>,
    /// The losses of the reports about all Services that are not 0.
    pub report_losses: BTreeMap<String, BTreeMap<String, u64>>,
    /// Loss counters of the agents that are not 0, by node and kind.
    pub agent_losses: BTreeMap<String, BTreeMap<String, u64>>,
    /// What agents must have lost, by node and kind, as far as the lab was asked to find out.
    pub losses_due: BTreeMap<String, BTreeMap<String, u64>>,
    /// Attempts of clients that failed, by reason.
    pub failed: BTreeMap<String, u64>,
    /// Nodes whose agent the scenario has killed.
    pub killed: BTreeSet<String>,
}

/// Flows of one endpoint, as somebody counts them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Flows {
    /// Opened since the agent of the node began to count.
    pub opened: u64,
    /// Closed since then.
    pub closed: u64,
    /// Open now.
    pub established: u64,
}

/// The counts of one pod that runs. Unknown is none, never 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PodCounts {
    /// Name.
    pub pod: String,
    /// Its node.
    pub node: String,
    /// Its address.
    pub address: IpAddr,
    /// Where it listens.
    pub port: u16,
    /// All flows at its address and port, also those of pods that had the address before: opened and closed as clients
    /// count, established as `ss` shows.
    pub truth: Flows,
    /// The same by the agent.
    pub agent: Option<Flows>,
    /// Its flows by the Service that clients dialled.
    pub services: Vec<ServiceCounts>,
}

/// The flows of a pod that came by one Service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ServiceCounts {
    /// Name of the Service.
    pub service: String,
    /// By clients and `ss`.
    pub truth: Flows,
    /// By the aggregator.
    pub aggregator: Option<Flows>,
}

/// The flows of a pod that has ended, by one Service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GoneCounts {
    /// Name of the pod.
    pub pod: String,
    /// The node on which it was.
    pub node: String,
    /// The address that it had.
    pub address: IpAddr,
    /// Its flows.
    pub flows: ServiceCounts,
}

/// Attempts of a Service that reached no pod, within the window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnservedCounts {
    /// Name of the Service.
    pub service: String,
    /// `dropped`, which clients see as a timeout, or `refused`.
    pub reason: String,
    /// Attempts that failed so, by clients.
    pub truth: u64,
    /// By the aggregator, by node.
    pub aggregator: BTreeMap<String, u64>,
    /// Nodes without a ready pod to which the balancer sends all the same.
    pub allowed: BTreeSet<String>,
}

impl Observation {
    /// The pods whose counts must be right: those on nodes whose agent runs.
    pub fn counted(&self) -> impl Iterator<Item = &PodCounts> {
        self.pods.iter().filter(|pod| !self.killed.contains(&pod.node))
    }

    /// The ended pods whose counts must be right.
    pub fn counted_gone(&self) -> impl Iterator<Item = &GoneCounts> {
        self.gone.iter().filter(|pod| !self.killed.contains(&pod.node))
    }
}
