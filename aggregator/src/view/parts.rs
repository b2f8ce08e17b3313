//! The parts of a report beside shares and skew: figures of one Service port enter; rows leave.

use std::collections::BTreeMap;

use super::report::EXTERNAL;
use crate::flow::{Protocol, SourceClass};
use crate::ledger::LoadRates;
use crate::report::{DoorKind, DoorRow, DoorSum, GoneRow, GoneState, LoadRow, Losses, NodeDegradation, UnservedRow};
use crate::state::{DoorTally, GoneFigures, PortFigures, Tally, UnservedFigures};

pub(super) fn door_rows(tally: &Tally, window: usize) -> Vec<DoorRow> {
    tally
        .doors
        .iter()
        .map(|(&(kind, address, port), door)| DoorRow {
            kind,
            address: address.to_canonical().to_string(),
            port,
            new: door.opened[window],
            opened: door.counts.opened,
            established: door.counts.established,
        })
        .filter(|row| row.new.max(row.opened).max(row.established) > 0)
        .collect()
}

/// Flows that have no known door are a kind of their own.
pub(super) fn door_sums(port: &PortFigures, window: usize) -> Vec<DoorSum> {
    let mut sums: BTreeMap<DoorKind, DoorSum> = BTreeMap::new();
    let mut add = |kind, door: &DoorTally| {
        let sum = sums.entry(kind).or_insert(DoorSum {
            kind,
            new: 0,
            opened: 0,
            established: 0,
        });
        sum.new += door.opened[window];
        sum.opened = sum.opened.saturating_add(door.counts.opened);
        sum.established = sum.established.saturating_add(door.counts.established);
    };
    for tally in port.endpoints.iter().map(|endpoint| &endpoint.tally) {
        tally.doors.iter().for_each(|(&(kind, ..), door)| add(kind, door));
        add(DoorKind::Unknown, &tally.unknown);
    }
    sums.into_values()
        .filter(|sum| sum.new.max(sum.opened).max(sum.established) > 0)
        .collect()
}

pub(super) fn load_row(rates: &LoadRates) -> LoadRow {
    LoadRow {
        seconds: rates.span_ms as f64 / 1000.0,
        cpu_cores: rates.cpu_cores,
        throttled_share: rates.throttled_share,
        listen_overflows: rates.listen_overflows,
        listen_drops: rates.listen_drops,
        syn_cookies: rates.syn_cookies,
        shares_network: rates.shares_network,
    }
}

pub(super) fn unserved_rows(port: &PortFigures, window: usize) -> Vec<UnservedRow> {
    let endpoints = |node: &str| {
        let on_node = port
            .endpoints
            .iter()
            .filter(|found| port.nodes[found.node].name == node);
        u32::try_from(on_node.count()).unwrap_or(u32::MAX)
    };
    let row = |unserved: &UnservedFigures| UnservedRow {
        node: unserved.node.clone(),
        reason: unserved.reason,
        attempts: unserved.attempts[window],
        endpoints: endpoints(&unserved.node),
    };
    port.unserved.iter().map(row).filter(|row| row.attempts > 0).collect()
}

pub(super) fn gone_rows(port: &PortFigures, window: usize) -> Vec<GoneRow> {
    let row = |gone: &GoneFigures| {
        let counts = &gone.tally.counts[EXTERNAL];
        GoneRow {
            pod: gone.pod.clone(),
            pod_uid: gone.pod_uid.clone(),
            node: gone.node.clone(),
            address: gone.address.clone(),
            port: gone.port,
            state: gone.state,
            gone_ms: gone.gone_ms,
            new: gone.new_since_asked[window],
            established: counts.established,
            opened_total: counts.opened,
            closed_total: counts.closed_total(),
            stale: port.protocol == Protocol::Udp && gone.state != GoneState::NotReady && counts.established > 0,
        }
    };
    let mut rows: Vec<GoneRow> = port
        .gone
        .iter()
        .map(row)
        .filter(|row| row.new.max(row.established) > 0)
        .collect();
    rows.sort_by(|a, b| {
        let most_first = b
            .new
            .saturating_add(b.established)
            .cmp(&a.new.saturating_add(a.established));
        most_first.then_with(|| (&a.node, &a.pod).cmp(&(&b.node, &b.pod)))
    });
    rows
}

pub(super) fn losses(port: &PortFigures, window: usize) -> Losses {
    let mut losses = Losses {
        silent_nodes: port
            .nodes
            .iter()
            .filter(|node| !node.reporting)
            .map(|node| node.name.clone())
            .collect(),
        flows_on_gone_endpoints: port.gone.iter().map(|gone| gone.tally.opened[window][EXTERNAL]).sum(),
        flows_of_no_pod: port.of_no_pod[window],
        ..Losses::default()
    };
    for tally in port.endpoints.iter().map(|endpoint| &endpoint.tally) {
        let unclassified = SourceClass::Unclassified.index();
        let found = tally.opened[window][unclassified].max(tally.counts[unclassified].established);
        losses.unclassified = losses.unclassified.saturating_add(found);
        losses.unattributed += tally.unattributed[window];
        losses.unattributed_established = losses
            .unattributed_established
            .saturating_add(tally.unattributed_established);
    }
    for node in &port.nodes {
        losses.nodes.add(&node.losses);
        losses
            .degradations
            .extend(node.degradations.iter().map(|found| NodeDegradation {
                node: node.name.clone(),
                code: found.code.clone(),
                sentence: found.sentence.clone(),
            }));
    }
    losses
}
