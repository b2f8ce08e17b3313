//! The scenario file, key by key, as serde reads it. YAML enters; [`Spec`] leaves. What one value may be is checked here;
//! what values must be to each other is checked in `check`. lab/README.md documents every key.

use serde::Deserialize;
use serde_saphyr::Spanned;

use super::expect::Check;
use super::lists::{Moves, Nodes, Placement};
use super::value::{Int, Span};
use crate::clients::CloseHow;
use crate::net::{Balancer, Family, StopPod};

/// Most nodes of a scenario.
pub const MAX_NODES: u64 = 32;
/// Most pods at one time.
pub const MAX_PODS: u64 = 64;
/// Most flows that one `open` can ask for.
pub const MAX_FLOWS: u64 = 100_000;
/// Most flows that all `open` of one scenario can ask for.
pub const MAX_FLOWS_IN_ALL: u64 = 250_000;
/// Most flows of one address in one `open`: it has little more ports than that.
pub const MAX_FLOWS_PER_CLIENT: u64 = 20_000;
/// Most flows a second.
pub const MAX_RATE: u64 = 20_000;
/// Most client addresses of one `open`.
pub const MAX_CLIENTS: u64 = 60_000;
/// Most shared addresses of one `open`.
pub const MAX_NAT_ADDRESSES: u64 = 1_000;
/// Most steps.
pub const MAX_STEPS: usize = 200;
/// Longest time of one `wait`.
pub const MAX_WAIT_SECONDS: u64 = 600;

/// A whole scenario file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// Short name, for tables and logs.
    pub name: Spanned<String>,
    /// What it shows, for people.
    #[serde(default)]
    pub description: String,
    /// `ipv4` or `ipv6`.
    #[serde(default)]
    pub family: AddressFamily,
    /// The nodes; without it, those of `placement`.
    pub nodes: Option<Spanned<Nodes>>,
    /// The pods of each node.
    pub placement: Spanned<Placement>,
    /// The Service.
    #[serde(default)]
    pub service: Service,
    /// How the external balancer picks a node.
    #[serde(default = "equal")]
    pub balancer: Balancer,
    /// What happens, in order.
    pub steps: Spanned<Vec<Spanned<Step>>>,
}

fn equal() -> Balancer {
    Balancer::Equal
}

/// Address family, as the scenario file and the command line spell it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum AddressFamily {
    /// IPv4.
    #[default]
    Ipv4,
    /// IPv6.
    Ipv6,
}

impl From<AddressFamily> for Family {
    fn from(family: AddressFamily) -> Self {
        match family {
            AddressFamily::Ipv4 => Self::V4,
            AddressFamily::Ipv6 => Self::V6,
        }
    }
}

/// The Service. Its type is LoadBalancer and its externalTrafficPolicy Local.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Service {
    /// Namespace.
    pub namespace: Spanned<String>,
    /// Name; pods without a name of their own are called after it.
    pub name: Spanned<String>,
    /// Port; the pods listen on the same.
    pub port: Int<1, 65_535>,
    /// sessionAffinity.
    pub affinity: Affinity,
    /// sessionAffinity's timeoutSeconds.
    pub affinity_timeout_seconds: Option<Spanned<Int<1, 86_400>>>,
}

impl Default for Service {
    fn default() -> Self {
        Self {
            namespace: unlocated("default"),
            name: unlocated("gateway"),
            port: Int::new(8883),
            affinity: Affinity::None,
            affinity_timeout_seconds: None,
        }
    }
}

fn unlocated(text: &str) -> Spanned<String> {
    Spanned::new(
        text.to_owned(),
        serde_saphyr::Location::UNKNOWN,
        serde_saphyr::Location::UNKNOWN,
    )
}

impl Service {
    /// timeoutSeconds of the affinity, or none without affinity. Kubernetes' own default is three hours.
    pub fn affinity_timeout(&self) -> Option<u32> {
        const DEFAULT: u64 = 10_800;
        let seconds = self
            .affinity_timeout_seconds
            .as_ref()
            .map_or(DEFAULT, |seconds| seconds.value.get());
        (self.affinity == Affinity::ClientIp).then(|| u32::try_from(seconds).unwrap_or(u32::MAX))
    }
}

/// sessionAffinity, as Kubernetes spells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Affinity {
    /// Each connection picks a pod anew.
    None,
    /// A client address keeps its pod on a node.
    #[serde(rename = "ClientIP")]
    ClientIp,
}

/// One step of the timeline: a map with one key, or a bare word.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Clients open flows.
    Open(Open),
    /// Clients close flows.
    Close(Close),
    /// Nothing happens for this long.
    Wait(Spanned<Span>),
    /// Wait until agents and aggregator have counted all that happened.
    Settle,
    /// Remember this moment, for `since` of a later check.
    Mark(Spanned<String>),
    /// Pods end, and start again on other nodes.
    Move(Move),
    /// Pods end, and start again on the same node.
    Restart(Restart),
    /// A node gets this many pods.
    Scale(Scale),
    /// The agent of a node dies at once (SIGKILL).
    KillAgent(Spanned<String>),
    /// The agent of a node starts again.
    StartAgent(Spanned<String>),
    /// What must hold at this point.
    Check(Box<Check>),
    /// Print this.
    Say(String),
    /// Print the report of the Service.
    Show(Show),
}

impl Step {
    /// The word that the file uses.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Open(_) => "open",
            Self::Close(_) => "close",
            Self::Wait(_) => "wait",
            Self::Settle => "settle",
            Self::Mark(_) => "mark",
            Self::Move(_) => "move",
            Self::Restart(_) => "restart",
            Self::Scale(_) => "scale",
            Self::KillAgent(_) => "kill_agent",
            Self::StartAgent(_) => "start_agent",
            Self::Check(_) => "check",
            Self::Say(_) => "say",
            Self::Show(_) => "show",
        }
    }
}

/// Open flows, and go on when each is open or has failed.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Open {
    /// How many.
    pub flows: Int<1, MAX_FLOWS>,
    /// How many a second; as fast as they go without it.
    pub rate: Option<Int<1, MAX_RATE>>,
    /// From how many client addresses.
    #[serde(default = "clients")]
    pub clients: Int<1, MAX_CLIENTS>,
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
}

fn clients() -> Int<1, MAX_CLIENTS> {
    Int::new(1_000)
}

fn group() -> String {
    "clients".to_owned()
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

/// Close flows from the client side. Without a key: all.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Close {
    /// Only flows of this group.
    pub group: Option<Spanned<String>>,
    /// Only flows of this pod.
    pub pod: Option<Spanned<String>>,
    /// At most this many, picked at random.
    pub flows: Option<Int<1, MAX_FLOWS_IN_ALL>>,
    /// FIN or reset.
    pub ends: CloseHow,
}

/// Move pods.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Move {
    /// Pod, and the node it goes to.
    pub pods: Spanned<Moves>,
    /// How the pods end.
    #[serde(default = "terminate")]
    pub how: StopPod,
}

/// Restart pods in place.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Restart {
    /// The pods; they end together.
    pub pods: Vec<Spanned<String>>,
    /// How they end.
    #[serde(default = "terminate")]
    pub how: StopPod,
}

fn terminate() -> StopPod {
    StopPod::Terminate
}

/// Give a node so many pods.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scale {
    /// The node.
    pub node: Spanned<String>,
    /// Its pods from now on. Fewer: those that came last go.
    pub pods: Int<0, MAX_PODS>,
}

/// Print the report.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Show {
    /// New flows since this mark; since the start without it.
    pub since: Option<Spanned<String>>,
}
