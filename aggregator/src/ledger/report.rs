//! A node's report as plain types: what the wire format becomes after it has been checked.

use std::net::Ipv6Addr;
use std::sync::Arc;

use crate::clients::Batch;
use crate::flow::{ByClass, Counts, EndpointKey, SourceClass};
use crate::node::{Degradation, DoorCoverage, NodeLosses};
use crate::report::UnservedReason;

/// Unique id of a pod, in lower case.
pub type PodUid = Arc<str>;

/// Longest unique id of a pod; real ones have 36 characters, those of static pods 32.
const MAX_UID: usize = 64;

/// The unique id of a pod, in the form that ids are compared in; `None` when it cannot be one.
pub fn pod_uid(text: &str) -> Option<PodUid> {
    let is_uid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (!text.is_empty() && text.len() <= MAX_UID && text.chars().all(is_uid)).then(|| text.to_ascii_lowercase().into())
}

/// Where a node counts: an endpoint key, and the cgroup of the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LedgerKey {
    /// Address, port and protocol.
    pub endpoint: EndpointKey,
    /// Tells two pods at one address apart; 0 if unknown.
    pub cgroup_id: u64,
}

/// One key's counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: LedgerKey,
    /// The pod that the cgroup belongs to; `None` if it is not a pod's, or not known.
    pub pod_uid: Option<PodUid>,
    /// Its counters, by class.
    pub classes: ByClass<Counts>,
    /// Of its flows, those whose front door is known. No door twice.
    pub doors: Vec<(DoorKey, DoorCounts)>,
    /// How old its open external flows are; `None`: nobody looked, or none is open.
    pub ages: Option<FlowAges>,
}

/// How old the external flows are that are open at one key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FlowAges {
    /// When they were looked at, by the agent's clock.
    pub read_at_ms: u64,
    /// Buckets of [`flowskew_proto::ages`] and their flows, youngest first; none twice, none empty.
    pub buckets: Vec<(u8, u64)>,
    /// Open since before counting began.
    pub unknown: u64,
}

/// The address and port that clients dialled, and their class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DoorKey {
    /// The address dialled.
    pub address: Ipv6Addr,
    /// The port dialled.
    pub port: u16,
    /// [`SourceClass::index`] of the clients.
    pub class: usize,
}

impl DoorKey {
    /// True for flows from outside the cluster.
    pub fn is_external(&self) -> bool {
        self.class == SourceClass::External.index()
    }
}

/// The flows that came through one door. Cumulative since the start of an epoch, except `established`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DoorCounts {
    /// Flows that became established.
    pub opened: u64,
    /// Flows open now.
    pub established: u64,
    /// Flows closed, by any cause.
    pub closed: u64,
}

/// How busy a pod is. Cumulative since its cgroup or network namespace began; `None` is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PodLoad {
    /// CPU time used, in microseconds.
    pub cpu_usage_us: Option<u64>,
    /// Time in which its CPU limit kept it waiting, in microseconds.
    pub cpu_throttled_us: Option<u64>,
    /// Connections that found an accept queue full.
    pub listen_overflows: Option<u64>,
    /// Connections dropped at a listener for any reason.
    pub listen_drops: Option<u64>,
    /// SYN cookies sent.
    pub syn_cookies: Option<u64>,
    /// The last three are of the whole node: the pod uses its network namespace.
    pub shares_network: bool,
}

/// Attempts that reached no pod, cumulative since the start of the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unserved {
    /// The front door dialled, or the endpoint that refused.
    pub at: EndpointKey,
    /// Why.
    pub reason: UnservedReason,
    /// How many.
    pub attempts: u64,
}

/// A node's counters at one moment, checked.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NodeReport {
    /// One life of the kernel's counters.
    pub epoch: u64,
    /// From 1, growing with each report of the epoch.
    pub sequence: u64,
    /// When the counters were read, by the agent's clock.
    pub taken_at_ms: u64,
    /// When this copy was sent, by the agent's clock.
    pub sent_at_ms: u64,
    /// When the epoch began, by the agent's clock.
    pub epoch_started_at_ms: u64,
    /// No key twice.
    pub entries: Vec<Entry>,
    /// What the agent lost.
    pub losses: NodeLosses,
    /// How busy its pods are. No pod twice.
    pub pods: Vec<(PodUid, PodLoad)>,
    /// Attempts that reached no pod. No place and reason twice.
    pub unserved: Vec<Unserved>,
    /// How many front doors were looked up.
    pub door_coverage: DoorCoverage,
    /// What the agent cannot do.
    pub degradations: Vec<Degradation>,
    /// Single flows since the report before, in this report alone. No key twice.
    pub activity: Vec<(LedgerKey, Batch)>,
    /// Events of single flows that were left out because they made no sense, or were too many.
    pub invalid_activity: u64,
    /// Entries that were left out because they made no sense.
    pub invalid_entries: u64,
}
