//! Node states, the aggregator's own counters and the watches enter; their metrics leave.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::labels::{Agent, Degraded, Kind, Lookup, Node, NodeLoss, Outcome, Resource};
use crate::cluster::SyncStatus;
use crate::state::Snapshot;

type Counters<L> = Family<L, Counter<u64, AtomicU64>>;
type Flags<L> = Family<L, Gauge>;

pub(super) fn register(registry: &mut Registry, snapshot: &Snapshot, sync: &SyncStatus) {
    agents(registry, snapshot);
    own(registry, snapshot);
    watches(registry, sync);
}

fn agents(registry: &mut Registry, snapshot: &Snapshot) {
    let up = Flags::<Node>::default();
    let losses = Counters::<NodeLoss>::default();
    for node in &snapshot.nodes {
        up.get_or_create_owned(&Node {
            node: node.node.clone(),
        })
        .set(node.reporting.into());
        if node.epoch.is_none() {
            continue;
        }
        for (kind, count) in node.losses.kinds() {
            losses
                .get_or_create_owned(&NodeLoss {
                    node: node.node.clone(),
                    kind,
                })
                .inc_by(count);
        }
    }
    says_of_itself(registry, snapshot);
    registry.register(
        "flowskew_agent_up",
        "1 when the node's agent has reported within three of its intervals",
        up,
    );
    registry.register(
        "flowskew_losses",
        "What the node's figures lack, since its epoch began",
        losses,
    );
}

fn says_of_itself(registry: &mut Registry, snapshot: &Snapshot) {
    let info = Flags::<Agent>::default();
    let degraded = Flags::<Degraded>::default();
    let lookups = Counters::<Lookup>::default();
    for node in snapshot.nodes.iter().filter(|node| node.epoch.is_some()) {
        let name = || node.node.clone();
        info.get_or_create_owned(&Agent {
            node: name(),
            agent_version: node.agent_version.clone(),
            kernel_release: node.kernel_release.clone(),
            abi_version: node.abi_version,
            origin: node.origin.code(),
        })
        .set(1);
        for found in &node.degradations {
            let code = found.code.clone();
            degraded.get_or_create_owned(&Degraded { node: name(), code }).set(1);
        }
        let coverage = node.door_coverage;
        for (result, count) in [
            ("found", coverage.found),
            ("not_found", coverage.not_found),
            ("skipped", coverage.skipped),
        ] {
            lookups
                .get_or_create_owned(&Lookup { node: name(), result })
                .inc_by(count);
        }
    }
    registry.register(
        "flowskew_agent_info",
        "What runs on the node, and how its counters began",
        info,
    );
    registry.register(
        "flowskew_agent_degraded",
        "1 for each thing that the agent cannot do",
        degraded,
    );
    registry.register(
        "flowskew_door_lookups",
        "Flows whose front door was looked up or skipped, since the epoch began",
        lookups,
    );
}

fn own(registry: &mut Registry, snapshot: &Snapshot) {
    let totals = snapshot.totals;
    let reports = Counters::<Outcome>::default();
    for (outcome, count) in [
        ("taken", totals.reports_taken),
        ("baseline", totals.reports_baseline),
        ("stale", totals.reports_stale),
        ("rejected", totals.reports_rejected),
    ] {
        reports.get_or_create_owned(&Outcome { outcome }).inc_by(count);
    }
    let left_out = Flags::<Kind>::default();
    for (kind, count) in [
        ("endpoint", totals.endpoints_left_out),
        ("prefix", totals.prefixes_left_out),
        ("front_door", totals.front_doors_left_out),
    ] {
        left_out
            .get_or_create_owned(&Kind { kind })
            .set(i64::try_from(count).unwrap_or(i64::MAX));
    }
    let invalid = Counter::<u64, AtomicU64>::default();
    invalid.inc_by(totals.invalid_entries);
    let replaced = Counter::<u64, AtomicU64>::default();
    replaced.inc_by(totals.streams_replaced);
    registry.register(
        "flowskew_aggregator_reports",
        "Reports of agents, by what became of them",
        reports,
    );
    registry.register(
        "flowskew_aggregator_invalid_entries",
        "Ledger entries that made no sense",
        invalid,
    );
    registry.register(
        "flowskew_aggregator_streams_replaced",
        "Streams that another of the same node replaced",
        replaced,
    );
    registry.register(
        "flowskew_aggregator_assignment_left_out",
        "Of the newest assignments, for lack of room",
        left_out,
    );
    clients(registry, snapshot);
}

fn clients(registry: &mut Registry, snapshot: &Snapshot) {
    let totals = snapshot.totals;
    let kept: Gauge = Gauge::default();
    kept.set(i64::try_from(totals.client_events).unwrap_or(i64::MAX));
    registry.register(
        "flowskew_aggregator_client_events",
        "Single flows of clients that are kept now",
        kept,
    );
    for (name, help, count) in [
        (
            "flowskew_aggregator_client_events_thinned",
            "Single flows left out to stay within the bound, so that a sample of the clients remains",
            totals.client_events_thinned,
        ),
        (
            "flowskew_aggregator_client_batches_dropped",
            "Batches of single flows dropped whole to stay within the bound",
            totals.client_batches_dropped,
        ),
        (
            "flowskew_aggregator_client_events_invalid",
            "Single flows and sketches that made no sense",
            totals.client_events_invalid,
        ),
    ] {
        let counter = Counter::<u64, AtomicU64>::default();
        counter.inc_by(count);
        registry.register(name, help, counter);
    }
}

fn watches(registry: &mut Registry, sync: &SyncStatus) {
    let synced = Flags::<Resource>::default();
    let errors = Counters::<Resource>::default();
    for (&resource, watch) in &sync.watches {
        synced
            .get_or_create_owned(&Resource { resource })
            .set(watch.synced.into());
        errors.get_or_create_owned(&Resource { resource }).inc_by(watch.errors);
    }
    registry.register(
        "flowskew_aggregator_watch_synced",
        "1 when the resource has been listed once",
        synced,
    );
    registry.register(
        "flowskew_aggregator_watch_errors",
        "Errors of the watch, each followed by another try",
        errors,
    );
}
