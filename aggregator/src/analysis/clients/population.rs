//! Who opened how many flows within the window? Single flows of a sample and lists of heavy clients enter; one population leaves,
//! in which each client stands for itself or for as many as were left out of the sample.
//!
//! Two strata: heavy clients are told whether or not they are in the sample, and count once; all others stand for 2^k. So sums
//! over all clients are estimated without bias (D. G. Horvitz and D. J. Thompson, Journal of the American Statistical
//! Association 47, 1952).

use super::super::input::{ClientsInput, HeavyInput, ServiceInput};
use super::super::shares::Split;
use super::history::{History, Places};
use crate::report::Estimate;
use std::collections::BTreeMap;

/// So long is a full list of heavy clients of an endpoint: a client that is not in it may still have opened some.
const FULL_LIST: usize = 32;

/// Flows within the window of a client, or of several alike.
#[derive(Debug, Clone)]
pub(super) struct Client {
    pub id: u64,
    pub flows: Estimate,
    /// Clients that it stands for.
    pub weight: f64,
    /// Each of its flows is known.
    pub known: bool,
    /// Flows at each endpoint: from and to in [`Population::cells`].
    cells: (usize, usize),
}

/// All clients of a Service port within the window.
pub(super) struct Population {
    /// Most flows first.
    pub clients: Vec<Client>,
    cells: Vec<(u32, f64)>,
    /// X, all flows within the window, of whatever client.
    pub flows: f64,
    /// Clients in the sample, and their flows.
    pub seen: u64,
    pub seen_flows: u64,
    /// Clients of the sample at each endpoint.
    pub seen_at: Vec<u64>,
    /// Clients that one of the sample stands for.
    pub scale: f64,
    /// A client that is not known may have opened so many.
    pub unknown_most: f64,
}

impl Population {
    /// Of the flows that opened within the window at ready endpoints.
    pub fn of(input: &ServiceInput, told: &ClientsInput, history: &History, places: &Places, split: &Split) -> Self {
        let window = input.window.from_ms..=input.window.to_ms;
        let scale = f64::from(told.sampling_shift.min(64)).exp2();
        let mut all = Self {
            clients: Vec::new(),
            cells: Vec::new(),
            flows: 0.0,
            seen: 0,
            seen_flows: 0,
            seen_at: vec![0; places.ready],
            scale,
            unknown_most: 0.0,
        };
        let counted = history
            .in_order(&history.by_node)
            .filter(|open| (open.place as usize) < places.ready && window.contains(&open.at_ms));
        for open in counted {
            all.count(open.client, open.place);
        }
        for client in &mut all.clients {
            let cells = &all.cells[client.cells.0..client.cells.1];
            client.flows = Estimate::exact(cells.iter().map(|(_, flows)| flows).sum());
            for (place, _) in cells {
                all.seen_at[*place as usize] += 1;
            }
        }
        all.seen = all.clients.len() as u64;
        all.flows = all.seen_flows as f64;
        if told.sampling_shift > 0 {
            all.add_heavy(&told.heavy);
            let sure = all.clients.iter().map(|client| client.flows.low).sum();
            all.flows = (split.flows as f64).max(sure);
        }
        all.clients
            .sort_unstable_by(|a, b| b.flows.value.total_cmp(&a.flows.value).then(a.id.cmp(&b.id)));
        all
    }

    /// A flow of the last client, or of a new one.
    fn count(&mut self, id: u64, place: u32) {
        self.seen_flows += 1;
        if self.clients.last().is_none_or(|last| last.id != id) {
            self.clients.push(Client {
                id,
                flows: Estimate::exact(0.0),
                weight: self.scale,
                known: true,
                cells: (self.cells.len(), self.cells.len()),
            });
        }
        let Some(client) = self.clients.last_mut() else {
            return;
        };
        // A client's opens are by node: the pod is one of the last.
        match self.cells[client.cells.0..]
            .iter_mut()
            .rev()
            .find(|(at, _)| *at == place)
        {
            Some((_, flows)) => *flows += 1.0,
            None => self.cells.push((place, 1.0)),
        }
        client.cells.1 = self.cells.len();
    }

    /// Heavy clients. One whose flows are known to within a factor of two counts once; of one that is in the sample as well,
    /// each flow is known.
    fn add_heavy(&mut self, heavy: &[HeavyInput]) {
        let mut lists: BTreeMap<u32, (usize, u64, u64)> = BTreeMap::new();
        let mut clients: BTreeMap<u64, Vec<&HeavyInput>> = BTreeMap::new();
        for row in heavy.iter().filter(|row| (row.place as usize) < self.seen_at.len()) {
            let sure = row.opened.saturating_sub(row.error);
            let (rows, least, error) = lists.entry(row.place).or_insert((0, u64::MAX, 0));
            *rows += 1;
            *least = sure.min(*least);
            *error = row.error.max(*error);
            clients.entry(row.client).or_default().push(row);
        }
        // What a client may have opened at an endpoint that does not list it.
        let unlisted =
            |(rows, least, error): &(usize, u64, u64)| (*error + if *rows < FULL_LIST { 0 } else { *least }) as f64;
        let unlisted_all: f64 = lists.values().map(unlisted).sum();
        let in_sample = self.clients.len();
        let light = self.clients.iter().map(|client| client.flows.value);
        self.unknown_most = light.fold(unlisted_all.max(1.0), f64::max);
        for (id, rows) in clients {
            let high: f64 = rows.iter().map(|row| row.opened as f64).sum();
            let low: f64 = rows.iter().map(|row| row.opened.saturating_sub(row.error) as f64).sum();
            let elsewhere = lists
                .iter()
                .filter(|(place, _)| rows.iter().all(|row| row.place != **place));
            let high = high + elsewhere.map(|(_, list)| unlisted(list)).sum::<f64>();
            if low < high / 2.0 {
                self.unknown_most = self.unknown_most.max(high);
                continue;
            }
            // The sample is ordered by client.
            if let Ok(at) = self.clients[..in_sample].binary_search_by_key(&id, |client| client.id) {
                self.clients[at].weight = 1.0;
                continue;
            }
            let first = self.cells.len();
            self.cells.extend(
                rows.iter()
                    .map(|row| (row.place, row.opened as f64 - row.error as f64 / 2.0)),
            );
            self.clients.push(Client {
                id,
                flows: Estimate {
                    value: (low + high) / 2.0,
                    low,
                    high,
                },
                weight: 1.0,
                known: false,
                cells: (first, self.cells.len()),
            });
        }
    }

    /// Flows of a client at each endpoint, as far as they are known.
    pub fn cells(&self, client: &Client) -> &[(u32, f64)] {
        &self.cells[client.cells.0..client.cells.1]
    }
}
