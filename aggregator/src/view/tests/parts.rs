//! The parts of a report beside shares and skew.

use super::*;

fn tally(new: u64, established: u64) -> Tally {
    let figures = figures(1, &[("a", new, established)]);
    figures.ports[0].endpoints[0].tally.clone()
}

#[test]
fn front_doors_by_endpoint_and_by_kind() {
    let mut figures = figures(1, &[("a", 100, 50), ("b", 100, 50)]);
    let port = &mut figures.ports[0];
    let door = |opened, established| DoorTally {
        opened: vec![opened],
        counts: DoorCounts {
            opened,
            established,
            closed: 0,
        },
    };
    let address = "203.0.113.9".parse::<std::net::Ipv4Addr>().unwrap().to_ipv6_mapped();
    for endpoint in &mut port.endpoints {
        let doors = &mut endpoint.tally.doors;
        doors.insert((DoorKind::LoadBalancer, address, 8883), door(70, 40));
        doors.insert((DoorKind::NodePort, address, 30883), door(20, 10));
        doors.insert((DoorKind::Other, address, 1), door(0, 0));
        endpoint.tally.unknown = door(10, 0);
    }
    port.nodes[1].door_coverage = DoorCoverage {
        found: 9,
        not_found: 1,
        skipped: 0,
    };
    let report = assemble(&figures, &figures.ports[0], 0).unwrap();
    let rows: Vec<(DoorKind, &str, u16, u64)> = report.endpoints[1]
        .doors
        .iter()
        .map(|row| (row.kind, row.address.as_str(), row.port, row.new))
        .collect();
    assert_eq!(
        rows,
        [
            (DoorKind::LoadBalancer, "203.0.113.9", 8883, 70),
            (DoorKind::NodePort, "203.0.113.9", 30883, 20),
        ]
    );
    let sums: Vec<(DoorKind, u64, u64)> = report
        .front_doors
        .iter()
        .map(|sum| (sum.kind, sum.new, sum.established))
        .collect();
    assert_eq!(
        sums,
        [
            (DoorKind::LoadBalancer, 140, 80),
            (DoorKind::NodePort, 40, 20),
            (DoorKind::Unknown, 20, 0),
        ]
    );
    assert_eq!(report.door_coverage.found, 9);
    assert_eq!(
        serde_json::to_value(report.front_doors[0]).unwrap()["kind"],
        "load_balancer"
    );
    assert!(report.notes.is_empty(), "{:?}", report.notes);
}

#[test]
fn endpoints_that_do_not_count_are_listed() {
    let mut figures = figures(1, &[("a", 10, 5)]);
    let port = &mut figures.ports[0];
    let gone = |pod: &str, state, new, established| GoneFigures {
        pod: pod.to_owned(),
        pod_uid: String::new(),
        node: "a".to_owned(),
        address: "10.0.0.9".to_owned(),
        port: 53,
        state,
        gone_ms: (state == GoneState::Gone).then_some(7),
        unready_since_ms: None,
        // Nothing since it is not ready, and so many before.
        tally: tally(0, established),
        new_since_asked: vec![new],
        activity: vec![],
    };
    port.protocol = Protocol::Udp;
    port.gone = vec![
        gone("idle", GoneState::Gone, 0, 0),
        gone("starting", GoneState::NotReady, 2, 1),
        gone("old", GoneState::Gone, 7, 4),
        gone("older", GoneState::Gone, 1, 0),
    ];
    port.of_no_pod = vec![6];
    let report = assemble(&figures, &figures.ports[0], 0).unwrap();
    let rows: Vec<(&str, u64, u64, bool)> = report
        .gone_endpoints
        .iter()
        .map(|row| (row.pod.as_str(), row.new, row.established, row.stale))
        .collect();
    assert_eq!(
        rows,
        [("old", 7, 4, true), ("starting", 2, 1, false), ("older", 1, 0, false)]
    );
    assert_eq!(report.losses.flows_on_gone_endpoints, 0, "of before the window");
    assert_eq!(report.losses.flows_of_no_pod, 6);
    // A TCP flow that is open on a pod that is gone is not stale: it has an end of its own.
    figures.ports[0].protocol = Protocol::Tcp;
    let report = assemble(&figures, &figures.ports[0], 0).unwrap();
    assert!(!report.gone_endpoints[0].stale);
}

