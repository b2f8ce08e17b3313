//! The agent's own metrics: in, its state as published; out, OpenMetrics text. Series are bounded by the endpoints of the
//! node.

use std::collections::HashSet;

use flowskew_agent_ebpf::{ClassCounts, PROTOCOL_TCP, PROTOCOL_UDP, WatchedKey, source_class};
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use crate::{
    events::{Cause, EventMetrics},
    kernel::Origin,
    observer::Observation,
};

/// What the owner of the agent's state lets others see.
#[derive(Debug, Clone, Default)]
pub struct Published {
    /// True once programs are attached, the assignment has come or was waited for, and open flows were taken up.
    pub ready: bool,
    /// The latest counters.
    pub observation: Observation,
    /// The endpoints to show; `None`: all local addresses and ports.
    pub endpoints: Option<HashSet<WatchedKey>>,
    /// Whether a stream to the aggregator is open.
    pub connected: bool,
    /// Reports that wait to be acknowledged.
    pub reports_pending: usize,
    /// Reports that the aggregator has taken.
    pub reports_acknowledged: u64,
    /// Reports dropped from the full queue.
    pub reports_dropped: u64,
    /// Single flows in reports that were dropped, or that waited too long.
    pub activity_dropped: u64,
    /// Whether the latest assignment could not be set in the kernel.
    pub assignment_failed: bool,
    /// How the counters began.
    pub origin: Option<Origin>,
    /// Why open flows could not be taken up at start, if so.
    pub seeding_failed: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndpointLabels {
    address: String,
    port: u16,
    protocol: &'static str,
    source_class: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClosedLabels {
    address: String,
    port: u16,
    protocol: &'static str,
    source_class: &'static str,
    cause: Cause,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LossLabels {
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LookUpLabels {
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DegradedLabels {
    code: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OriginLabel {
    origin: &'static str,
}

/// Renders everything.
///
/// # Errors
/// Formatting into a string fails only when out of memory.
pub fn render(published: &Published, events: &EventMetrics) -> Result<String, std::fmt::Error> {
    let mut registry = Registry::default();
    endpoints(&mut registry, published);
    losses(&mut registry, published);
    beyond(&mut registry, published);
    clients(&mut registry, published);
    reporting(&mut registry, published);
    registry.register(
        "flowskew_agent_flow_duration_seconds",
        "Time from open to close of flows of this node's endpoints, by cause of the close",
        events.duration.clone(),
    );
    registry.register(
        "flowskew_agent_events",
        "Records of single flows that were read from the kernel's ring",
        events.read.clone(),
    );
    registry.register(
        "flowskew_agent_malformed_events",
        "Records of the kernel's ring that could not be read",
        events.malformed.clone(),
    );
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

fn endpoints(registry: &mut Registry, published: &Published) {
    let opened = Family::<EndpointLabels, Counter>::default();
    let seeded = Family::<EndpointLabels, Counter>::default();
    let established = Family::<EndpointLabels, Gauge>::default();
    let closed = Family::<ClosedLabels, Counter>::default();
    for (key, value) in &published.observation.kernel.entries {
        if published
            .endpoints
            .as_ref()
            .is_some_and(|shown| !shown.contains(&key.endpoint()))
        {
            continue;
        }
        for (class, counts) in CLASSES.iter().zip(&value.classes) {
            if counts == &ClassCounts::default() {
                continue;
            }
            let labels = EndpointLabels {
                address: address_text(&key.address),
                port: key.port,
                protocol: protocol_text(key.protocol),
                source_class: class,
            };
            // Two cgroups at one address and port add up.
            opened.get_or_create(&labels).inc_by(counts.opened);
            seeded.get_or_create(&labels).inc_by(counts.seeded);
            established.get_or_create(&labels).inc_by(counts.established.max(0));
            for (cause, count) in Cause::ALL
                .into_iter()
                .zip(counts.closed)
                .filter(|&(_, count)| count > 0)
            {
                let EndpointLabels {
                    address,
                    port,
                    protocol,
                    source_class,
                } = labels.clone();
                closed
                    .get_or_create(&ClosedLabels {
                        address,
                        port,
                        protocol,
                        source_class,
                        cause,
                    })
                    .inc_by(count);
            }
        }
    }
    registry.register(
        "flowskew_agent_opened",
        "Flows that became established since the agent began to count",
        opened,
    );
    registry.register(
        "flowskew_agent_seeded",
        "Flows found already open when the agent began to count",
        seeded,
    );
    registry.register("flowskew_agent_established", "Flows open now", established);
    registry.register(
        "flowskew_agent_closed",
        "Flows that ended since the agent began to count, by cause",
        closed,
    );
}

fn losses(registry: &mut Registry, published: &Published) {
    let family = Family::<LossLabels, Counter>::default();
    let kernel = &published.observation.kernel.losses;
    for (kind, count) in [
        ("ring_full", kernel.ring_full),
        ("flows_full", kernel.flows_full),
        ("ledger_full", kernel.ledger_full),
        ("orphan_close", kernel.orphan_close),
        ("orphan_flow", kernel.orphan_flow),
        ("corrected", kernel.corrected),
        ("unserved_full", kernel.unserved_full),
        ("udp_flows_full", kernel.udp_flows_full),
        ("recursion", kernel.recursion),
        ("reports_dropped", published.reports_dropped),
        (
            "activity_dropped",
            published.observation.clients.dropped + published.activity_dropped,
        ),
    ] {
        family.get_or_create(&LossLabels { kind }).inc_by(count);
    }
    registry.register(
        "flowskew_agent_losses",
        "What could not be counted or told, by kind",
        family,
    );
}

/// What goes beyond counts of flows: doors, attempts that reached no pod, and what cannot be done here.
fn beyond(registry: &mut Registry, published: &Published) {
    let observation = &published.observation;
    let look_ups = Family::<LookUpLabels, Counter>::default();
    if let Some(doors) = &observation.doors {
        for (result, count) in [
            ("found", doors.coverage.found),
            ("not_found", doors.coverage.not_found),
            ("skipped", doors.coverage.skipped),
        ] {
            look_ups.get_or_create(&LookUpLabels { result }).inc_by(count);
        }
    }
    registry.register(
        "flowskew_agent_door_lookups",
        "Flows of this node's endpoints whose front door was looked up, or not, by result",
        look_ups,
    );
    let unserved: Counter = Counter::default();
    unserved.inc_by(observation.kernel.unserved.iter().map(|(_, attempts)| attempts).sum());
    registry.register(
        "flowskew_agent_unserved_attempts",
        "Attempts to connect that reached no pod",
        unserved,
    );
    let degraded = Family::<DegradedLabels, Gauge>::default();
    for degradation in &observation.degradations {
        degraded
            .get_or_create(&DegradedLabels { code: degradation.code })
            .set(1);
    }
    registry.register(
        "flowskew_agent_degraded",
        "1 for each thing that the agent cannot do on this node; its log says why",
        degraded,
    );
}

/// What single clients did, and how much of it is told.
fn clients(registry: &mut Registry, published: &Published) {
    let totals = published.observation.clients;
    let counter = |count| {
        let counter: Counter = Counter::default();
        counter.inc_by(count);
        counter
    };
    registry.register(
        "flowskew_agent_client_events",
        "Single flows of external clients, opened or closed, that were put into reports",
        counter(totals.events),
    );
    registry.register(
        "flowskew_agent_client_events_dropped",
        "Single flows of external clients that found no room, or whose report was dropped",
        counter(totals.dropped + published.activity_dropped),
    );
    let shift: Gauge = Gauge::default();
    shift.set(totals.shift.into());
    registry.register(
        "flowskew_agent_client_sampling_shift",
        "k when the busiest endpoint tells one client in 2^k one by one; 0 when all are told",
        shift,
    );
}

fn reporting(registry: &mut Registry, published: &Published) {
    let gauge = |value: bool| {
        let gauge: Gauge = Gauge::default();
        gauge.set(value.into());
        gauge
    };
    registry.register(
        "flowskew_agent_ready",
        "1 once the agent counts",
        gauge(published.ready),
    );
    registry.register(
        "flowskew_agent_seeding_failed",
        "1 if flows that were open at start could not be taken up: established then lacks them",
        gauge(published.seeding_failed.is_some()),
    );
    registry.register(
        "flowskew_agent_assignment_failed",
        "1 if the latest assignment could not be set in the kernel: source classes may be wrong",
        gauge(published.assignment_failed),
    );
    registry.register(
        "flowskew_agent_connected",
        "1 while a stream to the aggregator is open",
        gauge(published.connected),
    );
    if let Some(origin) = published.origin {
        let family = Family::<OriginLabel, Gauge>::default();
        family.get_or_create(&OriginLabel { origin: origin.label() }).set(1);
        registry.register(
            "flowskew_agent_origin",
            "How the counters began: fresh, adopted or upgraded from the agent before, or migrated, which begins anew",
            family,
        );
    }
    let pending: Gauge = Gauge::default();
    pending.set(i64::try_from(published.reports_pending).unwrap_or(i64::MAX));
    registry.register(
        "flowskew_agent_reports_pending",
        "Reports that wait to be acknowledged",
        pending,
    );
    let acknowledged: Counter = Counter::default();
    acknowledged.inc_by(published.reports_acknowledged);
    registry.register(
        "flowskew_agent_reports_acked",
        "Reports that the aggregator has taken",
        acknowledged,
    );
}

/// Label values, in the order of [`source_class`].
const CLASSES: [&str; source_class::COUNT] = ["unclassified", "external", "pod", "node"];

/// An address as people write it; IPv4-mapped as IPv4.
pub fn address_text(address: &[u8; 16]) -> String {
    std::net::Ipv6Addr::from(*address).to_canonical().to_string()
}

/// A protocol as people write it.
pub fn protocol_text(protocol: u8) -> &'static str {
    match protocol {
        PROTOCOL_TCP => "tcp",
        PROTOCOL_UDP => "udp",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use flowskew_agent_ebpf::{LedgerKey, LedgerValue};

    use crate::clients::Totals;

    use super::*;

    fn key(last: u8, cgroup_id: u64) -> LedgerKey {
        let address = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, last];
        LedgerKey {
            address,
            cgroup_id,
            port: 80,
            protocol: PROTOCOL_TCP,
            padding: 0,
            padding_word: 0,
        }
    }

    fn value(opened: u64) -> LedgerValue {
        let mut value = LedgerValue::default();
        value.classes[1] = ClassCounts {
            opened,
            established: -1,
            seeded: 2,
            closed: [0, 4, 0, 0, 0, 0],
        };
        value
    }

    #[test]
    fn only_endpoints_are_shown_and_cgroups_add_up() {
        let mut published = Published {
            endpoints: Some(HashSet::from([key(1, 0).endpoint()])),
            connected: true,
            reports_dropped: 3,
            ..Published::default()
        };
        published.activity_dropped = 4;
        published.observation.clients = Totals {
            events: 7,
            dropped: 2,
            shift: 5,
        };
        published.observation.kernel.entries =
            vec![(key(1, 7), value(5)), (key(1, 8), value(6)), (key(2, 9), value(9))];
        let text = render(&published, &EventMetrics::default()).expect("rendered");
        let labels = r#"address="10.0.0.1",port="80",protocol="tcp",source_class="external""#;
        for line in [
            format!("flowskew_agent_opened_total{{{labels}}} 11"),
            format!("flowskew_agent_seeded_total{{{labels}}} 4"),
            format!("flowskew_agent_established{{{labels}}} 0"),
            format!("flowskew_agent_closed_total{{{labels},cause=\"client_fin\"}} 8"),
            r#"flowskew_agent_losses_total{kind="reports_dropped"} 3"#.to_owned(),
            "flowskew_agent_connected 1".to_owned(),
            r#"flowskew_agent_losses_total{kind="activity_dropped"} 6"#.to_owned(),
            "flowskew_agent_client_events_total 7".to_owned(),
            "flowskew_agent_client_events_dropped_total 6".to_owned(),
            "flowskew_agent_client_sampling_shift 5".to_owned(),
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in:\n{text}");
        }
        assert!(!text.contains("10.0.0.2"), "{text}");
    }
}
