//! Session affinity as kube-proxy keeps it, simulated: with a list of 100 addresses a pod, without one, and not at all.

use super::*;
use crate::report::AffinityCode;

/// `clients` clients come back in random order, `rounds` times each on average, over nodes that a balancer treats alike.
fn run(pods: &[usize], clients: u64, rounds: u64, list: usize, asked: AffinityInput, seed: u64) -> ServiceInput {
    let mut rng = Rng::with_seed(seed);
    let mut proxy = Proxy::new(pods, list);
    let opens = clients * rounds;
    let events = (0..opens).map(|i| {
        let client = hash(rng.u64(..clients));
        let node = rng.usize(..pods.len());
        opened(i * HOUR / opens, client, proxy.open(&mut rng, client, node))
    });
    let mut input = with_events(service(pods), events.collect());
    input.affinity = asked;
    input
}

const THREE_HOURS: AffinityInput = AffinityInput::ClientIp(10_800);

#[test]
fn a_full_list_breaks_affinity() {
    // 600 clients over two pods of one node: 300 a pod, and a pod remembers 100.
    let found = view(&run(&[2], 600, 10, 100, THREE_HOURS, 1)).affinity;
    let breaks = found.breaks.unwrap();
    assert_eq!(found.code, AffinityCode::Broken, "{}", found.sentence);
    assert!(breaks.list_limit, "{breaks:?}");
    // A client whose pod remembers it never lands elsewhere.
    assert_eq!(breaks.within_list.broken, 0, "{breaks:?}");
    assert!(
        breaks.within_list.pairs > 100 && breaks.beyond_list.broken > 1000,
        "{breaks:?}"
    );
    for part in [
        "keeps 100 addresses a pod (xt_recent, ip_list_tot)",
        "nftables",
        " clients came to each pod",
        "; after fewer, 0 of ",
    ] {
        assert!(found.sentence.contains(part), "{part} is not in {}", found.sentence);
    }
}

#[test]
fn clients_that_come_in_turn_are_all_forgotten() {
    // Each of 300 clients comes back after all the others: none is within the list, and picks are as good as independent.
    let mut rng = Rng::with_seed(5);
    let mut proxy = Proxy::new(&[2], 100);
    let events = (0..3000).map(|i| opened(i * 1000, hash(i % 300), proxy.open(&mut rng, hash(i % 300), 0)));
    let mut input = with_events(service(&[2]), events.collect());
    input.affinity = THREE_HOURS;
    let found = view(&input).affinity;
    let breaks = found.breaks.unwrap();
    assert!(found.code == AffinityCode::Broken && breaks.list_limit, "{breaks:?}");
}

#[test]
fn a_sample_shows_the_limit_as_well() {
    let mut input = run(&[2], 2400, 10, 100, THREE_HOURS, 2);
    if let Some(clients) = &mut input.clients {
        clients.sampling_shift = 2;
    }
    let found = view(&input).affinity;
    let breaks = found.breaks.unwrap();
    assert!(found.code == AffinityCode::Broken && breaks.list_limit, "{breaks:?}");
}

#[test]
fn without_a_limit_it_is_as_configured() {
    for pods in [&[2][..], &[3, 3, 1, 1, 1, 1, 1]] {
        let found = view(&run(pods, 600, 10, usize::MAX, THREE_HOURS, 3)).affinity;
        assert_eq!(found.code, AffinityCode::AsConfigured, "{}", found.sentence);
        assert_eq!(found.breaks.unwrap().broken, 0);
        assert!(
            found.sentence.contains("(100.0 %) landed on the same pod"),
            "{}",
            found.sentence
        );
        assert_eq!(
            found.sentence.contains("bound to another pod on each"),
            pods.len() > 1,
            "{}",
            found.sentence
        );
    }
}

#[test]
fn affinity_that_is_not_there_is_broken_without_a_limit() {
    let found = view(&run(&[3], 60, 30, 0, THREE_HOURS, 4)).affinity;
    assert_eq!(found.code, AffinityCode::Broken, "{}", found.sentence);
    assert!(!found.breaks.unwrap().list_limit);
}

#[test]
fn sticky_though_nobody_asked() {
    let spread = view(&run(&[3, 2], 300, 8, 0, AffinityInput::None, 6));
    assert_eq!(
        spread.affinity.code,
        AffinityCode::AsConfigured,
        "{}",
        spread.affinity.sentence
    );
    assert!(!spread.pods_sticky && spread.affinity.breaks.is_none());
    let sticky = view(&run(&[3, 2], 300, 8, usize::MAX, AffinityInput::None, 6));
    assert_eq!(
        sticky.affinity.code,
        AffinityCode::StickyUnasked,
        "{}",
        sticky.affinity.sentence
    );
    assert!(sticky.pods_sticky && !sticky.nodes_sticky);
    assert_eq!(sticky.affinity.nodes.len(), 2);
}

#[test]
fn an_idle_pod_makes_nobody_sticky() {
    // The node's second pod gets nothing: all come to the first, and nobody knows whether they are bound to it.
    let mut input = run(&[1], 100, 5, 0, AffinityInput::None, 7);
    input.endpoints.push(EndpointInput {
        pod: "idle".to_owned(),
        ..EndpointInput::default()
    });
    let found = view(&input);
    assert_eq!(
        found.affinity.code,
        AffinityCode::Undetermined,
        "{}",
        found.affinity.sentence
    );
    assert_eq!(found.affinity.pod_tier.unwrap().kappa, None);
    assert!(!found.pods_sticky);
}

#[test]
fn few_returns_decide_nothing() {
    for asked in [AffinityInput::None, THREE_HOURS] {
        let found = view(&run(&[2], 4, 1, usize::MAX, asked, 8)).affinity;
        assert_eq!(found.code, AffinityCode::Undetermined, "{}", found.sentence);
    }
}

#[test]
fn one_pod_a_node_is_kept_anyway() {
    for asked in [AffinityInput::None, THREE_HOURS] {
        let found = view(&run(&[1, 1], 50, 10, usize::MAX, asked, 9)).affinity;
        assert_eq!(found.code, AffinityCode::AsConfigured, "{}", found.sentence);
        assert_eq!(found.pod_tier, None);
    }
}
