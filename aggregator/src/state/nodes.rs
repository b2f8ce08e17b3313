//! Streams and reports of the nodes enter their ledgers and client logs; assignments and snapshots leave.

mod snapshots;

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{oneshot, watch};

use super::Settings;
use super::index::Index;
use super::messages::{Admission, Totals};
use crate::assignment::{Assignment, Plan};
use crate::clients::{self, BYTES_PER_EVENT, Batch, ClientKey, ClientLog};
use crate::cluster::ClusterView;
use crate::ingest::wire::Hello;
use crate::ledger::{ClockOffset, Endpoints, NodeLedger, NodeReport, Outcome, RETENTION_MS};
use crate::millis;
use crate::node::Origin;

/// Nodes that are kept: what a Kubernetes cluster is tested up to, and some.
const MAX_NODES: usize = 6000;
/// An agent may be late by three of its reports, and by this.
const GRACE_MS: u64 = 2000;

pub(super) struct Nodes {
    settings: Settings,
    nodes: BTreeMap<String, NodeState>,
    totals: Totals,
    version: u64,
    /// Memory of all client logs.
    client_bytes: usize,
}

pub(super) struct NodeState {
    pub(super) ledger: NodeLedger,
    /// What clients did here.
    pub(super) clients: ClientLog,
    /// Events of single flows, in the node's reports of this epoch, that made no sense.
    activity_invalid: u64,
    hello: Hello,
    stream: u64,
    /// `None` when the stream has ended; dropped to tell a stream that it has been replaced.
    open: Option<oneshot::Sender<()>>,
    clock: ClockOffset,
    /// Arrival of the newest report that was not rejected.
    last_report_ms: Option<u64>,
    /// Arrival of the newest sign of life.
    seen_ms: u64,
    reports_rejected: u64,
    assignment: watch::Sender<Option<Arc<Assignment>>>,
}

impl NodeState {
    /// How the counters of its agent began.
    pub(super) fn origin(&self) -> Origin {
        self.hello.origin
    }
}

