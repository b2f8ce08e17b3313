//! The nodes' attempts that reached no pod enter; those of each Service port leave.

use std::collections::{BTreeSet, HashMap};

use super::State;
use super::windows::AskedWindow;
use crate::cluster::PortName;
use crate::report::UnservedReason;

/// Attempts on one node that reached no pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnservedFigures {
    /// Name of the node.
    pub node: String,
    /// Why.
    pub reason: UnservedReason,
    /// One figure a window, as it was asked for: a change of endpoints is when attempts fail.
    pub attempts: Vec<u64>,
    /// Since the start of the node's epoch.
    pub total: u64,
}

/// By Service port; ordered by node and reason.
pub(super) fn by_port(state: &State, windows: &[AskedWindow]) -> HashMap<PortName, Vec<UnservedFigures>> {
    let mut ports: HashMap<PortName, Vec<UnservedFigures>> = HashMap::new();
    for (node, ledger) in state.nodes.ledgers() {
        for (at, reason, total, series) in ledger.unserved() {
            let dialled = state.index.door(at).map(|(port, _)| port);
            // An endpoint that refuses does so to each Service that has it.
            let mut of: BTreeSet<&PortName> = dialled.into_iter().chain(state.index.ports_at(node, at)).collect();
            if of.is_empty() {
                of.extend(state.changes.ports_at(node, at));
            }
            for port in of {
                let rows = ports.entry(port.clone()).or_default();
                let known = rows.iter().position(|row| row.node == node && row.reason == reason);
                let position = known.unwrap_or(rows.len());
                if known.is_none() {
                    rows.push(UnservedFigures {
                        node: node.to_owned(),
                        reason,
                        attempts: vec![0; windows.len()],
                        total: 0,
                    });
                }
                let row = &mut rows[position];
                row.total = row.total.saturating_add(total);
                for (sum, window) in row.attempts.iter_mut().zip(windows) {
                    *sum += series.sum(ledger.tick(window.span.from_ms), u32::MAX);
                }
            }
        }
    }
    for rows in ports.values_mut() {
        rows.sort_by(|a, b| (&a.node, a.reason).cmp(&(&b.node, b.reason)));
    }
    ports
}
