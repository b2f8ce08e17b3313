//! The `open` step of a scenario file, key by key. YAML enters; [`Open`] leaves.

use serde::Deserialize;
use serde_saphyr::Spanned;

use super::value::{Int, Span};
use crate::clients::CloseHow;

/// Most flows that one `open` can ask for, and most that it can hold open at one time.
pub const MAX_FLOWS: u64 = 100_000;
/// Most flows that all `open` of one scenario can hold.
pub const MAX_FLOWS_IN_ALL: u64 = 250_000;
/// Most flows of one address in one `open`: it has little more ports than that.
pub const MAX_FLOWS_PER_CLIENT: u64 = 20_000;
/// Most flows a second.
pub const MAX_RATE: u64 = 20_000;
/// Most client addresses of one `open`.
pub const MAX_CLIENTS: u64 = 60_000;
/// Most shared addresses of one `open`.
pub const MAX_NAT_ADDRESSES: u64 = 1_000;

/// Open flows, and go on when each is open or has failed.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Open {
    /// How many.
    pub flows: Option<Int<1, MAX_FLOWS>>,
    /// For how long, at `rate`, instead of how many.
    #[serde(rename = "for")]
    pub time: Option<Spanned<Span>>,
    /// How many a second; as fast as they go without it.
    pub rate: Option<Int<1, MAX_RATE>>,
    /// The Service, or the process of a node, that they go to; the main Service without it.
    pub to: Option<Spanned<String>>,
    /// From how many client addresses.
    #[serde(default = "clients")]
    pub clients: Int<1, MAX_CLIENTS>,
    /// In which order they open flows.
    #[serde(default)]
    pub order: Order,
    /// Same seed, same order; without it each `open` of a file has one of its own, the same in each run.
    pub seed: Option<Spanned<Int<0, { u64::MAX }>>>,
    /// A part of the flows comes from a few shared addresses instead.
    pub nat: Option<Nat>,
    /// A label for a later `close`.
    #[serde(default = "group")]
    pub group: String,
    /// Flows end after this time; without it they stay.
    pub lifetime: Option<Span>,
    /// How lifetimes spread around `lifetime`.
    #[serde(default)]
    pub lifetime_spread: LifetimeSpread,
    /// How clients end flows.
    #[serde(default)]
    pub ends: CloseHow,
    /// Clients whose flow was closed by the server open another one.
    pub reconnect: Option<Spanned<Reconnect>>,
    /// An attempt has failed when nobody answered for so long.
    #[serde(default)]
    pub timeout: Option<Span>,
    /// UDP: a flow that is open sends so often; without it once.
    pub datagram_every: Option<Spanned<Span>>,
    /// Agents die meanwhile.
    pub kill_agents: Option<Spanned<KillAgents>>,
}

fn clients() -> Int<1, MAX_CLIENTS> {
    Int::new(1_000)
}

fn group() -> String {
    "clients".to_owned()
}

impl Open {
    /// How many flows: as given, or rate times time.
    pub fn number(&self) -> u64 {
        match (self.flows, &self.time, self.rate) {
            (Some(flows), _, _) => flows.get(),
            (None, Some(time), Some(rate)) => within(rate.get(), time.value),
            _ => 0,
        }
    }

    /// How many flows can be open at one time.
    pub fn held(&self) -> u64 {
        let all = self.number();
        match (self.lifetime, self.rate) {
            (Some(lifetime), Some(rate)) => all.min(within(rate.get(), lifetime) + 1),
            _ => all,
        }
    }
}

fn within(rate: u64, time: Span) -> u64 {
    // Bounded by the largest rate and the longest span.
    (rate * time.as_millis()).div_ceil(1_000)
}

/// Which client address opens the next flow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// One after the other, again and again.
    #[default]
    InTurn,
    /// Each once in a round, each round in another order.
    Shuffled,
    /// Any.
    Random,
}

/// Many clients behind few addresses.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nat {
    /// Shared addresses.
    pub addresses: Int<1, MAX_NAT_ADDRESSES>,
    /// Part of the flows that comes from them, in percent.
    pub percent: Int<1, 100>,
}

/// How lifetimes spread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LifetimeSpread {
    /// Each flow lives equally long.
    #[default]
    Fixed,
    /// Lifetimes are exponential with that mean.
    Exponential,
}

/// A client waits a random time between the two, then opens another flow.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reconnect {
    /// Shortest wait.
    pub min: Span,
    /// Longest wait.
    pub max: Span,
}

/// Agents are killed with SIGKILL at random moments while flows open, and start again a random time later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KillAgents {
    /// How often, over all agents.
    pub times: Int<1, 1_000>,
    /// Shortest time without agent.
    pub min: Span,
    /// Longest time without agent.
    pub max: Span,
    /// Same seed, same moments; another one each time without it.
    pub seed: Option<Int<0, { u64::MAX }>>,
}
