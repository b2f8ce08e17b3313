//! Snapshots, and the text made of them.

use super::render;
use crate::cluster::{SyncStatus, WatchState};
use crate::flow::{CloseCause, Protocol, SourceClass};
use crate::ledger::{LoadRates, PodLoad};
use crate::node::Degradation;
use crate::report::UnservedReason;
use crate::state::sample::{agent, crowded, figures};
use crate::state::{Figures, STANDARD_WINDOWS, Snapshot, Totals, UnservedFigures};

const WINDOWS: usize = STANDARD_WINDOWS.len();

fn snapshot(figures: Figures) -> Snapshot {
    Snapshot {
        figures: Some(figures),
        nodes: vec![agent("a")],
        totals: Totals::default(),
    }
}

fn text(snapshot: &Snapshot) -> String {
    render(snapshot, &SyncStatus::default()).unwrap()
}

/// Series and their values.
fn check(text: &str, expected: &[(&str, f64)]) {
    for (series, value) in expected {
        let (name, _) = series.split_once('{').unwrap_or((series, ""));
        let family = || {
            text.lines()
                .filter(|line| line.starts_with(name))
                .collect::<Vec<_>>()
                .join("\n")
        };
        let found = text
            .lines()
            .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        let found: f64 = found
            .unwrap_or_else(|| panic!("no {series} in:\n{}", family()))
            .parse()
            .unwrap();
        assert!((found - value).abs() < 1e-9, "{series} is {found}, expected {value}");
    }
}

#[test]
fn figures_of_a_service() {
    check(
        &text(&snapshot(crowded(WINDOWS))),
        &[
            (
                r#"flowskew_window_flows{namespace="telemetry",service="gateway",port="8883",protocol="TCP",kind="new",window="5m"}"#,
                21000.0,
            ),
            (
                r#"flowskew_window_flows{namespace="telemetry",service="gateway",port="8883",protocol="TCP",kind="new",window="60m"}"#,
                21000.0,
            ),
            (
                r#"flowskew_window_flows{namespace="telemetry",service="gateway",port="8883",protocol="TCP",kind="established",window="now"}"#,
                18900.0,
            ),
            (
                r#"flowskew_peak_ratio{namespace="telemetry",service="gateway",port="8883",protocol="TCP",kind="new",window="1m"}"#,
                11.0 / 7.0,
            ),
            (
                r#"flowskew_max_min_ratio{namespace="telemetry",service="gateway",port="8883",protocol="TCP",kind="new",window="15m"}"#,
                3.0,
            ),
            (
                r#"flowskew_skew_significant{namespace="telemetry",service="gateway",port="8883",protocol="TCP",kind="new",window="5m"}"#,
                1.0,
            ),
            (
                r#"flowskew_balancer{namespace="telemetry",service="gateway",port="8883",protocol="TCP",model="equal-per-node"}"#,
                1.0,
            ),
            (
                r#"flowskew_finding{namespace="telemetry",service="gateway",port="8883",protocol="TCP",code="placement-skew"}"#,
                1.0,
            ),
            (
                r#"flowskew_endpoint_opened_total{namespace="telemetry",service="gateway",port="8883",protocol="TCP",node="a",pod="gw-0",source_class="external"}"#,
                1000.0,
            ),
            (
                r#"flowskew_endpoint_established{namespace="telemetry",service="gateway",port="8883",protocol="TCP",node="g",pod="gw-10",source_class="external"}"#,
                2700.0,
            ),
            (
                r#"flowskew_endpoint_new_share{namespace="telemetry",service="gateway",port="8883",protocol="TCP",node="g",pod="gw-10",window="5m"}"#,
                1.0 / 7.0,
            ),
            (
                r#"flowskew_endpoint_ideal_share{namespace="telemetry",service="gateway",port="8883",protocol="TCP",node="a",pod="gw-0"}"#,
                1.0 / 11.0,
            ),
        ],
    );
}