impl Nodes {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            settings,
            nodes: BTreeMap::new(),
            totals: Totals::default(),
            version: 0,
            client_bytes: 0,
        }
    }

    pub(super) fn get(&self, node: &str) -> Option<&NodeState> {
        self.nodes.get(node)
    }

    pub(super) fn totals(&self) -> Totals {
        Totals {
            client_events: self.nodes.values().map(|node| node.clients.events()).sum(),
            ..self.totals
        }
    }

    pub(super) fn connect(
        &mut self,
        hello: Hello,
        stream: u64,
        plan: Option<&Plan>,
        keys: &[ClientKey],
    ) -> Result<Admission, String> {
        if !self.nodes.contains_key(&hello.node) && self.nodes.len() >= MAX_NODES {
            return Err(format!(
                "there are already agents of {MAX_NODES} nodes, which is the limit"
            ));
        }
        let bucket_ms = millis(self.settings.bucket);
        let node = self.nodes.entry(hello.node.clone()).or_insert_with(|| NodeState {
            ledger: NodeLedger::new(bucket_ms),
            clients: ClientLog::default(),
            activity_invalid: 0,
            hello: hello.clone(),
            stream,
            open: None,
            clock: ClockOffset::default(),
            last_report_ms: None,
            seen_ms: 0,
            reports_rejected: 0,
            assignment: watch::channel(None).0,
        });
        let (open, replaced) = oneshot::channel();
        if node.open.replace(open).is_some() {
            self.totals.streams_replaced += 1;
            tracing::warn!(node = hello.node, "a second stream of this node replaces the first");
        }
        node.stream = stream;
        node.hello = hello;
        node.clock = ClockOffset::default();
        node.seen_ms = crate::now_ms();
        let admission = Admission {
            assignments: node.assignment.subscribe(),
            replaced,
        };
        if let Some(plan) = plan {
            self.version += 1;
            assign(node, plan, keys, self.version, &self.settings);
        }
        Ok(admission)
    }

    pub(super) fn disconnect(&mut self, node: &str, stream: u64) {
        if let Some(node) = self.nodes.get_mut(node).filter(|node| node.stream == stream) {
            node.open = None;
        }
    }

    /// False when the stream is not the node's any more.
    pub(super) fn take(
        &mut self,
        name: &str,
        stream: u64,
        mut report: NodeReport,
        received_ms: u64,
        index: &Index,
    ) -> bool {
        let Some(node) = self.nodes.get_mut(name).filter(|node| node.stream == stream) else {
            return false;
        };
        node.clock.observe(report.taken_at_ms, report.sent_at_ms, received_ms);
        node.seen_ms = received_ms;
        self.totals.invalid_entries += report.invalid_entries;
        let at_ms = node.clock.ours(report.taken_at_ms, received_ms);
        let started_ms = match report.epoch_started_at_ms {
            0 => at_ms,
            started => node.clock.ours(started, at_ms),
        };
        let before = if node.ledger.epoch() == Some(report.epoch) {
            node.activity_invalid
        } else {
            0
        };
        let invalid = before + report.invalid_activity;
        report.losses.activity_dropped = report.losses.activity_dropped.saturating_add(invalid);
        let none = Endpoints::new();
        let endpoints = index.endpoints().get(name).unwrap_or(&none);
        let counter = match node.ledger.take(&report, started_ms, at_ms, endpoints) {
            Outcome::Taken => {
                node.activity_invalid = invalid;
                self.totals.client_events_invalid += report.invalid_activity;
                let before = node.clients.bytes();
                for (key, batch) in report.activity {
                    node.clients.push(key, Batch { at_ms, ..batch });
                }
                self.client_bytes = self.client_bytes - before + node.clients.bytes();
                &mut self.totals.reports_taken
            }
            Outcome::Baseline => {
                node.activity_invalid = invalid;
                tracing::info!(
                    node = name,
                    epoch = report.epoch,
                    sequence = report.sequence,
                    "counting starts from here"
                );
                &mut self.totals.reports_baseline
            }
            Outcome::Stale => &mut self.totals.reports_stale,
            Outcome::Rejected(reason) => {
                tracing::warn!(node = name, sequence = report.sequence, "report rejected: {reason}");
                node.reports_rejected += 1;
                self.totals.reports_rejected += 1;
                return true;
            }
        };
        *counter += 1;
        node.last_report_ms = Some(received_ms);
        self.hold_clients();
        true
    }

    /// Keeps what clients did within the bound.
    fn hold_clients(&mut self) {
        let limit = self.settings.client_events as usize * BYTES_PER_EVENT;
        if self.client_bytes <= limit {
            return;
        }
        let held = clients::hold(self.nodes.values_mut().map(|node| &mut node.clients), limit);
        self.count_client_bytes();
        self.totals.client_events_thinned += held.events_thinned;
        self.totals.client_batches_dropped += held.batches_dropped;
    }

    fn count_client_bytes(&mut self) {
        self.client_bytes = self.nodes.values().map(|node| node.clients.bytes()).sum();
    }

    /// The ledger of each node, ordered by name.
    pub(super) fn ledgers(&self) -> impl Iterator<Item = (&str, &NodeLedger)> {
        self.nodes.iter().map(|(name, node)| (name.as_str(), &node.ledger))
    }

    /// Tells the ledgers which pods have the endpoints now.
    pub(super) fn bind(&mut self, index: &Index) {
        for (name, endpoints) in index.endpoints() {
            if let Some(node) = self.nodes.get_mut(name) {
                node.ledger.bind(endpoints);
            }
        }
    }

    /// Sends every connected agent what has changed for it.
    pub(super) fn assign(&mut self, plan: &Plan, keys: &[ClientKey]) {
        self.version += 1;
        for node in self.nodes.values_mut() {
            assign(node, plan, keys, self.version, &self.settings);
        }
    }

    /// Forgets old buckets, and nodes that the API server does not know and that have been silent for as long.
    pub(super) fn expire(&mut self, now_ms: u64, view: Option<&ClusterView>) {
        self.nodes.retain(|name, node| {
            node.ledger.expire(now_ms);
            node.clients.expire(now_ms);
            node.open.is_some()
                || view.is_none_or(|view| view.nodes.contains_key(name))
                || now_ms.saturating_sub(node.seen_ms) < RETENTION_MS
        });
        self.count_client_bytes();
    }

    /// Has reported within three report intervals and the grace.
    pub(super) fn is_reporting(&self, node: &str, now_ms: u64) -> bool {
        let limit = millis(self.settings.report_interval) * 3 + GRACE_MS;
        self.nodes
            .get(node)
            .and_then(|node| node.last_report_ms)
            .is_some_and(|last| now_ms.saturating_sub(last) <= limit)
    }
}

/// Nothing is sent when only the version would differ.
fn assign(node: &NodeState, plan: &Plan, keys: &[ClientKey], version: u64, settings: &Settings) {
    let endpoints = plan.endpoints.get(&node.hello.node).cloned().unwrap_or_default();
    let assignment = Assignment {
        version,
        endpoints,
        prefixes: plan.prefixes.clone(),
        front_doors: plan.front_doors.clone(),
        node_addresses: plan.node_addresses.get(&node.hello.node).cloned().unwrap_or_default(),
        report_interval_ms: u32::try_from(millis(settings.report_interval)).unwrap_or(u32::MAX),
        client_keys: keys.into(),
    };
    node.assignment.send_if_modified(|current| {
        let same = current.as_deref().is_some_and(|current| {
            Assignment {
                version: current.version,
                ..assignment.clone()
            } == *current
        });
        if !same {
            *current = Some(Arc::new(assignment));
        }
        !same
    });
}
