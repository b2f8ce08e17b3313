//! What agents with too small maps must have lost. What was seen and a rule enter; a number for each agent leaves.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use tokio::process::Command;

use super::metrics::Page;
use super::observe::Observation;
use crate::scenario::agents::Agents;
use crate::scenario::losses::{LossBound, LossKind, LossRule, These};

/// Numbers by node and kind of loss.
pub type Due = BTreeMap<String, BTreeMap<String, u64>>;

/// What must be lost of each kind that the rule wants to be exact.
///
/// # Errors
/// `ss` does not run.
pub async fn losses_due(
    rule: &LossRule,
    agents: &Agents,
    seen: &Observation,
    pages: &BTreeMap<String, Page>,
) -> Result<Due> {
    let LossRule::These(These(kinds)) = rule else {
        return Ok(Due::new());
    };
    let exact = |kind| kinds.get(&kind) == Some(&LossBound::Exact);
    let mut due = Due::new();
    for (node, page) in pages {
        let of_node = due.entry(node.clone()).or_default();
        if exact(LossKind::FlowsFull)
            && let Some(room) = agents.max_flows
        {
            let open = flows_of_the_machine().await?;
            of_node.insert(word(LossKind::FlowsFull), untracked(seen, node, open, room.get()));
        }
        if exact(LossKind::RingFull)
            && let Some(read) = page.total("flowskew_agent_events_total")
        {
            of_node.insert(word(LossKind::RingFull), untold(seen, node, read));
        }
    }
    Ok(due)
}

fn word(kind: LossKind) -> String {
    kind.word().to_owned()
}

/// Each agent tracks the flows of the whole machine, as many as it has room for; it has none left. Those that it does not
/// track are open, or have closed since.
fn untracked(seen: &Observation, node: &str, others: u64, room: u64) -> u64 {
    let of_pods: u64 = seen.pods.iter().map(|pod| pod.truth.established).sum();
    (of_pods + others).saturating_sub(room) + closed_untracked(seen, node)
}

/// An agent is told each open and each close at the endpoints of its node, but for closes of flows that it does not track.
fn untold(seen: &Observation, node: &str, read: u64) -> u64 {
    let pods = || seen.pods.iter().filter(|pod| pod.node == node);
    let opened: u64 = pods().map(|pod| pod.truth.opened).sum();
    let closed: u64 = pods().map(|pod| pod.truth.closed).sum();
    (opened + closed.saturating_sub(closed_untracked(seen, node))).saturating_sub(read)
}

fn closed_untracked(seen: &Observation, node: &str) -> u64 {
    let losses = seen.agent_losses.get(node);
    losses
        .and_then(|kinds| kinds.get(LossKind::OrphanClose.word()))
        .copied()
        .unwrap_or(0)
}

/// Flows that came to programs of the lab and of the product: aggregator, agents, API.
async fn flows_of_the_machine() -> Result<u64> {
    let listening: BTreeSet<String> = local_ports("listening").await?.into_iter().collect();
    let open = local_ports("established").await?;
    Ok(open.iter().filter(|port| listening.contains(*port)).count() as u64)
}

/// The local ports of the TCP sockets in a state, in the lab's own network namespace.
async fn local_ports(state: &str) -> Result<Vec<String>> {
    let output = Command::new("ss")
        .args(["-Htn", "state", state])
        .kill_on_drop(true)
        .output()
        .await
        .context("cannot run ss (package iproute2)")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.lines().filter_map(local_port).map(str::to_owned).collect())
}

/// `Recv-Q Send-Q Local:Port Peer:Port`, as `ss` prints it when it is asked for one state.
fn local_port(line: &str) -> Option<&str> {
    let (_, port) = line.split_whitespace().nth(2)?.rsplit_once(':')?;
    Some(port)
}

#[cfg(test)]
mod tests {
    use super::super::evaluate::tests::seen;
    use super::*;

    #[test]
    fn what_is_open_and_has_no_room_is_not_tracked() {
        // 20 and 70 flows are open.
        let mut seen = seen();
        assert_eq!(untracked(&seen, "b", 4, 64), 30);
        assert_eq!(untracked(&seen, "b", 4, 200), 0);
        let closed = BTreeMap::from([("orphan_close".to_owned(), 5)]);
        seen.agent_losses.insert("b".to_owned(), closed);
        assert_eq!(untracked(&seen, "b", 4, 64), 35);
    }

    #[test]
    fn what_happened_and_was_not_read_was_not_told() {
        // On node b 75 flows opened and 5 closed.
        let mut seen = seen();
        assert_eq!(untold(&seen, "b", 50), 30);
        let untracked = BTreeMap::from([("orphan_close".to_owned(), 4)]);
        seen.agent_losses.insert("b".to_owned(), untracked);
        assert_eq!(untold(&seen, "b", 50), 26);
    }

    #[test]
    fn the_local_port_is_found_in_both_families() {
        assert_eq!(local_port("0 0 127.0.0.1:9470 127.0.0.1:55312"), Some("9470"));
        assert_eq!(local_port("0 0 [::1]:80 [::1]:81 extra"), Some("80"));
        assert_eq!(local_port(""), None);
    }
}
