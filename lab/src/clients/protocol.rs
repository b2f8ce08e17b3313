//! What the lab and its clients process say to each other, one JSON object a line.

use std::{collections::BTreeMap, net::IpAddr};

use serde::{Deserialize, Serialize};

/// Flows or events per pod name.
pub type PerPod = BTreeMap<String, u64>;

/// Opens flows, one after the other, and reports when every attempt has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OpenFlows {
    /// Label to close these flows by.
    pub group: String,
    /// How many.
    pub flows: u64,
    /// Source addresses; several clients behind one address are several flows from it. An address has about 64,000
    /// ports, which take turns: no two attempts from it have the same, until all were used.
    pub sources: Vec<IpAddr>,
    /// Which source the next flow takes.
    pub pick: Pick,
    /// Attempts started per second; `None`: as fast as `concurrency` allows.
    pub rate: Option<f64>,
    /// Most attempts at the same time.
    pub concurrency: usize,
    /// Until when a flow is held.
    pub lifetime: Lifetime,
    /// How it is closed at the end of its lifetime.
    pub close: CloseHow,
    /// Whether the client comes back when the server closes.
    pub reconnect: Option<Reconnect>,
    /// An attempt fails when the handshake has not ended after this time; over UDP, when no answer has come.
    pub connect_timeout_ms: u64,
    /// Over UDP: a flow that is open sends another datagram so often; `None`: the first stays the only one. When another
    /// pod answers, the flow has been closed by the one and opened, as a reconnect, at the other.
    pub datagram_every_ms: Option<u64>,
    /// Same seed, same random choices.
    pub seed: u64,
}

impl Default for OpenFlows {
    fn default() -> Self {
        Self {
            group: String::new(),
            flows: 0,
            sources: vec![],
            pick: Pick::RoundRobin,
            rate: None,
            concurrency: 128,
            lifetime: Lifetime::Held,
            close: CloseHow::Fin,
            reconnect: None,
            connect_timeout_ms: 15_000,
            datagram_every_ms: None,
            seed: 0,
        }
    }
}

/// Order of source addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pick {
    /// One after the other, again and again.
    RoundRobin,
    /// Any, each as often as the others in the long run.
    Random,
    /// Each once in a round, each round in another order. All processes know the same order by the same seed.
    Shuffled {
        /// Same seed, same orders.
        seed: u64,
    },
}

/// How long a client holds a flow.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lifetime {
    /// Until it is told to close, or the server closes.
    Held,
    /// This long.
    Fixed {
        /// Milliseconds.
        ms: u64,
    },
    /// Exponentially distributed: flows close at a constant rate.
    Exponential {
        /// Mean in milliseconds.
        mean_ms: f64,
    },
}

/// How a client closes a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CloseHow {
    /// In order.
    #[default]
    Fin,
    /// With a reset.
    Rst,
}

/// A client whose flow the server closed comes back from the same address, after a random time between these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reconnect {
    /// Milliseconds, at least.
    pub min_ms: u64,
    /// Milliseconds, at most.
    pub max_ms: u64,
}

/// Closes flows, chosen at random among those that match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CloseFlows {
    /// Only flows of this group. Clients of the group that wait to come back give up.
    pub group: Option<String>,
    /// Only flows to this pod.
    pub pod: Option<String>,
    /// At most so many.
    pub limit: Option<u64>,
    /// How.
    pub how: CloseHow,
    /// Same seed, same choice.
    pub seed: u64,
}

/// What has happened so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// Flows that were answered by each pod, including reconnects.
    pub opened: PerPod,
    /// Flows open now.
    pub open: PerPod,
    /// Flows the server closed first.
    pub server_closed: PerPod,
    /// Flows the client closed first.
    pub client_closed: PerPod,
    /// Attempts that failed, by reason: `refused`, `reset`, `timeout`, `unreachable`, `no-port`, `no-name` (the
    /// handshake ended but the pod's name did not arrive: the kernel counted a flow that the clients did not), or the
    /// system's words. Each attempt that failed had a client port of its own.
    pub failed: PerPod,
    /// How many of the opened flows were reconnects.
    pub reconnected: u64,
    /// Attempts under way.
    pub attempting: u64,
}

/// The end of an [`OpenFlows`] request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenSummary {
    /// Flows of this request that were answered by each pod.
    pub opened: PerPod,
    /// Attempts of this request that failed, by reason.
    pub failed: PerPod,
    /// From the first attempt to the end of the last, in milliseconds.
    pub elapsed_ms: u64,
}

impl Counts {
    /// Adds the counts of another process.
    pub(super) fn add(&mut self, other: Self) {
        let Self {
            opened,
            open,
            server_closed,
            client_closed,
            failed,
            reconnected,
            attempting,
        } = other;
        merge(&mut self.opened, opened);
        merge(&mut self.open, open);
        merge(&mut self.server_closed, server_closed);
        merge(&mut self.client_closed, client_closed);
        merge(&mut self.failed, failed);
        self.reconnected += reconnected;
        self.attempting += attempting;
    }
}

/// Adds numbers key by key.
pub(super) fn merge(into: &mut PerPod, from: PerPod) {
    for (key, number) in from {
        *into.entry(key).or_default() += number;
    }
}

/// From the lab.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Request {
    /// Comes back in the reply.
    pub id: u64,
    /// What to do.
    pub command: Command,
}

/// What the lab can ask.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Command {
    /// Flow `i` of this process is flow `first + i * step` of the request as a whole.
    Open {
        flows: OpenFlows,
        first: u64,
        step: u64,
    },
    Close(CloseFlows),
    Counts,
    BySource,
}

/// To the lab.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Message {
    /// Now and then, while anything changes.
    Progress(Counts),
    /// The answer to the request with this id.
    Reply { id: u64, reply: Reply },
}

/// The result of a command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Reply {
    Opened { opened: PerPod, failed: PerPod },
    Closed(u64),
    Counts(Counts),
    BySource(BTreeMap<IpAddr, PerPod>),
}
