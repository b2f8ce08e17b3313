//! What the clients of a Service port do: how concentrated their flows are, and whether they keep their pod and node.

use serde::{Deserialize, Serialize};

use super::Estimate;

/// Who opens the flows of a window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Clients {
    /// k: single flows are known of the clients in the 2^-k part of the hash space; 0: of all.
    pub sampling_shift: u32,
    /// Flows opened within the window that were told one by one.
    pub flows: u64,
    /// Clients that opened them.
    pub seen: u64,
    /// Events of single flows that were lost since the nodes' epochs began. Not 0: all figures about clients may be off.
    pub missing: u64,
    /// Distinct clients that opened a flow.
    pub distinct: Estimate,
    /// 1 / sum q^2, q the share of a client: so many equal clients would be as concentrated. Null without flows.
    pub effective: Option<Estimate>,
    /// Share of the flows that the ten heaviest clients opened. Null without flows.
    pub top_share: Option<Estimate>,
    /// The clients with most flows, most first; at most ten.
    pub heaviest: Vec<HeavyClient>,
    /// Peak ratio if each client were bound to one pod of each node, picked at random: the mean over picks. Null without flows.
    pub pinned_peak_ratio: Option<f64>,
    /// Addresses that look like those of many clients; null when none does.
    pub shared_addresses: Option<SharedAddresses>,
}

/// A client that opens many flows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HeavyClient {
    /// Its address, if agents may tell it, else its keyed hash in hexadecimal: the same client has the same hash for a day at most.
    pub client: String,
    /// Its share of the flows.
    pub share: Estimate,
    /// Nodes on which it opened flows; null when not each of its flows is known.
    pub nodes: Option<u32>,
    /// Pods on which it opened flows; null when not each of its flows is known.
    pub pods: Option<u32>,
    /// Most of its flows open at the same time that were seen to open; null when not each of its flows is known.
    pub at_once: Option<u32>,
    /// It looks like an address that many clients share (NAT).
    pub looks_shared: bool,
}

/// Addresses that many clients seem to share, as behind a carrier's NAT.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SharedAddresses {
    /// How many.
    pub addresses: u64,
    /// Their share of the flows.
    pub share: f64,
}

/// Verdict about session affinity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AffinityCode {
    /// Clients keep their pod as the Service says, or are spread as it says.
    AsConfigured,
    /// The Service asks for affinity, and clients within the timeout land on another pod of the same node.
    Broken,
    /// Clients keep their pod though the Service does not ask for it.
    StickyUnasked,
    /// Too few clients have come back to tell.
    Undetermined,
}

impl AffinityCode {
    /// The stable code, as in JSON.
    pub const fn code(self) -> &'static str {
        match self {
            Self::AsConfigured => "as-configured",
            Self::Broken => "broken",
            Self::StickyUnasked => "sticky-unasked",
            Self::Undetermined => "undetermined",
        }
    }
}

/// Do clients keep their pod and their node? kube-proxy keeps affinity per node and per Service port: a client that the load
/// balancer sends to another node is bound to another pod there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Affinity {
    /// The verdict.
    pub code: AffinityCode,
    /// For people: the verdict against what is configured, with numbers.
    pub sentence: String,
    /// Do clients that come back to a node find the same pod there? Over nodes with two pods or more. Null without such.
    pub pod_tier: Option<Stickiness>,
    /// Does the load balancer send clients that come back to the same node? Null with one node.
    pub node_tier: Option<Stickiness>,
    /// The first, by node; ordered by name.
    pub nodes: Vec<NodeStickiness>,
    /// Clients that changed pods within the timeout; null without session affinity.
    pub breaks: Option<AffinityBreaks>,
}

/// Among consecutive opens of one client: how many were on the same place, against chance.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Stickiness {
    /// Pairs of consecutive opens: the sample size.
    pub pairs: u64,
    /// Clients with at least one pair.
    pub clients: u64,
    /// Part of the pairs on the same place.
    pub observed: f64,
    /// Part that independent picks would give: sum p^2.
    pub chance: f64,
    /// (observed - chance) / (1 - chance): 0 is no stickiness, 1 is complete. Null when chance is 1.
    pub kappa: Option<Estimate>,
}

/// Stickiness on one node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeStickiness {
    /// Name of the node.
    pub node: String,
    /// Its stickiness.
    pub stickiness: Stickiness,
}

/// Clients that came back to a node within the timeout of the session affinity, while their pod was ready.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AffinityBreaks {
    /// Pairs of consecutive opens on one node within the timeout.
    pub pairs: u64,
    /// Those that landed on another pod though the first was ready: breaks.
    pub broken: u64,
    /// Those that landed on another pod since the first was gone: not breaks.
    pub gone: u64,
    /// Median time between the two opens of a break, in seconds; null without breaks.
    pub median_gap_seconds: Option<f64>,
    /// Pairs with fewer than 100 other clients on the pod in between, and how many of them broke.
    pub within_list: Rank,
    /// Pairs with 100 or more in between, and how many of them broke.
    pub beyond_list: Rank,
    /// The breaks are those that a list of 100 addresses a pod brings about, as kube-proxy in iptables mode keeps.
    pub list_limit: bool,
}

/// Pairs, and how many of them broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Rank {
    /// Pairs.
    pub pairs: u64,
    /// Of these, on another pod.
    pub broken: u64,
}
