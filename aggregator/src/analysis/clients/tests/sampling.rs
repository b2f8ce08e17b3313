//! What a sample says of all clients, against all clients.

use super::*;
use crate::analysis::HeavyInput;
use crate::report::Estimate;
use std::collections::HashMap;

/// Clients with as many flows each as `flows` draws, on random pods.
fn population(pods: &[usize], clients: u64, seed: u64, flows: impl Fn(&mut Rng, u64) -> u64) -> ServiceInput {
    let mut rng = Rng::with_seed(seed);
    let places = pods.iter().sum::<usize>() as u32;
    let mut events = Vec::new();
    for client in 0..clients {
        let id = hash(client.wrapping_add(seed << 32));
        for _ in 0..flows(&mut rng, client) {
            events.push(opened(0, id, rng.u32(..places)));
        }
    }
    rng.shuffle(&mut events);
    for (i, event) in events.iter_mut().enumerate() {
        event.at_ms = i as u64;
    }
    with_events(service(pods), events)
}

/// As agents tell it that sample at 2^-shift: with lists of the 32 clients with most flows at each endpoint.
fn sampled(all: &ServiceInput, shift: u32) -> ServiceInput {
    let mut input = all.clone();
    let Some(clients) = &mut input.clients else {
        return input;
    };
    let mut heavy = Vec::new();
    for place in 0..all.endpoints.len() as u32 {
        let mut opens: HashMap<u64, u64> = HashMap::new();
        for event in clients.events.iter().filter(|event| event.place == place) {
            *opens.entry(event.client).or_default() += 1;
        }
        let mut most: Vec<(u64, u64)> = opens.into_iter().collect();
        most.sort_by_key(|(client, opened)| (std::cmp::Reverse(*opened), *client));
        heavy.extend(most.into_iter().take(32).map(|(client, opened)| HeavyInput {
            client,
            place,
            opened: opened + 1,
            error: 1,
        }));
    }
    clients.events.retain(|event| event.client >> (64 - shift) == 0);
    clients.sampling_shift = shift;
    clients.heavy = heavy;
    input
}

/// In how many of 100 runs at 1/8 the intervals cover the truth: distinct, effective, top share.
fn covered(pods: &[usize], clients: u64, flows: impl Fn(&mut Rng, u64) -> u64) -> [u32; 3] {
    let mut covered = [0; 3];
    for seed in 0..100 {
        let all = population(pods, clients, seed, &flows);
        let (truth, found) = (view(&all).clients, view(&sampled(&all, 3)).clients);
        let pairs = [
            (Some(truth.distinct), Some(found.distinct)),
            (truth.effective, found.effective),
            (truth.top_share, found.top_share),
        ];
        for (count, (truth, found)) in covered.iter_mut().zip(pairs) {
            let (truth, found): (Estimate, Estimate) = (truth.unwrap(), found.unwrap());
            assert!(found.low <= found.value && found.value <= found.high, "{found:?}");
            *count += u32::from(found.low <= truth.value * (1.0 + 1e-12) && truth.value <= found.high * (1.0 + 1e-12));
        }
    }
    covered
}

#[track_caller]
fn enough(covered: [u32; 3]) {
    assert!(
        covered.iter().all(|runs| *runs >= 95),
        "distinct, effective, top share: {covered:?}"
    );
}

#[test]
fn clients_alike_are_covered() {
    enough(covered(&[2, 1], 1000, |rng, _| rng.u64(1..4)));
    enough(covered(&[2], 400, |_, _| 1));
}

#[test]
fn a_long_tail_is_covered() {
    // Pareto with index 1.2, cut at 200.
    enough(covered(&[3, 2], 1500, |rng, _| {
        (rng.f64().max(1e-9).powf(-1.0 / 1.2) as u64).min(200)
    }));
}

#[test]
fn one_address_of_many_clients_is_covered() {
    enough(covered(
        &[2, 2],
        1000,
        |rng, client| if client == 0 { 2000 } else { rng.u64(1..4) },
    ));
}

#[test]
fn a_heavy_client_is_found_outside_the_sample() {
    let all = population(&[2, 2], 1000, 1, |_, client| if client < 2 { 1500 } else { 1 });
    let found = view(&sampled(&all, 4));
    let first = &found.clients.heaviest[0];
    assert!(
        (first.share.low..=first.share.high).contains(&(1500.0 / 3998.0)),
        "{first:?}"
    );
    assert!(first.share.high - first.share.low < 0.01, "{first:?}");
    let heavy: f64 = found.heavy.iter().sum();
    assert!((heavy - 3000.0).abs() < 10.0, "{heavy}");
}

#[test]
fn sketches_are_taken_at_their_word() {
    let mut input = sampled(&population(&[2], 500, 1, |_, _| 2), 3);
    let sketch = Estimate {
        value: 510.0,
        low: 480.0,
        high: 540.0,
    };
    input.endpoints[0].distinct = Some(sketch);
    if let Some(clients) = &mut input.clients {
        clients.distinct = Some(sketch);
    }
    let found = view(&input);
    assert_eq!(
        (found.clients.distinct, found.endpoint_clients[0]),
        (sketch, Some(sketch))
    );
    let other = found.endpoint_clients[1].unwrap();
    assert!(
        other.low <= 500.0 && 250.0 <= other.high && other.low < other.high,
        "{other:?}"
    );
}

#[test]
fn nested_thinning_is_sampling_from_the_start() {
    let all = population(&[3, 2], 2000, 4, |rng, _| rng.u64(1..6));
    let twice = sampled(&sampled(&all, 1), 3);
    let (mut once, mut unfiltered) = (sampled(&all, 3), all.clone());
    if let (Some(twice), Some(once)) = (&twice.clients, &mut once.clients) {
        once.heavy.clone_from(&twice.heavy);
    }
    if let (Some(once), Some(unfiltered)) = (&once.clients, &mut unfiltered.clients) {
        unfiltered.heavy.clone_from(&once.heavy);
        unfiltered.sampling_shift = 3;
    }
    let (twice, once, unfiltered) = (view(&twice), view(&once), view(&unfiltered));
    for other in [&once, &unfiltered] {
        assert_eq!(twice.clients, other.clients);
        assert_eq!(twice.affinity, other.affinity);
        assert_eq!((twice.design, &twice.heavy), (other.design, &other.heavy));
    }
}
