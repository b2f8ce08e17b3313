//! Numbers worked out by hand.

use super::*;
use crate::report::Estimate;

#[test]
fn a_heavy_client_among_light_ones() {
    // 10 flows of one client on n0-0, one each of 10 others: 5 on n0-1, 5 on n1-0.
    let mut events: Vec<ClientEvent> = (0..10).map(|i| opened(i, 99, 0)).collect();
    events.extend((0..10).map(|i| opened(100 + i, i, if i < 5 { 1 } else { 2 })));
    let found = view(&with_events(service(&[2, 1]), events));
    let clients = &found.clients;
    assert_eq!(
        (clients.flows, clients.seen, clients.distinct),
        (20, 11, Estimate::exact(11.0))
    );
    // 1 / ((10/20)^2 + 10 (1/20)^2) = 400 / 110.
    near(clients.effective.unwrap().value, 400.0 / 110.0);
    // The heavy one and nine others.
    assert_eq!(clients.top_share, Some(Estimate::exact(19.0 / 20.0)));
    let first = &clients.heaviest[0];
    assert_eq!(
        (first.client.as_str(), first.nodes, first.pods),
        ("0000000000000063", Some(1), Some(1))
    );
    assert_eq!((first.share, first.at_once), (Estimate::exact(0.5), Some(10)));
    assert_eq!(clients.heaviest.len(), 10);
    // 10 at once, where others have 1.
    assert!(first.looks_shared && !clients.heaviest[1].looks_shared);
    let shared = clients.shared_addresses.unwrap();
    assert_eq!((shared.addresses, shared.share), (1, 0.5));
    assert_eq!(found.heavy, [10.0, 0.0, 0.0]);
    let by_endpoint: Vec<f64> = found
        .endpoint_clients
        .iter()
        .map(|clients| clients.unwrap().value)
        .collect();
    assert_eq!(by_endpoint, [1.0, 5.0, 5.0]);
    // 9 pairs, all on one pod and node. Two clients of n0 agree in (1 + 25 - 6) / (6 * 5), which is more than 1/2; of all, on
    // 6 * 5 + 5 * 4 of 11 * 10.
    let pods = found.affinity.pod_tier.unwrap();
    assert_eq!((pods.pairs, pods.clients, pods.observed), (9, 1, 1.0));
    near(pods.chance, 20.0 / 30.0);
    let nodes = found.affinity.node_tier.unwrap();
    near(nodes.chance, (6.0 * 5.0 + 5.0 * 4.0) / 110.0);
    assert_eq!(found.node_pairs, (9, 9));
    // Wilson of 9 in 9: 1 / (1 + 3.8415 / 9) = 0.7009.
    let kappa = nodes.kappa.unwrap();
    near(kappa.value, 1.0);
    assert!(
        (kappa.low - (0.70086 - 50.0 / 110.0) / (60.0 / 110.0)).abs() < 1e-4,
        "{kappa:?}"
    );
    // Kish: 1 + (110 / 20 - 1).
    near(found.design.nodes, 5.5);
    near(found.design.whole, 5.5);
}

#[test]
fn one_client_is_all_concentration() {
    let mut input = with_events(service(&[3]), (0..50).map(|i| opened(i, 7, 1)).collect());
    input.affinity = AffinityInput::ClientIp(10_800);
    let found = view(&input);
    assert_eq!(found.clients.effective, Some(Estimate::exact(1.0)));
    assert_eq!(found.clients.top_share, Some(Estimate::exact(1.0)));
    assert_eq!(found.clients.pinned_peak_ratio, Some(3.0));
    assert_eq!(found.heavy, [0.0, 50.0, 0.0]);
    assert!(found.pods_sticky, "{:?}", found.affinity);
    near(found.design.within, 50.0);
}

