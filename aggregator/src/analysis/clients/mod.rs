//! What clients do. Single flows of clients enter; who they are leaves, whether they keep their pod and node, and what that
//! does to the tests of the shares.
//!
//! - history: the opens of each client in order
//! - stickiness, kappa: do they find the same place again?
//! - breaks, affinity: is session affinity as the Service says?
//! - population, estimates, concentration: how concentrated are they, also from a sample?
//! - pinning: how uneven would pods be if each client were bound to one?
//! - interval: 95 % intervals

mod affinity;
mod breaks;
mod concentration;
mod estimates;
mod history;
pub(super) mod interval;
mod kappa;
mod pinning;
mod population;
mod stickiness;

#[cfg(test)]
mod tests;

use super::design::{ClientView, Design};
use super::input::{AffinityInput, ServiceInput};
use super::shares::Split;
use crate::report::{NodeStickiness, Stickiness};
use affinity::{Case, is_sticky};
use concentration::Scene;
use estimates::Squares;
use history::{History, Places};
use population::Population;
use stickiness::Tier;

/// What is known of the clients of `split`, the new flows of the window; `None` when nobody tells.
pub(super) fn view(input: &ServiceInput, split: &Split) -> Option<ClientView> {
    let told = input.clients.as_ref()?;
    let places = Places::of(input);
    let history = History::of(told, &places, input.asked_from_ms);
    let census = told.sampling_shift == 0;
    let on_pods = Tier::of_pods(&history, &places, census);
    let on_nodes = Tier::of_nodes(&history, &places, census);
    let pods = on_pods.whole();
    let nodes = on_nodes.whole().filter(|_| places.nodes.len() > 1);
    let population = Population::of(input, told, &history, &places, split);
    let mut by_node: Vec<NodeStickiness> = (0..places.nodes.len())
        .filter_map(|node| {
            Some(NodeStickiness {
                node: places.nodes[node].name.to_owned(),
                stickiness: on_pods.group(node)?,
            })
        })
        .collect();
    by_node.sort_by(|a, b| a.node.cmp(&b.node));
    let breaks = match input.affinity {
        AffinityInput::None => None,
        AffinityInput::ClientIp(seconds) => Some(breaks::breaks(
            &history,
            &places,
            u64::from(seconds) * 1000,
            population.scale,
            pods.map(|pods| pods.chance),
        )),
    };
    let scene = Scene {
        input,
        told,
        history: &history,
        places: &places,
        split,
        population: &population,
        nodes_sticky: is_sticky(nodes),
    };
    let affinity = Case {
        asked: input.affinity,
        pods,
        nodes,
        by_node,
        breaks,
        node_count: input.nodes.len(),
        lone_pods: places.nodes.iter().all(|node| node.ready < 2),
        clients_per_pod: clients_per_pod(&history, &places) * population.scale,
    };
    Some(ClientView {
        clients: scene.clients(),
        affinity: affinity.judge(),
        endpoint_clients: scene.by_endpoint(),
        design: design(&population, &places, pods, nodes),
        heavy: scene.heavy(),
        pods_sticky: is_sticky(pods),
        nodes_sticky: is_sticky(nodes),
        node_pairs: nodes.map_or((0, 0), |nodes| {
            (nodes.pairs, (nodes.observed * nodes.pairs as f64).round() as u64)
        }),
    })
}

/// How much less than independent flows those of the window say, by tier.
fn design(population: &Population, places: &Places, pods: Option<Stickiness>, nodes: Option<Stickiness>) -> Design {
    // The part of a client's flows that stays together; none unless it is seen.
    let kept = |tier: Option<Stickiness>| match tier.and_then(|tier| tier.kappa) {
        Some(kappa) if kappa.low > 0.0 => kappa.value.min(1.0),
        _ => 0.0,
    };
    let effect = |squares: Option<Squares>, kappa| squares.map_or(1.0, |squares| squares.design_effect(kappa));
    let nodes = effect(population.squares(), kept(nodes));
    // On each node a client is bound anew.
    let on_node = |place: u32| places.all[place as usize].node;
    let within = effect(population.squares_by_node(on_node), kept(pods));
    Design {
        whole: nodes.max(within),
        nodes,
        within,
    }
}

/// Distinct clients of a pod that was opened to, on average, on nodes with a choice of pods.
fn clients_per_pod(history: &History, places: &Places) -> f64 {
    let mut last = vec![None; places.all.len()];
    let mut clients = vec![0_u64; places.all.len()];
    for open in history.in_order(&history.by_client) {
        let at = open.place as usize;
        if places.nodes[places.all[at].node].places > 1 && last[at] != Some(open.client) {
            last[at] = Some(open.client);
            clients[at] += 1;
        }
    }
    let used = clients.iter().filter(|clients| **clients > 0).count();
    clients.iter().sum::<u64>() as f64 / used.max(1) as f64
}
