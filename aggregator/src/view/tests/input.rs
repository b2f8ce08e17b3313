//! What the analysis is given of the figures, and which of it a report shows.

use std::sync::Arc;

use flowskew_proto::ages::{bucket, lower_bound_ms};

use super::*;
use crate::analysis::{AffinityInput, AgesInput, ClientEvent, ClientEventKind, FormerEndpoint};
use crate::clients::{Batch, Column, Moment};
use crate::flow::CloseCause;
use crate::ledger::FlowAges;
use crate::report::Window;
use crate::state::Figures;
use crate::view::input::input;

/// A report's events as (milliseconds before, client, closed after).
fn batch(at_ms: u64, events: &[(u32, u64, Option<u64>)]) -> Arc<Batch> {
    let moments = events.iter().map(|&(before_ms, _, lifetime)| Moment {
        lifetime_plus_1: lifetime.map_or(0, |lifetime| lifetime + 1),
        before_ms,
        closed: lifetime.map(|_| CloseCause::ClientFin),
    });
    Arc::new(Batch {
        at_ms,
        moments: moments.collect(),
        columns: vec![Column {
            key_id: 7,
            clients: events.iter().map(|event| event.1).collect(),
            ..Default::default()
        }],
        ..Default::default()
    })
}

fn gone(pod: &str, state: GoneState, activity: Vec<Arc<Batch>>) -> GoneFigures {
    GoneFigures {
        pod: pod.to_owned(),
        pod_uid: String::new(),
        node: "z".to_owned(),
        address: "10.0.0.9".to_owned(),
        port: 53,
        state,
        gone_ms: (state == GoneState::Gone).then_some(1_050_000),
        unready_since_ms: None,
        tally: figures(1, &[("a", 0, 6)]).ports[0].endpoints[0].tally.clone(),
        new_since_asked: vec![0],
        activity,
    }
}

/// Asked from 1,000 s to 1,300 s, and begun at 1,100 s.
fn with_clients() -> Figures {
    let mut figures = figures(1, &[("a", 10, 5), ("b", 30, 5)]);
    figures.client_key = Some(7);
    let port = &mut figures.ports[0];
    port.windows[0].from_ms = 1_100_000;
    port.endpoints[0].activity = vec![batch(999_000, &[(0, 1, None)]), batch(1_200_000, &[(400, 2, None)])];
    port.endpoints[1].activity = vec![batch(1_150_000, &[(9_000, 3, Some(70)), (0, 2, None)])];
    port.gone = vec![
        gone("stranger", GoneState::OtherPod, vec![batch(1_010_000, &[(0, 8, None)])]),
        gone("starting", GoneState::NotReady, vec![]),
        gone("old", GoneState::Gone, vec![batch(1_040_000, &[(1_000, 2, None)])]),
    ];
    figures
}

#[test]
fn clients_are_told_by_place_and_from_where_the_window_was_asked_to_begin() {
    let mut figures = with_clients();
    figures.ports[0].nodes[1].losses.activity_dropped = 3;
    figures.ports[0].nodes[1].losses.ring_full = 1;
    let given = input(&figures, &figures.ports[0], 0);
    assert_eq!((given.window.from_ms, given.asked_from_ms), (1_100_000, 1_000_000));
    let old = FormerEndpoint {
        pod: "old".to_owned(),
        node: "z".to_owned(),
        since_ms: Some(1_050_000),
        established: 6,
    };
    assert_eq!(given.former.len(), 2, "{:?}", given.former);
    assert_eq!((&given.former[1], given.former[0].since_ms), (&old, None));
    let clients = given.clients.unwrap();
    let event = |at_ms, client, place, what| ClientEvent {
        at_ms,
        client,
        place,
        what,
    };
    let closed = ClientEventKind::Closed {
        cause: CloseCause::ClientFin,
        lifetime_ms: Some(70),
    };
    // The old one is the second former endpoint, after two ready ones.
    assert_eq!(
        clients.events,
        [
            event(1_039_000, 2, 3, ClientEventKind::Opened),
            event(1_141_000, 3, 1, closed),
            event(1_150_000, 2, 1, ClientEventKind::Opened),
            event(1_199_600, 2, 0, ClientEventKind::Opened),
        ]
    );
    assert_eq!((clients.missing, clients.sampling_shift), (4, 0));
    // A batch that names clients under another key only.
    figures.client_key = Some(8);
    assert_eq!(input(&figures, &figures.ports[0], 0).clients.unwrap().missing, 4 + 3);
}

