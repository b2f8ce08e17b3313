//! The scenario file, key by key, as serde reads it. YAML enters; [`Spec`] leaves. What one value may be is checked here;
//! what values must be to each other is checked in `check`. lab/README.md documents every key.

use std::time::Duration;

use serde::Deserialize;
use serde_saphyr::{Location, Spanned};

use super::agents::Agents;
use super::expect::Check;
use super::lists::{HostPorts, Moves, Nodes, Placement, Processes, Zones};
use super::open::{MAX_FLOWS_IN_ALL, Open};
use super::service::{OtherService, Service};
use super::value::{Int, Span};
use crate::clients::CloseHow;
use crate::net::{Balancer, Delivery, Family, StopPod};

/// Most nodes of a scenario.
pub const MAX_NODES: u64 = 32;
/// Most pods at one time.
pub const MAX_PODS: u64 = 64;
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
    /// Zones of nodes.
    #[serde(default)]
    pub zones: Zones,
    /// The pods of each node.
    pub placement: Spanned<Placement>,
    /// The Service.
    #[serde(default)]
    pub service: Service,
    /// More Services with the same pods.
    #[serde(default)]
    pub other_services: Vec<OtherService>,
    /// Pods in the network namespace of their node, and the port where each listens.
    #[serde(default)]
    pub host_network: HostPorts,
    /// Servers that are no pods.
    #[serde(default)]
    pub processes: Processes,
    /// What flows cost pods.
    pub work: Option<Spanned<Work>>,
    /// How the agents run.
    #[serde(default)]
    pub agents: Agents,
    /// How the external balancer picks a node.
    #[serde(default = "equal")]
    pub balancer: Spanned<Balancer>,
    /// What nodes see of the balancer.
    #[serde(default)]
    pub delivery: Delivery,
    /// What happens, in order.
    pub steps: Spanned<Vec<Spanned<Step>>>,
}

fn equal() -> Spanned<Balancer> {
    Spanned::new(Balancer::Equal, Location::UNKNOWN, Location::UNKNOWN)
}

/// Longest CPU time that a flow can cost.
pub const MAX_WORK: Duration = Duration::from_millis(100);

/// What flows cost pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Work {
    /// CPU time of each TCP flow that opens.
    pub per_flow: Span,
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

/// One step of the timeline: a map with one key, or a bare word.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Clients open flows.
    Open(Box<Open>),
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
    /// A pod goes, and another one gets its address.
    Replace(Replace),
    /// A node gets this many pods.
    Scale(Scale),
    /// The balancer goes on sending to these nodes, though they have no ready pod.
    KeepSending(Spanned<Vec<Spanned<String>>>),
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
            Self::Replace(_) => "replace",
            Self::Scale(_) => "scale",
            Self::KeepSending(_) => "keep_sending",
            Self::KillAgent(_) => "kill_agent",
            Self::StartAgent(_) => "start_agent",
            Self::Check(_) => "check",
            Self::Say(_) => "say",
            Self::Show(_) => "show",
        }
    }
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

/// Replace pods by others at their addresses.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replace {
    /// Pod that goes, and the name of the one that comes.
    pub pods: Spanned<Moves>,
    /// How the pods end.
    #[serde(default = "vanish")]
    pub how: StopPod,
}

fn vanish() -> StopPod {
    StopPod::Vanish
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
