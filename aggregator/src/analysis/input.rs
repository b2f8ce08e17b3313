//! What the analysis is given: one Service port over one window, as plain data.

use crate::flow::CloseCause;
use crate::report::{Estimate, Window};

/// One Service port over one window.
#[derive(Debug, Clone, PartialEq)]
pub struct ServiceInput {
    /// "namespace/name", for sentences.
    pub service: String,
    /// What the new flows cover. It holds no change of the ready endpoints, and every node has counted all of it.
    pub window: Window,
    /// Start of the window that was asked for, not later than `window`: what clients did since is told from there.
    pub asked_from_ms: u64,
    /// What the Service asks for.
    pub affinity: AffinityInput,
    /// When the ready endpoints last changed, as far as is known, milliseconds since 1970.
    pub endpoints_changed_ms: Option<u64>,
    /// Nodes with at least one ready endpoint.
    pub nodes: Vec<NodeInput>,
    /// Ready endpoints.
    pub endpoints: Vec<EndpointInput>,
    /// Endpoints that are not ready any more, and that single flows or established ones may be on.
    pub former: Vec<FormerEndpoint>,
    /// New flows over other windows.
    pub windows: Vec<WindowInput>,
    /// What clients did; `None` when no agent tells, or when other Services have the same pods, so that nobody knows whose
    /// flow each is.
    pub clients: Option<ClientsInput>,
}

/// New flows over another window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowInput {
    /// Length of the window that was meant, in seconds.
    pub seconds: u64,
    /// What it covers, as [`ServiceInput::window`].
    pub window: Window,
    /// New flows of each endpoint, in the order of [`ServiceInput::endpoints`].
    pub new: Vec<u64>,
}

/// Session affinity of the Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AffinityInput {
    /// `None`.
    #[default]
    None,
    /// `ClientIP`, and for how long after the last open, in seconds.
    ClientIp(u32),
}

/// A node with at least one ready endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeInput {
    /// Name of the node.
    pub name: String,
    /// False when its agent does not report: the flows of its endpoints are then unknown, whatever their counts say.
    pub reporting: bool,
    /// Zone, empty when not known.
    pub zone: String,
}

/// A ready endpoint and its flows of source class external.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EndpointInput {
    /// Name of the pod.
    pub pod: String,
    /// Its node, as an index into [`ServiceInput::nodes`].
    pub node: usize,
    /// Flows that opened within the window.
    pub new: u64,
    /// Flows that are open now.
    pub established: u64,
    /// Flows that closed within the window.
    pub closed: u64,
    /// Flow-milliseconds: the flows open at each moment, summed over the window.
    pub open_ms: u128,
    /// Since when it has been ready; `None`: since before anybody watched.
    pub ready_since_ms: Option<u64>,
    /// How old its established flows are; `None` when nobody looked.
    pub ages: Option<AgesInput>,
    /// Distinct clients that opened flows within the window, from sketches; `None` when single flows say it exactly, or nothing does.
    pub distinct: Option<Estimate>,
    /// How busy the pod was within the window; `None` when not known.
    pub load: Option<LoadInput>,
}

/// Ages of the flows that are open at one endpoint.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AgesInput {
    /// When they were looked at, by the aggregator's clock.
    pub read_at_ms: u64,
    /// Least and largest age in milliseconds, and how many flows; youngest first.
    pub buckets: Vec<(f64, f64, u64)>,
    /// Flows that were open before counting began.
    pub unknown: u64,
}

/// How busy a pod was. `None` is not known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadInput {
    /// CPUs used, on average.
    pub cpu_cores: Option<f64>,
    /// Part of the time in which its CPU limit kept it waiting, 0 to 1.
    pub throttled_share: Option<f64>,
    /// Connections that found its accept queue full.
    pub listen_overflows: Option<u64>,
}

/// An endpoint that is not ready: gone, terminating, or failing its probe.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FormerEndpoint {
    /// Name of the pod.
    pub pod: String,
    /// Name of its node, which may have no ready endpoint.
    pub node: String,
    /// Since when it has not been ready, as far as is known.
    pub since_ms: Option<u64>,
    /// Flows that are open there now.
    pub established: u64,
}

/// What clients did since [`ServiceInput::asked_from_ms`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ClientsInput {
    /// k: of the clients whose hash is below 2^(64-k) everything is told, of the others nothing.
    pub sampling_shift: u32,
    /// In order of time.
    pub events: Vec<ClientEvent>,
    /// By endpoint, the clients with most opens within [`ServiceInput::window`], whether or not they are in the sample, in no
    /// order. Empty when the sample is everything.
    pub heavy: Vec<HeavyInput>,
    /// Distinct clients that opened flows within the window, from sketches; `None` as for endpoints.
    pub distinct: Option<Estimate>,
    /// Events that were lost since the nodes' epochs began.
    pub missing: u64,
    /// Addresses of clients, where agents may tell them.
    pub addresses: Vec<(u64, String)>,
}

/// A flow of a client opened or closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientEvent {
    /// When, by the aggregator's clock. Between nodes right to some milliseconds at best.
    pub at_ms: u64,
    /// Keyed hash of the client's address.
    pub client: u64,
    /// Index into [`ServiceInput::endpoints`], or that plus the number of endpoints into [`ServiceInput::former`].
    pub place: u32,
    /// What happened.
    pub what: ClientEventKind,
}

/// What happened to a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientEventKind {
    /// It became established.
    Opened,
    /// It closed.
    Closed {
        /// Who closed it.
        cause: CloseCause,
        /// How long it was open; `None` when it was open before counting began.
        lifetime_ms: Option<u64>,
    },
}

/// A client that opened many flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeavyInput {
    /// Keyed hash of its address.
    pub client: u64,
    /// As [`ClientEvent::place`].
    pub place: u32,
    /// Flows that it opened there, at most; at least `opened - error`.
    pub opened: u64,
    /// How much less it may be.
    pub error: u64,
}