#[test]
fn without_clients_nothing_is_made_up() {
    let none = |change: &dyn Fn(&mut Figures)| {
        let mut figures = with_clients();
        change(&mut figures);
        input(&figures, &figures.ports[0], 0).clients.is_none()
    };
    assert!(!none(&|_| {}));
    assert!(none(&|figures| figures.client_key = None));
    assert!(none(&|figures| {
        let port = &mut figures.ports[0];
        port.endpoints.iter_mut().for_each(|endpoint| endpoint.activity.clear());
        port.gone.retain(|gone| gone.state == GoneState::OtherPod);
    }));
    assert!(none(&|figures| {
        figures.ports[0].shared_with = vec![PortName {
            service: figures.ports[0].service.clone(),
            port: 80,
            protocol: Protocol::Tcp,
        }];
    }));
}

#[test]
fn readings_of_ages_are_put_together() {
    let reading = |read_at_ms, buckets: &[(u64, u64)], unknown| {
        let buckets = buckets
            .iter()
            .map(|&(age, flows)| (u8::try_from(bucket(age)).unwrap(), flows));
        Arc::new(FlowAges {
            read_at_ms,
            buckets: buckets.collect(),
            unknown,
        })
    };
    let ages = |readings: Vec<Arc<FlowAges>>| {
        let mut figures = figures(1, &[("a", 10, 5)]);
        figures.ports[0].endpoints[0].ages = readings;
        input(&figures, &figures.ports[0], 0).endpoints[0].ages.clone()
    };
    assert_eq!(ages(vec![]), None);
    let low = |age| lower_bound_ms(bucket(age));
    let high = |age| lower_bound_ms(bucket(age) + 1);
    let both = vec![
        reading(5_000, &[(16, 1), (4_096, 2)], 3),
        reading(5_000, &[(16, 10), (64, 20)], 30),
        // A second before the others.
        reading(4_000, &[(16, 100)], 0),
    ];
    assert_eq!(
        ages(both),
        Some(AgesInput {
            read_at_ms: 5_000,
            buckets: vec![
                (16.0, high(16), 11),
                (64.0, high(64), 20),
                (1_016.0, high(16) + 1_000.0, 100),
                (4_096.0, high(4_096), 2),
            ],
            unknown: 33,
        })
    );
    assert_eq!((low(16), low(4_096)), (16.0, 4_096.0));
}

#[test]
fn what_the_service_and_its_endpoints_are_is_passed_on() {
    let mut figures = figures(3, &[("a", 10, 5), ("b", 30, 5)]);
    let port = &mut figures.ports[0];
    port.affinity_timeout_seconds = Some(600);
    port.nodes[1].zone = "z2".to_owned();
    port.endpoints[0].ready_since_ms = Some(17);
    port.endpoints[1].tally.closed[1] = 4;
    port.endpoints[1].tally.open_ms[1] = 1 << 70;
    port.endpoints[1].tally.opened[2][SourceClass::External.index()] = 77;
    port.windows[2].from_ms = 1_250_000;
    figures.windows[0].seconds = None;
    let given = input(&figures, &figures.ports[0], 1);
    assert_eq!(given.affinity, AffinityInput::ClientIp(600));
    assert_eq!((given.nodes[0].zone.as_str(), given.nodes[1].zone.as_str()), ("", "z2"));
    let endpoints: Vec<_> = given
        .endpoints
        .iter()
        .map(|endpoint| (endpoint.ready_since_ms, endpoint.closed, endpoint.open_ms))
        .collect();
    assert_eq!(endpoints, [(Some(17), 0, 0), (None, 4, 1 << 70)]);
    // Only those of standard length.
    let windows: Vec<_> = given
        .windows
        .iter()
        .map(|window| (window.seconds, window.window.from_ms, window.new.as_slice()))
        .collect();
    assert_eq!(
        windows,
        [(300, 1_000_000, [10, 30].as_slice()), (900, 1_250_000, &[10, 77])]
    );

    let report = assemble(&figures, &figures.ports[0], 2).unwrap();
    assert_eq!(
        report.window,
        Window {
            from_ms: 1_250_000,
            to_ms: 1_300_000
        }
    );
    assert_eq!(
        (report.asked_from_ms, report.affinity_timeout_seconds),
        (1_000_000, Some(600))
    );
    assert_eq!(
        (report.nodes[1].zone.as_str(), report.endpoints[0].ready_since_ms),
        ("z2", Some(17))
    );
    let seconds: Vec<u64> = report.windows.iter().map(|window| window.seconds).collect();
    assert_eq!(seconds, [300, 900]);
    assert_eq!(report.windows[1].new.flows, 87);
}

#[test]
fn a_report_shows_the_clients_of_each_pod() {
    let figures = with_clients();
    let report = assemble(&figures, &figures.ports[0], 0).unwrap();
    assert_eq!(report.clients.as_ref().map(|clients| clients.flows), Some(2));
    let clients: Vec<_> = report
        .endpoints
        .iter()
        .map(|row| row.clients.map(|clients| clients.value))
        .collect();
    assert_eq!(clients, [Some(1.0), Some(1.0)]);
}
