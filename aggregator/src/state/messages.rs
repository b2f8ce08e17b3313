//! What may be said to the owner of the state, and what it answers.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};

use super::figures::Figures;
use crate::assignment::Assignment;
use crate::cluster::{ClusterView, ObjectName};
use crate::ingest::wire::Hello;
use crate::ledger::NodeReport;
use crate::node::{Degradation, DoorCoverage, NodeLosses, Origin};

/// Something has happened.
#[derive(Debug)]
pub enum Event {
    /// The cluster has changed.
    Cluster {
        /// As it is now.
        view: ClusterView,
        /// Answered when every later answer rests on it.
        reply: oneshot::Sender<()>,
    },
    /// An agent has said who it is.
    Connected {
        /// Who.
        hello: Hello,
        /// Number of the stream, unique in this process.
        stream: u64,
        /// Answered at once; the error says why the agent is not admitted.
        reply: oneshot::Sender<Result<Admission, String>>,
    },
    /// An agent has reported.
    Report {
        /// Its node.
        node: String,
        /// Its stream.
        stream: u64,
        /// The report.
        report: Box<NodeReport>,
        /// When it arrived, by our clock.
        received_ms: u64,
        /// Answered when the report needs never be sent again; dropped when the stream is not the node's any more.
        reply: oneshot::Sender<()>,
    },
    /// A stream has ended.
    Disconnected {
        /// Its node.
        node: String,
        /// Its number.
        stream: u64,
    },
}

/// What an admitted stream listens to.
#[derive(Debug)]
pub struct Admission {
    /// The node's assignment, once there is one.
    pub assignments: watch::Receiver<Option<Arc<Assignment>>>,
    /// Ends when another stream has taken the node over.
    pub replaced: oneshot::Receiver<()>,
}

/// Which Services are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// All.
    All,
    /// One, whether or not it exists.
    Service(ObjectName),
}

/// Somebody wants to know something.
#[derive(Debug)]
pub enum Command {
    /// Figures of Services, over windows that begin at these moments and end now.
    Figures {
        /// Which Services.
        scope: Scope,
        /// Starts of the windows, milliseconds since 1970.
        windows: Vec<WindowStart>,
        /// `None` before the cluster is known.
        reply: oneshot::Sender<Option<Figures>>,
    },
    /// The state of each node's agent.
    Nodes {
        /// Ordered by name.
        reply: oneshot::Sender<Vec<NodeSnapshot>>,
    },
    /// All that the metrics show.
    Metrics {
        /// As in [`Command::Figures`].
        windows: Vec<WindowStart>,
        /// The answer.
        reply: oneshot::Sender<Snapshot>,
    },
}

/// Where a window begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowStart {
    /// So many milliseconds ago.
    Ago(u64),
    /// At a moment, milliseconds since 1970.
    At(u64),
}

/// All that the metrics show, at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// `None` before the cluster is known.
    pub figures: Option<Figures>,
    /// Ordered by name.
    pub nodes: Vec<NodeSnapshot>,
    /// Since the process started.
    pub totals: Totals,
}

/// The aggregator's own counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Reports counted.
    pub reports_taken: u64,
    /// Reports kept as a baseline only.
    pub reports_baseline: u64,
    /// Reports known already.
    pub reports_stale: u64,
    /// Reports that were impossible.
    pub reports_rejected: u64,
    /// Ledger entries that made no sense.
    pub invalid_entries: u64,
    /// Events of single flows that are kept now.
    pub client_events: usize,
    /// Events of single flows that were taken and given up, to keep fewer clients within the bound.
    pub client_events_thinned: u64,
    /// Batches of single flows that were given up before their time, to keep within the bound.
    pub client_batches_dropped: u64,
    /// Events of single flows that made no sense.
    pub client_events_invalid: u64,
    /// Streams that another stream of the same node has replaced.
    pub streams_replaced: u64,
    /// Endpoints left out of the newest assignments.
    pub endpoints_left_out: usize,
    /// Prefixes left out of the newest assignments.
    pub prefixes_left_out: usize,
    /// Front doors left out of the newest assignments.
    pub front_doors_left_out: usize,
}

/// The state of one node's agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSnapshot {
    /// Name of the node.
    pub node: String,
    /// The API server knows a Node of this name.
    pub known: bool,
    /// Its agent has a stream open.
    pub connected: bool,
    /// Its agent has reported within three report intervals and two seconds.
    pub reporting: bool,
    /// Version of the agent, empty before it has ever connected.
    pub agent_version: String,
    /// Kernel of the node, empty before.
    pub kernel_release: String,
    /// Epoch of the newest report.
    pub epoch: Option<u64>,
    /// Sequence of the newest report.
    pub sequence: Option<u64>,
    /// When the newest report arrived, milliseconds since 1970.
    pub last_report_ms: Option<u64>,
    /// How far the agent's clock is behind ours, in milliseconds.
    pub clock_offset_ms: Option<i64>,
    /// What the agent lost.
    pub losses: NodeLosses,
    /// How its counters began.
    pub origin: Origin,
    /// Version of the records that it shares with the kernel programs; 0 before it has ever connected.
    pub abi_version: u32,
    /// Since when its flows are counted without a gap, milliseconds since 1970.
    pub counting_since_ms: Option<u64>,
    /// How many front doors it looked up.
    pub door_coverage: DoorCoverage,
    /// What it cannot do.
    pub degradations: Vec<Degradation>,
    /// Reports that were impossible.
    pub reports_rejected: u64,
}

/// The owner does not answer: the process is stopping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the aggregator is stopping")]
pub struct Unavailable;

/// For asking the owner.
#[derive(Debug, Clone)]
pub struct Handle {
    commands: mpsc::Sender<Command>,
}

impl Handle {
    pub(super) fn new(commands: mpsc::Sender<Command>) -> Self {
        Self { commands }
    }

    /// Figures over windows that end now; `None` before the cluster is known.
    ///
    /// # Errors
    /// When the process is stopping.
    pub async fn figures(&self, scope: Scope, windows: Vec<WindowStart>) -> Result<Option<Figures>, Unavailable> {
        self.ask(|reply| Command::Figures { scope, windows, reply }).await
    }

    /// The state of each node's agent, ordered by name.
    ///
    /// # Errors
    /// When the process is stopping.
    pub async fn nodes(&self) -> Result<Vec<NodeSnapshot>, Unavailable> {
        self.ask(|reply| Command::Nodes { reply }).await
    }

    /// All that the metrics show.
    ///
    /// # Errors
    /// When the process is stopping.
    pub async fn metrics(&self, windows: Vec<WindowStart>) -> Result<Snapshot, Unavailable> {
        self.ask(|reply| Command::Metrics { windows, reply }).await
    }

    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Result<T, Unavailable> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(command(reply)).await.map_err(|_gone| Unavailable)?;
        answer.await.map_err(|_gone| Unavailable)
    }
}