#[test]
fn theil_parts_add_up() {
    let text = text(&snapshot(crowded(WINDOWS)));
    let part = |part: &str| -> f64 {
        let labels = format!(r#"kind="new",window="5m",part="{part}"}} "#);
        let line = text
            .lines()
            .find(|line| line.starts_with("flowskew_theil{") && line.contains(&labels))
            .unwrap();
        line.rsplit_once(' ').unwrap().1.parse().unwrap()
    };
    let parts = part("load_balancer") + part("placement") + part("within_node");
    assert!((parts - part("total")).abs() < 1e-12 && part("placement") > 0.0);
}

#[test]
fn closes_are_summed_over_classes() {
    let mut figures = figures(WINDOWS, &[("a", 9, 1)]);
    let counts = &mut figures.ports[0].endpoints[0].tally.counts;
    counts[SourceClass::External.index()].closed[CloseCause::ClientFin.index()] = 5;
    counts[SourceClass::Node.index()].closed[CloseCause::ClientFin.index()] = 3;
    check(
        &text(&snapshot(figures)),
        &[
            (
                r#"flowskew_endpoint_closed_total{namespace="telemetry",service="gateway",port="8883",protocol="TCP",node="a",pod="gw-0",cause="client_fin"}"#,
                8.0,
            ),
            (
                r#"flowskew_endpoint_closed_total{namespace="telemetry",service="gateway",port="8883",protocol="TCP",node="a",pod="gw-0",cause="timeout"}"#,
                0.0,
            ),
        ],
    );
}

#[test]
fn what_is_not_known_has_no_series() {
    let text = text(&snapshot(figures(WINDOWS, &[("a", 0, 0), ("b", 0, 0)])));
    for name in [
        "flowskew_peak_ratio{",
        "flowskew_theil{",
        "flowskew_endpoint_new_share{",
    ] {
        assert!(!text.contains(name), "{name} in {text}");
    }
    check(
        &text,
        &[(
            r#"flowskew_window_flows{namespace="telemetry",service="gateway",port="8883",protocol="TCP",kind="new",window="5m"}"#,
            0.0,
        )],
    );
}

#[test]
fn what_is_gone_has_no_series() {
    let before = text(&snapshot(figures(WINDOWS, &[("a", 5, 5), ("b", 5, 5)])));
    assert!(before.contains(r#"pod="gw-1""#));
    let after = text(&snapshot(figures(WINDOWS, &[("a", 5, 5)])));
    assert!(after.contains(r#"pod="gw-0""#) && !after.contains(r#"pod="gw-1""#));
    let none = text(&Snapshot {
        figures: None,
        ..snapshot(figures(WINDOWS, &[]))
    });
    assert!(!none.contains("gateway"));
}

#[test]
fn endpoints_are_bounded() {
    let mut many = figures(WINDOWS, &[("a", 1, 1)]);
    let endpoint = many.ports[0].endpoints[0].clone();
    let mut large = many.ports[0].clone();
    large.service.name = "large".to_owned();
    large.endpoints = vec![endpoint; 10_000];
    many.ports.push(large);
    let text = text(&snapshot(many));
    check(&text, &[("flowskew_aggregator_endpoints_without_series", 10_000.0)]);
    assert!(text.contains(r#"flowskew_window_flows{namespace="telemetry",service="large""#));
    assert!(!text.contains(r#"flowskew_endpoint_opened_total{namespace="telemetry",service="large""#));
}

#[test]
fn agents_and_the_aggregator_itself() {
    let mut snapshot = snapshot(figures(WINDOWS, &[]));
    snapshot.nodes[0].losses.ring_full = 4;
    snapshot.nodes[0].losses.entries_dropped = 6;
    let mut silent = agent("b");
    (silent.reporting, silent.epoch) = (false, None);
    snapshot.nodes.push(silent);
    snapshot.totals = Totals {
        reports_taken: 10,
        reports_rejected: 1,
        prefixes_left_out: 3,
        front_doors_left_out: 2,
        client_events: 7,
        client_events_thinned: 8,
        client_batches_dropped: 9,
        client_events_invalid: 11,
        ..Default::default()
    };
    let watch = WatchState {
        synced: true,
        errors: 2,
        error: None,
    };
    let sync = SyncStatus {
        watches: [("pods", watch)].into(),
        ..Default::default()
    };
    check(
        &render(&snapshot, &sync).unwrap(),
        &[
            (r#"flowskew_agent_up{node="a"}"#, 1.0),
            (r#"flowskew_agent_up{node="b"}"#, 0.0),
            (r#"flowskew_losses_total{node="a",kind="ring_full"}"#, 4.0),
            (r#"flowskew_losses_total{node="a",kind="entries_dropped"}"#, 6.0),
            (r#"flowskew_aggregator_reports_total{outcome="taken"}"#, 10.0),
            (r#"flowskew_aggregator_reports_total{outcome="rejected"}"#, 1.0),
            (r#"flowskew_aggregator_assignment_left_out{kind="prefix"}"#, 3.0),
            (r#"flowskew_aggregator_assignment_left_out{kind="front_door"}"#, 2.0),
            ("flowskew_aggregator_client_events", 7.0),
            ("flowskew_aggregator_client_events_thinned_total", 8.0),
            ("flowskew_aggregator_client_batches_dropped_total", 9.0),
            ("flowskew_aggregator_client_events_invalid_total", 11.0),
            (r#"flowskew_aggregator_watch_synced{resource="pods"}"#, 1.0),
            (r#"flowskew_aggregator_watch_errors_total{resource="pods"}"#, 2.0),
        ],
    );
}

#[test]
fn what_stands_beside_the_skew() {
    let mut figures = crowded(WINDOWS);
    let port = &mut figures.ports[0];
    let rates = LoadRates {
        span_ms: 1000,
        cpu_cores: Some(2.75),
        throttled_share: None,
        listen_overflows: Some(1),
        listen_drops: None,
        syn_cookies: None,
        shares_network: false,
    };
    port.endpoints[0].load_rates = vec![Some(rates); WINDOWS];
    port.endpoints[0].load = Some(PodLoad {
        listen_overflows: Some(34),
        ..Default::default()
    });
    port.unserved = vec![UnservedFigures {
        node: "h".to_owned(),
        reason: UnservedReason::Refused,
        attempts: vec![1; WINDOWS],
        total: 12,
    }];
    let mut snapshot = snapshot(figures);
    let node = &mut snapshot.nodes[0];
    node.door_coverage.skipped = 5;
    node.degradations = vec![Degradation {
        code: "udp".to_owned(),
        sentence: String::new(),
    }];
    let text = text(&snapshot);
    check(
        &text,
        &[
            (
                r#"flowskew_endpoint_cpu_cores{namespace="telemetry",service="gateway",port="8883",protocol="TCP",node="a",pod="gw-0"}"#,
                2.75,
            ),
            (
                r#"flowskew_endpoint_listen_overflows_total{namespace="telemetry",service="gateway",port="8883",protocol="TCP",node="a",pod="gw-0"}"#,
                34.0,
            ),
            (
                r#"flowskew_unserved_attempts_total{namespace="telemetry",service="gateway",port="8883",protocol="TCP",node="h",reason="refused"}"#,
                12.0,
            ),
            (
                r#"flowskew_service_door_opened_total{namespace="telemetry",service="gateway",port="8883",protocol="TCP",door="unknown"}"#,
                21_000.0,
            ),
            (
                r#"flowskew_agent_info{node="a",agent_version="0.1.0",kernel_release="6.1.0",abi_version="2",origin="adopted"}"#,
                1.0,
            ),
            (r#"flowskew_agent_degraded{node="a",code="udp"}"#, 1.0),
            (r#"flowskew_door_lookups_total{node="a",result="skipped"}"#, 5.0),
        ],
    );
    // What is not known has no series.
    for name in [
        "flowskew_endpoint_cpu_throttled_share{",
        "flowskew_endpoint_syn_cookies_total{",
    ] {
        assert!(!text.contains(name), "{name}");
    }
}

#[test]
fn ports_of_one_number_and_two_protocols_are_told_apart() {
    let mut dns = figures(WINDOWS, &[("a", 5, 5)]);
    let mut udp = dns.ports[0].clone();
    udp.protocol = Protocol::Udp;
    udp.endpoints[0]
        .tally
        .opened
        .iter_mut()
        .for_each(|opened| opened[SourceClass::External.index()] = 7);
    dns.ports.push(udp);
    let series = |protocol: &str| {
        format!(
            r#"flowskew_window_flows{{namespace="telemetry",service="gateway",port="8883",protocol="{protocol}",kind="new",window="5m"}}"#
        )
    };
    check(&text(&snapshot(dns)), &[(&series("TCP"), 5.0), (&series("UDP"), 7.0)]);
}

#[test]
fn a_name_cannot_break_out_of_its_label() {
    let mut odd = figures(WINDOWS, &[("a", 1, 1)]);
    odd.ports[0].endpoints[0].pod = "x\"} 1\nevil 1".to_owned();
    odd.ports[0].protocol = Protocol::Tcp;
    assert!(!text(&snapshot(odd)).lines().any(|line| line.starts_with("evil")));
}