#[test]
fn the_address_is_shown_where_it_may_be() {
    let mut input = with_events(service(&[1]), vec![opened(5, 7, 0)]);
    if let Some(clients) = &mut input.clients {
        clients.addresses = vec![(7, "192.0.2.7".to_owned())];
    }
    assert_eq!(view(&input).clients.heaviest[0].client, "192.0.2.7");
}

#[test]
fn flows_that_were_not_seen_to_open_are_not_at_once() {
    // Two open, one closes, one more opens: two at once. A close of one that opened earlier, or nobody knows when, takes none off.
    let events = vec![
        opened(100, 1, 0),
        opened(110, 1, 0),
        closed(120, 1, 0, Some(500)),
        closed(121, 1, 0, None),
        closed(130, 1, 0, Some(30)),
        opened(140, 1, 0),
    ];
    let mut input = with_events(service(&[1]), events);
    input.asked_from_ms = 50;
    assert_eq!(view(&input).clients.heaviest[0].at_once, Some(2));
}

#[test]
fn without_flows_nothing_is_made_up() {
    let found = view(&service(&[2, 2]));
    assert_eq!((found.clients.effective, found.clients.top_share), (None, None));
    assert_eq!(
        (found.clients.pinned_peak_ratio, found.clients.distinct),
        (None, Estimate::exact(0.0))
    );
    assert_eq!((found.affinity.pod_tier, found.affinity.node_tier), (None, None));
    assert_eq!((found.design, found.node_pairs), (Default::default(), (0, 0)));
    let mut input = service(&[1]);
    input.clients = None;
    assert!(super::super::view(&input, &Split::of(&input, FlowKind::New)).is_none());
}

#[test]
fn a_heavy_client_of_a_node_is_heavy_there() {
    // n1 has 40 flows, 10 of them of one client that has 5 more on n0, where 300 others have one each.
    let mut events: Vec<ClientEvent> = (0..300).map(|i| opened(i, 1000 + i, 0)).collect();
    events.extend((0..5).map(|i| opened(400 + i, 1, 0)));
    events.extend((0..10).map(|i| opened(500 + i, 1, 1)));
    events.extend((0..30).map(|i| opened(600 + i, 2000 + i, 1)));
    assert_eq!(view(&with_events(service(&[1, 1]), events)).heavy, [0.0, 10.0]);
}

#[test]
fn a_pair_counts_only_while_its_first_pod_is_ready() {
    // Pod n0-2 is gone since 1000 s: who was there has moved on, and that is no break.
    let former = FormerEndpoint {
        pod: "old".to_owned(),
        node: "n0".to_owned(),
        since_ms: Some(1_000_000),
        established: 0,
    };
    let mut events: Vec<ClientEvent> = (0..20).map(|i| opened(900_000 + i, i, 2)).collect();
    events.extend((0..20).map(|i| opened(1_100_000 + i, i, (i % 2) as u32)));
    events.extend((0..20).map(|i| opened(1_200_000 + i, i, (i % 2) as u32)));
    let mut input = with_events(service(&[2]), events);
    input.former = vec![former];
    input.affinity = AffinityInput::ClientIp(600);
    let found = view(&input).affinity;
    let breaks = found.breaks.unwrap();
    assert_eq!((breaks.pairs, breaks.gone, breaks.broken), (40, 20, 0));
    assert_eq!(found.pod_tier.unwrap().pairs, 20);
    assert_eq!(
        found.code,
        crate::report::AffinityCode::AsConfigured,
        "{}",
        found.sentence
    );
}

#[test]
fn one_of_a_sample_stands_for_no_more_flows_than_there_are() {
    let mut input = with_events(service(&[3, 2]), vec![opened(0, 7, 0)]);
    if let Some(clients) = &mut input.clients {
        clients.sampling_shift = 3;
    }
    // All there is is one flow on n0: one of three pods there.
    assert_eq!(view(&input).clients.pinned_peak_ratio, Some(5.0));
    assert_eq!(view(&input).clients.top_share.unwrap().value, 1.0);
}
