//! The interval of kappa covers the truth as often as it says, for clients of very unequal weight.

use super::*;
use crate::report::Stickiness;

const RUNS: u64 = 400;

/// Clients that open 1 to 40 flows. Each open is where the last one was with probability `kappa`, else anywhere; nodes have
/// unequal shares.
fn simulate(pods: &[usize], clients: u64, kappa: f64, seed: u64) -> ServiceInput {
    let mut rng = Rng::with_seed(seed);
    let places = pods.iter().sum::<usize>() as u32;
    let mut events = Vec::new();
    for client in 0..clients {
        let mut last = None;
        let flows = (1.0 / (1.0 - rng.f64() * 0.975)) as u64;
        for _ in 0..flows {
            let place = last.filter(|_| rng.f64() < kappa).unwrap_or_else(|| rng.u32(..places));
            last = Some(place);
            events.push(opened(events.len() as u64, hash(client), place));
        }
    }
    with_events(service(pods), events)
}

/// How many runs cover the truth in the tier.
fn covered(pods: &[usize], clients: u64, kappa: f64, tier: impl Fn(&ClientView) -> Option<Stickiness>) -> u64 {
    let covers = |seed: &u64| {
        let found = view(&simulate(pods, clients, kappa, *seed));
        let estimate = tier(&found).unwrap().kappa.unwrap();
        assert!(estimate.low <= estimate.value && estimate.value <= estimate.high);
        (estimate.low..=estimate.high).contains(&kappa)
    };
    (0..RUNS).filter(covers).count() as u64
}

#[test]
fn kappa_of_pods_is_covered() {
    for clients in [60, 300] {
        for kappa in [0.0, 0.5, 1.0] {
            let covered = covered(&[4], clients, kappa, |view| view.affinity.pod_tier);
            assert!(
                covered * 100 >= RUNS * 93,
                "{clients} clients, kappa {kappa}: {covered} of {RUNS}"
            );
        }
    }
}

#[test]
fn kappa_of_nodes_is_covered() {
    for kappa in [0.0, 0.5, 1.0] {
        let covered = covered(&[1, 2, 1], 200, kappa, |view| view.affinity.node_tier);
        assert!(covered * 100 >= RUNS * 93, "kappa {kappa}: {covered} of {RUNS}");
    }
}

#[test]
fn clients_that_are_half_sticky_each_in_their_own_way_are_covered() {
    // Half of the clients keep their pod, half do not: pairs of one client are anything but independent.
    let covers = |seed: &u64| {
        let mut rng = Rng::with_seed(*seed);
        let mut events = Vec::new();
        for client in 0..100_u64 {
            let sticky = rng.bool();
            let mut last = None;
            for _ in 0..20 {
                let place = last.filter(|_| sticky).unwrap_or_else(|| rng.u32(..4));
                last = Some(place);
                events.push(opened(events.len() as u64, hash(client), place));
            }
        }
        let found = view(&with_events(service(&[4]), events));
        let kappa = found.affinity.pod_tier.unwrap().kappa.unwrap();
        (kappa.low..=kappa.high).contains(&0.5)
    };
    let covered = (0..RUNS).filter(covers).count() as u64;
    assert!(covered * 100 >= RUNS * 93, "{covered} of {RUNS}");
}
