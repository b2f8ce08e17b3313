//! Clients as they may be known, made by hand.

use super::*;
use crate::analysis::design::{ClientView, Design};
use crate::report::{Affinity, AffinityBreaks, AffinityCode, Clients, Estimate, HeavyClient, Rank, Stickiness};

/// Clients of whom nothing is known but that each of `input`'s flows is another's.
pub(super) fn view(input: &ServiceInput) -> ClientView {
    ClientView {
        clients: Clients {
            sampling_shift: 0,
            flows: 0,
            seen: 0,
            missing: 0,
            distinct: Estimate::exact(0.0),
            effective: None,
            top_share: None,
            heaviest: Vec::new(),
            pinned_peak_ratio: None,
            shared_addresses: None,
        },
        affinity: Affinity {
            code: AffinityCode::AsConfigured,
            sentence: "Clients are spread, as the Service asks for.".to_owned(),
            pod_tier: None,
            node_tier: None,
            nodes: Vec::new(),
            breaks: None,
        },
        endpoint_clients: vec![None; input.endpoints.len()],
        design: Design::default(),
        heavy: vec![0.0; input.endpoints.len()],
        pods_sticky: false,
        nodes_sticky: false,
        node_pairs: (0, 0),
    }
}

/// One client with this share of the flows, and what it opened at each endpoint.
pub(super) fn heavy(mut view: ClientView, share: f64, flows: &[f64]) -> ClientView {
    view.heavy = flows.to_vec();
    view.clients.effective = Some(Estimate::exact(1.0 / (share * share)));
    view.clients.top_share = Some(Estimate::exact(share));
    view.clients.distinct = Estimate::exact(400.0);
    view.clients.heaviest = vec![HeavyClient {
        client: "192.0.2.1".to_owned(),
        share: Estimate::exact(share),
        nodes: None,
        pods: None,
        at_once: None,
        looks_shared: true,
    }];
    view
}

/// Returns of clients, so many on the same place.
pub(super) fn stickiness(pairs: u64, observed: f64, chance: f64) -> Stickiness {
    Stickiness {
        pairs,
        clients: pairs,
        observed,
        chance,
        kappa: (chance < 1.0).then(|| Estimate::exact((observed - chance) / (1.0 - chance))),
    }
}

/// Session affinity that lists of 100 addresses break.
pub(super) fn broken(mut view: ClientView) -> ClientView {
    view.affinity.code = AffinityCode::Broken;
    view.affinity.breaks = Some(AffinityBreaks {
        pairs: 600,
        broken: 290,
        gone: 0,
        median_gap_seconds: Some(41.0),
        within_list: Rank { pairs: 300, broken: 0 },
        beyond_list: Rank {
            pairs: 300,
            broken: 290,
        },
        list_limit: true,
    });
    view
}