#[test]
fn what_limits_the_figures_is_said() {
    let notes = |change: &dyn Fn(&mut PortFigures)| {
        let mut figures = figures(1, &[("a", 10, 5), ("b", 30, 5)]);
        change(&mut figures.ports[0]);
        assemble(&figures, &figures.ports[0], 0).unwrap().notes
    };
    let other = PortName {
        service: ObjectName {
            namespace: "telemetry".to_owned(),
            name: "internal".to_owned(),
        },
        port: 80,
        protocol: Protocol::Tcp,
    };
    assert_eq!(
        notes(&|port| port.shared_with = vec![other.clone()]),
        [
            "telemetry/gateway 8883/TCP shares its pods with telemetry/internal 80/TCP: only flows that came through \
             its own front doors count."
        ]
    );
    let partly = notes(&|port| {
        port.shared_with = vec![other.clone()];
        port.endpoints[0].tally.unattributed = vec![7];
        port.endpoints[1].tally.unattributed_established = 2;
    });
    assert!(
        partly[0].ends_with(
            "Shares rest on the doors that were found: 7 new and 2 open flows of these pods have none that is known, \
             next to 40 and 10 that count. They were found for 30 % to 100 % of a pod's flows: where fewer were found, \
             the share is too small."
        ),
        "{partly:?}"
    );
    // All is unknown: then nothing is said to be even, or absent.
    let mut unknown = crate::state::sample::figures(1, &[("a", 0, 0)]);
    unknown.ports[0].shared_with = vec![other.clone()];
    unknown.ports[0].endpoints[0].tally.unattributed = vec![7];
    let report = assemble(&unknown, &unknown.ports[0], 0).unwrap();
    assert_eq!(report.headline, report.notes[0]);
}

#[test]
fn a_window_that_begins_later_says_why() {
    let notes = |change: &dyn Fn(&mut PortFigures)| {
        let mut figures = figures(1, &[("a", 10, 5), ("b", 30, 5), ("c", 30, 5)]);
        // It was asked to begin at 1,000 s, and ends at 1,300 s after midnight.
        figures.ports[0].windows[0].from_ms = 1_120_000;
        change(&mut figures.ports[0]);
        let report = assemble(&figures, &figures.ports[0], 0).unwrap();
        assert_eq!((report.window.from_ms, report.asked_from_ms), (1_120_000, 1_000_000));
        report.notes
    };
    let end = "flows from before would show a skew that is none.";
    let changed = format!("The window begins where the ready pods changed, which is 3 minutes ago (00:18:31Z): {end}");
    assert_eq!(
        notes(&|port| port.endpoints_changed_ms = Some(1_111_000)),
        [changed.as_str()]
    );
    // A node that has begun before that does not matter.
    let both = notes(&|port| {
        port.endpoints_changed_ms = Some(1_111_000);
        port.nodes[1].counting_since_ms = Some(1_110_000);
    });
    assert_eq!(both, [changed.as_str()]);
    let late = notes(&|port| {
        port.endpoints_changed_ms = Some(1_111_000);
        port.nodes[1].counting_since_ms = Some(1_112_000);
        port.nodes[1].origin = Origin::Migrated;
        port.nodes[2].counting_since_ms = Some(1_240_000);
    });
    assert_eq!(
        late,
        [format!(
            "The window begins where flows on b, c began to be counted, where an agent of another version counted before, \
             which is 60 seconds ago (00:20:40Z): {end}"
        )]
    );
    // What is silent has no say.
    let silent = notes(&|port| {
        port.endpoints_changed_ms = Some(1_111_000);
        port.nodes[1].counting_since_ms = Some(1_112_000);
        port.nodes[1].reporting = false;
    });
    assert_eq!(silent, [changed]);
    // As asked.
    let mut as_asked = figures(1, &[("a", 10, 5)]);
    as_asked.ports[0].endpoints_changed_ms = Some(999_000);
    assert!(assemble(&as_asked, &as_asked.ports[0], 0).unwrap().notes.is_empty());
}

#[test]
fn loads_and_attempts() {
    let mut figures = figures(1, &[("a", 10, 5), ("b", 30, 5)]);
    let port = &mut figures.ports[0];
    port.endpoints[1].load_rates = vec![Some(LoadRates {
        span_ms: 250_000,
        cpu_cores: Some(2.75),
        throttled_share: Some(0.125),
        listen_overflows: Some(3),
        listen_drops: Some(4),
        syn_cookies: None,
        shares_network: true,
    })];
    let attempts = |node: &str, attempts| UnservedFigures {
        node: node.to_owned(),
        reason: UnservedReason::Dropped,
        attempts: vec![attempts],
        total: 99,
    };
    port.unserved = vec![attempts("b", 0), attempts("c", 12)];
    let report = assemble(&figures, &figures.ports[0], 0).unwrap();
    assert_eq!(report.endpoints[0].load, None);
    let load = report.endpoints[1].load.unwrap();
    assert_eq!(
        (load.seconds, load.cpu_cores, load.shares_network),
        (250.0, Some(2.75), true)
    );
    let rows: Vec<(&str, u64, u32)> = report
        .unserved
        .iter()
        .map(|row| (row.node.as_str(), row.attempts, row.endpoints))
        .collect();
    assert_eq!(rows, [("c", 12, 0)]);
}
