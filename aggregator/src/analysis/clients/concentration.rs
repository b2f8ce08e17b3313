//! Who opens the flows? A population of clients enters; how concentrated they are leaves, who is heavy, and which addresses look
//! like those of many clients.

use super::super::input::{ClientsInput, ServiceInput};
use super::super::shares::Split;
use super::estimates::Squares;
use super::history::{History, Places};
use super::pinning::{self, ONE_BY_ONE};
use super::population::{Client, Population};
use crate::report::{Clients, Estimate, HeavyClient, SharedAddresses};

/// Clients that are told one by one.
const TOP: usize = 10;

/// A client is heavy with this part of the flows of the Service, or of a node ...
const HEAVY_SHARE: f64 = 0.1;
/// ... and so many times the flows of the client in the middle.
const HEAVY_TIMES: f64 = 5.0;

/// An address looks like that of many clients when it has so many flows open at once: a device or a browser has a few. And when
/// that is so many times what the client in the middle has, as all clients of some protocols open several.
const SHARED_AT_ONCE: u32 = 8;
const SHARED_TIMES: u32 = 8;

/// What is needed to describe clients.
pub(super) struct Scene<'a> {
    pub input: &'a ServiceInput,
    pub told: &'a ClientsInput,
    pub history: &'a History,
    pub places: &'a Places<'a>,
    pub split: &'a Split<'a>,
    pub population: &'a Population,
    pub nodes_sticky: bool,
}

impl Scene<'_> {
    /// Everything that is said of clients.
    pub fn clients(&self) -> Clients {
        let population = self.population;
        let shared_from = self.shared_from();
        let row = |client: &Client| self.row(client, shared_from);
        Clients {
            sampling_shift: self.told.sampling_shift,
            flows: population.seen_flows,
            seen: population.seen,
            missing: self.told.missing,
            distinct: match self.told.distinct {
                Some(distinct) if self.told.sampling_shift > 0 => distinct,
                _ => population.distinct(population.seen),
            },
            effective: population.squares().as_ref().map(Squares::effective),
            top_share: population.top_share(TOP),
            heaviest: population.clients.iter().take(TOP).map(row).collect(),
            pinned_peak_ratio: self.pinned_peak_ratio(),
            shared_addresses: self.shared_addresses(shared_from),
        }
    }

    /// Distinct clients of each ready endpoint.
    pub fn by_endpoint(&self) -> Vec<Option<Estimate>> {
        let seen = self.input.endpoints.iter().zip(&self.population.seen_at);
        seen.map(|(endpoint, seen)| match endpoint.distinct {
            Some(distinct) if self.told.sampling_shift > 0 => Some(distinct),
            // Nobody of the sample came, and nobody else either.
            _ if endpoint.new == 0 && *seen == 0 => Some(Estimate::exact(0.0)),
            _ => Some(self.population.distinct(*seen)),
        })
        .collect()
    }

    /// Flows of heavy clients at each ready endpoint: everywhere of those that are heavy in the Service, else on the nodes where
    /// they are.
    pub fn heavy(&self) -> Vec<f64> {
        let mut heavy = vec![0.0; self.places.ready];
        let population = self.population;
        let enough = match population.clients.as_slice() {
            [_] => 0.0,
            _ => HEAVY_TIMES * population.median(),
        };
        let node_of = |place: u32| self.places.all[place as usize].node;
        // In a sample, flows of the nodes as counted; else as told, so that lost events do not matter.
        let mut on_nodes = vec![0.0; self.places.nodes.len()];
        if population.scale > 1.0 {
            for (node, count) in self.split.node_counts.iter().enumerate() {
                on_nodes[node] = *count as f64;
            }
        } else {
            for (place, flows) in population.clients.iter().flat_map(|client| population.cells(client)) {
                on_nodes[node_of(*place)] += flows;
            }
        }
        // Most flows first: no client after the first that has too few can be heavy.
        for client in population
            .clients
            .iter()
            .take_while(|client| client.flows.value >= enough)
        {
            let mut cells = population.cells(client).to_vec();
            cells.sort_by_key(|(place, _)| node_of(*place));
            let everywhere = client.flows.value >= HEAVY_SHARE * population.flows;
            for on_node in cells.chunk_by(|a, b| node_of(a.0) == node_of(b.0)) {
                let here: f64 = on_node.iter().map(|(_, flows)| flows).sum();
                let node = node_of(on_node[0].0);
                if everywhere || (here >= enough && here >= HEAVY_SHARE * on_nodes[node]) {
                    on_node
                        .iter()
                        .for_each(|(place, flows)| heavy[*place as usize] += flows);
                }
            }
        }
        for (flows, count) in heavy.iter_mut().zip(&self.split.counts) {
            *flows = flows.min(*count as f64);
        }
        heavy
    }

    fn row(&self, client: &Client, shared_from: u32) -> HeavyClient {
        let cells = self.population.cells(client);
        let flows = self.population.flows;
        let share = |of: f64| (of / flows).min(1.0);
        let at_once = client.known.then(|| self.history.at_once(client.id));
        let mut nodes: Vec<usize> = cells
            .iter()
            .map(|(place, _)| self.places.all[*place as usize].node)
            .collect();
        nodes.sort_unstable();
        nodes.dedup();
        let address = self.told.addresses.iter().find(|(id, _)| *id == client.id);
        HeavyClient {
            client: address.map_or_else(|| format!("{:016x}", client.id), |(_, address)| address.clone()),
            share: Estimate {
                value: share(client.flows.value),
                low: share(client.flows.low),
                high: share(client.flows.high),
            },
            nodes: client.known.then_some(nodes.len() as u32),
            pods: client.known.then_some(cells.len() as u32),
            at_once,
            looks_shared: at_once.is_some_and(|at_once| at_once >= shared_from),
        }
    }

    /// From how many flows at once on an address looks shared.
    fn shared_from(&self) -> u32 {
        let mut all: Vec<u32> = self
            .history
            .at_once
            .iter()
            .map(|(_, most)| *most)
            .filter(|most| *most > 0)
            .collect();
        all.sort_unstable();
        let median = all.get(all.len().saturating_sub(1) / 2).copied().unwrap_or(1);
        SHARED_AT_ONCE.max(median.saturating_mul(SHARED_TIMES))
    }

    fn shared_addresses(&self, shared_from: u32) -> Option<SharedAddresses> {
        let (mut addresses, mut flows) = (0.0, 0.0);
        for client in self.population.clients.iter().filter(|client| client.known) {
            if self.history.at_once(client.id) >= shared_from {
                addresses += client.weight;
                flows += client.weight * client.flows.value;
            }
        }
        (addresses > 0.0).then(|| SharedAddresses {
            addresses: addresses as u64,
            share: (flows / self.population.flows).min(1.0),
        })
    }

    fn pinned_peak_ratio(&self) -> Option<f64> {
        let flows = self.population.flows;
        if flows <= 0.0 || self.split.flows == 0 {
            return None;
        }
        // Clients of a sample may stand for more flows than there are.
        let mut left = 1.0;
        let share = |of: f64| {
            let share = (of / flows).min(left);
            left -= share;
            share
        };
        let shares: Vec<f64> = self.population.heaviest(ONE_BY_ONE).map(share).collect();
        let nodes = self.split.node_shares.iter().zip(&self.split.node_endpoints);
        let nodes = nodes.map(|(share, pods)| pinning::Node {
            share: *share,
            pods: *pods as usize,
        });
        Some(pinning::peak_ratio(&shares, nodes.collect(), self.nodes_sticky))
    }
}
