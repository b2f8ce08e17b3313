//! What a report knows beside shares and skew enters; short lines for people leave: loads, front doors, flows on pods that
//! are gone, attempts that reached no pod, and what is missing.

use std::collections::BTreeMap;

use super::number::{count, percent, plural};
use crate::report::{
    DoorKind, DoorSum, EndpointRow, GoneRow, GoneState, Losses, ServiceReport, UnservedReason, UnservedRow,
};

/// Lines of one kind that are shown.
const MAX_LINES: usize = 3;
/// Names listed before "and 7 more".
const NAMED: usize = 5;
/// A CPU limit that holds a pod up for less of its time is not worth a word.
const THROTTLED: f64 = 0.01;

/// "2.75", or "-".
pub(super) fn cpu(row: &EndpointRow) -> String {
    let cores = row.load.and_then(|load| load.cpu_cores);
    cores.map_or_else(|| "-".to_owned(), |cores| format!("{cores:.2}"))
}

/// "throttled 12 %, 34 overflows", or nothing.
pub(super) fn trouble(row: &EndpointRow) -> String {
    let Some(load) = row.load else {
        return String::new();
    };
    let throttled = load.throttled_share.filter(|share| *share >= THROTTLED);
    let overflows = load.listen_overflows.filter(|overflows| *overflows > 0);
    // Connections that found the queue full are among those dropped.
    let drops = load
        .listen_drops
        .map(|drops| drops.saturating_sub(overflows.unwrap_or(0)));
    let on_node = if load.shares_network { " on its node" } else { "" };
    let parts = [
        throttled.map(|share| format!("throttled {:.0} %", share * 100.0)),
        overflows.map(|overflows| format!("{}{on_node}", plural(overflows, "overflow"))),
        drops
            .filter(|drops| *drops > 0)
            .map(|drops| format!("{}{on_node}", plural(drops, "drop"))),
        load.syn_cookies
            .filter(|cookies| *cookies > 0)
            .map(|cookies| format!("{}{on_node}", plural(cookies, "SYN cookie"))),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// "Front doors of new flows: load balancer 96.0 %, node port 4.0 %". Nothing when no door is known.
pub(super) fn front_doors(report: &ServiceReport) -> Vec<String> {
    type Count = fn(&DoorSum) -> u64;
    let (kinds, figure): (&str, Count) = if report.front_doors.iter().any(|sum| sum.new > 0) {
        ("new", |sum| sum.new)
    } else {
        ("established", |sum| sum.established)
    };
    let known = |sum: &&DoorSum| sum.kind != DoorKind::Unknown && figure(sum) > 0;
    let sum = |sum: u64, more: u64| sum.saturating_add(more);
    let total = report.front_doors.iter().filter(known).map(figure).fold(0, sum);
    let all = report.front_doors.iter().map(figure).fold(0, sum);
    if total == 0 {
        return Vec::new();
    }
    let share = |part: u64, of: u64| percent(Some(part as f64 / of as f64));
    let parts: Vec<String> = report
        .front_doors
        .iter()
        .filter(known)
        .map(|sum| format!("{} {}", door(sum.kind), share(figure(sum), total)))
        .collect();
    let coverage = if total < all {
        format!(" (known for {} of the flows)", share(total, all))
    } else {
        String::new()
    };
    vec![format!("Front doors of {kinds} flows: {}{coverage}", parts.join(", "))]
}

fn door(kind: DoorKind) -> &'static str {
    match kind {
        DoorKind::LoadBalancer => "load balancer",
        DoorKind::ExternalIp => "external address",
        DoorKind::ClusterIp => "cluster address",
        DoorKind::NodePort => "node port",
        DoorKind::Direct => "direct",
        DoorKind::Other => "other",
        DoorKind::Unknown => "unknown",
    }
}

/// "Gone: gw-3 on worker-2 (not ready): 120 new, 33 still open".
pub(super) fn gone(report: &ServiceReport) -> Vec<String> {
    let line = |row: &GoneRow| {
        let what = match row.state {
            GoneState::Gone => "Gone",
            GoneState::NotReady => "Not ready",
            GoneState::OtherPod => "Another pod",
        };
        let open = match (row.established, row.stale) {
            (0, _) => String::new(),
            (open, false) => format!(", {} still open", count(open)),
            (open, true) => format!(", {} stale: clients still send to it", count(open)),
        };
        format!("{what}: {} on {}: {} new{open}", row.pod, row.node, count(row.new))
    };
    some(&report.gone_endpoints, line, "endpoint")
}

/// "12 attempts reached no pod: dropped on node worker-4 (no local endpoint; the balancer still sends there)".
pub(super) fn unserved(report: &ServiceReport) -> Vec<String> {
    let line = |row: &UnservedRow| {
        let why = match (row.reason, row.endpoints) {
            (UnservedReason::Dropped, 0) => " (no local endpoint; the balancer still sends there)",
            (UnservedReason::Dropped, _) => " (its rules had no endpoint for them)",
            (UnservedReason::Refused, _) => " (nothing listened at the endpoint)",
        };
        format!(
            "{} reached no pod: {} on node {}{why}",
            plural(row.attempts, "attempt"),
            row.reason.code(),
            row.node
        )
    };
    some(&report.unserved, line, "node")
}

fn some<T>(rows: &[T], line: impl Fn(&T) -> String, noun: &str) -> Vec<String> {
    let mut lines: Vec<String> = rows.iter().take(MAX_LINES).map(line).collect();
    if rows.len() > MAX_LINES {
        let more = plural((rows.len() - MAX_LINES) as u64, noun);
        lines.push(format!("... and {more} more; -o json has all"));
    }
    lines
}

/// What is missing, and what agents cannot do.
pub(super) fn losses(losses: &Losses) -> Vec<String> {
    let mut lines = vec![missing(losses)];
    let mut codes: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for found in &losses.degradations {
        codes
            .entry((&found.code, &found.sentence))
            .or_default()
            .push(&found.node);
    }
    let line = |((code, sentence), nodes): &((&str, &str), Vec<&str>)| {
        let names = match nodes.len() {
            1 => format!("node {}", nodes[0]),
            0..=NAMED => format!("nodes {}", nodes.join(", ")),
            many => format!("nodes {} and {} more", nodes[..NAMED].join(", "), many - NAMED),
        };
        format!("{code} on {names}: {sentence}")
    };
    let codes: Vec<_> = codes.into_iter().collect();
    lines.extend(some(&codes, line, "thing"));
    lines
}

fn missing(losses: &Losses) -> String {
    if losses.none() {
        return "losses: none".to_owned();
    }
    let by_node = losses.nodes.kinds().map(|(kind, number)| (number, loss(kind)));
    let mut parts: Vec<String> = by_node
        .into_iter()
        .chain([
            (
                losses.flows_on_gone_endpoints,
                "new flows on pods that are gone or not ready, not in the shares",
            ),
            (losses.unclassified, "new flows of unknown source, not in the shares"),
            (
                losses.unattributed,
                "new flows that may be of another Service, not in the shares",
            ),
            (
                losses.unattributed_established,
                "open flows that may be of another Service, not in the shares",
            ),
            (
                losses.flows_of_no_pod,
                "new flows of processes that are no pod's, not in the shares",
            ),
        ])
        .filter(|(number, _)| *number > 0)
        .map(|(number, what)| format!("{} {what}", count(number)))
        .collect();
    if !losses.silent_nodes.is_empty() {
        parts.push(format!("no reports from {}", losses.silent_nodes.join(", ")));
    }
    format!("losses: {}", parts.join("; "))
}

fn loss(kind: &'static str) -> &'static str {
    match kind {
        "ring_full" => "events without room in the ring",
        "flows_full" => "flows not tracked",
        "ledger_full" => "flows without room in a ledger",
        "orphan_close" => "closes of flows that were not tracked",
        "orphan_flow" => "flows whose end was seen late",
        "reports_dropped" => "reports dropped by agents",
        "recursion" => "runs that the kernel skipped, each perhaps a flow",
        "corrected" => "flows found gone by a check",
        "unserved_full" => "attempts without room to be counted",
        "udp_flows_full" => "datagrams of UDP flows without room to be tracked",
        "activity_dropped" => "events of single flows lost, which clients lack",
        "entries_dropped" => "ledger entries not kept",
        other => other,
    }
}
