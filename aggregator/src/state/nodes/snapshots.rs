//! What nodes and their ledgers hold enters; how each node's agent stands leaves.

use std::collections::{BTreeMap, BTreeSet};

use super::{NodeState, Nodes};
use crate::cluster::ClusterView;
use crate::ledger::NodeLedger;
use crate::state::NodeSnapshot;

impl Nodes {
    /// Every node that the API server or an agent has told of.
    pub(in crate::state) fn snapshots(&self, now_ms: u64, view: Option<&ClusterView>) -> Vec<NodeSnapshot> {
        let known = view.map(|view| &view.nodes);
        let in_cluster = known.into_iter().flat_map(BTreeMap::keys);
        let names: BTreeSet<&String> = self.nodes.keys().chain(in_cluster).collect();
        names
            .into_iter()
            .map(|name| {
                let node = self.nodes.get(name);
                let ledger = node.map(|node| &node.ledger);
                let epoch = ledger.and_then(NodeLedger::epoch);
                NodeSnapshot {
                    node: name.clone(),
                    known: known.is_some_and(|known| known.contains_key(name)),
                    connected: node.is_some_and(|node| node.open.is_some()),
                    reporting: self.is_reporting(name, now_ms),
                    agent_version: node.map(|node| node.hello.agent_version.clone()).unwrap_or_default(),
                    kernel_release: node.map(|node| node.hello.kernel_release.clone()).unwrap_or_default(),
                    epoch,
                    sequence: epoch.and(ledger).map(NodeLedger::sequence),
                    last_report_ms: node.and_then(|node| node.last_report_ms),
                    clock_offset_ms: node.and_then(|node| node.clock.offset_ms()),
                    losses: ledger.map(NodeLedger::losses).unwrap_or_default(),
                    origin: node.map(NodeState::origin).unwrap_or_default(),
                    abi_version: node.map_or(0, |node| node.hello.abi_version),
                    counting_since_ms: ledger.and_then(NodeLedger::counting_since_ms),
                    door_coverage: ledger.map(NodeLedger::door_coverage).unwrap_or_default(),
                    degradations: ledger.map(|ledger| ledger.degradations().to_vec()).unwrap_or_default(),
                    reports_rejected: node.map_or(0, |node| node.reports_rejected),
                }
            })
            .collect()
    }
}
