//! What an agent says of itself, as plain types that are served as they are: how its counters began, what it lost, what
//! it cannot do.

use serde::{Deserialize, Serialize};

/// How the counters of an agent's epoch began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// It has not said.
    #[default]
    Unknown,
    /// From nothing; open flows were taken up as established.
    Fresh,
    /// The kernel programs went on counting while no agent ran: nothing is missing.
    Adopted,
    /// The same, and newer programs took over: nothing is missing.
    Upgraded,
    /// What ran before counts otherwise: begun anew, as if fresh.
    Migrated,
}

impl Origin {
    /// The stable code, as in JSON.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Fresh => "fresh",
            Self::Adopted => "adopted",
            Self::Upgraded => "upgraded",
            Self::Migrated => "migrated",
        }
    }
}

/// What the counts of a node lack, since the start of its epoch, or the sum of that over nodes. Zero: nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeLosses {
    /// Events that found the ring full. No count is affected.
    pub ring_full: u64,
    /// Flows that could not be tracked: `established` is too low or too high by up to this many.
    pub flows_full: u64,
    /// Flows that found no room in a ledger: `new` is too low by up to this many.
    pub ledger_full: u64,
    /// Closes of flows that were not tracked.
    pub orphan_close: u64,
    /// Flows whose end was not seen when it happened: `established` was too high by up to this many until then.
    pub orphan_flow: u64,
    /// Reports dropped by agents; their counts arrived with the next report, later.
    pub reports_dropped: u64,
    /// Events that the kernel kept from the programs: each may be an open or a close that is not counted.
    pub recursion: u64,
    /// Flows that a periodic check found gone: `established` was too high by up to this many until then.
    pub corrected: u64,
    /// Attempts that reached no pod and found no room to be counted.
    pub unserved_full: u64,
    /// Datagrams of UDP flows that found no room to be tracked: `new` lacks those flows.
    pub udp_flows_full: u64,
    /// Events of single flows that did not reach the aggregator, or made no sense to it: what is said of clients lacks them. No
    /// count is affected.
    pub activity_dropped: u64,
    /// Ledger entries that the aggregator had no room for, or that made no sense: at most in one report of the epoch.
    pub entries_dropped: u64,
}

impl NodeLosses {
    /// Each kind, as in JSON and in labels, with its count.
    pub const fn kinds(&self) -> [(&'static str, u64); 12] {
        [
            ("ring_full", self.ring_full),
            ("flows_full", self.flows_full),
            ("ledger_full", self.ledger_full),
            ("orphan_close", self.orphan_close),
            ("orphan_flow", self.orphan_flow),
            ("reports_dropped", self.reports_dropped),
            ("recursion", self.recursion),
            ("corrected", self.corrected),
            ("unserved_full", self.unserved_full),
            ("udp_flows_full", self.udp_flows_full),
            ("activity_dropped", self.activity_dropped),
            ("entries_dropped", self.entries_dropped),
        ]
    }

    /// Adds another node's.
    pub fn add(&mut self, other: &Self) {
        for (sum, more) in [
            (&mut self.ring_full, other.ring_full),
            (&mut self.flows_full, other.flows_full),
            (&mut self.ledger_full, other.ledger_full),
            (&mut self.orphan_close, other.orphan_close),
            (&mut self.orphan_flow, other.orphan_flow),
            (&mut self.reports_dropped, other.reports_dropped),
            (&mut self.recursion, other.recursion),
            (&mut self.corrected, other.corrected),
            (&mut self.unserved_full, other.unserved_full),
            (&mut self.udp_flows_full, other.udp_flows_full),
            (&mut self.activity_dropped, other.activity_dropped),
            (&mut self.entries_dropped, other.entries_dropped),
        ] {
            *sum = sum.saturating_add(more);
        }
    }
}

/// How many flows of assigned endpoints had their front door looked up, since the start of the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DoorCoverage {
    /// Looked up and found.
    pub found: u64,
    /// The node's connection tracking did not know the flow, or not any more.
    pub not_found: u64,
    /// Not looked up: more flows opened than the agent may look up.
    pub skipped: u64,
}

impl DoorCoverage {
    /// Adds another node's.
    pub fn add(&mut self, other: &Self) {
        self.found = self.found.saturating_add(other.found);
        self.not_found = self.not_found.saturating_add(other.not_found);
        self.skipped = self.skipped.saturating_add(other.skipped);
    }
}

/// Something that an agent cannot do on its node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Degradation {
    /// Stable, for programs.
    pub code: String,
    /// For people: what it means, and the remedy.
    pub sentence: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_kind_of_loss_is_forgotten() {
        let json = serde_json::to_value(NodeLosses::default()).unwrap();
        let names: Vec<&String> = json.as_object().unwrap().keys().collect();
        let mut kinds = NodeLosses::default().kinds().map(|(kind, _)| kind);
        kinds.sort_unstable();
        assert_eq!(names, kinds);
        // One of each kind, told apart.
        let ones: serde_json::Map<String, serde_json::Value> = names
            .iter()
            .zip(1u64..)
            .map(|(name, n)| ((*name).clone(), n.into()))
            .collect();
        let ones: NodeLosses = serde_json::from_value(ones.clone().into()).unwrap();
        let mut sum = ones;
        sum.add(&ones);
        for ((kind, one), (_, two)) in ones.kinds().into_iter().zip(sum.kinds()) {
            assert!(one > 0 && two == 2 * one, "{kind}");
        }
    }
}
