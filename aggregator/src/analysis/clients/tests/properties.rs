//! What holds for any input.

use super::*;
use crate::report::Estimate;
use proptest::prelude::*;

/// Events of up to 20 clients on 5 pods of 2 nodes, over up to 2 hours.
fn events() -> impl Strategy<Value = Vec<ClientEvent>> {
    let event = (
        0..2 * HOUR,
        0_u64..20,
        0_u32..6,
        prop::option::weighted(0.2, 0_u64..HOUR),
    );
    prop::collection::vec(event, 0..200).prop_map(|mut events| {
        events.sort_by_key(|event| event.0);
        // No two at the same time: their order would be anybody's guess.
        events.dedup_by_key(|event| event.0);
        let told = events.into_iter();
        told.map(|(at, client, place, lifetime)| match lifetime {
            None => opened(at, hash(client), place),
            Some(lifetime) => closed(at, hash(client), place, Some(lifetime)),
        })
        .collect()
    })
}

fn input(events: Vec<ClientEvent>, shift: u32) -> ServiceInput {
    let mut input = with_events(service(&[3, 2]), events);
    input.affinity = AffinityInput::ClientIp(1800);
    input.former = vec![FormerEndpoint {
        pod: "old".to_owned(),
        node: "n1".to_owned(),
        since_ms: Some(HOUR / 2),
        established: 1,
    }];
    if let Some(clients) = &mut input.clients {
        clients.sampling_shift = shift;
    }
    input
}

fn all_near(found: impl IntoIterator<Item = f64>, expected: impl IntoIterator<Item = f64>) {
    let (found, expected): (Vec<f64>, Vec<f64>) = (found.into_iter().collect(), expected.into_iter().collect());
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(&expected) {
        assert!(
            (found - expected).abs() <= 1e-9 * expected.abs().max(1.0),
            "{found}, not {expected}"
        );
    }
}

fn ends(estimate: Option<Estimate>) -> Vec<f64> {
    estimate.map_or_else(Vec::new, |e| vec![e.value, e.low, e.high])
}

/// The figures that have no names of clients or pods in them.
fn figures(view: &ClientView) -> Vec<f64> {
    let (clients, affinity) = (&view.clients, &view.affinity);
    let mut all = vec![clients.flows as f64, clients.seen as f64];
    for estimate in [Some(clients.distinct), clients.effective, clients.top_share] {
        all.extend(ends(estimate));
    }
    all.extend(clients.pinned_peak_ratio);
    for tier in [affinity.pod_tier, affinity.node_tier].into_iter().flatten() {
        all.extend([tier.pairs as f64, tier.clients as f64, tier.observed, tier.chance]);
        all.extend(ends(tier.kappa));
    }
    if let Some(breaks) = affinity.breaks {
        all.extend([breaks.pairs, breaks.broken, breaks.gone].map(|n| n as f64));
        all.extend([breaks.within_list, breaks.beyond_list].map(|rank| rank.pairs as f64));
        all.extend(breaks.median_gap_seconds);
    }
    all.extend([view.design.whole, view.design.nodes, view.design.within]);
    all
}

proptest! {
    #[test]
    fn the_order_of_endpoints_makes_no_difference(events in events(), shift in 0_u32..2) {
        let plain = input(events, shift);
        let mut turned = plain.clone();
        turned.endpoints.reverse();
        if let Some(clients) = &mut turned.clients {
            clients.events.iter_mut().filter(|event| event.place < 5).for_each(|event| event.place = 4 - event.place);
        }
        let (found, mut other) = (view(&plain), view(&turned));
        all_near(figures(&found), figures(&other));
        other.heavy.reverse();
        all_near(found.heavy.clone(), other.heavy);
        other.endpoint_clients.reverse();
        prop_assert_eq!(&found.endpoint_clients, &other.endpoint_clients);
        prop_assert_eq!(found.affinity.sentence, other.affinity.sentence);
    }

    #[test]
    fn the_names_of_clients_make_no_difference(events in events(), names in 1_u64..u64::MAX) {
        let plain = input(events, 0);
        let mut renamed = plain.clone();
        if let Some(clients) = &mut renamed.clients {
            clients.events.iter_mut().for_each(|event| event.client ^= names);
        }
        let (found, other) = (view(&plain), view(&renamed));
        all_near(figures(&found), figures(&other));
        all_near(found.heavy, other.heavy);
    }

    #[test]
    fn figures_stay_within_their_bounds(events in events(), shift in 0_u32..4) {
        let found = view(&input(events, shift));
        let flows = found.clients.flows as f64;
        for estimate in [Some(found.clients.distinct), found.clients.effective, found.clients.top_share].into_iter().flatten() {
            prop_assert!(estimate.low <= estimate.value && estimate.value <= estimate.high, "{:?}", estimate);
        }
        if shift == 0 && flows > 0.0 {
            let effective = found.clients.effective.unwrap().value;
            prop_assert!((1.0 - 1e-9..=found.clients.seen as f64 + 1e-9).contains(&effective));
        }
        prop_assert!(found.design.whole >= 1.0 && found.design.whole <= 1.0 + flows * 16.0);
        if let Some(peak) = found.clients.pinned_peak_ratio {
            prop_assert!((1.0 - 1e-9..=5.0 + 1e-9).contains(&peak), "{}", peak);
        }
        let breaks = found.affinity.breaks.unwrap();
        let broken = breaks.within_list.broken + breaks.beyond_list.broken;
        prop_assert_eq!(broken, breaks.broken);
        prop_assert!(breaks.within_list.pairs + breaks.beyond_list.pairs + breaks.gone <= breaks.pairs);
    }
}
